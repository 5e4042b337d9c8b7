"""What do the operator's own parts cost at a quarter, a half and all of the site, without any cluster?

CPU time of this process, the least of several rounds: a look at all nodes, the first and every other one; what is
thought about one object that has its plan, and about a new one; and what it takes to know who is due next.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from benchmarks.finding import Finding
from benchmarks.scale_findings import LINEAR, growth
from benchmarks.scale_fleet import FULL, growing, nodes, objects

from plimsoll.cluster.fleet import Fleet, essence
from plimsoll.controller.queue import Schedule
from plimsoll.decide import Key, Manifest, Observed, decide
from plimsoll.facts.gpu import Inventory

ROUNDS: Final = 3
NOW_SECONDS: Final = 1e9
ASKS: Final = 2000


def parts() -> list[Finding]:
    """Each part at all three sizes; growth is the cost at 1/1 over that at 1/4, by node where it is a look at
    nodes, else as it is: no object may pay for the size of the site."""
    return [
        _grown("a first look at the nodes, for each", "us", _first_look, by_node=True),
        _grown("every other look, for each", "us", _next_look, by_node=True),
        _grown("the thought about an object that has its plan", "ms", _held),
        _grown("the thought about a new object", "ms", _new),
        _grown("to know who is due next", "us", _due),
    ]


Cost = Callable[[int, int], float]
"""Given nodes and objects: CPU seconds."""
_SCALES: Final = {"us": 1e6, "ms": 1e3}


def _grown(name: str, unit: str, cost: Cost, *, by_node: bool = False) -> Finding:
    sizes = growing(FULL)
    costs = [
        min(cost(*size) for _ in range(ROUNDS)) / (size.nodes if by_node else 1) * _SCALES[unit]
        for size in sizes
    ]
    at = ", ".join(f"{size.nodes:,} nodes and {size.objects} objects" for size in sizes)
    return growth(name, unit, costs, LINEAR, at=at)


class _Looking(Fleet):
    """A fleet whose nodes are here already."""

    def __init__(self, count: int) -> None:
        no_client: Any = None
        super().__init__(no_client, clock=time.monotonic)
        self._found = [essence(node) for node in nodes(0, count)]

    def look(self) -> Inventory:
        """As after a list of all nodes."""
        self._nodes = {node["metadata"]["name"]: node for node in self._found}
        self._alone = {name: self._of_node_alone(name) for name in self._nodes}
        return self._inventory(self._found, [], {}, ())


def _first_look(count: int, _: int) -> float:
    fleet = _Looking(count)
    return _took(fleet.look)


def _next_look(count: int, _: int) -> float:
    fleet = _Looking(count)
    fleet.look()
    return _took(fleet.look, times=5)


def _held(count: int, _: int) -> float:
    seen, one = _Looking(count).look(), _one()
    first = decide(Observed(deployment=one, inventory=seen), now_seconds=NOW_SECONDS)
    held = one | {"status": first.status}
    return _thought(Observed(deployment=held, inventory=seen, children=first.apply))


def _new(count: int, _: int) -> float:
    return _thought(Observed(deployment=_one(), inventory=_Looking(count).look()))


def _thought(observed: Observed) -> float:
    decide(observed, now_seconds=NOW_SECONDS)
    return _took(lambda: decide(observed, now_seconds=NOW_SECONDS), times=10)


def _one() -> Manifest:
    one: Manifest = json.loads(json.dumps(objects(0, 1)[0]))
    one["metadata"] |= {"uid": "u", "generation": 1, "resourceVersion": "1"}
    return one


def _due(_: int, count: int) -> float:
    schedule = Schedule()
    for key in _keys(count):
        schedule.put(key, NOW_SECONDS)
    return _took(schedule.next_due_seconds, times=ASKS)


def _keys(count: int) -> Iterator[Key]:
    for number in range(count):
        yield Key(namespace="team", name=f"chat-{number}")


def _took(work: Callable[[], object], *, times: int = 1) -> float:
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times
