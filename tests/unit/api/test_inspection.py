"""Files are read once for each question, and what they say moves no worker that still fits."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

import scenes
import worlds
from plimsoll.api.inspection import settled_by
from plimsoll.api.inspection_ask import InspectionSeen, inspection_ask
from plimsoll.decide import Desired, Manifest
from plimsoll.facts.inspection import InspectionReport, refusal_report
from plimsoll.facts.model import GgufFacts, ModelFacts

IMAGE = "plimsoll:1"
UNKNOWN = {"name": "ours", "uri": "pvc://models/ours"}


def job_of(desired: Desired) -> Manifest:
    """The Job that is to be made."""
    assert desired.read_files is not None
    return desired.read_files


def pod_of(job: Manifest, *messages: str, code: int = 0, **state: Any) -> Manifest:
    """The Job's pod when it ended with these messages."""
    names = [each["name"] for each in job["spec"]["template"]["spec"]["containers"]]
    return {
        "metadata": {"name": "reader", "labels": job["metadata"]["labels"]},
        "status": {
            "phase": "Succeeded",
            "containerStatuses": [
                {
                    "name": name,
                    "state": {
                        "terminated": {
                            "exitCode": code,
                            "message": message,
                            "finishedAt": "2026-12-01T12:00:00Z",
                            **state,
                        }
                    },
                }
                for name, message in zip(names, messages, strict=True)
            ],
        },
    }


def seen(**fields: Any) -> InspectionSeen:
    """With an image, so that files may be read."""
    return InspectionSeen(image=IMAGE, **fields)


def facts(**changes: Any) -> ModelFacts:
    """The 8B model as its files have it."""
    return worlds.model(worlds.EIGHT_B).model_copy(update=changes)


def said(found: ModelFacts | GgufFacts, fingerprint: str = "sha256:1") -> str:
    """The report of facts."""
    kind = "model" if isinstance(found, ModelFacts) else "gguf"
    report = InspectionReport.model_validate({kind: found, "fingerprint": fingerprint})
    return report.to_message()


def eight_b(**model: Any) -> Manifest:
    """The 8B model on a claim, on H100 cards."""
    raw = scenes.example("edge-assistant", limits={"maxModelLen": 8192}, gateway={"enabled": False})
    raw["spec"]["model"] = {
        "name": "chat",
        "id": worlds.EIGHT_B,
        "uri": "pvc://models/8b",
        **model,
    }
    return raw


def after(
    raw: Manifest, message: str, *, cache: Manifest | None = None
) -> tuple[Desired, Manifest]:
    """The decision after the Job's pod ended, and the ConfigMap that it writes."""
    job = job_of(scenes.think(raw, inspection=seen(cache=cache)))
    desired = scenes.think(raw, inspection=seen(job=job, pods=(pod_of(job, message),), cache=cache))
    assert desired.keep_facts is not None
    return desired, desired.keep_facts


def planned(desired: Desired) -> Manifest:
    """The condition."""
    found = scenes.condition(desired, "Planned")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("model", "read"),
    [
        (UNKNOWN, ("pvc://models/ours",)),
        (UNKNOWN | {"gguf": {"uri": "hostPath:///m/a.gguf"}}, ("pvc://models/ours", "hostPath:///m/a.gguf")),
        ({"name": "ours", "uri": "hf://org/name"}, None),
        ({"name": "ours", "uri": "hf://org/name", "gguf": {"uri": "pvc://m/a.gguf"}}, ("pvc://m/a.gguf",)),
        (UNKNOWN | {"facts": {"configMap": {"name": "given"}}}, None),
        (UNKNOWN | {"uri": 7}, None),
        (UNKNOWN | {"uri": "pvc://"}, None),
        ("ours", None),
    ],
)  # fmt: skip
def test_volumes_without_facts_are_read_and_nothing_else(
    model: Any, read: tuple[str, ...] | None
) -> None:
    ask = inspection_ask({"metadata": {"name": "chat"}, "spec": {"model": model}})
    assert read == (ask.uris if ask else None)


def test_without_an_image_nothing_is_read() -> None:
    desired = scenes.think(eight_b())
    assert desired.read_files is None
    assert "being read" not in planned(desired)["message"]


def test_the_catalogue_serves_while_files_are_read() -> None:
    desired = scenes.think(eight_b(), inspection=seen())
    assert "True" == planned(desired)["status"]
    name = job_of(desired)["metadata"]["name"]
    assert f"The model's files are being read by Job {name}." in planned(desired)["message"]
    assert desired.look_again_seconds is not None


