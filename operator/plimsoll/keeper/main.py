"""How does the keeper's process start, what runs in it, and how does it end?

Three things at once: the rounds, HAProxy's log, and a page. None of them is on the way of a request. Only
one keeper of an HAProxy runs at a time: two that raise at once would promise the same tokens twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

from aiohttp import web

from plimsoll.gate.keys import key_commands, map_text, read_map
from plimsoll.gate.learn import DEFAULT_HUNDREDTHS
from plimsoll.gate.records import GateRooms
from plimsoll.gate.roster import PodSeen
from plimsoll.gate.tally import Tally
from plimsoll.gate.visit import Standing
from plimsoll.keeper.door import Door
from plimsoll.keeper.elders import Elders
from plimsoll.keeper.files import Followed, read_keys, read_rooms, read_standing, read_workers
from plimsoll.keeper.lines import log_read
from plimsoll.keeper.loop import Keeper, World
from plimsoll.keeper.maps import Map
from plimsoll.keeper.marks import Marks
from plimsoll.keeper.page import metrics_text, state_json
from plimsoll.keeper.ratio import Ratio
from plimsoll.keeper.runtime import Runtime, SilentError
from plimsoll.keeper.settings import Duty

KEYS_MAP: Final = "keys.map"
RATIO_MAP: Final = "bytes-per-token.map"
PLATE_MAP: Final = "gate.map"
ADMIN_SOCKET: Final = "haproxy.sock"
LOG_SOCKET: Final = "log.sock"
LOCK: Final = "keeper.lock"
KEYS_PERIOD_SECONDS: Final = 5.0
WAIT_SECONDS: Final = 0.5
LEAVING_SECONDS: Final = 5.0
"""Between our signal and the first step of HAProxy's preStop, which begin at the same moment."""
READ_SECONDS: Final = 2.0
"""So long the page of an empty gate stays, for the next gate to read it."""

log = logging.getLogger(__name__)


class BusyError(RuntimeError):
    """Another keeper looks after this HAProxy."""


def prepare(duty: Duty) -> None:
    """Write what HAProxy needs to start: the maps. Raises KeysError, OSError, and ValueError when there is no
    plan, unless it is told later."""
    duty.folder.mkdir(parents=True, exist_ok=True)
    digests = {} if duty.keys is None else read_keys(duty.keys)
    (duty.folder / KEYS_MAP).write_text(map_text(digests))
    lanes = () if duty.standing is not None else read_rooms(duty.rooms).lanes
    ratios = "".join(f"{lane.name} {DEFAULT_HUNDREDTHS}\n" for lane in lanes)
    (duty.folder / RATIO_MAP).write_text(ratios)
    (duty.folder / PLATE_MAP).write_text("")


async def run(duty: Duty) -> None:
    """Until told to stop. Raises BusyError, and OSError or ValueError when there is no plan, unless it is told
    later: nothing is promised before this keeper knows that it may."""
    standing = Standing(gates=duty.gates, place=duty.place)
    if duty.standing is not None:
        standing = await _told_at_last(duty.standing, duty.rooms, duty.workers)
    marks, retiring = Marks(duty.folder), asyncio.Event()
    stands = Stands(duty.standing, standing, marks, retiring)
    rooms: Followed[GateRooms] = Followed(duty.rooms, read_rooms, read_rooms(duty.rooms))
    workers: Followed[tuple[PodSeen, ...]] = Followed(duty.workers, read_workers, ())
    tally = Tally()
    runtime = Runtime(duty.folder / ADMIN_SOCKET)
    loop = asyncio.get_running_loop()
    elders = Elders(stands)
    door = Door(_map(runtime, duty.folder / PLATE_MAP), marks, rooms, clock=loop.time)
    world = World(
        rooms=rooms, pods=workers, standing=stands, others=elders.others, after=door.after
    )
    keeper = Keeper(runtime, world, lend=duty.lend)
    ratio = Ratio(
        _map(runtime, duty.folder / RATIO_MAP), tally, keeper.told, rooms=rooms, workers=workers
    )
    stop, asked = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, (stop if duty.standing is None else asked).set)
    loop.add_signal_handler(signal.SIGUSR1, retiring.set)
    with _only_one(duty.folder / LOCK):
        async with (
            log_read(duty.folder / LOG_SOCKET, tally),
            _page(duty, keeper, tally, rooms),
        ):
            tasks = [
                asyncio.create_task(each)
                for each in (keeper.run(), elders.follow(), ratio.follow())
            ]
            if duty.keys is not None:
                tasks.append(asyncio.create_task(_follow_keys(runtime, duty.folder, duty.keys)))
            log.info("keeper looks after HAProxy", extra={"folder": str(duty.folder)})
            waiting = asyncio.create_task(stop.wait())
            ending = asyncio.create_task(_end(asked, stop, marks))
            await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in (waiting, ending, *tasks):
                task.cancel()
            ended = await asyncio.gather(ending, *tasks, return_exceptions=True)
    for found in ended:
        if isinstance(found, Exception):
            raise found


