"""Models on a volume are read by a Job: headers only, once, and no worker moves for it."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from controlplane.cluster import Manifest
from objects import EIGHT_B, small
from patience import Patience, eventually, steadily
from stand_ins.inspector import end, inspection_pods, run_inspection
from world import World

IMAGE: Final = "plimsoll/plimsoll:story"
FOLDER: Final = "Meta-Llama-3-8B-Instruct"
CONFIG: Final = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def inspecting(world: World) -> Iterator[World]:
    """The same world, with an operator that may read files."""
    world.installed.stop()
    world.installed.start(PLIMSOLL_INSPECTION_IMAGE=IMAGE)
    yield world
    world.installed.stop()


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    """What lies on the claim: an 8B Llama in four files whose weights are holes, not bytes."""
    write_model(tmp_path / FOLDER)
    return tmp_path


def write_model(folder: Path, *, layers: int = 32) -> None:
    """A whole model with these layers; the files are as long as they should be and hold nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}))
    shapes = {
        "model.embed_tokens.weight": [128256, 4096],
        "model.norm.weight": [4096],
        "lm_head.weight": [128256, 4096],
    }
    for layer in range(layers):
        at = f"model.layers.{layer}"
        shapes |= {
            f"{at}.input_layernorm.weight": [4096],
            f"{at}.post_attention_layernorm.weight": [4096],
            f"{at}.self_attn.q_proj.weight": [4096, 4096],
            f"{at}.self_attn.k_proj.weight": [1024, 4096],
            f"{at}.self_attn.v_proj.weight": [1024, 4096],
            f"{at}.self_attn.o_proj.weight": [4096, 4096],
            f"{at}.mlp.gate_proj.weight": [14336, 4096],
            f"{at}.mlp.up_proj.weight": [14336, 4096],
            f"{at}.mlp.down_proj.weight": [4096, 14336],
        }
    names = list(shapes)
    placed: dict[str, str] = {}
    for part in range(4):
        file = f"model-{part + 1:05d}-of-00004.safetensors"
        held = {name: shapes[name] for name in names[part::4]}
        placed |= dict.fromkeys(held, file)
        write_safetensors(folder / file, held)
    index = {"weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def write_safetensors(path: Path, shapes: dict[str, list[int]]) -> None:
    """A header, and then a hole as long as the weights."""
    header: dict[str, Any] = {}
    at = 0
    for name, shape in shapes.items():
        size = 2
        for length in shape:
            size *= length
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


def unknown(world: World, **model: Any) -> Manifest:
    """A model that is in no catalogue, on the claim."""
    raw = small(world, workers=1)
    del raw["spec"]["model"]["id"]
    raw["spec"]["model"] |= {"name": "ours", **model}
    return raw


def facts_of(world: World) -> Manifest:
    """The ConfigMap with what was read."""
    found: Manifest = world.get(":configmaps/small-model-facts")
    return found


def jobs(world: World) -> list[Manifest]:
    """Jobs of the namespace."""
    return world.items("batch/v1:jobs")


def test_an_unknown_model_is_read_by_one_job_and_planned(inspecting: World, claim: Path) -> None:
    world = inspecting
    world.apply(unknown(world))
    planned = world.await_condition("small", "Planned", "False", reason="ReadingFacts")
    assert "are being read by Job small-inspect-" in planned["message"]
    assert world.condition("small", "Reconciling")["status"] == "True"
    assert "Stalled" not in {c["type"] for c in world.object("small")["status"]["conditions"]}
    pod = run_inspection(world, claims={"models": claim})
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert not [v for v in pod["spec"]["volumes"] if "projected" in v]
    assert pod["spec"]["containers"][0]["volumeMounts"] == [
        {"name": "model", "mountPath": "/models", "readOnly": True}
    ]
    world.await_ready("small", 1)
    facts = yaml.safe_load(facts_of(world)["data"]["facts.yaml"])
    assert facts["model"]["layers"] == 32
    assert facts["model"]["weights"]["totalBytes"] == 16_060_522_496
    plan = world.object("small")["status"]["pools"][0]["plan"]
    assert "ModelFiles" in {each["source"] for each in plan["provenance"]}
    eventually(
        lambda: jobs(world)[0]["status"].get("succeeded") == 1,
        within=Patience.CONDITION_SEEN,
        says="the Job controller counts the Job as done",
    )
    assert len(jobs(world)) == 1


def test_the_jobs_pod_passes_restricted_pod_security(inspecting: World) -> None:
    world = inspecting
    world.cluster.kubectl(
        "label", "namespace", world.namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    world.apply(unknown(world))
    eventually(
        lambda: inspection_pods(world), within=Patience.POOL_ROLLOUT, says="the pod was let in"
    )


def test_the_catalogue_serves_until_read_and_then_no_worker_moves(
    inspecting: World, claim: Path
) -> None:
    world = inspecting
    assert small(world)["spec"]["model"]["id"] == EIGHT_B
    world.apply(small(world))
    world.await_ready("small", 2)
    before = {pod["metadata"]["uid"] for pod in workers(world)}
    run_inspection(world, claims={"models": claim})
    eventually(lambda: facts_of(world), within=Patience.PLAN_WRITTEN, says="the facts are kept")
    steadily(
        lambda: {pod["metadata"]["uid"] for pod in workers(world)} == before,
        during=Patience.NOTHING_HAPPENS,
        says="the same workers run",
    )
    since = time.time()
    world.installed.stop()
    world.installed.start(PLIMSOLL_INSPECTION_IMAGE=IMAGE)
    world.kubectl("label", "infd/small", "seen=twice")
    steadily(
        lambda: not [r for r in world.writes(since) if r.use.namespace == world.namespace],
        during=Patience.NOTHING_HAPPENS,
        says="nothing is written",
    )


def test_a_missing_shard_is_refused_by_name_and_not_tried_again_unasked(
    inspecting: World, claim: Path
) -> None:
    world = inspecting
    shard = claim / FOLDER / "model-00003-of-00004.safetensors"
    aside = claim / "aside"
    shard.rename(aside)
    world.apply(unknown(world))
    run_inspection(world, claims={"models": claim})
    planned = world.await_condition("small", "Planned", "False", reason="ModelSourceUnusable")
    assert "/models/Meta-Llama-3-8B-Instruct" in planned["message"]
    assert "model-00003-of-00004.safetensors; finish the download" in planned["message"]
    assert world.deployments() == {}
    world.kubectl("label", "infd/small", "look=again")
    steadily(
        lambda: len(jobs(world)) == 1,
        during=Patience.NOTHING_HAPPENS,
        says="there is one Job",
    )
    aside.rename(shard)
    world.kubectl("annotate", "infd/small", "plimsoll.dev/inspect=2")
    run_inspection(world, claims={"models": claim})
    world.await_condition("small", "Planned", "True")
    assert len(jobs(world)) == 2


def test_heavier_files_at_the_same_place_are_noticed_when_asked(
    inspecting: World, claim: Path
) -> None:
    world = inspecting
    world.apply(unknown(world))
    run_inspection(world, claims={"models": claim})
    world.await_ready("small", 1)
    first = world.object("small")["status"]["pools"][0]["plan"]
    write_model(claim / FOLDER, layers=40)
    world.kubectl("annotate", "infd/small", "plimsoll.dev/inspect=again")
    run_inspection(world, claims={"models": claim})

    def noticed() -> bool:
        plan = world.object("small")["status"]["pools"][0]["plan"]
        return bool(plan["kv"]["poolTokens"] < first["kv"]["poolTokens"])

    eventually(noticed, within=Patience.PLAN_WRITTEN, says="the plan goes by the heavier files")
    assert (
        "The files changed since they were read" in world.condition("small", "Planned")["message"]
    )
    world.await_ready("small", 1)


def test_a_pod_that_ends_without_a_report_leaves_the_catalogue_in_force(inspecting: World) -> None:
    world = inspecting
    world.apply(small(world, workers=1))
    world.await_ready("small", 1)
    pod = eventually(
        lambda: inspection_pods(world), within=Patience.POOL_ROLLOUT, says="the pod is there"
    )[0]
    end(world, pod, [(137, "")])

    def told() -> bool:
        return "exit code 137" in str(world.condition("small", "Planned")["message"])

    eventually(told, within=Patience.CONDITION_SEEN, says="the failure is told")
    assert world.condition("small", "Planned")["status"] == "True"
    assert world.condition("small", "Ready")["status"] == "True"


def test_all_that_was_read_goes_with_the_object(inspecting: World, claim: Path) -> None:
    world = inspecting
    world.apply(unknown(world))
    run_inspection(world, claims={"models": claim})
    world.await_condition("small", "Planned", "True")
    world.kubectl("delete", "infd/small", "--timeout=20s")
    eventually(
        lambda: not jobs(world) and not inspection_pods(world) and not read_maps(world),
        within=Patience.POD_GONE,
        says="Job, pod and ConfigMap are gone",
    )


def read_maps(world: World) -> list[Manifest]:
    """ConfigMaps of ours."""
    return world.items(":configmaps", "plimsoll.dev/deployment=small")


def workers(world: World) -> list[Manifest]:
    """Pods that serve, not those that read."""
    return world.items(":pods", "app.kubernetes.io/component=worker")
