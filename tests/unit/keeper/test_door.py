"""When does the door open, and when does HAProxy's container hear that nobody is left?"""

from __future__ import annotations

import asyncio
from pathlib import Path

from plimsoll.gate.reading import GateSeen
from plimsoll.gate.records import GateRooms, LaneRoom, WorkerRoom
from plimsoll.gate.roster import PodSeen, ServerSeen
from plimsoll.gate.step import LaneSeen
from plimsoll.gate.visit import ALONE, Elder, Standing, visit
from plimsoll.keeper.door import OPEN_ANYWAY_SECONDS, Door
from plimsoll.keeper.loop import Told
from plimsoll.keeper.maps import COMPARED_SECONDS, Map
from plimsoll.keeper.marks import EMPTY_VISITS, Marks
from plimsoll.keeper.runtime import Runtime
from plimsoll.render.gateway_objects import EMPTY, LEAVING, LEFT, RETIRED

ROOMS = GateRooms(
    lanes=(LaneRoom(name="chat", tokens=1000),),
    pools=(WorkerRoom(pool="large", kv_tokens=40_000, max_num_seqs=64),),
)
POD = PodSeen("pod-a", "10.0.0.1:8000", "large", is_ready=True, is_leaving=False)
WAITS = Standing(2, 1, elders=(Elder("gate-a", "10.0.0.9:8406"),))
LEAVES = Standing(is_leaving=True, is_retiring=True)


class HaproxysMap(Runtime):
    """Only its maps, kept here."""

    def __init__(self) -> None:
        super().__init__(Path("nowhere"))
        self.lines: dict[str, str] = {}
        self.asked = 0

    async def ask(self, line: str) -> str:
        self.asked += 1
        for command in line.split("; "):
            verb, _, _, *rest = command.split(" ")
            if verb in ("add", "set"):
                self.lines[rest[0]] = rest[1]
            elif verb == "del":
                del self.lines[rest[0]]
        return "".join(f"0x1 {key} {value}\n" for key, value in self.lines.items())

    async def tell(self, commands: object) -> tuple[str, ...]:
        assert isinstance(commands, list)
        await self.ask("; ".join(commands))
        return ()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Scene:
    def __init__(self, folder: Path, *, is_open: bool = False) -> None:
        self.haproxy, self.clock, self.folder = HaproxysMap(), Clock(), folder
        if is_open:
            self.haproxy.lines["gate"] = "open"
        self.marks = Marks(folder)
        self.door = self.next_keepers()

    def next_keepers(self) -> Door:
        plate = Map(self.haproxy, "gate.map", clock=self.clock)
        return Door(plate, self.marks, lambda: ROOMS, clock=self.clock)

    def after(
        self, limit: int, in_flight: int = 0, *, standing: Standing = ALONE, queued: int = 0
    ) -> dict[str, str]:
        """The map after a visit that found that."""
        server = ServerSeen("s0", POD.address or "", is_open=True, in_flight=in_flight)
        seen = GateSeen((server,), {"s0": (LaneSeen(limit, in_flight),)}, (queued,))
        told = Told(seen=seen, visit=visit(seen, [POD], ROOMS, standing=standing))
        told.standing = standing
        asyncio.run(self.door.after(told))
        return self.haproxy.lines


def test_it_opens_with_its_first_slot_and_stays_open(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert {} == scene.after(0)
    assert {"gate": "open"} == scene.after(5)
    assert {"gate": "open"} == scene.after(0)
    scene.door = scene.next_keepers()
    assert {"gate": "open"} == scene.after(0)


def test_a_silent_elder_holds_up_no_rollout(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert {"lane.chat": "waits"} == scene.after(0, standing=WAITS)
    scene.clock.now += OPEN_ANYWAY_SECONDS - 1
    assert {"lane.chat": "waits"} == scene.after(0, standing=WAITS)
    scene.clock.now += 1
    assert {"lane.chat": "waits", "gate": "open"} == scene.after(0, standing=WAITS)


def test_an_haproxy_that_forgot_is_told_again_but_not_at_every_visit(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.after(5)
    before = scene.haproxy.asked
    scene.after(5)
    assert before == scene.haproxy.asked
    scene.haproxy.lines.clear()
    scene.clock.now += COMPARED_SECONDS
    assert {"gate": "open"} == scene.after(5)


def test_haproxy_is_ended_only_after_its_last_request(tmp_path: Path) -> None:
    scene = Scene(tmp_path, is_open=True)
    (tmp_path / LEAVING).touch()
    (tmp_path / LEFT).touch()
    assert (scene.marks.is_leaving, scene.marks.has_left) == (True, True)
    for in_flight, queued in ((3, 0), (0, 1), (0, 0), (1, 0)):
        assert {"gate": "leaves"} == scene.after(
            in_flight, in_flight, standing=LEAVES, queued=queued
        )
        assert (tmp_path / RETIRED).exists()
        assert not (tmp_path / EMPTY).exists()
    for _ in range(EMPTY_VISITS):
        assert not scene.marks.is_empty
        scene.after(0, standing=LEAVES)
    assert scene.marks.is_empty


def test_one_that_proxies_still_know_is_not_empty_yet(tmp_path: Path) -> None:
    scene = Scene(tmp_path, is_open=True)
    (tmp_path / LEAVING).touch()
    for _ in range(EMPTY_VISITS):
        scene.after(5, standing=Standing(is_leaving=True))
    assert not (tmp_path / RETIRED).exists()
