"""Does the pure decision keep its promise whatever happens, in whatever order?

A random walk over gates, workers, queues and keepers. HAProxy may hand out requests at any moment up to
the limits of that moment; a keeper looks, and its changes arrive late, one by one, in any order, or only
in part because it dies. Workers come, drain, stay after all and are killed; gates hand over to a next one.
After every single thing that happens, nothing may be promised that a worker does not hold.

    python -m benchmarks.gateway.walk --steps 300000
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from plimsoll.gate.allocate import part_of
from plimsoll.gate.records import LaneRoom, Part, WorkerRoom, promise
from plimsoll.gate.step import Change, LaneSeen, WorkerSeen, retire, step

MOST_WORKERS: Final = 5
STEPS_PER_WORLD: Final = 500


class Walked(NamedTuple):
    """What happened on the way."""

    steps: int
    """Looks of a keeper."""
    changes: int
    """Limits that were set."""
    lent: int
    """Looks after which some lane had more than was planned for it."""
    crashes: int
    """Keepers that died between two changes of one look."""
    hand_overs: int
    """Gates that were replaced while requests ran."""
    violations: tuple[str, ...]
    """Moments at which more was promised, or ran, than a worker holds; empty when all is well."""


@dataclass
class Gate:
    """One HAProxy: limits and requests in flight by worker and lane, and its queues."""

    lanes: int
    limits: dict[str, list[int]] = field(default_factory=dict)
    running: dict[str, list[int]] = field(default_factory=dict)
    queued: list[int] = field(default_factory=list)
    is_retiring: bool = False

    def __post_init__(self) -> None:
        self.queued = [0] * self.lanes

    def admit(self, worker: str) -> None:
        """A worker is put into a server with every lane closed."""
        self.limits[worker] = [0] * self.lanes
        self.running[worker] = [0] * self.lanes

    def forget(self, worker: str) -> None:
        """It is gone, and its requests are cut."""
        del self.limits[worker], self.running[worker]

    def is_empty(self) -> bool:
        return not any(self.queued) and not any(map(any, self.running.values()))


class World:
    """Workers of a few kinds, one gate or two, and whatever befalls them."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.lanes = _lanes(dice)
        self.lend = dice.random() < 0.8
        self.rooms: dict[str, WorkerRoom] = {}
        self.parts: dict[str, Part] = {}
        self.draining: set[str] = set()
        self.busy = [dice.random() < 0.5 for _ in self.lanes]
        self.gates = [Gate(len(self.lanes))]
        self.born = self.steps = self.changes = self.lent = self.crashes = self.hand_overs = 0
        self.violations: list[str] = []
        for _ in range(dice.randint(1, 3)):
            self.worker_comes()

    def worker_comes(self) -> None:
        self.born += 1
        dice = self.dice
        room = WorkerRoom(
            pool="any",
            kv_tokens=dice.choice([0, 3_000, 30_000, 65_536, 131_072, 262_144, 500_001]),
            max_num_seqs=dice.choice([1, 2, 7, 16, 64, 256]),
            block_tokens=dice.choice([1, 16, 64]),
        )
        name = f"w{self.born}"
        self.rooms[name], self.parts[name] = room, part_of(room, self.lanes)
        for gate in self.gates:
            gate.admit(name)

    def worker_is_gone(self, name: str) -> None:
        for gate in self.gates:
            gate.forget(name)
        del self.parts[name], self.rooms[name]
        self.draining.discard(name)

    def happens(self) -> None:
        """One thing that nobody planned."""
        dice = self.dice
        match dice.randrange(20):
            case 0 if len(self.parts) < MOST_WORKERS:
                self.worker_comes()
            case 1 if len(self.parts) > 1:
                self.worker_is_gone(dice.choice(sorted(self.parts)))
            case 2 | 3:
                self.draining ^= {dice.choice(sorted(self.parts))}
            case 4 if len(self.gates) == 1 and dice.random() < 0.3:
                self.next_gate()
            case 5 | 6:
                for gate in self.gates:
                    for running in gate.running.values():
                        running[:] = [dice.randint(0, count) for count in running]
            case 10 if dice.random() < 0.3:
                for gate in self.gates:
                    gate.queued[:] = [0] * len(self.lanes)
            case 8 if len(self.gates) == 2:
                self.gates[0].is_retiring = True
            case 9:
                self.busy = [dice.random() < 0.5 for _ in self.lanes]
            case _:
                newest = self.gates[-1]
                newest.queued = [
                    min(200, queue + dice.choice([0, 1, 20, 60]) * busy)
                    for queue, busy in zip(newest.queued, self.busy, strict=True)
                ]
        self.hand_out()

    def hand_out(self) -> None:
        """HAProxy gives waiting requests to workers, up to the limits of this moment."""
        for gate in self.gates:
            for name in self.dice.sample(sorted(gate.limits), len(gate.limits)):
                if name in self.draining:
                    continue
                for lane, limit in enumerate(gate.limits[name]):
                    free = max(0, limit - gate.running[name][lane])
                    taken = self.dice.randint(0, min(free, gate.queued[lane]))
                    gate.running[name][lane] += taken
                    gate.queued[lane] -= taken
        self.check()

    def next_gate(self) -> None:
        """A new gate begins with every lane closed and shares with the old one, which retires later."""
        self.hand_overs += 1
        gate = Gate(len(self.lanes))
        for name in self.parts:
            gate.admit(name)
        self.gates.append(gate)

    def look(self, gate: Gate) -> tuple[WorkerSeen, ...]:
        others = [other for other in self.gates if other is not gate]
        shares = len(self.gates) == 2 and not self.gates[0].is_retiring
        gates, index = (2, self.gates.index(gate)) if shares else (1, 0)
        return tuple(
            WorkerSeen(
                name=name,
                part=part_of(self.rooms[name], self.lanes, gates=gates, index=index),
                whole=part if shares else None,
                lanes=tuple(
                    LaneSeen(limit=limit, in_flight=running)
                    for limit, running in zip(gate.limits[name], gate.running[name], strict=True)
                ),
                elsewhere=tuple(
                    sum(
                        max(other.limits[name][lane], other.running[name][lane]) for other in others
                    )
                    for lane in range(len(self.lanes))
                ),
                is_leaving=name in self.draining,
            )
            for name, part in self.parts.items()
        )

    def keeper_acts(self) -> None:
        """Each keeper looks, and what follows arrives whole, late, shuffled or not at all."""
        for gate in list(self.gates):
            seen = self.look(gate)
            changes = (
                retire(seen, gate.queued)
                if gate.is_retiring
                else step(seen, self.lanes, gate.queued, lend=self.lend)
            )
            self.steps += 1
            self.apply(gate, changes)
            self.lent += any(
                limit > planned
                for name, part in self.parts.items()
                for limit, planned in zip(gate.limits[name], part.planned, strict=True)
            )
        old = self.gates[0]
        if old.is_retiring and old.is_empty() and len(self.gates) > 1:
            self.gates.pop(0)

    def apply(self, gate: Gate, changes: Sequence[Change]) -> None:
        dice = self.dice
        arriving = list(changes)
        if dice.random() < 0.5:
            dice.shuffle(arriving)
        if arriving and dice.random() < 0.1:
            self.crashes += 1
            arriving = arriving[: dice.randrange(len(arriving))]
        for change in arriving:
            if dice.random() < 0.3:
                self.hand_out()
            gate.limits[change.server][change.lane] = change.limit
            self.changes += 1
            self.check()

    def check(self) -> None:
        for name, part in self.parts.items():
            runs = tuple(
                sum(gate.running[name][lane] for gate in self.gates)
                for lane in range(len(self.lanes))
            )
            may_run = tuple(
                sum(max(gate.limits[name][lane], gate.running[name][lane]) for gate in self.gates)
                for lane in range(len(self.lanes))
            )
            if not promise(part, runs).is_within(part):
                self.violations.append(f"{name}: {runs} run, {part} is planned")
            if not promise(part, may_run).is_within(part):
                self.violations.append(f"{name}: {may_run} may run, {part} is planned")

    def settle(self) -> None:
        """Everybody goes home: with nothing in flight and nobody waiting, limits are as planned."""
        self.draining.clear()
        if len(self.gates) == 2:
            self.gates[0].is_retiring = True
        for gate in self.gates:
            gate.queued[:] = [0] * len(self.lanes)
            for running in gate.running.values():
                running[:] = [0] * len(self.lanes)
        for _ in range(4):
            self.keeper_acts()
            self.keeper_acts()
        # a keeper may have died just now
        for gate in self.gates:
            for change in step(self.look(gate), self.lanes, lend=self.lend):
                gate.limits[change.server][change.lane] = change.limit
            for change in step(self.look(gate), self.lanes, lend=self.lend):
                gate.limits[change.server][change.lane] = change.limit
        for name, part in self.parts.items():
            if tuple(self.gates[-1].limits[name]) != part.planned:
                self.violations.append(
                    f"{name}: idle with {self.gates[-1].limits[name]}, {part.planned} is planned"
                )


