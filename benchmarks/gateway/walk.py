"""Does the pure decision keep its promise whatever happens, in whatever order?

A random walk over gates, workers, queues and keepers. HAProxy may hand out requests at any moment up to
the limits of that moment; a keeper looks, and its changes arrive late, one by one, in any order, or only
in part because it dies. Workers come, drain, stay after all and are killed.

Gates are replaced as in the cluster: the operator's own words, which arrive late or never; keepers' pages, which
are read late or do not answer; gates with other lanes, evicted ones, ones that are killed before they are empty,
and changes of mind half way. After every single thing that happens, nothing may be promised that a worker does
not hold, by all gates together.

    python -m benchmarks.gateway.walk --steps 300000
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from plimsoll.api.gateway_words import GateSeen, Message, words_for
from plimsoll.gate.allocate import part_of
from plimsoll.gate.elders import Word, beside, counts, may_hold
from plimsoll.gate.records import GateRooms, LaneRoom, Part, Promise, WorkerRoom, promise
from plimsoll.gate.step import Change, LaneSeen, WorkerSeen, held, retire, step
from plimsoll.gate.visit import Elder, Standing
from plimsoll.render.gateway_objects import STANDING_ANNOTATION

MOST_WORKERS: Final = 5
MOST_GATES: Final = 3
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
    silences: int = 0
    """Keepers that neither looked nor answered for a while."""
    shared: int = 0
    """Looks at which more than one gate held something."""


@dataclass
class Gate:
    """One HAProxy, and what its keeper knows: limits and requests in flight by worker and lane, and its queues."""

    name: str
    question: str
    lanes: tuple[LaneRoom, ...]
    parts: dict[str, Part] = field(default_factory=dict)
    """By worker: all that is planned."""
    limits: dict[str, list[int]] = field(default_factory=dict)
    running: dict[str, list[int]] = field(default_factory=dict)
    queued: list[int] = field(default_factory=list)
    said: str = ""
    """The annotation."""
    file: Standing | None = None
    """What its keeper was shown of it; None until it has a place."""
    word: Word | None = None
    """Its keeper's page."""
    heard: dict[str, Word] = field(default_factory=dict)
    """Pages of its elders, as last read."""
    is_ready: bool = False
    ends: bool = False
    has_left: bool = False
    is_silent: bool = False

    def __post_init__(self) -> None:
        self.queued = [0] * len(self.lanes)

    def admit(self, worker: str, room: WorkerRoom) -> None:
        """A worker is put into a server with every lane closed."""
        self.parts[worker] = part_of(room, self.lanes)
        self.limits[worker] = [0] * len(self.lanes)
        self.running[worker] = [0] * len(self.lanes)

    def forget(self, worker: str) -> None:
        """It is gone, and its requests are cut."""
        del self.limits[worker], self.running[worker], self.parts[worker]

    def is_empty(self) -> bool:
        return not any(self.queued) and not any(map(any, self.running.values()))

    def holds(self) -> bool:
        return any(map(any, self.limits.values())) or any(map(any, self.running.values()))

    @property
    def standing(self) -> Standing | None:
        """How it stands now; what it is told after its end began is not shown."""
        if self.file is None:
            return None
        return self.file._replace(is_leaving=self.ends, is_retiring=self.has_left)

    @property
    def seen(self) -> GateSeen:
        """As the operator sees it."""
        return GateSeen(
            name=self.name,
            uid=self.name,
            is_ready=self.is_ready,
            ends_seconds=1e12 if self.ends else None,
            question=self.question,
            standing=self.said,
            address=self.name,
        )


