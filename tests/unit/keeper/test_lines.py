"""No line of HAProxy's log is lost while the keeper is busy."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from pathlib import Path

from plimsoll.gate.tally import Tally
from plimsoll.keeper.lines import log_read

MANY = 500
ROW = {"lane": "chat", "status": 429, "reason": "queue_full", "waited_ms": -1, "body_bytes": "-"}
LINE = json.dumps(ROW).encode()


def _log(path: Path, done: threading.Event) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as haproxy:
        for _ in range(MANY):
            haproxy.sendto(LINE, str(path))  # waits for room, so a reader must be there
    done.set()


def test_lines_are_taken_while_the_loop_is_busy_and_all_are_counted(tmp_path: Path) -> None:
    tally, path = Tally(), tmp_path / "log.sock"

    async def story() -> None:
        async with log_read(path, tally):
            done = threading.Event()
            threading.Thread(target=_log, args=(path, done), daemon=True).start()
            assert done.wait(10), "nobody took the lines while the loop was busy"

    asyncio.run(story())
    assert {("chat", 429, "queue_full"): MANY} == tally.requests


def test_its_socket_goes_with_it_and_what_is_no_row_is_passed_over(tmp_path: Path) -> None:
    tally, path = Tally(), tmp_path / "log.sock"

    async def story() -> None:
        async with log_read(path, tally):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as haproxy:
                for each in (b"Proxy lanes stopped.", b"{", LINE):
                    haproxy.sendto(each, str(path))

    asyncio.run(story())
    assert not path.exists()
    assert {("chat", 429, "queue_full"): 1} == tally.requests
