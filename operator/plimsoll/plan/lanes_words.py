"""How do we say what lanes at a gate made of a plan, and what they could not?"""

from collections.abc import Iterator
from typing import Final

from plimsoll.engines.vllm import flags, memory
from plimsoll.plan.lanes import AtTheGate, let_in_at_most, long_prompt_tokens
from plimsoll.plan.lanes_pace import prompt_tokens_per_second
from plimsoll.plan.paged_ask import PagedAsk, Sizing, block_tokens, pool_tokens, state_tokens

SOURCE: Final = "docs/measured/gateway.md"


def notes(ask: PagedAsk, sizing: Sizing) -> Iterator[str]:
    """What was pinned for the lanes and why; nothing without a gate."""
    gate = ask.request.gate
    if gate is None:
        return
    yield from _step(ask, gate)
    yield from _sequences(ask, gate, sizing)
    yield from _long(ask, gate)
    yield from _order(ask, gate)
    yield from _queue(ask, gate)
    for flag in sorted(gate.said):
        yield f"lanes: {flag} is set in extraArgs and stays as it is"


def _step(ask: PagedAsk, gate: AtTheGate) -> Iterator[str]:
    usual = memory.default_batched_tokens(ask.gpu, ask.release)
    step, gap = ask.step_tokens, gate.gap_seconds
    if ask.request.overrides.max_num_batched_tokens is not None:
        yield f"lanes: steps of {step:,} tokens are set in the pool (maxNumBatchedTokens)"
        return
    pace = prompt_tokens_per_second(
        ask.model, ask.gpu, ask.request.cards, after_tokens=gate.depth_tokens
    )
    if gap is not None and pace is None:
        yield (
            f"lanes: gateway.interTokenMilliseconds has no effect, for nobody published how fast "
            f"{ask.gpu.product} computes; steps have {step:,} tokens, and maxNumBatchedTokens in the pool sets others"
        )
    elif gap is not None and pace is not None:
        takes = round(1000 * step / pace)
        over = f", more than the {round(1000 * gap)} ms asked for" if takes > 1000 * gap else ""
        yield f"lanes: steps of {step:,} tokens, about {takes:,} ms each by the card's data sheet{over}"
    elif step < usual:
        yield f"lanes: steps of {step:,} tokens, not {usual:,}: every answer waits for a step ({SOURCE})"


def _sequences(ask: PagedAsk, gate: AtTheGate, sizing: Sizing) -> Iterator[str]:
    let_in = let_in_at_most(
        gate, block_tokens=block_tokens(ask) or 1, pool_tokens=pool_tokens(ask, sizing)
    )
    if sizing.sequences > let_in:
        yield f"lanes: {sizing.sequences} sequences are asked for; the gate never lets in more than {let_in}"
    elif (promised := ask.promised(sizing)) > sizing.sequences:
        yield (
            f"lanes: {sizing.sequences} sequences, as many as the gate ever lets in, lending counted; the pool "
            f"would hold {promised}"
        )


def _long(ask: PagedAsk, gate: AtTheGate) -> Iterator[str]:
    tokens = long_prompt_tokens(
        gate, step=ask.step_tokens, longest=ask.length, state_tokens=state_tokens(ask)
    )
    if tokens is not None and "--long-prefill-token-threshold" not in gate.said:
        yield f"lanes: a prompt takes {tokens:,} tokens of a step while others are there ({SOURCE})"


def _order(ask: PagedAsk, gate: AtTheGate) -> Iterator[str]:
    if not gate.has_order:
        return
    if flags.hears_priorities(ask.release):
        yield "lanes: the engine's queue is by priority, which the gate sets"
    else:
        yield (
            f"lanes: the engine's queue is first come, first served: vLLM {ask.release.text} reads no priority "
            f"from a header, {flags.PRIORITY_HEADER_SINCE} does"
        )


def _queue(ask: PagedAsk, gate: AtTheGate) -> Iterator[str]:
    row = next(row for row in flags.LANE_ROWS if row.name == "--max-num-queued-reqs")
    if ask.release.is_before(row.since or "0") and row.name not in gate.said:
        yield (
            f"lanes: vLLM {ask.release.text} has no bound on its own queue ({row.since} has one): "
            "the gate is the only wall"
        )
