"""May `kvCache.dtype: auto` use fewer bits, and if nobody knows, what is to be done to know it?

Where the plan would gain nothing, nothing is tried. Else one worker with the new dtype, to which nobody is sent,
is compared with one that serves at 16 bit, by a Job on a card that is free. What came of it stays in a ConfigMap
and in the status, and holds for this model, engine release and dtype.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pydantic import ConfigDict

from plimsoll.api.asks import PoolAsk, model_uri, release_of
from plimsoll.api.kv_gate_opened import probed_of, tried_dtype
from plimsoll.api.kv_gate_records import (
    PROBE_ANNOTATION,
    VERDICTS,
    Probed,
    ProbeRecord,
    answer_to,
    record_data,
    records_in,
    with_record,
)
from plimsoll.api.news import Announcement
from plimsoll.api.retrieval_status import RetrievalStatus
from plimsoll.api.settle import Settled
from plimsoll.api.v1alpha1 import InferenceDeployment
from plimsoll.api.workload import owner_of, workload_of
from plimsoll.facts.gpu import Inventory
from plimsoll.facts.record import Record
from plimsoll.facts.retrieval import RetrievalReport, RetrievalVerdict, read_retrieval
from plimsoll.facts.worker import WorkerFacts
from plimsoll.plan.kv_gain import KvGain, kv_gain, planned_length
from plimsoll.render.labels import PROBE_LABEL, probe_name, short_hash
from plimsoll.render.pod import CONTAINER_NAME
from plimsoll.render.probe import (
    PROBE_CONTAINER,
    ProbeJob,
    probe_manifest,
    retrieval_manifest,
)
from plimsoll.render.records import Manifest
from plimsoll.render.workload import digest_of_plan

SIXTEEN_BIT: Final = ("auto", "f16")
"""KV cache dtypes of plans for auto: vLLM, llama.cpp."""
AT_ONCE_SECONDS: Final = 1.0
"""After a probe has ended: the next look plans with it."""
WHILE_PROBING_SECONDS: Final = 60.0
"""Between two looks at a probe's Job, where its pod brings no event."""
RESTARTS_THAT_TELL: Final = 2
"""An engine that has ended so often beside the probe does not start with this dtype."""


class ProbeSeen(Record):
    """What the cluster shows of probes."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    image: str = ""
    """Plimsoll's own image; empty where nothing is probed in the cluster."""
    image_pull_policy: str | None = None
    """How it is pulled."""
    cache: Manifest | None = None
    """The ConfigMap with what probes found."""
    is_ours: bool = True
    """Whether that ConfigMap belongs to the InferenceDeployment, and not to a person."""
    job: Manifest | None = None
    """The Job that the status names."""
    pods: tuple[Manifest, ...] = ()
    """Pods of probes."""


class Gate(NamedTuple):
    """What to make of it."""

    status: tuple[RetrievalStatus, ...] = ()
    """One for each pool that tries a dtype."""
    job: Manifest | None = None
    """The Job to make now."""
    cache: Manifest | None = None
    """The ConfigMap to write now."""
    ended: tuple[RetrievalStatus, ...] = ()
    """Probes that have ended just now."""

    @property
    def again_seconds(self) -> tuple[float, ...]:
        """After how long to look again; not at all where nothing is on its way."""
        if self.ended:
            return (AT_ONCE_SECONDS,)
        return (WHILE_PROBING_SECONDS,) if any(e.state == PROBING for e in self.status) else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """For the person at kubectl."""
        return tuple(f"{each.pool}: {each.message}" for each in self.status)


NOT_TRIED: Final = "NotTried"
WAITING: Final = "Waiting"
PROBING: Final = "Probing"
STAYS: Final = "16 bit stays"


def known_records(held: Sequence[RetrievalStatus], seen: ProbeSeen) -> tuple[ProbeRecord, ...]:
    """What probes have found: as the ConfigMap says, else as the status remembers it."""
    found = records_in(seen.cache)
    known = {record.probed for record in found}
    remembered = (_remembered(each) for each in held if each.state in VERDICTS)
    return (*found, *(record for record in remembered if record.probed not in known))


