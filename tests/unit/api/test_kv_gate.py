"""`auto` is 16 bit until a probe has passed on this model, release and dtype, and only where that gains something."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

import scenes
from plimsoll.api.kv_gate import ProbeSeen
from plimsoll.api.kv_gate_records import (
    PROBE_ANNOTATION,
    Probed,
    ProbeRecord,
    record_data,
    records_in,
)
from plimsoll.decide import Desired, Manifest
from plimsoll.facts.retrieval import RetrievalReport, RetrievalVerdict
from plimsoll.facts.worker import WorkerFacts
from plimsoll.render.labels import PLAN_ANNOTATION

IMAGE = "plimsoll:1"
POOL = "rtx4090"
LENGTH = 8192
ENDED = "2026-12-01T12:34:56Z"
SOURCE = "hostPath:///srv/models/Meta-Llama-3-8B-Instruct"
WHAT = Probed(source=SOURCE, engine="vllm", release="0.22.1", dtype="fp8")


def chat(tried: str | None = "fp8", **limits: Any) -> Manifest:
    """8B on one 24 GB card: 6 sequences at 16 bit, 12 at fp8."""
    raw = scenes.example("edge-assistant", limits={"maxModelLen": LENGTH, **limits})
    if tried is not None:
        raw["spec"]["kvCache"] = {"tryDtype": tried}
    return raw


def seen(**fields: Any) -> ProbeSeen:
    """With an image, so that probes may run."""
    return ProbeSeen(image=IMAGE, **fields)


def report(verdict: RetrievalVerdict, longest: int = LENGTH) -> RetrievalReport:
    """What a probe came to."""
    return RetrievalReport(verdict=verdict, sentence="200 of 200.", longest_tokens=longest)


def kept(verdict: RetrievalVerdict, what: Probed = WHAT, longest: int = LENGTH) -> Manifest:
    """A ConfigMap with one record."""
    record = ProbeRecord(probed=what, at=ENDED, report=report(verdict, longest))
    return {"metadata": {"name": "plant-assistant-retrieval"}, "data": record_data((record,))}


def worker_of(desired: Desired, **changes: Any) -> WorkerFacts:
    """A worker that serves with the pool's plan."""
    deployment = scenes.deployments(desired)[POOL]
    plan_id = deployment["metadata"]["annotations"][PLAN_ANNOTATION]
    return scenes.worker(POOL, plan_id=plan_id, address="10.0.0.7:8000", **changes)


def gate(desired: Desired) -> dict[str, Any]:
    """The pool's entry in the status."""
    assert desired.status is not None
    (entry,) = desired.status["retrieval"]
    return dict(entry)


def dtype(desired: Desired) -> str:
    """That the pool's workers are started with."""
    args = scenes.deployments(desired)[POOL]["spec"]["template"]["spec"]["containers"][0]["args"]
    return str(args[args.index("--kv-cache-dtype") + 1])


def probing(raw: Manifest) -> tuple[Manifest, Desired, WorkerFacts]:
    """The object after a look that made the probe's Job."""
    first = scenes.think(raw)
    worker = worker_of(first)
    raw, children = scenes.applied(raw, first)
    desired = scenes.think(raw, children=children, workers=[worker], probe=seen())
    assert desired.probe is not None
    return raw, desired, worker


def pod_of(job: Manifest, **status: Any) -> Manifest:
    """The Job's pod."""
    return {"metadata": {"name": "p", "labels": job["metadata"]["labels"]}, "status": status}


def ended(job: Manifest, message: str, code: int = 0) -> Manifest:
    """The Job's pod when the probe has ended."""
    state = {"terminated": {"exitCode": code, "message": message, "finishedAt": ENDED}}
    return pod_of(job, phase="Succeeded", containerStatuses=[{"name": "probe", "state": state}])


def test_who_tries_nothing_sees_nothing_of_it() -> None:
    desired = scenes.think(chat(None), probe=seen(cache=kept(RetrievalVerdict.PASSED)))
    assert desired.status is not None
    assert not desired.status.get("retrieval")
    assert ("auto", None, None) == (dtype(desired), desired.probe, desired.keep_probes)


