"""Does it fit, with which margin, and do as many sequences as it lets in?"""

from collections.abc import Iterator
from typing import Final

from plimsoll.api.advise_as_is import in_flags
from plimsoll.api.advise_pod import env_of
from plimsoll.api.advise_records import Finding
from plimsoll.api.advise_seen import Seen, advice, matters, unknown
from plimsoll.engines.base import ByteOwner, EngineName
from plimsoll.plan.records import Plan, Refusal
from plimsoll.plan.steps import HEADROOMS
from plimsoll.units import counted, gib

ESTIMATE: Final = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"


def memory_findings(seen: Seen) -> Iterator[Finding]:
    """Does it fit?"""
    for flag, sentence in seen.as_is.unknown:
        yield unknown(flag, f"{sentence}.")
    if isinstance(seen.now, Refusal):
        sentence = in_flags(seen.now.sentence(), seen.subject.run)
        if seen.subject.engine is EngineName.LLAMA_CPP and seen.fits_itself:
            yield advice("--fit", f"it would lower what nobody set at load: {sentence}")
        elif seen.is_ours_alone:
            yield unknown("memory", f"the engine may take what is not planned for here: {sentence}")
        else:
            yield matters("memory", f"the settings as they are do not fit: {sentence}")
    if isinstance(seen.now, Plan):
        yield from _margin(seen, seen.now)
        yield from _concurrency(seen, seen.now)


def _margin(seen: Seen, now: Plan) -> Iterator[Finding]:
    """What stays free of each card for what the profile run does not see."""
    if now.engine is not EngineName.VLLM:
        return
    usual, least, _ = HEADROOMS
    outside = now.line(ByteOwner.GRAPHS) if _graphs_come_on_top(seen) else 0
    free = now.line(ByteOwner.HEADROOM) - outside
    if free >= usual:
        return
    say = matters if free < (0 if outside else least) else advice  # graphs are a bound
    on_top = (
        f", and {gib(outside)} of graphs come on top of the share unless {ESTIMATE}=1 is set"
        if outside
        else ""
    )
    left = f"leaves {gib(free)} of each card" if free > 0 else "leaves nothing of the card"
    yield say(
        "--gpu-memory-utilization",
        f"{left} for what the engine's profile run does not see (attention scratch, fragmentation){on_top}; "
        f"{gib(usual)} are usual, and a long prompt may end it without them.",
    )


def _graphs_come_on_top(seen: Seen) -> bool:
    """Whether the profile leaves graphs out of the share although the release could count them: off by default
    from 0.18, on from 0.21 (engines/vllm/memory.py)."""
    asked = env_of(seen.subject.workload).get(ESTIMATE)
    row = seen.subject.row
    return not row.is_before("0.18") and (asked == "0" or (asked is None and row.is_before("0.21")))


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
