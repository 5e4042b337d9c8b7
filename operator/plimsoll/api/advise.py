"""What can be said of an engine that somebody else's manifest runs: does it fit, and what would be pinned?

    for workload in workloads(documents):
        said = advise(workload, Asked(gpu=find_gpu("l40s")))

Nothing is written. The planner that makes an InferenceDeployment's plan answers twice: for the settings as they
are, and for the same model, card and length with everything else left to it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from plimsoll.api.advise_as_is import AsIs, is_ours_alone, llama_cpp_as_is, vllm_as_is, vllm_unknown
from plimsoll.api.advise_card import find_card
from plimsoll.api.advise_findings import findings
from plimsoll.api.advise_manifest import Draft, Needs, draft
from plimsoll.api.advise_pod import Workload, env_of
from plimsoll.api.advise_records import Advice, AdviceVerdict, Finding, Level, ModelTold
from plimsoll.api.advise_seen import Seen, advice, unknown
from plimsoll.api.advise_settings import settings_of
from plimsoll.api.advise_subject import Subject, image_of, subject_of
from plimsoll.api.manifest import read
from plimsoll.api.requests import pool_asks
from plimsoll.engines.launch import NoLaunch
from plimsoll.engines.vllm.running import VllmRun
from plimsoll.facts.gpu import GpuFacts, Inventory, NodeGpus
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Lane, Plan, PlanRequest, Reason, Refusal


class Asked(NamedTuple):
    """What a person says beside the manifest."""

    model: str | None = None
    """Public identity of the model."""
    gpu: GpuFacts | None = None
    """The card."""
    release: str | None = None
    """The engine's release."""
    facts: Mapping[str, Any] | None = None
    """Facts of the model, as `plimsoll facts` prints them."""
    inventory: Inventory = Inventory()
    """Cards of the cluster."""
    lanes: tuple[Lane, ...] = ()
    """Lengths of requests that were counted."""
    budgets: Sequence[Mapping[str, Any]] | None = None
    """PodDisruptionBudgets; None where nobody looked."""


class Told(NamedTuple):
    """What is said, and a manifest to start from."""

    advice: Advice
    """What is said."""
    draft: Draft | str
    """The manifest, or why there is none."""


class Answered(NamedTuple):
    """A manifest, and what the planner said to it."""

    draft: Draft | str
    """The manifest, or why there is none."""
    ours: Plan | Refusal | None = None
    """The answer; None without a question."""
    request: PlanRequest | None = None
    """The question."""
    gave_up: str = ""
    """What of the settings was not kept."""


def advise(workload: Workload, asked: Asked) -> Told:
    """Everything that can be told of one workload. Raises ValueError for a release without a number."""
    subject = subject_of(workload, model=asked.model, release=asked.release)
    base = Advice(
        object=workload.title,
        container=str(workload.container.get("name") or ""),
        made_by=workload.made_by,
        replicas=workload.replicas,
        image=image_of(workload),
    )
    if isinstance(subject, NoLaunch):
        found = (unknown("command", f"{subject.why}."),)
        said = base.model_copy(update={"started_by": subject.why, "findings": found})
        return Told(said, subject.why)
    return _told(base, subject, asked)


def _told(base: Advice, subject: Subject, asked: Asked) -> Told:
    workload, identity = subject.workload, subject.identity
    card = find_card(workload, asked.gpu, asked.inventory)
    as_is, now = AsIs(), None
    answered = Answered("without a GPU type nothing can be planned; say it with --gpu")
    if card.gpu is not None:
        cards = (
            subject.run.cards if isinstance(subject.run, VllmRun) else max(1, card.told.count or 1)
        )
        answered = _answered(subject, card.gpu, cards, asked, _needs(subject))
        if answered.request is not None:
            as_is = _as_is(subject, answered.request)
            now = None if as_is.request is None else plan(as_is.request)
            answered = _kept(subject, card.gpu, cards, asked, now=now, first=answered)
    if answered.request is None and isinstance(subject.run, VllmRun):
        as_is = AsIs(unknown=vllm_unknown(subject.run))
    alone = isinstance(now, Refusal) and _is_ours_alone(subject, now)
    seen = Seen(subject, as_is, now, answered.ours, card.told, alone, asked.budgets)
    found = [*findings(seen), *_of_reading(subject, answered)]
    found += [card.finding] if card.finding is not None else []
    said = base.model_copy(
        update={
            "engine": subject.engine,
            "started_by": subject.launch.how,
            "release": subject.release,
            "model": ModelTold(
                id=identity.id,
                loads=identity.written,
                address=identity.address,
                quantization=identity.quantization,
                told_by=identity.told_by,
            ),
            "card": card.told,
            "verdict": AdviceVerdict.UNKNOWN if alone else _verdict(as_is, now),
            "now": now,
            "ours": answered.ours,
            "settings": tuple(settings_of(subject, card.gpu, answered.request, answered.ours)),
            "findings": tuple(sorted(found, key=lambda each: list(Level).index(each.level))),
        }
    )
    return Told(said, answered.draft)