def _remembered(held: RetrievalStatus) -> ProbeRecord:
    """A status entry as a record: enough of it to go by where the ConfigMap is gone."""
    report = RetrievalReport(
        verdict=RetrievalVerdict(held.state),
        sentence=held.message.partition(". ")[2],
        longest_tokens=held.longest_tokens or 0,
    )
    probed = Probed(
        source=held.source,
        engine=held.engine,
        release=held.release,
        dtype=held.dtype,
        again=held.again,
    )
    return ProbeRecord(probed=probed, at=held.at or "", report=report)


# ---- one step ------------------------------------------------------------------------------------


class _Case(NamedTuple):
    """One pool that tries a dtype."""

    settled: Settled
    ask: PoolAsk
    dtype: str
    probed: Probed | None
    length_tokens: int

    @property
    def is_used(self) -> bool:
        """Whether the question was put with the dtype."""
        return self.ask.request is not None and self.ask.request.kv_dtype == self.dtype


def gate_step(
    deployment: InferenceDeployment,
    settled: Sequence[Settled],
    seen: ProbeSeen,
    *,
    inventory: Inventory,
    workers: Sequence[WorkerFacts],
    now_text: str,
) -> Gate:
    """What is known of each pool's gate, and the one next thing to do; one probe at a time.

    Where the gate is open already, the pool's question was put with the dtype (api/asks.py).
    """
    records = known_records(deployment.status.retrieval, seen)
    status: list[RetrievalStatus] = []
    ended: list[RetrievalStatus] = []
    job: Manifest | None = None
    for case in _cases(deployment, settled):
        entry = _known(case, records)
        if entry is None and (found := _finished(case, seen, now_text)) is not None:
            records = with_record(records, found)
            entry = _just_ended(case, found)
            ended.append(entry)
        if entry is None:
            is_busy = any(each.state == PROBING for each in status)
            entry, job_now = _next(
                deployment,
                case,
                seen,
                inventory=inventory,
                workers=workers,
                is_busy=is_busy,
            )
            job = job or job_now
        status.append(entry)
    is_kept = bool(ended) and (seen.cache is None or seen.is_ours)
    cache = retrieval_manifest(owner_of(deployment), record_data(records)) if is_kept else None
    return Gate(tuple(status), job, cache, tuple(ended))


def _cases(deployment: InferenceDeployment, settled: Sequence[Settled]) -> Iterator[_Case]:
    spec = deployment.spec
    again = deployment.metadata.annotations.get(PROBE_ANNOTATION, "")
    for each in settled:
        ask = each.ask
        dtype = tried_dtype(spec, ask.spec)
        length = planned_length(ask.request) if ask.request is not None else None
        if dtype is None or ask.request is None or length is None:
            continue
        release = release_of(spec, ask.spec)
        probed = probed_of(model_uri(spec, ask.engine), ask.engine, release, dtype, again)
        yield _Case(each, ask, dtype, probed, length)


def _entry(case: _Case, state: str, message: str, **more: Any) -> RetrievalStatus:
    probed = case.probed.to_json() if case.probed else {"dtype": case.dtype}
    return RetrievalStatus(pool=case.ask.pool, state=state, message=message, **probed, **more)


def _told(case: _Case, record: ProbeRecord, then: str) -> RetrievalStatus:
    """What came of a probe, and what follows."""
    report = record.report
    verdict = report.verdict.value
    said = f"{case.dtype} KV cache: {verdict.lower()} on {record.at}, {then}"
    return _entry(
        case,
        verdict,
        f"{said}. {report.sentence}".strip(),
        at=record.at,
        longest_tokens=report.longest_tokens,
    )


