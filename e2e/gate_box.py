"""A real HAProxy with the product's own text and keeper, before stand-in engines, in one folder.

async with GateBox(folder, text, engines) as box: ...
"""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import IO, Self

from controlplane.haproxy import OLDEST_SUITE, haproxy
from patience import Patience
from plimsoll.gate.reading import POOL
from plimsoll.keeper.runtime import Runtime
from plimsoll.render.gateway import haproxy_text
from plimsoll.render.gateway_records import GateText
from stand_ins.batching import Engine


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Haproxy:
    """One process."""

    def __init__(self, folder: Path, text: GateText, *, suite: str = OLDEST_SUITE) -> None:
        self.folder = folder
        self.text = text._replace(run_folder=str(folder), host="127.0.0.1")
        self.suite = suite
        self.runtime = Runtime(folder / "haproxy.sock")
        self.keeps_maps = False
        """Whether the maps lie there already."""
        self.process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def write(self) -> Path:
        """The configuration and the maps that it names."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("keys.map", "bytes-per-token.map", "gate.map"):
            assert not self.keeps_maps or (self.folder / name).exists()
            (self.folder / name).touch()
        path = self.folder / "haproxy.cfg"
        path.write_text(haproxy_text(self.text))
        return path

    def check(self) -> str:
        """What HAProxy says of the configuration; empty when all is well."""
        path = self.write()
        done = subprocess.run(
            [haproxy(self.suite), "-c", "-f", path], capture_output=True, text=True, check=False
        )
        said = done.stdout + done.stderr
        return "" if done.returncode == 0 and "WARNING" not in said else said

    async def start(self, *, healthy: int = 0) -> None:
        """Start, and wait until so many workers are found healthy."""
        path = self.write()
        self._log = (self.folder / "haproxy.log").open("ab")
        self.process = subprocess.Popen(
            [haproxy(self.suite), "-db", "-f", path], stdout=self._log, stderr=self._log
        )
        await until(lambda: self._has_come_up(healthy), f"{healthy} healthy workers")

    async def _has_come_up(self, healthy: int) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "haproxy.log").read_text()[-2000:]
        try:
            answer = await self.runtime.ask("show stat")
        except OSError:
            return False
        rows = [line.split(",") for line in answer.splitlines()]
        checked = [row for row in rows if row[0] == POOL and row[1] not in ("BACKEND", "FRONTEND")]
        return (
            sum(row[17] == "UP" and row[36].startswith(("L7OK", "* L7OK")) for row in checked)
            >= healthy
        )

    async def stop(self, sent: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(sent)
            await asyncio.to_thread(self.process.wait, 10)
        if self._log is not None:
            self._log.close()

    def logged(self) -> str:
        """What HAProxy wrote: its own lines and one per request."""
        return (self.folder / "haproxy.log").read_text()


class GateBox:
    """HAProxy and its workers, from start to stop."""

    def __init__(
        self,
        folder: Path,
        text: GateText,
        engines: Sequence[Engine],
        *,
        suite: str = OLDEST_SUITE,
    ) -> None:
        self.haproxy = Haproxy(folder, text, suite=suite)
        self.engines = tuple(engines)
        self.runtime = self.haproxy.runtime

    @property
    def port(self) -> int:
        return self.haproxy.text.port

    async def __aenter__(self) -> Self:
        addresses = [server.address for server in self.haproxy.text.servers if server.address]
        for engine, address in zip(self.engines, addresses, strict=False):
            await engine.serve(int(address.rpartition(":")[2]))
        await self.haproxy.start(healthy=len(self.engines))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.haproxy.stop()
        for engine in self.engines:
            await engine.stop()


async def until(
    is_so: Callable[[], bool | Awaitable[bool]],
    what: str,
    *,
    within: float = Patience.STAND_IN_ANSWER,
) -> None:
    """Wait for a state."""
    try:
        async with asyncio.timeout(within):
            while True:
                found = is_so()
                if found if isinstance(found, bool) else await found:
                    return
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {within:g} s: {what}") from None
