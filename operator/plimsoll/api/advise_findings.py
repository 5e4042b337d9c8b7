"""What in a workload is worth a word, and how much does it matter?"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from plimsoll.api.advise_as_is import AsIs
from plimsoll.api.advise_pod import SHM, mapping, memory_of, shm_of
from plimsoll.api.advise_records import CardTold, Finding, Level
from plimsoll.api.advise_subject import Subject
from plimsoll.api.advise_words import word_findings
from plimsoll.engines.base import ByteOwner, EngineName
from plimsoll.engines.llama_cpp.running import FITS_ITSELF, LlamaCppRun
from plimsoll.engines.reading import ROWS
from plimsoll.engines.vllm.defaults import utilization
from plimsoll.engines.vllm.memory import host_memory_bytes
from plimsoll.engines.vllm.running import VllmRun
from plimsoll.plan.records import Plan, Refusal
from plimsoll.plan.steps import HEADROOMS
from plimsoll.units import counted, gib

SMALL_SHM: Final = "a container gets 64 MiB there by itself"


class Seen(NamedTuple):
    """All that is known when findings are made."""

    subject: Subject
    """What was read."""
    as_is: AsIs
    """The question of the settings as they are."""
    now: Plan | Refusal | None
    """Its answer."""
    ours: Plan | Refusal | None
    """What would be pinned."""
    card: CardTold
    """The cards that the pod asks for."""
    budgets: Sequence[Mapping[str, Any]] | None = None
    """PodDisruptionBudgets among the documents; None where nobody looked."""


def findings(seen: Seen) -> tuple[Finding, ...]:
    """All of them, what matters first."""
    found = [each for make in _MAKERS for each in make(seen)]
    order = list(Level)
    return tuple(sorted(dict.fromkeys(found), key=lambda each: order.index(each.level)))


def matters(about: str, message: str) -> Finding:
    """A finding that should not wait."""
    return Finding(level=Level.MATTERS, about=about, message=message)


def advice(about: str, message: str) -> Finding:
    """A finding that may."""
    return Finding(level=Level.ADVICE, about=about, message=message)


def unknown(about: str, message: str) -> Finding:
    """What could not be told."""
    return Finding(level=Level.UNKNOWN, about=about, message=message)


def _memory(seen: Seen) -> Iterator[Finding]:
    """Does it fit?"""
    for flag, sentence in seen.as_is.unknown:
        yield unknown(flag, f"{sentence}.")
    if isinstance(seen.now, Refusal):
        sentence = seen.now.sentence()
        if seen.subject.engine is EngineName.LLAMA_CPP and _fits_itself(seen):
            yield advice("--fit", f"it would lower what nobody set at load: {sentence}")
        else:
            yield matters("memory", f"the settings as they are do not fit: {sentence}")
    if isinstance(seen.now, Plan):
        yield from _margin(seen.now)
        yield from _concurrency(seen, seen.now)


def _margin(now: Plan) -> Iterator[Finding]:
    """What stays free of each card for what the profile run does not see."""
    usual, least, _ = HEADROOMS
    free = now.line(ByteOwner.HEADROOM)
    if now.engine is not EngineName.VLLM or free >= usual:
        return
    say = matters if free < least else advice
    yield say(
        "--gpu-memory-utilization",
        f"leaves {gib(free)} of each card for what the engine's profile run does not see (attention scratch, "
        f"fragmentation); {gib(usual)} are usual, and a long prompt may end it without them.",
    )


def _fits_itself(seen: Seen) -> bool:
    run = seen.subject.run
    return (
        isinstance(run, LlamaCppRun)
        and (run.gpu_layers is None)
        and not seen.subject.row.is_before(FITS_ITSELF)
        and (run.fits_itself is not False)
    )


def _concurrency(seen: Seen, now: Plan) -> Iterator[Finding]:
    if now.engine is not EngineName.VLLM:
        return
    asked, worst, expected = (
        now.concurrency.max_num_seqs,
        now.concurrency.worst_case,
        now.concurrency.expected,
    )
    if asked <= worst:
        return
    is_written = seen.subject.reading.last("--max-num-seqs") is not None
    whose = "" if is_written else ", which is the release's default"
    mean = now.concurrency.safe_mean_tokens or 0
    sentence = (
        f"{asked:,} sequences may run at once{whose}; the pool holds {counted(worst, 'sequence')} of "
        f"{now.max_model_len:,} tokens, and beyond an average of {mean:,} tokens requests are preempted and "
        "computed again"
    )
    if expected is None:
        yield advice("--max-num-seqs", f"{sentence}. Whether yours are that long, --lengths tells.")
    elif expected < asked:
        yield matters(
            "--max-num-seqs", f"{sentence}. For the lengths that were counted {expected:,} hold."
        )


def _release(seen: Seen) -> Iterator[Finding]:
    if seen.subject.release is None:
        image = seen.subject.image or "an image that the manifest does not name"
        yield unknown(
            "image",
            f"{image} does not say which release of the engine it is; defaults are those of {seen.subject.row.text}. "
            "Say it with --release, and pin a tag: a new image changes defaults under the same manifest.",
        )
    rows = {row.name: row for row in ROWS[seen.subject.engine]}
    for flag in dict.fromkeys(said.flag for said in seen.subject.reading.said):
        row = rows.get(flag)
        if row is None or seen.subject.release is None:
            continue
        if row.until is not None and not seen.subject.row.is_before(row.until):
            yield matters(
                flag,
                f"{seen.subject.row.text} does not have the flag any more ({row.source}) and refuses to start with "
                "it; take it out.",
            )
        if row.since is not None and seen.subject.row.is_before(row.since):
            yield matters(
                flag,
                f"the flag came with {row.since}; {seen.subject.row.text} refuses to start with it.",
            )


def _words(seen: Seen) -> Iterator[Finding]:
    return word_findings(seen.subject)


def _defaults(seen: Seen) -> Iterator[Finding]:
    if isinstance(seen.subject.run, VllmRun):
        if seen.subject.run.utilization is None and seen.subject.run.kv_cache_bytes is None:
            share = utilization(seen.subject.row)
            yield advice(
                "--gpu-memory-utilization",
                f"is not written, so {share:g} counts in this release; it was 0.90 before 0.20 and is 0.92 since: "
                "write it, or an image bump changes the pool.",
            )
        if seen.subject.run.max_model_len is None and not seen.subject.run.is_length_fitted:
            yield advice(
                "--max-model-len",
                "is not written, so the model's whole length counts: a request may take it all.",
            )
    else:
        if seen.subject.run.cache_ram_mib is not None and seen.subject.run.cache_ram_mib < 0:
            yield matters(
                "--cache-ram",
                "-1 lets the prompt cache grow without end, until the container is killed.",
            )
        if _fits_itself(seen):
            yield advice(
                "--n-gpu-layers",
                "is not written: how many layers lie on the card depends on what is free at load.",
            )
        if seen.subject.run.slots is None and not seen.subject.row.is_before(FITS_ITSELF):
            yield advice(
                "--parallel",
                "is not written: four slots share one cache, and one long request takes the others' cells.",
            )


def _host(seen: Seen) -> Iterator[Finding]:
    """Host memory, shared memory."""
    limit, need = memory_of(seen.subject.workload.container, "limits"), _host_bytes(seen)
    if need is not None and limit is not None and limit < need:
        yield matters(
            "resources.limits.memory",
            f"{gib(limit)} is below the {gib(need)} that loading and serving may take in host memory: the kernel "
            "kills it with exit code 137 then.",
        )
    elif limit is None:
        enough = "" if need is None else f"; {gib(need)} hold it"
        yield advice(
            "resources.limits.memory",
            f"is not written: host memory that grows takes the node down with it{enough}.",
        )
    shm = shm_of(seen.subject.workload)
    run = seen.subject.run
    if isinstance(run, VllmRun) and run.cards > 1 and not shm.is_there:
        yield matters(
            SHM,
            f"{run.cards} ranks talk through shared memory, and {SMALL_SHM}; mount an emptyDir with medium Memory "
            "there.",
        )


def _host_bytes(seen: Seen) -> int | None:
    """What the container needs; None where that depends on a model that nobody knows."""
    plan = seen.now if isinstance(seen.now, Plan) else seen.ours
    if isinstance(plan, Plan):
        return plan.host_memory_bytes + seen.as_is.extra_host_bytes
    if isinstance(seen.subject.run, VllmRun):
        return host_memory_bytes(seen.subject.run.cards) + seen.as_is.extra_host_bytes
    return None


def _cards(seen: Seen) -> Iterator[Finding]:
    count = seen.card.count
    if isinstance(seen.subject.run, VllmRun):
        ranks = seen.subject.run.cards * (
            seen.subject.run.data if seen.subject.workload.nodes == 1 else 1
        )
        pods = seen.subject.workload.nodes
        if count is not None and ranks > count * pods:
            yield matters(
                "--tensor-parallel-size",
                f"{counted(ranks, 'rank')} need as many cards, and the pod asks for {count * pods}: the engine "
                "does not start.",
            )
        elif count is not None and ranks < count * pods:
            yield advice(
                "--tensor-parallel-size",
                f"the pod asks for {counted(count * pods, 'card')} and uses {ranks}; the others idle.",
            )
    if count is None:
        yield unknown(
            "resources.limits",
            "the container asks for no card: nothing keeps another pod off the one it uses.",
        )


def _probes(seen: Seen) -> Iterator[Finding]:
    container = seen.subject.workload.container
    if not container.get("readinessProbe"):
        yield advice(
            "readinessProbe", "is not there: requests are sent to a worker that still loads."
        )
    live = mapping(container.get("livenessProbe"))
    if live and not container.get("startupProbe"):
        patience = _number(live, "initialDelaySeconds", 0) + _number(
            live, "periodSeconds", 10
        ) * _number(live, "failureThreshold", 3)
        yield advice(
            "startupProbe",
            f"is not there, and the liveness probe gives up after {patience} s: loading that takes longer "
            "is killed and begins anew.",
        )


def _number(probe: Mapping[str, Any], field: str, default: int) -> int:
    value = probe.get(field, default)
    return value if isinstance(value, int) else default


def _budget(seen: Seen) -> Iterator[Finding]:
    if seen.budgets is None or seen.subject.workload.kind in ("Pod", "DaemonSet", "Model", "Job"):
        return
    labels = seen.subject.workload.labels
    for each in seen.budgets:
        spec = mapping(each.get("spec"))
        wanted = mapping(mapping(spec.get("selector")).get("matchLabels"))
        if wanted and all(labels.get(key) == value for key, value in wanted.items()):
            return
    yield advice(
        "PodDisruptionBudget",
        "none stands beside it in what was given: a drain may take all workers at once.",
    )


_MAKERS: Final = (_memory, _cards, _words, _release, _host, _defaults, _probes, _budget)
"""Each says what it has to say of one side."""