def _just_ended(case: _Case, record: ProbeRecord) -> RetrievalStatus:
    is_passed = record.report.verdict is RetrievalVerdict.PASSED
    return _told(case, record, "the plan follows" if is_passed else STAYS)


def _known(case: _Case, records: Sequence[ProbeRecord]) -> RetrievalStatus | None:
    """What an earlier probe says; None where there is none for contexts so long."""
    if case.probed is None:
        return _entry(
            case,
            NOT_TRIED,
            f"{case.dtype} KV cache is not tried: the engine's release is not known; write it as release, "
            "beside the image",
        )
    record = answer_to(records, case.probed, length_tokens=case.length_tokens)
    if record is None:
        return None
    if record.report.verdict is not RetrievalVerdict.PASSED:
        return _told(case, record, STAYS)
    if case.is_used:
        return _told(case, record, "it is used")
    assert case.ask.request is not None
    return _told(case, record, f"not used: {kv_gain(case.ask.request, case.dtype).sentence}")


def gate_news(gate: Gate) -> tuple[Announcement, ...]:
    """A probe that ended, told once."""
    return tuple(
        Announcement(
            type="Normal" if each.state == RetrievalVerdict.PASSED.value else "Warning",
            reason=f"Retrieval{each.state}",
            message=f"{each.pool}: {each.message}",
        )
        for each in gate.ended
    )


# ---- a probe that runs ---------------------------------------------------------------------------


def _probe_id(case: _Case, image: str) -> str:
    probed = case.probed.digest if case.probed else ""
    return short_hash(probed, case.ask.pool, str(case.length_tokens), image)


def _finished(case: _Case, seen: ProbeSeen, now_text: str) -> ProbeRecord | None:
    """What a probe that ended says; None while none has."""
    assert case.probed is not None
    probe = _probe_id(case, seen.image)
    for pod in seen.pods:
        if (pod["metadata"].get("labels") or {}).get(PROBE_LABEL) != probe:
            continue
        status = pod.get("status") or {}
        ended = _named(status.get("containerStatuses"), PROBE_CONTAINER)
        state = ((ended or {}).get("state") or {}).get("terminated")
        if state is not None:
            at = str(state.get("finishedAt") or now_text)
            return ProbeRecord(probed=case.probed, at=at, report=_report_of(state))
        engine = _named(status.get("initContainerStatuses"), CONTAINER_NAME) or {}
        if engine.get("restartCount", 0) >= RESTARTS_THAT_TELL:
            last = (engine.get("lastState") or {}).get("terminated") or {}
            said = str(last.get("message") or last.get("reason") or "nothing").strip()
            why = f"the engine does not start with it: {said.splitlines()[-1][:400]}"
            return _inconclusive(case.probed, now_text, why)
        if status.get("phase") == "Failed":
            said = ": ".join(filter(None, (status.get("reason"), status.get("message"))))
            return _inconclusive(case.probed, now_text, f"its pod failed ({said or 'no reason'})")
    for condition in ((seen.job or {}).get("status") or {}).get("conditions") or ():
        is_this = (seen.job or {}).get("metadata", {}).get("labels", {}).get(PROBE_LABEL) == probe
        if is_this and condition.get("type") == "Failed" and condition.get("status") == "True":
            said = condition.get("message") or condition.get("reason") or "no reason"
            return _inconclusive(case.probed, now_text, f"its Job failed ({said})")
    return None


def _report_of(state: Mapping[str, Any]) -> RetrievalReport:
    message = str(state.get("message") or "")
    report = read_retrieval(message)
    if report is not None:
        return report
    words = message.strip().splitlines()
    last = f": {words[-1][:400]}" if words else ""
    return RetrievalReport(
        verdict=RetrievalVerdict.INCONCLUSIVE,
        sentence=f"the probe ended without a report (exit code {state.get('exitCode')}){last}",
    )