def test_an_unknown_model_waits_for_its_files_and_nobody_is_alarmed() -> None:
    raw = eight_b()
    raw["spec"]["model"] = UNKNOWN
    desired = scenes.think(raw, inspection=seen())
    assert ("False", "ReadingFacts") == (planned(desired)["status"], planned(desired)["reason"])
    assert scenes.condition(desired, "Stalled") is None
    assert scenes.condition(desired, "Reconciling") is not None
    assert () == desired.events


def test_a_job_that_is_there_is_not_made_again() -> None:
    job = job_of(scenes.think(eight_b(), inspection=seen()))
    assert scenes.think(eight_b(), inspection=seen(job=job)).read_files is None


def test_what_was_read_is_kept_and_read_no_more() -> None:
    raw = eight_b()
    desired, cache = after(raw, said(facts()))
    assert desired.read_files is None
    assert "2026-12-01T12:00:00Z" in cache["data"]["inspection.json"]
    assert 32 == yaml.safe_load(cache["data"]["facts.yaml"])["model"]["layers"]
    ask = inspection_ask(raw)
    assert ask is not None
    assert settled_by(cache, ask, IMAGE)
    again = scenes.think(raw, inspection=seen(cache=cache))
    assert (None, None) == (again.read_files, again.keep_facts)
    assert again.status == desired.status


def test_facts_of_the_files_make_the_plan_of_an_unknown_model() -> None:
    raw = eight_b()
    raw["spec"]["model"] = UNKNOWN
    desired, _ = after(raw, said(facts(id="ours")))
    assert "True" == planned(desired)["status"]
    assert desired.status is not None
    assert desired.status["pools"][0]["plan"]["kv"]["poolTokens"] > 0


@pytest.mark.parametrize("changes", [{}, {"max_position_embeddings": 4096}, {"hidden_size": 4095}])
def test_facts_that_are_no_heavier_move_no_worker(changes: dict[str, Any]) -> None:
    raw = eight_b()
    raw, children = scenes.applied(raw, scenes.think(raw))
    desired, cache = after(raw, said(facts(**changes)))
    assert desired.apply == children
    assert desired.status is not None
    assert desired.status["pools"][0]["planDigest"] == raw["status"]["pools"][0]["planDigest"]
    later = scenes.think(raw, inspection=seen(cache=cache))
    assert later.apply == children


def test_heavier_files_make_a_new_plan_and_the_contradiction_is_told() -> None:
    raw = eight_b()
    raw, children = scenes.applied(raw, scenes.think(raw))
    listed = worlds.model(worlds.EIGHT_B).weights
    heavy = listed.model_copy(update={"total_bytes": listed.total_bytes + 2**30})
    desired, cache = after(raw, said(facts(weights=heavy)))
    assert desired.apply != children
    message = planned(desired)["message"]
    assert "Weights in bytes: the files say 17,134," in message
    assert "the files win." in message
    raw, children = scenes.applied(raw, desired)
    again = scenes.think(raw, children=children, inspection=seen(cache=cache))
    assert again.status == raw["status"]
    assert again.apply == children


def test_a_refusal_is_told_kept_and_not_tried_again() -> None:
    raw = eight_b()
    raw, children = scenes.applied(raw, scenes.think(raw))
    workers = [scenes.worker(raw["spec"]["pools"][0]["name"])]
    sentence = "/models/8b: 1 of the files is not there: b.safetensors; finish the download"
    job = job_of(scenes.think(raw, inspection=seen()))
    ended = pod_of(job, refusal_report(sentence).to_message(), code=3)
    desired = scenes.think(
        raw, children=children, workers=workers, inspection=seen(job=job, pods=(ended,))
    )
    assert ("False", "ModelSourceUnusable") == (
        planned(desired)["status"],
        planned(desired)["reason"],
    )
    assert f"pvc://models/8b: {sentence}." in planned(desired)["message"]
    assert "left alone" in planned(desired)["message"]
    assert () == desired.delete
    again = scenes.think(raw, inspection=seen(cache=desired.keep_facts))
    assert (None, None) == (again.read_files, again.keep_facts)


def test_another_release_asks_again_where_files_were_refused_only() -> None:
    raw = eight_b()
    _, refused = after(raw, refusal_report("no").to_message())
    _, known = after(raw, said(facts()))
    newer = InspectionSeen(image="plimsoll:2")
    first = job_of(scenes.think(raw, inspection=seen()))["metadata"]["name"]
    asked = scenes.think(raw, inspection=newer.model_copy(update={"cache": refused}))
    assert first != job_of(asked)["metadata"]["name"]
    still = scenes.think(raw, inspection=newer.model_copy(update={"cache": known}))
    assert still.read_files is None