def walk(steps: int, *, seed: int = 1) -> Walked:
    """So many looks of keepers, over as many worlds as it takes."""
    total = Walked(0, 0, 0, 0, 0, ())
    worlds = 0
    while total.steps < steps:
        world = World(random.Random(f"{seed}/{worlds}"))
        worlds += 1
        while world.steps < min(STEPS_PER_WORLD, steps - total.steps):
            world.happens()
            if world.dice.random() < 0.7:
                world.keeper_acts()
        counted = world.steps
        world.settle()
        total = Walked(
            steps=total.steps + counted,
            changes=total.changes + world.changes,
            lent=total.lent + world.lent,
            crashes=total.crashes + world.crashes,
            hand_overs=total.hand_overs + world.hand_overs,
            violations=total.violations + tuple(world.violations[:3]),
        )
    return total


def _lanes(dice: random.Random) -> tuple[LaneRoom, ...]:
    count = dice.randint(1, 4)
    cuts = sorted(dice.sample(range(1, 100), count - 1))
    shares = [high - low for low, high in zip([0, *cuts], [*cuts, 100], strict=True)]
    return tuple(
        LaneRoom(
            name=f"lane{place}",
            tokens=dice.choice([500, 1_024, 3_900, 8_192, 31_200]),
            share_percent=share,
            priority=dice.choice([0, 0, 10]),
            borrow=dice.random() < 0.7,
            most_per_worker=dice.choice([None, None, 1, 2]),
        )
        for place, share in enumerate(shares)
    )


def main() -> int:
    """Walk and say what happened; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=300_000, help="looks (default: 300000)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    walked = walk(arguments.steps, seed=arguments.seed)
    for violation in walked.violations[:20]:
        print(violation)
    print(
        f"{walked.steps:,} looks, {walked.changes:,} limits set, lent after {walked.lent:,} looks, "
        f"{walked.crashes:,} keepers died half way, {walked.hand_overs:,} hand-overs: "
        f"{len(walked.violations):,} violations"
    )
    return 1 if walked.violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