def test_to_try_a_dtype_moves_no_worker() -> None:
    plain, trying = scenes.think(chat(None)), scenes.think(chat(), probe=seen())
    assert plain.apply == trying.apply
    assert plain.status is not None
    assert trying.status is not None
    assert plain.status["pools"] == trying.status["pools"]


def test_where_nothing_is_gained_nothing_is_tried_and_the_plan_says_so() -> None:
    raw = chat(concurrency=4)
    worker = worker_of(scenes.think(raw))
    desired = scenes.think(raw, workers=[worker], probe=seen())
    assert desired.probe is None
    assert "NotTried" == gate(desired)["state"]
    assert "fp8 would gain nothing: 16 bit holds 4 sequences" in gate(desired)["message"]
    planned = scenes.condition(desired, "Planned")
    assert planned is not None
    assert "fp8 would gain nothing" in planned["message"]


def test_a_dtype_that_the_card_cannot_do_is_not_tried() -> None:
    raw = chat()
    raw["spec"]["pools"][0]["gpu"]["product"] = "Tesla-T4"
    desired = scenes.think(raw, probe=seen())
    assert desired.probe is None
    assert not gate(desired)["message"].count("waits")


def test_the_other_engines_pools_try_nothing() -> None:
    assert not (scenes.think(chat("q8_0"), probe=seen()).status or {}).get("retrieval")


@pytest.mark.parametrize(
    ("probe", "changes", "inventory", "why"),
    [
        (ProbeSeen(), {}, scenes.MIXED, "PLIMSOLL_INSPECTION_IMAGE"),
        (seen(), {"is_ready": False}, scenes.MIXED, "no worker of the pool is ready"),
        (seen(), {"plan_id": "older"}, scenes.MIXED, "no worker of the pool is ready"),
        (seen(), {}, "taken", "no node has 1 x NVIDIA-GeForce-RTX-4090 free"),
    ],
)
def test_a_probe_waits_for_image_worker_and_card(
    probe: ProbeSeen, changes: dict[str, Any], inventory: Any, why: str
) -> None:
    if inventory == "taken":
        fleet = scenes.fleet(("4090-0", "rtx-4090", 1))
        (node,) = fleet.nodes
        taken = node.model_copy(update={"free": 0})
        inventory = fleet.model_copy(update={"nodes": (taken,)})
    first = scenes.think(chat(), inventory)
    worker = worker_of(first).model_copy(update=changes)
    desired = scenes.think(chat(), inventory, workers=[worker], probe=probe)
    assert desired.probe is None
    assert "Waiting" == gate(desired)["state"]
    assert why in gate(desired)["message"]


def test_the_job_runs_the_engine_with_the_dtype_beside_a_probe_and_nobody_is_sent_there() -> None:
    _, desired, worker = probing(chat())
    assert desired.probe is not None
    assert ("Probing", desired.probe["metadata"]["name"]) == (
        gate(desired)["state"],
        gate(desired)["job"],
    )
    template = desired.probe["spec"]["template"]
    assert "plimsoll.dev/pool" not in template["metadata"]["labels"]
    assert "probe" == template["metadata"]["labels"]["app.kubernetes.io/component"]
    (engine,), (asking,) = template["spec"]["initContainers"], template["spec"]["containers"]
    assert "Always" == engine["restartPolicy"]
    assert "fp8" == engine["args"][engine["args"].index("--kv-cache-dtype") + 1]
    assert {"nvidia.com/gpu": "1"}.items() <= engine["resources"]["limits"].items()
    args = asking["args"]
    assert f"http://{worker.address}" == args[args.index("--against") + 1]
    assert str(LENGTH) == args[args.index("--length") + 1]
    assert template["spec"]["automountServiceAccountToken"] is False
    assert "auto" == dtype(desired)


def test_the_job_is_made_once() -> None:
    raw, desired, worker = probing(chat())
    raw, children = scenes.applied(raw, desired)
    assert desired.probe is not None
    for again in (seen(job=desired.probe), seen(pods=(pod_of(desired.probe, phase="Running"),))):
        later = scenes.think(raw, children=children, workers=[worker], probe=again)
        assert later.probe is None
        assert desired.status == later.status
        assert later.look_again_seconds is not None


