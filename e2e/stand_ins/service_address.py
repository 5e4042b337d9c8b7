"""The one Service address that a pod needs to reach the API server: what kube-proxy does, for it alone.

    with ServiceAddress(cluster): ...

Only inside `netns.py`: the address is put on loopback, and what comes to its port goes to the API server.
"""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import suppress
from typing import Final

from controlplane.cluster import ControlPlane
from stand_ins.background import Background

ADDRESS: Final = "10.96.0.1"  # of the Service kubernetes, the first of the API server's range
PORT: Final = 443
PIECE: Final = 1 << 16


class ServiceAddress(Background):
    """Forwards 10.96.0.1:443, bytes as they are."""

    def __init__(self, cluster: ControlPlane) -> None:
        super().__init__("service-address")
        self._port = cluster.ports["api"]
        self._server: asyncio.Server | None = None

    async def _start(self) -> None:
        subprocess.run(["ip", "address", "replace", f"{ADDRESS}/32", "dev", "lo"], check=True)
        self._server = await asyncio.start_server(self._serve, ADDRESS, PORT)

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            there, answers = await asyncio.open_connection("127.0.0.1", self._port)
            await asyncio.gather(_pass_on(reader, answers), _pass_on(there, writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(PIECE):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