def _inconclusive(probed: Probed, at: str, why: str) -> ProbeRecord:
    way_out = f"put that right and change the annotation {PROBE_ANNOTATION} to probe again"
    report = RetrievalReport(verdict=RetrievalVerdict.INCONCLUSIVE, sentence=f"{why}; {way_out}.")
    return ProbeRecord(probed=probed, at=at, report=report)


def _named(things: Any, name: str) -> dict[str, Any] | None:
    return next((each for each in things or () if each.get("name") == name), None)


# ---- a probe that is due -------------------------------------------------------------------------


def _next(
    deployment: InferenceDeployment,
    case: _Case,
    seen: ProbeSeen,
    *,
    inventory: Inventory,
    workers: Sequence[WorkerFacts],
    is_busy: bool,
) -> tuple[RetrievalStatus, Manifest | None]:
    """What stands in the way of a probe, or that it runs, with the Job where it is to be made now."""
    assert case.ask.request is not None
    gain = kv_gain(case.ask.request, case.dtype)
    if not gain.is_gain or gain.plan is None:
        return _entry(case, NOT_TRIED, f"{case.dtype} KV cache is not tried: {gain.sentence}"), None
    probe = _probe_id(case, seen.image)
    name = probe_name(deployment.metadata.name, probe)
    pods = [p for p in seen.pods if (p["metadata"].get("labels") or {}).get(PROBE_LABEL) == probe]
    is_made = bool(pods) or (seen.job or {}).get("metadata", {}).get("name") == name
    words = f"{gain.sentence}; Job {name} asks both for numbers in contexts up to {case.length_tokens:,} tokens"
    if is_made:
        return _entry(case, PROBING, words, job=name), None
    worker = _asked_worker(case, workers)
    why = _why_not_yet(case, seen, inventory, worker, is_busy)
    if why is not None or worker is None:
        return _entry(case, WAITING, f"{gain.sentence}; the probe waits: {why}"), None
    return _entry(case, PROBING, words, job=name), _job(
        deployment, case, gain, seen, probe=probe, worker=worker
    )


def _asked_worker(case: _Case, workers: Sequence[WorkerFacts]) -> WorkerFacts | None:
    """A worker of the pool that serves at 16 bit."""
    plan = case.settled.plan
    if plan is None or plan.kv.dtype not in SIXTEEN_BIT:
        return None
    plan_id = digest_of_plan(plan)
    return next(
        (
            worker
            for worker in sorted(workers, key=lambda each: each.name)
            if worker.pool == case.ask.pool
            and worker.is_ready
            and worker.plan_id == plan_id
            and worker.address is not None
            and not worker.is_terminating
            and worker.is_in_service
        ),
        None,
    )


def _why_not_yet(
    case: _Case,
    seen: ProbeSeen,
    inventory: Inventory,
    worker: WorkerFacts | None,
    is_busy: bool,
) -> str | None:
    if not seen.image:
        return (
            "the operator knows no image of Plimsoll's own (PLIMSOLL_INSPECTION_IMAGE); run `plimsoll probe "
            "retrieval --config-map` by hand"
        )
    if worker is None:
        return "no worker of the pool is ready at 16 bit to compare with"
    if case.ask.stale is not None:
        return case.ask.stale
    if is_busy:
        return "another pool is probed"
    nodes = inventory.of_type(case.ask.gpu_product)
    if not any(node.free >= case.ask.cards for node in nodes):
        return f"no node has {case.ask.cards} x {case.ask.gpu_product} free for it"
    return None


def _job(
    deployment: InferenceDeployment,
    case: _Case,
    gain: KvGain,
    seen: ProbeSeen,
    *,
    probe: str,
    worker: WorkerFacts,
) -> Manifest:
    tried = case.settled.model_copy(update={"plan": gain.plan, "refusal": None})
    return probe_manifest(
        ProbeJob(
            owner=owner_of(deployment),
            probe=probe,
            workload=workload_of(deployment, tried),
            against=worker.address or "",
            length_tokens=case.length_tokens,
            image=seen.image,
            image_pull_policy=seen.image_pull_policy,
        )
    )
