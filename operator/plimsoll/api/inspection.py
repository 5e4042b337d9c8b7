"""Are the model's files to be read in the cluster, and what did they say?

They are where the spec names a volume and gives no facts: a Job reads the headers once, and a ConfigMap keeps
what it found. Until then the catalogue's facts serve. Reading them again is asked for by changing the model's
address, or the annotation plimsoll.dev/inspect.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import yaml
from pydantic import ValidationError

from plimsoll.api.comparison import differences, facts_digest, is_heavier
from plimsoll.api.inspection_ask import (
    INSPECT_ANNOTATION,
    InspectionAsk,
    InspectionRecord,
    InspectionSeen,
)
from plimsoll.api.model_facts import GGUF, MODEL, ReadFacts
from plimsoll.api.v1alpha1 import InferenceDeployment
from plimsoll.api.workload import match_labels, owner_of
from plimsoll.catalog.models import find_gguf, find_model
from plimsoll.facts.gpu import GpuFacts
from plimsoll.facts.inspection import InspectionReport, read_report
from plimsoll.facts.model import GgufFacts, ModelFacts
from plimsoll.facts.record import Named
from plimsoll.render.inspection import InspectionJob, Source, facts_manifest, inspection_manifest
from plimsoll.render.labels import INSPECTION_LABEL, short_hash
from plimsoll.render.records import NONROOT_USER, Manifest
from plimsoll.render.source import SourceKind

RECORD_KEY: Final = "inspection.json"
FACTS_KEY: Final = "facts.yaml"
_LOST_PODS: Final = "DeadlineExceeded"
"""Reason of a Job whose pod was taken down before it ended (k8s.io/api batch/v1)."""


class Inspection(NamedTuple):
    """What to make of it."""

    read: ReadFacts = ReadFacts()
    """Facts for the plan."""
    is_pending: bool = False
    """Whether files are being read."""
    notes: tuple[str, ...] = ()
    """For the person at kubectl."""
    job: Manifest | None = None
    """The Job to make now."""
    cache: Manifest | None = None
    """The ConfigMap to write now."""


def settled_by(cache: Manifest | None, ask: InspectionAsk, image: str) -> bool:
    """Whether the ConfigMap answers the question, so that no Job needs to be looked for."""
    held = _held(cache)
    return held is not None and _answers(held, ask, image)


def inspect(
    deployment: InferenceDeployment,
    ask: InspectionAsk | None,
    seen: InspectionSeen,
    *,
    gpus: Sequence[GpuFacts],
    now_text: str,
) -> Inspection:
    """What is known from the files, and what is to be done to know it.

    `gpus` are the GPU types that workers may run on; `now_text` dates an answer that was just found.
    """
    if ask is None:
        return Inspection()
    held = _held(seen.cache)
    if held is not None and _answers(held, ask, seen.image):
        return Inspection(read=_read(held), notes=_told(held))
    before = held if held is not None and held.uris == ask.uris else None
    found = _finished(seen, ask, now_text)
    if found is not None:
        kept = _weighed(found, before, deployment)
        return Inspection(
            read=_read(kept),
            notes=_told(kept),
            cache=facts_manifest(owner_of(deployment), _data(kept)),
        )
    read = _read(before) if before is not None else ReadFacts()
    if not seen.image:
        return Inspection(read=read)
    job = ask.job_name(seen.image)
    waits = f"the model's files are being read by Job {job}"
    return Inspection(
        read=read._replace(missing=f"{waits}; the plan follows"),
        is_pending=True,
        notes=(waits, *_why_waiting(seen, ask)),
        job=None if seen.job else _job(deployment, seen, ask, gpus),
    )


# ---- what came of it ------------------------------------------------------------------------------


def _held(cache: Manifest | None) -> InspectionRecord | None:
    """What the ConfigMap says; None where it says nothing that we understand."""
    text = ((cache or {}).get("data") or {}).get(RECORD_KEY)
    if not isinstance(text, str):
        return None
    try:
        return InspectionRecord.model_validate_json(text)
    except ValidationError:
        return None


def _answers(held: InspectionRecord, ask: InspectionAsk, image: str) -> bool:
    return held.ask == ask.digest and (held.is_final or held.image == image or not image)


def _finished(seen: InspectionSeen, ask: InspectionAsk, now_text: str) -> InspectionRecord | None:
    """The answer of a pod that ended, or of a Job that gave up; None while neither has."""
    record = InspectionRecord(
        ask=ask.digest,
        uris=ask.uris,
        kinds=tuple(each.name for each in ask.sources),
        image=seen.image,
        read_at=now_text,
    )
    for pod in _pods(seen, ask):
        status = pod.get("status") or {}
        ended = {
            each["name"]: each["state"]["terminated"]
            for each in status.get("containerStatuses") or ()
            if (each.get("state") or {}).get("terminated")
        }
        if all(source.name in ended for source in ask.sources):
            return _reported(record, [(s, ended[s.name]) for s in ask.sources])
        if status.get("phase") == "Failed" and not ended:
            said = ": ".join(filter(None, (status.get("reason"), status.get("message"))))
            return record.model_copy(update={"failed": f"its pod failed ({said or 'no reason'})"})
    for condition in ((seen.job or {}).get("status") or {}).get("conditions") or ():
        is_failed = condition.get("type") == "Failed" and condition.get("status") == "True"
        if is_failed and condition.get("reason") == _LOST_PODS:
            return record.model_copy(
                update={"failed": f"its Job failed ({condition.get('message') or _LOST_PODS})"}
            )
    return None


def _reported(
    record: InspectionRecord, ended: Sequence[tuple[Source, Mapping[str, Any]]]
) -> InspectionRecord:
    reports: list[InspectionReport] = []
    for source, state in ended:
        message = str(state.get("message") or "")
        report = read_report(message)
        if report is None:
            words = message.strip().splitlines()
            said = ", ".join(
                (f"exit code {state.get('exitCode')}", *filter(None, (state.get("reason"),)))
            )
            last = f": {words[-1]}" if words else ""
            return record.model_copy(
                update={"failed": f"container {source.name} ended without a report ({said}){last}"}
            )
        reports.append(report)
    at = max((str(state.get("finishedAt") or "") for _, state in ended), default="")
    return record.model_copy(update={"reports": tuple(reports), "read_at": at or record.read_at})


def _pods(seen: InspectionSeen, ask: InspectionAsk) -> Iterator[Manifest]:
    inspection = ask.inspection(seen.image)
    for pod in seen.pods:
        if (pod["metadata"].get("labels") or {}).get(INSPECTION_LABEL) == inspection:
            yield pod


def _why_waiting(seen: InspectionSeen, ask: InspectionAsk) -> Iterator[str]:
    """What keeps the pod from starting."""
    for pod in _pods(seen, ask):
        status = pod.get("status") or {}
        for each in status.get("containerStatuses") or ():
            waiting = (each.get("state") or {}).get("waiting") or {}
            if waiting.get("message"):
                yield f"its pod waits: {waiting.get('reason')}: {waiting['message']}"
                return
        for condition in status.get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                yield f"its pod waits: {condition.get('message') or condition.get('reason')}"
                return


def _read(record: InspectionRecord) -> ReadFacts:
    model, gguf = record.of(MODEL), record.of(GGUF)
    found = zip(record.kinds, record.uris, record.reports, strict=False)
    refused = {kind: f"{uri}: {report.refused}" for kind, uri, report in found if report.refused}
    missing = ""
    if record.failed:
        missing = (
            f"reading the model's files failed: {record.failed}; put that right and change the "
            f"annotation {INSPECT_ANNOTATION}, or give the facts under spec.model.facts"
        )
    return ReadFacts(
        model=model if isinstance(model, ModelFacts) else None,
        gguf=gguf if isinstance(gguf, GgufFacts) else None,
        refused=refused,
        missing=missing,
        weighs=record.weighs,
    )


def _told(record: InspectionRecord) -> tuple[str, ...]:
    if not record.failed:
        return record.notes
    return (*record.notes, f"reading the model's files failed: {record.failed}")


def _data(record: InspectionRecord) -> dict[str, str]:
    """For us the whole, for people the facts."""
    facts = {
        kind: found.to_json() for kind in (MODEL, GGUF) if (found := record.of(kind)) is not None
    }
    whole = record.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    data = {RECORD_KEY: json.dumps(whole, separators=(",", ":"), ensure_ascii=False)}
    if facts:
        data[FACTS_KEY] = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)
    return data


# ---- against what was known -----------------------------------------------------------------------


def _weighed(
    found: InspectionRecord, before: InspectionRecord | None, deployment: InferenceDeployment
) -> InspectionRecord:
    """With what the catalogue or the last look says otherwise.

    Decided once, when the files were read: a catalogue that changes later moves no workers.
    """
    notes: list[str] = []
    heavier: list[str] = []
    had = before.of(MODEL) if before else None, before.of(GGUF) if before else None
    for kind, then, listed in zip((MODEL, GGUF), had, _catalogued(deployment), strict=True):
        now = found.of(kind)
        if now is None:
            continue
        notes += differences(now, listed)
        basis = then or listed
        if basis is not None and is_heavier(now, basis):
            heavier.append(facts_digest(now))
    if before is not None and _prints(before) != _prints(found) and found.reports:
        notes.append(f"the files changed since they were read at {before.read_at}")
    kept = before.weighs if before else ""
    weighs = short_hash(*heavier) if heavier else kept
    return found.model_copy(update={"notes": tuple(notes), "weighs": weighs})


def _catalogued(
    deployment: InferenceDeployment,
) -> tuple[ModelFacts | None, GgufFacts | None]:
    model = deployment.spec.model
    if model.id is None:
        return None, None
    listed = find_model(model.id)
    quantization = model.gguf.quantization if model.gguf else None
    return (
        listed if isinstance(listed, ModelFacts) else None,
        find_gguf(model.id, quantization) if quantization else None,
    )


def _prints(record: InspectionRecord) -> tuple[str, ...]:
    return tuple(report.fingerprint for report in record.reports)


# ---- the Job --------------------------------------------------------------------------------------


def _job(
    deployment: InferenceDeployment,
    seen: InspectionSeen,
    ask: InspectionAsk,
    gpus: Sequence[GpuFacts],
) -> Manifest:
    worker = deployment.spec.worker
    is_near = any(s.source.kind is not SourceKind.CLAIM for s in ask.sources)
    return inspection_manifest(
        InspectionJob(
            owner=owner_of(deployment),
            inspection=ask.inspection(seen.image),
            image=seen.image,
            image_pull_policy=seen.image_pull_policy,
            sources=ask.sources,
            identity=ask.identity,
            run_as_user=worker.run_as_user or NONROOT_USER,
            image_pull_secrets=tuple(secret.name for secret in worker.image_pull_secrets),
            node_selector=tuple(
                Named(name=name, value=worker.node_selector[name])
                for name in sorted(worker.node_selector)
            ),
            tolerations=tuple(each.to_json() for each in worker.tolerations),
            near=tuple(label for gpu in gpus for label in match_labels(gpu)) if is_near else (),
        )
    )