class World:
    """Workers of a few kinds, their gates, and whatever befalls them."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.lend = dice.random() < 0.8
        self.rooms: dict[str, WorkerRoom] = {}
        self.draining: set[str] = set()
        self.question = "0"
        self.now = 1_000_000
        self.gates: list[Gate] = []
        self.born = self.steps = self.changes = self.lent = self.crashes = self.hand_overs = 0
        self.silences = self.shared = self.made = 0
        self.violations: list[str] = []
        self.gate_comes(_lanes(dice))
        for _ in range(dice.randint(1, 3)):
            self.worker_comes()

    # ---- workers and requests --------------------------------------------------------------------

    def worker_comes(self) -> None:
        self.born += 1
        dice = self.dice
        name = f"w{self.born}"
        self.rooms[name] = WorkerRoom(
            pool=name,
            kv_tokens=dice.choice([0, 3_000, 30_000, 65_536, 131_072, 262_144, 500_001]),
            max_num_seqs=dice.choice([1, 2, 7, 16, 64, 256]),
            block_tokens=dice.choice([1, 16, 64]),
        )

    def worker_is_gone(self, name: str) -> None:
        for gate in self.gates:
            if name in gate.limits:
                gate.forget(name)
        del self.rooms[name]
        self.draining.discard(name)

    def happens(self) -> None:  # noqa: PLR0912 - a table of what may befall
        """One thing that nobody planned."""
        dice = self.dice
        match dice.randrange(24):
            case 0 if len(self.rooms) < MOST_WORKERS:
                self.worker_comes()
            case 1 if len(self.rooms) > 1:
                self.worker_is_gone(dice.choice(sorted(self.rooms)))
            case 2 | 3:
                self.draining ^= {dice.choice(sorted(self.rooms))}
            case 4 if dice.random() < 0.3:
                self.another_gate()
            case 5 | 6:
                for gate in self.gates:
                    for running in gate.running.values():
                        running[:] = [dice.randint(0, count) for count in running]
            case 7 if dice.random() < 0.3:
                for gate in self.gates:
                    gate.queued[:] = [0] * len(gate.lanes)
            case 8 | 9:
                self.gate_goes_on(dice.choice(self.gates))
            case 10 if dice.random() < 0.3:
                gate = dice.choice(self.gates)
                gate.is_silent = not gate.is_silent
                self.silences += gate.is_silent
            case 11:
                self.operator_tells()
            case _:
                doors = [gate for gate in self.gates if gate.is_ready and not gate.ends]
                for gate in doors or self.gates[-1:]:
                    gate.queued = [
                        min(200, queue + dice.choice([0, 0, 1, 20, 60])) for queue in gate.queued
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

    # ---- gates -----------------------------------------------------------------------------------

    def gate_comes(self, lanes: tuple[LaneRoom, ...]) -> None:
        """A pod of the newest question; it has no place yet."""
        self.made += 1
        self.gates.append(Gate(f"g{self.made}", self.question, lanes))

    def another_gate(self) -> None:
        """Another question, or the last but one again; or the only gate is evicted, and replaced."""
        dice = self.dice
        if len(self.gates) >= MOST_GATES:
            return
        staying = [gate for gate in self.gates if not gate.ends]
        if len(staying) == 2:  # a change of mind: the elder stays, the younger goes
            self.question = staying[0].question
            self.gate_ends(staying[1])
            return
        self.hand_overs += 1
        old = (staying or self.gates)[-1]  # one that ends already is not evicted again
        if dice.random() < 0.3:
            self.gate_ends(old)
            self.gate_comes(old.lanes)
            return
        self.question = str(int(self.question) + 1)
        self.gate_comes(_lanes(dice) if dice.random() < 0.5 else old.lanes)

    def gate_ends(self, gate: Gate) -> None:
        """Its pod is deleted: what it was told late is not shown any more."""
        gate.ends = True

    def gate_goes_on(self, gate: Gate) -> None:
        """One step on the way of a gate: it is ready, its elder is ended, it has left, it is gone."""
        dice = self.dice
        if not gate.ends:
            gate.is_ready = gate.is_ready or gate.holds() or dice.random() < 0.1
            elders = [each for each in self.gates if each.question != self.question]
            if gate.is_ready and gate.question == self.question:
                for each in elders:
                    self.gate_ends(each)
        elif not gate.has_left:
            gate.has_left = True
        elif len(self.gates) > 1 and (gate.is_empty() or dice.random() < 0.1):
            self.gates.remove(gate)  # or killed: its requests are cut

    def operator_tells(self) -> None:
        """Annotations of all pods; some are shown to the keeper later, or never."""
        self.now += self.dice.randint(0, 1)
        message = Message(GateRooms(lanes=()), (), self.question, 1)
        for word in words_for([gate.seen for gate in self.gates], message, now_seconds=self.now):
            gate = next(each for each in self.gates if each.name == word.pod)
            if gate.ends:
                self.violations.append(f"{gate.name} is told although it ends")
            gate.said = word.annotations[STANDING_ANNOTATION]

    def keeper_hears(self, gate: Gate) -> None:
        """The kubelet shows it what it was told, and it reads its elders' pages; or not now."""
        dice = self.dice
        if gate.said and not gate.ends and dice.random() < 0.7:
            said = json.loads(gate.said)
            elders = tuple(Elder(**each) for each in said.get("elders", ()))
            gate.file = Standing(said["gates"], said["place"], since=said["since"], elders=elders)
        for elder in gate.file.elders if gate.file is not None else ():
            other = next((each for each in self.gates if each.name == elder.name), None)
            if other is None or other.is_silent or dice.random() < 0.3:
                continue
            if other.word is not None and counts(other.word, elder):
                gate.heard[elder.name] = other.word

    def keeper_acts(self) -> None:
        """Each keeper looks, and what follows arrives whole, late, shuffled or not at all."""
        for gate in list(self.gates):
            if gate.is_silent:
                continue
            self.keeper_hears(gate)
            if gate.standing is not None:
                self.keeper_looks(gate, gate.standing)
        self.shared += sum(gate.holds() for gate in self.gates) > 1

    def keeper_looks(self, gate: Gate, standing: Standing) -> None:
        for name, room in self.rooms.items():
            if name not in gate.limits and name not in self.draining:
                gate.admit(name, room)
        workers = self.look(gate, standing)
        gate.word = Word(
            name=gate.name,
            since=gate.word.since if gate.word is not None else -1,
            is_leaving=standing.is_leaving,
            is_retiring=gate.word is not None and gate.word.is_retiring,
            lanes=tuple(lane.name for lane in gate.lanes),
            held={each.name: held(each._replace(elsewhere=())) for each in workers},
            may={each.name: may_hold(each, standing) for each in workers},
        )
        if standing.is_retiring:
            changes = retire(workers, gate.queued)
        else:
            changes = step(workers, gate.lanes, gate.queued, lend=self.lend)
        self.steps += 1
        if self.apply(gate, changes):
            gate.word = gate.word._replace(since=standing.since, is_retiring=standing.is_retiring)
        self.lent += any(
            limit > planned
            for name, part in gate.parts.items()
            for limit, planned in zip(gate.limits[name], part.planned, strict=True)
        )

    def look(self, gate: Gate, standing: Standing) -> tuple[WorkerSeen, ...]:
        rooms = GateRooms.model_construct(lanes=gate.lanes, pools=tuple(self.rooms.values()))
        others = beside(standing.elders, gate.heard, rooms, [(name, name) for name in gate.limits])
        return tuple(
            WorkerSeen(
                name=name,
                part=part_of(
                    self.rooms[name], gate.lanes, gates=standing.gates, index=standing.place
                ),
                whole=gate.parts[name] if standing.gates > 1 else None,
                lanes=tuple(map(LaneSeen, gate.limits[name], gate.running[name])),
                elsewhere=others[name].lanes,
                beyond=others[name].more,
                knows_others=others[name].is_known,
                is_leaving=name in self.draining,
            )
            for name in gate.limits
        )

    def apply(self, gate: Gate, changes: Sequence[Change]) -> bool:
        """Whether all of them arrived."""
        dice = self.dice
        arriving = list(changes)
        if dice.random() < 0.5:
            dice.shuffle(arriving)
        is_whole = True
        if arriving and dice.random() < 0.1:
            self.crashes += 1
            is_whole = False
            arriving = arriving[: dice.randrange(len(arriving))]
        for change in arriving:
            if dice.random() < 0.3:
                self.hand_out()
            gate.limits[change.server][change.lane] = change.limit
            self.changes += 1
            self.check()
        return is_whole

    # ---- what must hold --------------------------------------------------------------------------

    def check(self) -> None:
        for name, room in self.rooms.items():
            runs = self.together(name, lambda _, running: running)
            may_run = self.together(name, max)
            for what, amount in (("run", runs), ("may run", may_run)):
                if amount.tokens > room.kv_tokens or amount.sequences > room.max_num_seqs:
                    self.violations.append(f"{name}: {amount} {what}, {room} is planned")

    def together(self, name: str, counted: Callable[[int, int], int]) -> Promise:
        """What all gates have on the worker, each by its own lanes."""
        amounts = [
            promise(gate.parts[name], tuple(map(counted, gate.limits[name], gate.running[name])))
            for gate in self.gates
            if name in gate.limits
        ]
        return Promise(
            sum(each.tokens for each in amounts), sum(each.sequences for each in amounts)
        )

    def settle(self) -> None:
        """Everybody goes home: with nothing in flight and nobody waiting, limits are as planned, at one gate."""
        self.draining.clear()
        for gate in self.gates:
            gate.is_silent = False
            gate.queued[:] = [0] * len(gate.lanes)
            for running in gate.running.values():
                running[:] = [0] * len(gate.lanes)
        newest = self.gates[-1]
        if newest.ends:
            self.gate_comes(newest.lanes)
            newest = self.gates[-1]
        self.question = newest.question
        for turn in range(60):
            self.operator_tells()
            self.keeper_acts()
            newest.is_ready = newest.is_ready or turn > 20
            for gate in list(self.gates):
                if gate.ends or gate.is_ready:
                    self.gate_goes_on(gate)
        for name, part in newest.parts.items():
            if self.gates != [newest] or tuple(newest.limits[name]) != part.planned:
                self.violations.append(
                    f"{name}: idle with {newest.limits[name]}, {part.planned} is planned; {self.gates}"
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
            silences=total.silences + world.silences,
            shared=total.shared + world.shared,
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
        f"{walked.crashes:,} keepers died half way, {walked.silences:,} fell silent, {walked.hand_overs:,} hand-overs "
        f"with more than one gate holding slots after {walked.shared:,} rounds: "
        f"{len(walked.violations):,} violations"
    )
    return 1 if walked.violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