class Stands:
    """How this gate stands: as it is told, until it leaves. Then nothing that it was told late counts."""

    def __init__(
        self, path: Path | None, first: Standing, marks: Marks, retiring: asyncio.Event
    ) -> None:
        self._told = None if path is None else Followed(path, read_standing, first)
        self._kept = first
        self._marks = marks
        self._retiring = retiring

    def __call__(self) -> Standing:
        is_leaving = self._kept.is_leaving or self._marks.is_leaving
        if self._told is not None and not is_leaving:
            self._kept = self._told()
        is_retiring = self._retiring.is_set() or self._marks.has_left
        self._kept = self._kept._replace(is_leaving=is_leaving, is_retiring=is_retiring)
        return self._kept


async def _end(asked: asyncio.Event, stop: asyncio.Event, marks: Marks) -> None:
    """Stop when asked to; with a pod that ends, only after the last request of its HAProxy."""
    await asked.wait()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LEAVING_SECONDS):
            while not marks.is_leaving:
                await asyncio.sleep(WAIT_SECONDS)
    if marks.is_leaving:
        while not marks.is_empty:
            await asyncio.sleep(WAIT_SECONDS)
        await asyncio.sleep(READ_SECONDS)
    stop.set()


def _map(runtime: Runtime, path: Path) -> Map:
    return Map(runtime, str(path), clock=asyncio.get_running_loop().time)


async def _told_at_last(standing: Path, rooms: Path, workers: Path) -> Standing:
    """Wait until all three can be read."""
    is_waiting = False
    while True:
        try:
            found = read_standing(standing)
            read_rooms(rooms)
            read_workers(workers)
        except (OSError, ValueError) as error:
            if not is_waiting:
                log.info("waits until it is told its duty", extra={"why": str(error)})
            is_waiting = True
            await asyncio.sleep(WAIT_SECONDS)
        else:
            return found


@contextlib.contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """The lock goes with the process, however it ends."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(f"{path}: another keeper runs here") from error
        yield


@contextlib.asynccontextmanager
async def _page(
    duty: Duty, keeper: Keeper, tally: Tally, rooms: Followed[GateRooms]
) -> AsyncIterator[None]:
    def names() -> tuple[str, ...]:
        return tuple(lane.name for lane in rooms.value.lanes)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=metrics_text(keeper.told, tally, names()))

    async def state(_: web.Request) -> web.Response:
        text = state_json(keeper.told, names(), duty.name or socket.gethostname())
        return web.Response(text=text, content_type="application/json")

    async def health(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    app = web.Application()
    app.add_routes(
        [web.get("/metrics", metrics), web.get("/state", state), web.get("/healthz", health)]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, duty.host or None, duty.port).start()
    try:
        yield
    finally:
        await runner.cleanup()


async def _follow_keys(runtime: Runtime, folder: Path, keys: Path) -> None:
    """Keys that come or go count within seconds."""
    path = str(folder / KEYS_MAP)
    said = ""
    while True:
        try:
            wanted = read_keys(keys)
            known = read_map(await runtime.ask(f"show map {path}"))
            if commands := list(key_commands(path, wanted, known)):
                await runtime.tell(commands)
                log.info("keys changed", extra={"commands": len(commands)})
            (folder / KEYS_MAP).write_text(map_text(wanted))  # for an HAProxy that starts anew
            said = ""
        except (SilentError, OSError, ValueError) as error:
            if str(error) != said:
                log.warning("keys stay as they are", extra={"why": str(error)})
            said = str(error)
        await asyncio.sleep(KEYS_PERIOD_SECONDS)
