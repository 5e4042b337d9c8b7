"""Has every gate drained the worker that is to be evicted?

Their keepers know what is in flight; the operator asks them while a worker drains. One that does not answer has
drained nobody: then the eviction waits, for as long as a drain may take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plimsoll.api.gateway_words import GateSeen
from plimsoll.api.recycling import Phase
from plimsoll.gate.elders import Word, is_of


def gates_to_ask(status: Mapping[str, Any], gates: Sequence[GateSeen]) -> tuple[GateSeen, ...]:
    """Those through which requests reach workers; none while nobody drains, or where the Service leads to the
    workers themselves."""
    if not (status.get("gateway") or {}).get("isDoor"):
        return ()
    history = (status.get("recycling") or {}).get("history") or ()
    if not any(each.get("phase") == Phase.DRAINING for each in history):
        return ()
    return tuple(each for each in gates if each.place is not None)


def drained_everywhere(
    asked: Sequence[GateSeen], words: Mapping[str, Word | None]
) -> frozenset[str] | None:
    """Names of workers that all of them have drained, given what each said, by its name; None where none was
    asked."""
    if not asked:
        return None
    said = [(words.get(each.name), each.name) for each in asked]
    return frozenset.intersection(
        *(word.drained if word and is_of(word, name) else frozenset() for word, name in said)
    )
