"""What a site does not allow is refused with a way out, and workers that run stay."""

from __future__ import annotations

from typing import Any

import pytest

import scenes
from plimsoll.api.allowed import Allowed, bad_entries, covers, read_image
from plimsoll.api.inspection_ask import InspectionSeen
from plimsoll.decide import Desired, Manifest, Observed, decide

DIGEST = "sha256:" + "a" * 64


def think(raw: Manifest, **allowed: Any) -> Desired:
    observed = Observed(
        deployment=raw,
        inventory=scenes.MIXED,
        inspection=InspectionSeen(image="plimsoll/plimsoll:1"),
        allowed=Allowed(**allowed),
    )
    return decide(observed, now_seconds=scenes.NOON)


def planned(desired: Desired) -> tuple[str, str, str]:
    told = scenes.condition(desired, "Planned")
    assert told is not None
    return told["status"], told["reason"], told["message"]


def edge() -> Manifest:
    """The edge example without its gate."""
    limits = {"maxModelLen": 4096, "concurrency": 4}
    return scenes.example("edge-assistant", limits=limits, gateway={"enabled": False})


@pytest.mark.parametrize(
    ("image", "host", "path"),
    [
        ("vllm/vllm-openai:v0.22.1", "docker.io", "vllm/vllm-openai"),
        ("ubuntu", "docker.io", "library/ubuntu"),
        ("index.docker.io/vllm/vllm-openai", "docker.io", "vllm/vllm-openai"),
        ("docker.io/ubuntu", "docker.io", "library/ubuntu"),
        ("Registry.Example.com:5000/ml/a", "registry.example.com:5000", "ml/a"),
        ("localhost/a", "localhost", "a"),
        ("registry:5000/a", "registry:5000", "a"),
    ],
)
def test_an_image_is_read_as_container_runtimes_read_it(image: str, host: str, path: str) -> None:
    found = read_image(image)
    assert found is not None
    assert (host, path) == (found.host, found.path)


@pytest.mark.parametrize(
    "image",
    ["", "a/../b", "a//b", "Vllm/x", "a:b:c", "a@sha256:12", "r.io/a/", "r.io/-a", "a b", "r.io"],
)
def test_what_no_runtime_would_pull_is_on_no_list(image: str) -> None:
    assert not covers("r.io", image)


@pytest.mark.parametrize(
    ("entry", "image"),
    [
        ("registry.example.com", "registry.example.com/ml/vllm:1"),
        ("registry.example.com/*", "registry.example.com/ml/vllm:1"),
        ("registry.example.com:5000", "registry.example.com:5000/a"),
        ("registry.example.com/ml", f"registry.example.com/ml/a/b@{DIGEST}"),
        ("registry.example.com/ml/vllm", "registry.example.com/ml/vllm:9"),
        ("vllm", "vllm/vllm-openai:v0.22.1"),
        ("vllm/vllm-openai", "docker.io/vllm/vllm-openai:v0.22.1"),
        ("docker.io/vllm", "vllm/vllm-openai"),
        ("ubuntu", "docker.io/library/ubuntu:22.04"),
        ("library/ubuntu", "ubuntu:22.04"),
        ("vllm/vllm-openai:v0.22.1", "index.docker.io/vllm/vllm-openai:v0.22.1"),
        (f"r.io/a@{DIGEST}", f"r.io/a:any@{DIGEST}"),
    ],
)
def test_an_entry_stands_for_what_is_below_it(entry: str, image: str) -> None:
    assert covers(entry, image)


@pytest.mark.parametrize(
    ("entry", "image"),
    [
        ("registry.example.com", "registry.example.com.evil.io/a"),
        ("registry.example.com", "registry.example.com:5000/a"),
        ("registry.example.com", "evil.io/registry.example.com/a"),
        ("registry.example.com/ml", "registry.example.com/mlx/a"),
        ("registry.example.com/ml", "registry.example.com/a/ml"),
        ("vllm", "vllmx/vllm-openai"),
        ("vllm", "evil.io/vllm/vllm-openai"),
        ("vllm/vllm-openai:v0.22.1", "vllm/vllm-openai:v0.22.10"),
        ("vllm/vllm-openai:v0.22.1", "vllm/vllm-openai"),
        ("vllm/vllm-openai:v0.22.1", f"vllm/vllm-openai:v0.22.1@{DIGEST}"),
        (f"r.io/a@{DIGEST}", "r.io/a:1"),
        (f"r.io/a@{DIGEST}", f"r.io/b@{DIGEST}"),
        ("r.io/a", "r.io/a/../b"),
    ],
)
def test_an_entry_stands_for_nothing_beside_it(entry: str, image: str) -> None:
    assert not covers(entry, image)


def test_an_entry_that_nobody_can_read_is_told() -> None:
    assert bad_entries(("r.io", "vllm", "r.io/*")) == ()
    assert bad_entries(("r.io/A", "https://r.io", "*")) == ("r.io/A", "https://r.io", "*")