def through(verdict: RetrievalVerdict) -> tuple[Manifest, Desired, Desired]:
    """Probed, ended with the verdict, and the look after that."""
    raw, desired, worker = probing(chat())
    assert desired.probe is not None
    raw, children = scenes.applied(raw, desired)
    pods = (ended(desired.probe, report(verdict).to_message()),)
    told = scenes.think(
        raw, children=children, workers=[worker], probe=seen(job=desired.probe, pods=pods)
    )
    assert told.keep_probes is not None
    raw, children = scenes.applied(raw, told)
    after = scenes.think(
        raw, children=children, workers=[worker], probe=seen(cache=told.keep_probes)
    )
    return raw, told, after


def test_passed_is_kept_with_its_date_and_the_plan_follows() -> None:
    raw, told, after = through(RetrievalVerdict.PASSED)
    (record,) = records_in(told.keep_probes)
    assert (WHAT, ENDED) == (record.probed, record.at)
    assert ("Passed", ENDED) == (gate(told)["state"], gate(told)["at"])
    assert ["RetrievalPassed"] == [e.reason for e in told.events if "Retrieval" in e.reason]
    assert told.look_again_seconds is not None
    assert told.look_again_seconds <= 1
    assert "auto" == dtype(told)
    assert "fp8" == dtype(after)
    assert after.status is not None
    assert 12 == after.status["pools"][0]["plan"]["concurrency"]["maxNumSeqs"]
    assert f"passed on {ENDED}, it is used" in gate(after)["message"]
    again, children = scenes.applied(raw, after)
    later = scenes.think(again, children=children, probe=seen(cache=told.keep_probes))
    assert (None, None) == (later.probe, later.keep_probes)
    assert gate(after) == gate(later)
    (now,), (then,) = after.status["pools"], (later.status or {})["pools"]
    assert (now["plan"], now["planDigest"]) == (then["plan"], then["planDigest"])


def test_the_status_remembers_where_the_config_map_is_gone() -> None:
    raw, _, after = through(RetrievalVerdict.PASSED)
    raw, children = scenes.applied(raw, after)
    later = scenes.think(raw, children=children, probe=seen())
    assert ("fp8", None) == (dtype(later), later.probe)
    assert gate(after)["message"] == gate(later)["message"]
    once_more, children = scenes.applied(raw, later)
    assert gate(later) == gate(scenes.think(once_more, children=children, probe=seen()))


@pytest.mark.parametrize("verdict", [RetrievalVerdict.FAILED, RetrievalVerdict.INCONCLUSIVE])
def test_what_has_not_passed_stays_at_16_bit_says_so_and_is_not_tried_again_unasked(
    verdict: RetrievalVerdict,
) -> None:
    raw, told, after = through(verdict)
    assert ("auto", None) == (dtype(after), after.probe)
    assert f"{verdict.value.lower()} on {ENDED}, 16 bit stays" in gate(after)["message"]
    assert ["Warning"] == [e.type for e in told.events if e.reason == f"Retrieval{verdict.value}"]
    raw, children = scenes.applied(raw, after)
    raw["metadata"]["annotations"] = {PROBE_ANNOTATION: "2"}
    again = scenes.think(
        raw, children=children, workers=[worker_of(after)], probe=seen(cache=told.keep_probes)
    )
    assert again.probe is not None


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, "its pod failed (Evicted: disk)"),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    {
                        "name": "engine",
                        "restartCount": 2,
                        "lastState": {"terminated": {"message": "trace\nno fp8 kernel\n"}},
                    }
                ],
            },
            "the engine does not start with it: no fp8 kernel",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "name": "probe",
                        "state": {"terminated": {"exitCode": 2, "message": "cannot be reached"}},
                    }
                ]
            },
            "without a report (exit code 2): cannot be reached",
        ),
    ],
)  # fmt: skip
def test_a_probe_that_cannot_end_well_is_inconclusive_with_its_reason(
    status: dict[str, Any], words: str
) -> None:
    raw, desired, worker = probing(chat())
    assert desired.probe is not None
    raw, _ = scenes.applied(raw, desired)
    pods = (pod_of(desired.probe, **status),)
    told = scenes.think(raw, workers=[worker], probe=seen(job=desired.probe, pods=pods))
    assert "Inconclusive" == gate(told)["state"]
    assert words in gate(told)["message"]