def test_an_annotation_asks_again_and_a_change_is_noticed() -> None:
    raw = eight_b()
    _, cache = after(raw, said(facts()))
    raw["metadata"]["annotations"] = {"plimsoll.dev/inspect": "2"}
    waiting = scenes.think(raw, inspection=seen(cache=cache))
    assert waiting.read_files is not None
    desired, newer = after(raw, said(facts(), "sha256:2"), cache=cache)
    told = "The files changed since they were read at 2026-12-01T12:00:00Z."
    assert told in planned(desired)["message"]
    assert told in planned(scenes.think(raw, inspection=seen(cache=newer)))["message"]


def test_files_that_grew_since_they_were_read_make_a_new_plan() -> None:
    raw = eight_b()
    raw["spec"]["model"] = UNKNOWN
    first, cache = after(raw, said(facts()))
    raw, children = scenes.applied(raw, first)
    raw["metadata"]["annotations"] = {"plimsoll.dev/inspect": "2"}
    waiting = scenes.think(raw, children=children, inspection=seen(cache=cache))
    assert waiting.apply == children
    grown, _ = after(raw, said(facts(layers=40), "sha256:2"), cache=cache)
    assert grown.status is not None
    assert grown.status["pools"][0]["planDigest"] != raw["status"]["pools"][0]["planDigest"]


@pytest.mark.parametrize(
    ("message", "state", "says"),
    [
        ("", {"exitCode": 137, "reason": "OOMKilled"}, "exit code 137, OOMKilled"),
        ("first line\nlast line", {"exitCode": 1}, "(exit code 1): last line"),
    ],
)
def test_a_pod_that_says_nothing_leaves_the_catalogue_in_force(
    message: str, state: dict[str, Any], says: str
) -> None:
    job = job_of(scenes.think(eight_b(), inspection=seen()))
    pod = pod_of(job, message, **state)
    desired = scenes.think(eight_b(), inspection=seen(job=job, pods=(pod,)))
    assert "True" == planned(desired)["status"]
    assert (
        "Reading the model's files failed: container model ended without a report"
        in (planned(desired)["message"])
    )
    assert says in planned(desired)["message"]
    again = scenes.think(eight_b(), inspection=seen(cache=desired.keep_facts))
    assert again.read_files is None
    assert again.status == desired.status


def test_a_job_that_ran_out_of_time_is_told_and_not_made_again() -> None:
    raw = eight_b()
    raw["spec"]["model"] = UNKNOWN
    job = job_of(scenes.think(raw, inspection=seen()))
    late = {
        "type": "Failed",
        "status": "True",
        "reason": "DeadlineExceeded",
        "message": "Job was active longer than specified deadline",
    }
    job["status"] = {"conditions": [late]}
    desired = scenes.think(raw, inspection=seen(job=job))
    assert "ModelUnknown" == planned(desired)["reason"]
    assert "Job was active longer than specified deadline" in planned(desired)["message"]
    assert "plimsoll.dev/inspect" in planned(desired)["message"]
    assert scenes.think(raw, inspection=seen(cache=desired.keep_facts)).read_files is None


def test_what_keeps_a_pod_from_starting_is_told() -> None:
    job = job_of(scenes.think(eight_b(), inspection=seen()))
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    pod = {
        "metadata": {"labels": job["metadata"]["labels"]},
        "status": {"containerStatuses": [{"name": "model", "state": waiting}]},
    }
    desired = scenes.think(eight_b(), inspection=seen(job=job, pods=(pod,)))
    assert "Its pod waits: ImagePullBackOff: no such image." in planned(desired)["message"]


def test_both_engines_files_are_read_side_by_side() -> None:
    raw = scenes.example("mixed-fleet")
    job = job_of(scenes.think(raw, inspection=seen()))
    messages = (
        said(worlds.model(worlds.SEVENTY_B)),
        said(worlds.gguf(worlds.SEVENTY_B, "Q6_K")),
    )
    desired = scenes.think(raw, inspection=seen(job=job, pods=(pod_of(job, *messages),)))
    assert desired.keep_facts is not None
    kept = json.loads(desired.keep_facts["data"]["inspection.json"])
    assert ["model", "gguf"] == kept["kinds"]
    assert [["model"], ["gguf"]] == [
        sorted({"model", "gguf"} & report.keys()) for report in kept["reports"]
    ]


def test_a_config_map_that_cannot_be_read_is_as_good_as_none() -> None:
    cache = {"metadata": {"name": "x"}, "data": {"inspection.json": "{"}}
    assert scenes.think(eight_b(), inspection=seen(cache=cache)).read_files is not None
