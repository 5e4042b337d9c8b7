"""How is a driver waited for, that may have something to tell before the next look is due?

Of each card: faults (Xid; 79 is a card that fell off), slices cut anew, not available any more. Of the node: a
card that a driver is bound to or taken from. What a driver does not have is not waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, NamedTuple

import pynvml as nvml

from plimsoll.agent.nvml import asked, started
from plimsoll.agent.reading import Refused

OF_A_CARD: Final = (
    nvml.nvmlEventTypeXidCriticalError
    | nvml.nvmlEventMigConfigChange
    | nvml.nvmlEventTypeGpuUnavailableError
)
OF_THE_NODE: Final = nvml.nvmlSystemEventTypeGpuDriverBind | nvml.nvmlSystemEventTypeGpuDriverUnbind
SLICE_SECONDS: Final = 2.0
"""NVML's wait cannot be called off, so it is asked for this long at a time."""


class _Sets(NamedTuple):
    """What can be waited for."""

    cards: Any
    """An event set with at least one card; None where no card has events."""
    node: Any
    """A set of system events; None where the library has none, or refuses them."""

    @property
    def is_empty(self) -> bool:
        return self.cards is None and self.node is None


def wait(
    seconds: float,
    *,
    is_over: Callable[[float], bool],
    slice_seconds: float = SLICE_SECONDS,
) -> bool:
    """Wait so long at most; True when NVML told of something that calls for a new look.

    `is_over(seconds)` waits so long for the end of all waiting, and says whether it has come; it stands in
    for NVML's own wait where the driver has no events.
    """
    left = seconds
    with started() as failed, _sets(failed) as sets:
        while not sets.is_empty and left > 0:
            piece = min(left, slice_seconds)
            seen = asked(partial(_told, sets, int(piece * 1000)))
            if isinstance(seen, Refused):
                if left == seconds:
                    break  # events do not work here, as with a card that is lost
                return True  # they did until now: look what has become of the driver
            if seen:
                return True
            left -= piece
            if is_over(0.0):
                return False
    if left > 0:
        is_over(left)
    return False


def _told(sets: _Sets, milliseconds: int) -> bool:
    """Whether something was told within that time. Raises NVMLError for all but the time's end."""
    if sets.cards is not None:
        try:
            nvml.nvmlEventSetWait_v2(sets.cards, milliseconds)
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_TIMEOUT:
                raise
        else:
            return True
        milliseconds = 0
    return sets.node is not None and bool(_of_the_node(sets.node, milliseconds))


def _of_the_node(events: Any, milliseconds: int) -> list[Any]:
    room = nvml.nvmlSystemEventTypeCount
    told = (nvml.c_nvmlSystemEventData_v1_t * room)()
    found: list[Any] = nvml.nvmlSystemEventSetWait(
        nvml.nvmlSystemEventSetWaitRequest_v1, events, milliseconds, told, room
    )
    return found


@contextmanager
def _sets(failed: Refused | None) -> Iterator[_Sets]:
    """The sets that this driver has, freed again at the end."""
    if failed is not None:
        yield _Sets(None, None)
        return
    cards = asked(nvml.nvmlEventSetCreate)
    node = asked(_node_set)
    try:
        yield _Sets(
            None if isinstance(cards, Refused) or not _register(cards) else cards,
            None if isinstance(node, Refused) else node,
        )
    finally:
        if not isinstance(cards, Refused):
            asked(lambda: nvml.nvmlEventSetFree(cards))
        if not isinstance(node, Refused):
            version = nvml.nvmlSystemEventSetFreeRequest_v1
            asked(lambda: nvml.nvmlSystemEventSetFree(version, node))


def _register(events: Any) -> bool:
    """Ask for the events of every card that has some; whether any has."""
    count = asked(nvml.nvmlDeviceGetCount)
    registered = False
    for index in range(0 if isinstance(count, Refused) else count):
        with suppress(nvml.NVMLError):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            types = nvml.nvmlDeviceGetSupportedEventTypes(handle) & OF_A_CARD
            if types:
                nvml.nvmlDeviceRegisterEvents(handle, types, events)
                registered = True
    return registered


def _node_set() -> Any:
    """A set of system events. Raises NVMLError where the library has none."""
    events = nvml.nvmlSystemEventSetCreate(nvml.nvmlSystemEventSetCreateRequest_v1)
    nvml.nvmlSystemRegisterEvents(nvml.nvmlSystemRegisterEventRequest_v1, OF_THE_NODE, events)
    return events
