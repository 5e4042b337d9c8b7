"""What did deaths teach about a pool, in the planner's terms?

Each field is one thing that a move sets. The defaults say that nothing was learned, and then a plan is what
it always was, to the byte.
"""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from plimsoll.units import MIB

NO_CAP: Final = -1
"""A cap that is not there. Zero is one: no graphs, no layers on the card."""


class Steps(NamedTuple):
    """What a plan must do otherwise than arithmetic alone would."""

    reserve_bytes: int = 0
    """Bytes of each card kept free beside the headroom: the engine's share is smaller by as much."""
    budget_notches: int = 0
    """How far the share may go into the headroom, 0 to 2."""
    found_bytes: int = 0
    """Bytes of each card, inside the share, that the engine found taken and the plan did not know of."""
    held_bytes: int = 0
    """Bytes of each card that something else held at start."""
    max_model_len: int = NO_CAP
    """No longer than this, in tokens."""
    max_num_seqs: int = NO_CAP
    """No more sequences than this."""
    max_num_batched_tokens: int = NO_CAP
    """No larger steps than this, in tokens."""
    largest_graph: int = NO_CAP
    """No larger graph than this, in rows; 0 is no graphs at all."""
    ubatch_size: int = NO_CAP
    """No larger physical batch than this, in tokens."""
    cache_ram_bytes: int = NO_CAP
    """No larger prompt cache than this; the container keeps the memory that it gives up."""
    host_bytes: int = 0
    """Host memory of the container beside what the plan counts."""

    @property
    def is_nothing(self) -> bool:
        """Whether nothing was learned."""
        return self == NOTHING


NOTHING: Final = Steps()

SHARE_NOTCHES: Final = (0.0, 0.02, 0.03)
"""By notch: how much more than the usual highest gpu_memory_utilization is pinned then."""
HEADROOMS: Final = (512 * MIB, 256 * MIB, 128 * MIB)
"""By notch: what stays free outside the share. The usual headroom, half of it, and a quarter."""


def capped(value: int, cap: int) -> int:
    """The value, or the cap where there is one and it is lower."""
    return value if cap == NO_CAP else min(value, cap)


def most_or_none(cap: int) -> int | None:
    """The cap in the words of rooms that do not know steps."""
    return None if cap == NO_CAP else cap


def share_of(
    steps: Steps, *, usable_bytes: int, free_bytes: int, largest_share: float, step: int
) -> float:
    """The engine's share of the card, in whole parts of `step`, of `free_bytes` that are there for it.

    The reserve comes off the share itself: where the largest share binds, and not the card, a reserve in
    the headroom would leave the arguments as they were.
    """
    notch = min(steps.budget_notches, len(HEADROOMS) - 1)
    largest = round(largest_share + SHARE_NOTCHES[notch], 3)
    most = (free_bytes - HEADROOMS[notch]) / usable_bytes
    # in whole steps first and then the reserve, so that each reserve of a step or more changes it
    whole = min(largest, math.floor(most * step) / step)
    if not steps.reserve_bytes:
        return whole
    return max(0.0, math.floor((whole - steps.reserve_bytes / usable_bytes) * step) / step)


def steps_of(settings: Mapping[str, int]) -> Steps:
    """From what a status holds; names that this Plimsoll does not know are passed over."""
    return Steps(**{name: value for name, value in settings.items() if name in Steps._fields})


def settings_of(steps: Steps) -> dict[str, int]:
    """What differs from nothing, by name."""
    return {
        name: value
        for name, value in steps._asdict().items()
        if value != Steps._field_defaults[name]
    }
