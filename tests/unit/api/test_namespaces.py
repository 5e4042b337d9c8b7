"""Can an InferenceDeployment reach anything in another namespace? There is no field to name one by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import scenes
from plimsoll.api.inspection_ask import InspectionSeen
from plimsoll.api.schema import inference_deployment_crd
from plimsoll.decide import Desired, Manifest, Observed, decide

OURS = "team-a"
REFERENCES = ("secretKeyRef", "configMapKeyRef", "persistentVolumeClaim", "imagePullSecrets")


def spec_schema() -> dict[str, Any]:
    version = inference_deployment_crd()["spec"]["versions"][0]
    spec: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


def fields(schema: dict[str, Any], path: str = "spec") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field that the API server takes in a spec."""
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}", inner
        yield from fields(inner, f"{path}.{name}")
    if "items" in schema:
        yield from fields(schema["items"], f"{path}[]")


def full() -> Manifest:
    """An object that names one of everything it can name."""
    raw = scenes.example("mixed-fleet")
    raw["metadata"]["namespace"] = OURS
    raw["spec"]["model"] |= {"uri": "pvc://claim/model", "facts": {"configMap": {"name": "facts"}}}
    del raw["spec"]["model"]["facts"]
    raw["spec"]["gateway"] = {"enabled": True}
    raw["spec"]["worker"] = {
        "imagePullSecrets": [{"name": "registry"}],
        "hfTokenSecret": {"name": "hub", "key": "token"},
    }
    raw["spec"]["engines"]["vllm"]["env"] = [
        {"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}}
    ]
    return raw


def think(raw: Manifest) -> Desired:
    seen = InspectionSeen(image="plimsoll/plimsoll:1")
    observed = Observed(deployment=raw, inventory=scenes.MIXED, inspection=seen)
    return decide(observed, now_seconds=scenes.NOON)


def written(desired: Desired) -> list[Manifest]:
    jobs = (desired.read_files, desired.keep_facts, desired.probe, desired.keep_probes)
    return [*desired.apply, *(each for each in jobs if each is not None)]


def inside(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of an object with its path."""
    yield path, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from inside(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from inside(inner, f"{path}[]")


def test_no_field_of_a_spec_names_a_namespace() -> None:
    found = dict(fields(spec_schema()))
    assert len(found) > 80
    assert [path for path in found if "namespace" in path.lower()] == []


def test_only_facts_are_taken_as_they_are() -> None:
    """Elsewhere the API server drops what the schema does not name; facts never reach a pod."""
    kept = [
        path
        for path, schema in fields(spec_schema())
        if schema.get("x-kubernetes-preserve-unknown-fields")
    ]
    assert kept == ["spec.model.facts.inline.model", "spec.model.facts.inline.gguf"]


def test_everything_that_is_written_is_in_the_objects_own_namespace() -> None:
    raw = full()
    for desired in (think(raw), think(raw | {"metadata": raw["metadata"] | {"generation": 2}})):
        assert {OURS} == {each["metadata"]["namespace"] for each in written(desired)}
        assert len(written(desired)) >= 5


def test_no_reference_in_a_pod_has_a_namespace_and_no_volume_is_of_another_kind() -> None:
    volumes: set[str] = set()
    references = 0
    for each in written(think(full())):
        for path, value in inside({k: v for k, v in each.items() if k != "metadata"}):
            assert not path.endswith(".namespace"), path
            references += path.rpartition(".")[2] in REFERENCES
            if path.endswith(".volumes[]"):
                volumes |= set(value) - {"name"}
    assert references >= 6
    assert volumes <= {"persistentVolumeClaim", "emptyDir", "downwardAPI", "hostPath", "image"}
    assert "persistentVolumeClaim" in volumes


@pytest.mark.parametrize(
    "name", ["team-b/secret", "../team-b", "team-b.", "-x", "a b", "a\n", "A", ""]
)
@pytest.mark.parametrize(
    "path",
    [
        "model.facts.configMap.name",
        "worker.imagePullSecrets.0.name",
        "worker.hfTokenSecret.name",
        "engines.vllm.env.0.valueFrom.secretKeyRef.name",
        "gateway.keysSecret",
    ],
)
def test_a_name_that_is_more_than_a_name_is_refused(path: str, name: str) -> None:
    raw = full()
    raw["spec"]["model"]["facts"] = {"configMap": {"name": "facts"}}
    inner: Any = raw["spec"]
    *way, last = path.split(".")
    for part in way:
        inner = inner[int(part)] if part.isdecimal() else inner[part]
    inner[last] = name
    told = scenes.condition(think(raw), "Planned")
    assert told is not None
    assert "SpecInvalid" == told["reason"]


@pytest.mark.parametrize(
    "uri", ["pvc://team-b/claim", "pvc://team-b/claim/model", "pvc://claim/team-b/model"]
)
def test_a_claim_with_another_namespace_before_it_is_a_claim_of_that_name_here(uri: str) -> None:
    raw = full()
    raw["spec"]["model"]["uri"] = uri
    first = uri.removeprefix("pvc://").partition("/")[0]
    found = {
        value["claimName"]
        for each in written(think(raw))
        for path, value in inside(each)
        if path.endswith(".persistentVolumeClaim")
    }
    assert first in found
    assert found <= {first, "models", "claim"}


def test_pods_have_no_token_no_host_namespace_and_no_privilege() -> None:
    pods = [
        value
        for each in written(think(full()))
        for path, value in inside(each)
        if path.endswith(".template.spec")
    ]
    assert len(pods) >= 2
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        assert {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"}.isdisjoint(pod)
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            confined = container["securityContext"]
            assert confined["allowPrivilegeEscalation"] is False
            assert confined["readOnlyRootFilesystem"] is True
            assert confined["capabilities"] == {"drop": ["ALL"]}
            for mount in container.get("volumeMounts", ()):
                if mount["name"] in {"model", "gguf"}:
                    assert mount["readOnly"] is True
