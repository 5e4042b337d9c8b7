"""How does the keeper hear what HAProxy logs, without losing lines when many come at once?

A datagram socket holds ten lines in a pod (net.unix.max_dgram_qlen of Linux, which a new network namespace sets to
10) and HAProxy does not wait for room. So a thread does nothing but take lines off it; whoever counts them does so when
the loop has time.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from plimsoll.gate.tally import Tally, read_line

LONGEST_BYTES: Final = 2048
"""Twice of what HAProxy is told to write at most."""


@contextlib.asynccontextmanager
async def log_read(path: Path, tally: Tally) -> AsyncIterator[None]:
    """HAProxy sends a line and does not wait; without a reader it goes on as well."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind(str(path))
    loop = asyncio.get_running_loop()
    waiting: list[bytes] = []
    lock = threading.Lock()

    def count() -> None:
        with lock:
            lines = waiting[:]
            waiting.clear()
        for each in lines:
            line = read_line(each.decode("utf-8", "replace"))
            if line is not None:
                tally.add(line)

    def take() -> None:
        while data := listening.recv(LONGEST_BYTES):
            with lock:
                is_first = not waiting
                waiting.append(data)
            if is_first:
                with contextlib.suppress(
                    RuntimeError
                ):  # the loop is closed: nobody counts any more
                    loop.call_soon_threadsafe(count)

    thread = threading.Thread(target=take, name="lines of the log", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            await asyncio.to_thread(last.sendto, b"", str(path))  # an empty line ends the thread
        await asyncio.to_thread(thread.join)
        count()
        listening.close()
        path.unlink(missing_ok=True)
