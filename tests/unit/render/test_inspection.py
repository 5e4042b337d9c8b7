"""The pod that reads files can do nothing else."""

from __future__ import annotations

from typing import Any

from plimsoll.facts.record import Named
from plimsoll.render.inspection import (
    InspectionJob,
    Source,
    facts_manifest,
    inspection_manifest,
)
from plimsoll.render.labels import POOL_LABEL, worker_selector_labels
from plimsoll.render.records import OwnerRef
from plimsoll.render.source import parse_source

OWNER = OwnerRef(
    api_version="plimsoll.dev/v1alpha1",
    kind="InferenceDeployment",
    name="chat",
    namespace="team",
    uid="0f5c",
)


def job(*uris: str, **changes: Any) -> dict[str, Any]:
    """The Job for one or two sources."""
    given = InspectionJob(
        owner=OWNER,
        inspection="0a1b2c3d",
        image="plimsoll:1",
        sources=tuple(
            Source("gguf" if uri.endswith(".gguf") else "model", parse_source(uri))
            for uri in uris or ("pvc://models/8b",)
        ),
        identity="org/chat",
        run_as_user=65532,
    )
    return inspection_manifest(given._replace(**changes))


def test_it_is_short_lived_and_tried_once() -> None:
    spec = job()["spec"]
    assert 0 == spec["backoffLimit"]
    assert 600 == spec["activeDeadlineSeconds"]
    assert 3600 == spec["ttlSecondsAfterFinished"]
    assert "Never" == spec["template"]["spec"]["restartPolicy"]


def test_the_pod_has_no_token_and_passes_restricted() -> None:
    pod = job()["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert {"type": "RuntimeDefault"} == pod["securityContext"]["seccompProfile"]
    (container,) = pod["containers"]
    assert {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    } == container["securityContext"]
    assert {"memory": "1Gi"} == container["resources"]["limits"]


def test_files_are_mounted_read_only_twice_over() -> None:
    pod = job()["spec"]["template"]["spec"]
    assert [
        {"name": "model", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}}
    ] == pod["volumes"]
    assert [{"name": "model", "mountPath": "/models", "readOnly": True}] == pod["containers"][0][
        "volumeMounts"
    ]


def test_each_source_has_a_container_and_a_report_of_its_own() -> None:
    pod = job("pvc://models/8b", "pvc://ggufs/8b-Q6_K.gguf")["spec"]["template"]["spec"]
    assert ["model", "gguf"] == [each["name"] for each in pod["containers"]]
    assert [
        ["facts", "/models/8b", "--id", "org/chat", "--report", "/dev/termination-log"],
        ["facts", "/models/8b-Q6_K.gguf", "--id", "org/chat", "--report", "/dev/termination-log"],
    ] == [each["args"] for each in pod["containers"]]
    assert {"/dev/termination-log"} == {e["terminationMessagePath"] for e in pod["containers"]}


def test_no_service_and_no_budget_take_it_for_a_worker() -> None:
    labels = job()["spec"]["template"]["metadata"]["labels"]
    assert POOL_LABEL not in labels
    assert not worker_selector_labels("chat").items() <= labels.items()
    assert "chat" == labels["plimsoll.dev/deployment"]


def test_files_of_a_node_are_read_where_workers_run() -> None:
    near = (Named(name="nvidia.com/gpu.product", value="NVIDIA-L40S"),)
    pod = job("hostPath:///srv/models/8b", near=near)["spec"]["template"]["spec"]
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = terms["nodeSelectorTerms"]
    assert [{"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-L40S"]}] == term[
        "matchExpressions"
    ]
    assert "affinity" not in job()["spec"]["template"]["spec"]
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in pod["tolerations"]


def test_job_and_facts_belong_to_the_object() -> None:
    for thing in (job(), facts_manifest(OWNER, {"a": "b"})):
        (owner,) = thing["metadata"]["ownerReferences"]
        assert ("0f5c", True) == (owner["uid"], owner["controller"])
        assert "chat" == thing["metadata"]["labels"]["plimsoll.dev/deployment"]


def test_names_stay_names_however_long_the_objects_is() -> None:
    long = OWNER.model_copy(update={"name": "x" * 200})
    assert len(job(owner=long)["metadata"]["name"]) <= 52
    assert len(facts_manifest(long, {})["metadata"]["name"]) <= 63
    other = job(owner=long, inspection="ffffffff")["metadata"]["name"]
    assert job(owner=long)["metadata"]["name"] != other
