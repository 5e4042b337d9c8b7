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
from plimsoll.gate.tally import Tally, read_line
from plimsoll.gate.visit import Standing
from plimsoll.keeper.files import Followed, read_keys, read_rooms, read_standing, read_workers
from plimsoll.keeper.loop import Keeper, World
from plimsoll.keeper.page import metrics_text, state_json
from plimsoll.keeper.runtime import Runtime, SilentError
from plimsoll.keeper.settings import Duty

KEYS_MAP: Final = "keys.map"
RATIO_MAP: Final = "bytes-per-token.map"
ADMIN_SOCKET: Final = "haproxy.sock"
LOG_SOCKET: Final = "log.sock"
LOCK: Final = "keeper.lock"
KEYS_PERIOD_SECONDS: Final = 5.0
WAIT_SECONDS: Final = 0.5

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


async def run(duty: Duty) -> None:
    """Until told to stop. Raises BusyError, and OSError or ValueError when there is no plan, unless it is told
    later: nothing is promised before this keeper knows that it may."""
    standing = Standing(gates=duty.gates, place=duty.place)
    if duty.standing is not None:
        standing = await _told_at_last(duty.standing, duty.rooms, duty.workers)
    told = Followed(duty.standing, read_standing, standing) if duty.standing is not None else None
    rooms: Followed[GateRooms] = Followed(duty.rooms, read_rooms, read_rooms(duty.rooms))
    workers: Followed[tuple[PodSeen, ...]] = Followed(duty.workers, read_workers, ())
    tally = Tally()
    retiring = asyncio.Event()
    world = World(
        rooms=rooms,
        pods=workers,
        standing=lambda: (standing if told is None else told())._replace(
            is_retiring=retiring.is_set()
        ),
    )
    runtime = Runtime(duty.folder / ADMIN_SOCKET)
    keeper = Keeper(runtime, world, lend=duty.lend)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, retiring.set)
    with _only_one(duty.folder / LOCK):
        async with (
            _log_read(duty.folder / LOG_SOCKET, tally),
            _page(duty, keeper, tally, rooms),
        ):
            tasks = [asyncio.create_task(keeper.run())]
            if duty.keys is not None:
                tasks.append(asyncio.create_task(_follow_keys(runtime, duty.folder, duty.keys)))
            log.info("keeper looks after HAProxy", extra={"folder": str(duty.folder)})
            waiting = asyncio.create_task(stop.wait())
            await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in (waiting, *tasks):
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
    for found in ended:
        if isinstance(found, Exception):
            raise found


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


class _Lines(asyncio.DatagramProtocol):
    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def datagram_received(self, data: bytes, _: object) -> None:
        line = read_line(data.decode("utf-8", "replace"))
        if line is not None:
            self._tally.add(line)


@contextlib.asynccontextmanager
async def _log_read(path: Path, tally: Tally) -> AsyncIterator[None]:
    """HAProxy sends a line and does not wait; without a reader it goes on as well."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind(str(path))
    listening.setblocking(False)
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: _Lines(tally), sock=listening
    )
    try:
        yield
    finally:
        transport.close()
        path.unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def _page(
    duty: Duty, keeper: Keeper, tally: Tally, rooms: Followed[GateRooms]
) -> AsyncIterator[None]:
    def names() -> tuple[str, ...]:
        return tuple(lane.name for lane in rooms.value.lanes)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=metrics_text(keeper.told, tally, names()))

    async def state(_: web.Request) -> web.Response:
        text = state_json(keeper.told, names())
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
