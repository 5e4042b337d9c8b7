"""A probe's pod is a worker that nobody is sent to, with one container more."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.render.labels import pool_selector, probe_name, retrieval_name, worker_selector_labels
from plimsoll.render.probe import (
    LONGEST_PROBE_SECONDS,
    ProbeJob,
    deadline_seconds,
    probe_manifest,
    retrieval_manifest,
)
from plimsoll.render.records import EnvVar, PoolWorkload, SecretKey
from plimsoll.render.workload import pool_manifests


def job_of(workload: PoolWorkload, **changes: Any) -> ProbeJob:
    """A probe of the pool."""
    job = ProbeJob(
        owner=workload.owner,
        probe="0123abcd",
        workload=workload,
        against="10.0.0.7:8000",
        length_tokens=16_384,
        image="plimsoll:1",
    )
    return job._replace(**changes)


def pod_of(job: ProbeJob) -> dict[str, Any]:
    """Its pod's template."""
    template: dict[str, Any] = probe_manifest(job)["spec"]["template"]
    return template


@pytest.fixture(params=["vllm", "llama_cpp"])
def workload(request: pytest.FixtureRequest) -> PoolWorkload:
    """Either engine's pool."""
    found: PoolWorkload = request.getfixturevalue(request.param)
    return found


def test_no_service_deployment_or_budget_picks_it(workload: PoolWorkload) -> None:
    labels = pod_of(job_of(workload))["metadata"]["labels"].items()
    for picks in (
        pool_selector(workload.owner.name, workload.pool),
        worker_selector_labels(workload.owner.name),
    ):
        assert not picks.items() <= labels


def test_the_engine_is_the_workers_own_without_what_only_workers_need(
    workload: PoolWorkload,
) -> None:
    (engine,) = pod_of(job_of(workload))["spec"]["initContainers"]
    worker = pool_manifests(workload)[0]["spec"]["template"]["spec"]["containers"][0]
    shared = {k: v for k, v in engine.items() if k != "restartPolicy"}
    assert shared.items() <= worker.items()
    assert {"livenessProbe", "readinessProbe", "lifecycle"} == worker.keys() - shared.keys()
    assert "startupProbe" in engine  # the probe's container starts when it has passed


def test_it_ends_by_itself_and_is_tried_once(workload: PoolWorkload) -> None:
    spec = probe_manifest(job_of(workload))["spec"]
    assert (0, "Never") == (spec["backoffLimit"], spec["template"]["spec"]["restartPolicy"])
    assert spec["activeDeadlineSeconds"] > 600


def test_longer_contexts_may_take_longer_up_to_a_bound(workload: PoolWorkload) -> None:
    times = [deadline_seconds(job_of(workload, length_tokens=n)) for n in (1, 10**5, 10**7)]
    assert times[0] < times[1] < times[2] == LONGEST_PROBE_SECONDS


def test_every_container_passes_restricted(workload: PoolWorkload) -> None:
    spec = pod_of(job_of(workload))["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    for container in (*spec["initContainers"], *spec["containers"]):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert {"drop": ["ALL"]} == context["capabilities"]
        assert context["readOnlyRootFilesystem"] is True


def test_the_engines_key_reaches_the_probe_by_reference_and_never_as_an_argument(
    vllm: PoolWorkload,
) -> None:
    key = EnvVar(name="VLLM_API_KEY", secret=SecretKey(name="keys", key="vllm"))
    spec = pod_of(job_of(vllm.model_copy(update={"env": (key,)})))["spec"]
    (asking,) = spec["containers"]
    reference = {"secretKeyRef": {"name": "keys", "key": "vllm"}}
    named = {each["name"]: each.get("valueFrom") for each in asking["env"]}
    assert reference == named["PLIMSOLL_API_KEY"] == named["PLIMSOLL_AGAINST_API_KEY"]
    assert "key" not in " ".join(asking["args"])


def test_equal_probes_are_equal_bytes_and_names_fit(workload: PoolWorkload) -> None:
    assert probe_manifest(job_of(workload)) == probe_manifest(job_of(workload))
    long = "a" * 250
    assert len(probe_name(long, "0123abcd")) <= 52
    assert len(retrieval_name(long)) <= 63
    assert probe_name(long, "1") != probe_name(long, "2")
    manifest = retrieval_manifest(workload.owner, {"retrieval.json": "{}"})
    assert f"{workload.owner.name}-retrieval" == manifest["metadata"]["name"]
    assert manifest["metadata"]["ownerReferences"]