def _of_reading(subject: Subject, answered: Answered) -> Iterator[Finding]:
    """What could not be read, and what was guessed or given up."""
    identity = subject.identity
    for note in subject.workload.notes:
        yield unknown("manifest", f"{note}.")
    if identity.is_guess:
        yield unknown(
            "model",
            f"{identity.written!r} is taken for {identity.id} by {identity.told_by}; say --model if it is another one.",
        )
    if answered.gave_up:
        yield advice("plan", f"{answered.gave_up}.")
    if isinstance(answered.draft, str) and not answered.draft.startswith("without a GPU"):
        yield unknown("model", f"{answered.draft}.")
    if isinstance(answered.ours, Refusal) and answered.request is None:
        is_unknown = answered.ours.reason is Reason.MODEL_UNKNOWN
        way = " Here: --facts FILE with what it prints." if is_unknown else ""
        yield unknown("model", answered.ours.sentence() + way)


def _answered(subject: Subject, card: GpuFacts, cards: int, asked: Asked, needs: Needs) -> Answered:
    """The manifest with these needs, and the planner's answer to it."""
    made = draft(subject, card=card, cards=cards, needs=needs, facts=asked.facts)
    if isinstance(made, str):
        return Answered(made)
    try:
        deployment = read(made.body)
    except ValueError as error:
        return Answered(f"no manifest can be made of it: {str(error).splitlines()[0]}")
    many = NodeGpus(node="any", gpu=card, count=cards * max(1, subject.workload.replicas), free=0)
    ask = pool_asks(deployment, Inventory(nodes=(many,)), measured=asked.lanes)[0]
    if ask.request is None:
        return Answered(made, ask.refusal)
    return Answered(made, plan(ask.request), ask.request)


def _needs(subject: Subject) -> Needs:
    """What somebody wrote and may mean: the length, the step, the dtype of the cache."""
    run = subject.run
    if isinstance(run, VllmRun):
        return Needs(run.max_model_len, run.max_num_batched_tokens, run.kv_dtype)
    dtype = run.key_type if run.key_type == run.value_type else "auto"
    length = max(1, run.ctx_size // (run.slots or 1)) if run.ctx_size else None
    return Needs(length, None, dtype, run.slots)


def _kept(
    subject: Subject,
    card: GpuFacts,
    cards: int,
    asked: Asked,
    *,
    now: Plan | Refusal | None,
    first: Answered,
) -> Answered:
    """The most of the settings that fits: all, then without the step, then without the length.

    A length that nobody wrote is the model's own where the settings as they are hold it.
    """
    wrote = _needs(subject)
    tries: list[tuple[Needs, str]] = [(wrote, "")]
    if wrote.max_model_len is None and isinstance(now, Plan) and isinstance(subject.run, VllmRun):
        tries.insert(0, (wrote._replace(max_model_len=now.max_model_len), ""))
    if wrote.batched_tokens is not None:
        gave_up = "--max-num-batched-tokens as written leaves no room, so the plan chooses the step"
        tries.append((wrote._replace(batched_tokens=None), gave_up))
    if wrote.slots is not None:
        gave_up = f"{wrote.slots} slots do not fit, so the plan chooses their number"
        tries.append((wrote._replace(slots=None), gave_up))
    if wrote.max_model_len is not None:
        gave_up = f"{wrote.max_model_len:,} tokens do not fit, so the plan is for a shorter length"
        tries.append((Needs(kv_dtype=wrote.kv_dtype), gave_up))
    for needs, gave_up in tries:
        found = first if needs == wrote else _answered(subject, card, cards, asked, needs)
        if isinstance(found.ours, Plan):
            return found._replace(gave_up=gave_up)
    return first


def _as_is(subject: Subject, request: PlanRequest) -> AsIs:
    if isinstance(subject.run, VllmRun):
        generation = env_of(subject.workload).get("VLLM_USE_V1", "")
        return (
            AsIs()
            if request.model is None
            else vllm_as_is(subject.run, request.model, request, generation)
        )
    return AsIs() if request.gguf is None else llama_cpp_as_is(subject.run, request.gguf, request)


def _is_ours_alone(subject: Subject, refusal: Refusal) -> bool:
    allows_long = env_of(subject.workload).get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1"
    return is_ours_alone(refusal, subject.run, allows_long=allows_long)


def _verdict(as_is: AsIs, now: Plan | Refusal | None) -> AdviceVerdict:
    if isinstance(now, Refusal):
        return AdviceVerdict.WOULD_NOT_FIT
    if now is None or as_is.is_least:
        return AdviceVerdict.UNKNOWN
    return AdviceVerdict.FITS