def test_a_folder_of_a_node_is_refused_where_the_site_says_no() -> None:
    status, reason, message = planned(think(edge(), host_path=False))
    assert ("False", "NotAllowedHere") == (status, reason)
    assert "hostPath:///srv/models" in message
    assert "write pvc://claim/folder or oci://image" in message
    assert "security.hostPath" in message
    assert "True" == planned(think(edge()))[0]


def test_no_job_reads_a_folder_that_workers_may_not_have() -> None:
    raw = edge()
    del raw["spec"]["model"]["id"]
    assert think(raw).read_files is not None
    assert think(raw, host_path=False).read_files is None
    assert "NotAllowedHere" == planned(think(raw, host_path=False))[1]


def test_no_job_mounts_an_image_that_is_not_on_the_list() -> None:
    raw = edge()
    raw["spec"]["model"] |= {"uri": "oci://evil.io/model:1#/m"}
    desired = think(raw, images=("registry.plant.local",))
    assert desired.read_files is None
    assert "model image 'evil.io/model:1'" in planned(desired)[2]


def test_an_image_that_is_not_on_the_list_is_refused_with_the_list() -> None:
    status, reason, message = planned(think(edge(), images=("registry.example.com/ml",)))
    assert ("False", "NotAllowedHere") == (status, reason)
    assert "registry.plant.local/vllm-openai:v0.22.1" in message
    assert "take one of registry.example.com/ml" in message
    assert "True" == planned(think(edge(), images=("registry.plant.local",)))[0]


def test_a_pools_own_image_counts_not_the_engines() -> None:
    raw = edge()
    raw["spec"]["pools"][0]["image"] = "evil.io/vllm:v0.22.1"
    assert "evil.io/vllm" in planned(think(raw, images=("registry.plant.local",)))[2]


def test_the_gateways_image_is_on_the_list_too() -> None:
    raw = edge()
    raw["spec"]["gateway"] = {"enabled": True, "image": "evil.io/haproxy:3"}
    assert (
        "gateway.image 'evil.io/haproxy:3'"
        in planned(think(raw, images=("registry.plant.local",)))[2]
    )


@pytest.mark.parametrize("word", ["--trust-remote-code", "--trust_remote_code", "--trust-rem"])
def test_a_models_own_code_runs_only_where_the_site_allows_it(word: str) -> None:
    raw = edge()
    raw["spec"]["pools"][0]["extraArgs"] = [word]
    status, reason, message = planned(think(raw))
    assert ("False", "NotAllowedHere") == (status, reason)
    assert "--trust-remote-code" in message
    assert "security.trustRemoteCode" in message
    allowed = think(raw, foreign_code=True)
    assert "True" == planned(allowed)[0]
    (made,) = scenes.deployments(allowed).values()
    assert word in made["spec"]["template"]["spec"]["containers"][0]["args"]


def test_a_site_that_lists_images_keeps_their_code_from_the_volume() -> None:
    raw = edge()
    raw["spec"]["pools"][0]["env"] = [{"name": "VLLM_LOGGING_CONFIG_PATH", "value": "/models/x"}]
    assert "True" == planned(think(raw))[0]
    assert "VLLM_LOGGING_CONFIG_PATH" in planned(think(raw, images=("registry.plant.local",)))[2]


@pytest.mark.parametrize(
    "key",
    [
        "cdi.k8s.io/mine",
        "container.apparmor.security.beta.kubernetes.io/engine",
        "io.kubernetes.cri/x",
    ],
)
def test_an_annotation_that_hands_out_devices_is_refused(key: str) -> None:
    raw = edge()
    raw["spec"]["worker"] = {"annotations": {key: "nvidia.com/gpu=all"}}
    assert key in planned(think(raw))[2]


@pytest.mark.parametrize(
    "allowed", [{"host_path": False}, {"images": ("registry.example.com",)}], ids=str
)
def test_workers_that_run_are_left_alone(allowed: dict[str, Any]) -> None:
    raw, children = scenes.applied(edge(), think(edge()))
    observed = Observed(
        deployment=raw,
        inventory=scenes.MIXED,
        children=scenes.with_ready(children),
        workers=(scenes.worker("rtx4090"),),
        allowed=Allowed(**allowed),
    )
    desired = decide(observed, now_seconds=scenes.NOON)
    assert ("False", "NotAllowedHere") == planned(desired)[:2]
    assert desired.delete == ()
    assert scenes.deployments(desired) == {}
    assert desired.status is not None
    assert desired.status["readyReplicas"] == 1
    again = observed.model_copy(update={"deployment": raw | {"status": desired.status}})
    assert decide(again, now_seconds=scenes.NOON + 60).status == desired.status


def test_a_forbidden_thing_in_one_pool_stops_that_pool_only() -> None:
    raw = scenes.example("mixed-fleet")
    raw["spec"]["pools"][0]["image"] = "evil.io/vllm:v0.22.1"
    desired = think(raw, images=("vllm", "ghcr.io/ggml-org"))
    assert {"a6000-single"} == set(scenes.deployments(desired))
