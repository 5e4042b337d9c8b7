"""Whose bytes are those on a card that no pod has asked for?

An agent sees what is held and not by whom; the operator knows which pods hold cards. While none on a node
does, what an agent reads there is others'. The reading must be younger than the idleness, and of the last two
the lesser counts, so that the rest of a worker that is just gone is nobody's. What was known so stays while
workers run. Kept in memory: after a restart it is known again when the node is idle again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from plimsoll.decide import Manifest
from plimsoll.units import MIB, round_up

STEP_BYTES: Final = 16 * MIB
"""Told upwards in these steps, and anew only when it has moved by two: what trembles makes no plan anew."""
SHARED_STEP_BYTES: Final = 512 * MIB
"""The same where card and host share one memory, of which every process of the host holds some."""

Requested = Mapping[tuple[str, str], int]


class _Idle(NamedTuple):
    """A node without a pod that holds cards, as its agent saw it."""

    heartbeat: str
    """Of the last reading that was taken up."""
    used: Mapping[str, int]
    """What was held then, by card; empty for the reading that was there when the idleness began."""


class Others:
    """What others than workers hold, by node and card."""

    def __init__(self) -> None:
        self._idle: dict[str, _Idle] = {}
        self._held: dict[str, dict[str, int]] = {}

    def look(self, gpu_nodes: Sequence[Manifest], requested: Requested) -> tuple[Manifest, ...]:
        """The GPUNodes with what is known so filled in where their agents leave it open.

        `requested` are the cards that living pods ask for, of all namespaces, by (node, resource); listed
        after the GPUNodes were.
        """
        busy = {node for (node, _), count in requested.items() if count}
        names = {each["metadata"]["name"] for each in gpu_nodes}
        self._idle = {name: was for name, was in self._idle.items() if name in names - busy}
        self._held = {name: held for name, held in self._held.items() if name in names}
        return tuple(self._filled(each, busy) for each in gpu_nodes)

    def _filled(self, gpu_node: Manifest, busy: set[str]) -> Manifest:
        name, status = gpu_node["metadata"]["name"], gpu_node.get("status") or {}
        cards = status.get("cards")
        if not isinstance(cards, list) or not all(isinstance(each, dict) for each in cards):
            return gpu_node
        if name not in busy:
            self._take_up(name, str(status.get("heartbeat") or ""), cards)
        held = self._held.get(name, {})
        return {
            **gpu_node,
            "status": {**status, "cards": [_with_others(each, held) for each in cards]},
        }

    def _take_up(self, name: str, heartbeat: str, cards: Sequence[Mapping[str, Any]]) -> None:
        was = self._idle.get(name)
        if was is None:  # this reading may be from before the last pod went
            self._idle[name] = _Idle(heartbeat, {})
            return
        if heartbeat == was.heartbeat:
            return
        used = {str(each["uuid"]): each["usedBytes"] for each in cards if _tells(each)}
        self._idle[name] = _Idle(heartbeat, used)
        known = self._held.setdefault(name, {})
        shared = {str(each.get("uuid")) for each in cards if each.get("unifiedMemory")}
        for uuid in used.keys() & was.used.keys():
            step_bytes = SHARED_STEP_BYTES if uuid in shared else STEP_BYTES
            least = min(used[uuid], was.used[uuid])
            known[uuid] = _steadied(least, known.get(uuid), step_bytes)


def _tells(card: Mapping[str, Any]) -> bool:
    """Whether what is held on a card is others' when no pod holds it; a sliced card's is not told."""
    return isinstance(card.get("usedBytes"), int) and "uuid" in card and not card.get("migEnabled")


def _with_others(card: Mapping[str, Any], held: Mapping[str, int]) -> Mapping[str, Any]:
    """What the operator knows and what the agent is certain of: the more of the two, for each is a least."""
    known = held.get(str(card.get("uuid")))
    said = card.get("heldByOthersBytes")
    if known is None:
        return card
    most = max(known, said) if isinstance(said, int) else known
    return {**card, "heldByOthersBytes": most}


def _steadied(size_bytes: int, before: int | None, step_bytes: int) -> int:
    new = round_up(size_bytes, step_bytes)
    is_near = before is not None and abs(new - before) < 2 * step_bytes
    return before if is_near and before is not None else new