def test_a_job_that_ran_out_of_time_is_inconclusive() -> None:
    raw, desired, worker = probing(chat())
    assert desired.probe is not None
    raw, _ = scenes.applied(raw, desired)
    job = deepcopy(desired.probe)
    job["status"] = {
        "conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]
    }
    told = scenes.think(raw, workers=[worker], probe=seen(job=job))
    assert "its Job failed (DeadlineExceeded)" in gate(told)["message"]


@pytest.mark.parametrize(
    "other",
    [
        WHAT.model_copy(update={"release": "0.23.0"}),
        WHAT.model_copy(update={"source": "hf://other/model"}),
        WHAT.model_copy(update={"dtype": "fp8_e5m2"}),
        WHAT.model_copy(update={"engine": "llamaCpp"}),
    ],
)
def test_a_probe_of_something_else_opens_nothing(other: Probed) -> None:
    desired = scenes.think(chat(), probe=seen(cache=kept(RetrievalVerdict.PASSED, other)))
    assert ("auto", "Waiting") == (dtype(desired), gate(desired)["state"])


def test_a_pass_for_shorter_contexts_opens_nothing() -> None:
    shorter = kept(RetrievalVerdict.PASSED, longest=LENGTH - 1)
    desired = scenes.think(chat(), probe=seen(cache=shorter))
    assert ("auto", "Waiting") == (dtype(desired), gate(desired)["state"])


def test_a_record_by_hand_opens_the_gate_without_a_job() -> None:
    cache = kept(RetrievalVerdict.PASSED)
    desired = scenes.think(chat(), probe=ProbeSeen(cache=cache, is_ours=False))
    assert "fp8" == dtype(desired)
    assert (None, None) == (desired.probe, desired.keep_probes)


def test_a_pass_that_gains_nothing_is_not_used() -> None:
    desired = scenes.think(chat(concurrency=4), probe=seen(cache=kept(RetrievalVerdict.PASSED)))
    assert "auto" == dtype(desired)
    assert "not used: fp8 would gain nothing" in gate(desired)["message"]


def test_a_config_map_of_a_person_is_left_alone() -> None:
    raw, desired, worker = probing(chat())
    assert desired.probe is not None
    raw, _ = scenes.applied(raw, desired)
    other = kept(RetrievalVerdict.PASSED, WHAT.model_copy(update={"release": "0.1"}))
    pods = (ended(desired.probe, report(RetrievalVerdict.PASSED).to_message()),)
    told = scenes.think(raw, workers=[worker], probe=seen(pods=pods, cache=other, is_ours=False))
    assert ("Passed", None) == (gate(told)["state"], told.keep_probes)


def test_pools_that_plimsoll_makes_keep_their_shape_through_the_gate() -> None:
    raw = chat()
    del raw["spec"]["pools"]
    fleet = scenes.fleet(("4090-0", "rtx-4090", 2))
    first = scenes.think(raw, fleet, probe=seen())
    assert "Waiting" == gate(first)["state"]
    raw, _ = scenes.applied(raw, first)
    opened = scenes.think(raw, fleet, probe=seen(cache=kept(RetrievalVerdict.PASSED)))
    assert opened.status is not None
    (pool,) = opened.status["pools"]
    assert "fp8" == pool["plan"]["kv"]["dtype"]
    raw, children = scenes.applied(raw, opened)
    for inventory in (fleet, scenes.fleet(("a6000-0", "rtx-a6000", 4))):
        later = scenes.think(
            raw, inventory, children=children, probe=seen(cache=kept(RetrievalVerdict.PASSED))
        )
        held = next((p for p in (later.status or {})["pools"] if p["name"] == pool["name"]), None)
        assert held is None or held["plan"]["kv"]["dtype"] == "fp8"
        assert not [ref for ref in later.delete if pool["name"] in ref.name]
