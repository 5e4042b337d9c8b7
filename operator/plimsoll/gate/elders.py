"""What do gates that stood here before leave for this one?

A gate that is replaced and the next one stand side by side for a while. Only the younger takes care: it reads
what the elder's keeper says of itself, and promises what is left. An elder says what it holds and what it may
come to hold under the standing that it acts on, so an old word is as good as a new one: it holds until the elder
is told otherwise, and then the younger knows which word to wait for (`since`). An elder that leaves is told
nothing any more and says so. One that is silent still holds what it said last, or everything.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from plimsoll.gate.records import GateRooms, Others, Part, Promise, Slots, promise
from plimsoll.gate.step import WorkerSeen, held
from plimsoll.gate.visit import Elder, Standing
from plimsoll.plan.lanes_slots import request_tokens

SILENT: Final = Others(is_known=False)
HOSTNAME_LENGTH: Final = 63
"""A pod's host name is its name, cut (k8s.io/kubernetes pkg/kubelet/util, truncatePodHostnameIfNeeded)."""


class Word(NamedTuple):
    """What a gate says of itself."""

    name: str
    """Its host's name."""
    since: int
    """The standing that its last whole visit acted on; -1 before the first."""
    is_leaving: bool
    """Whether its standing changes no more."""
    is_retiring: bool
    """Whether it raises nothing any more."""
    lanes: tuple[str, ...]
    """Names of its lanes."""
    held: dict[str, Slots]
    """By worker's address: limits and requests in flight, by lane."""
    may: dict[str, Promise]
    """By worker's address: what it holds, or may come to hold without being told anew."""
    drained: frozenset[str] = frozenset()
    """Names of workers that are to leave and have nothing of it in flight."""


def may_hold(worker: WorkerSeen, standing: Standing) -> Promise:
    """What this gate may have on the worker at any moment under that standing."""
    part: Part = worker.part
    now = promise(part, held(worker._replace(elsewhere=())))
    if standing.is_retiring:
        return now
    return Promise(max(now.tokens, part.kv_tokens), max(now.sequences, part.sequences))


def read_word(text: str) -> Word:
    """A keeper's page. Raises ValueError for what is none."""
    try:
        said: dict[str, Any] = json.loads(text)
        standing = said["standing"] or {}
        return Word(
            name=str(said["name"]),
            since=int(said["since"]),
            is_leaving=bool(said["isLeaving"]),
            is_retiring=bool(standing.get("is_retiring")),
            lanes=tuple(map(str, said["lanes"])),
            held={each: tuple(map(int, slots)) for each, slots in said["held"].items()},
            may={each: Promise(*map(int, amount)) for each, amount in said["may"].items()},
            drained=frozenset(map(str, said["drained"])),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"no page of a keeper: {error!r}") from error


def is_of(word: Word | None, name: str) -> bool:
    """Whether this is the word of the gate with that pod: its address may be another's by now."""
    return word is not None and word.name == name[:HOSTNAME_LENGTH].rstrip("-.")


def counts(word: Word | None, elder: Elder) -> bool:
    """Whether this is the word of that gate, and one that was said late enough."""
    if word is None or not is_of(word, elder.name):
        return False
    return word.is_leaving or word.since >= elder.since


def beside(
    elders: Sequence[Elder],
    words: Mapping[str, Word],
    rooms: GateRooms,
    workers: Iterable[tuple[str, str]],
) -> dict[str, Others]:
    """By address: what elders hold of each worker, given as (address, pool). `words` are by elder's name."""
    said = [words[each.name] for each in elders if counts(words.get(each.name), each)]
    if len(said) < len(elders):
        return {address: SILENT for address, _ in workers}
    return {address: _of(address, pool, said, rooms) for address, pool in workers}


def _of(address: str, pool: str, said: Sequence[Word], rooms: GateRooms) -> Others:
    room = rooms.of_pool(pool)
    names = [lane.name for lane in rooms.lanes]
    lanes = [0] * len(names)
    tokens = sequences = 0
    for word in said:
        if address not in word.may:
            if word.is_retiring:
                continue
            return SILENT  # it may seat it at any moment
        tokens += word.may[address].tokens
        sequences += word.may[address].sequences
        for name, slots in zip(word.lanes, word.held.get(address, ()), strict=False):
            if name in names:
                lanes[names.index(name)] += slots
    if room is None:
        return SILENT
    counted = sum(
        slots * request_tokens(lane, room) for slots, lane in zip(lanes, rooms.lanes, strict=True)
    )
    return Others(
        lanes=tuple(lanes),
        more=Promise(max(0, tokens - counted), max(0, sequences - sum(lanes))),
    )
