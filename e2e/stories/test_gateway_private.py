"""Is a key or a prompt ever written down? A word in every place of a request, looked for in all that is written."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from controlplane.haproxy import SUITES, gate_possible
from controlplane.processes import Child
from gate_box import GateBox, free_port, until
from gate_client import Answer, ask, send
from patience import Patience
from plimsoll.render.gateway_records import GateServer
from stories.test_gateway import CHAT, a_gate, run

pytestmark = [
    pytest.mark.skipif(gate_possible() is not None, reason=str(gate_possible())),
    pytest.mark.parametrize("suite", SUITES),
]
CANARY: Final = "quetzalcoatlus"
KEY: Final = f"sk-{CANARY}-of-the-night"
UNKNOWN_KEY: Final = f"sk-{CANARY}-of-nobody"
PRIVATE: Final = (
    *(
        b"POST /v1/chat/completions HTTP/1.1\r\n%s\r\n" % line
        for line in (b"CANARY: a", b"a: CANARY")
    ),
    b"POST /v1/chat/completions?key=CANARY HTTP/1.1\r\n\r\n",
    b"POST /CANARY HTTP/1.1\r\n\r\n",
    b"GET http://CANARY/v1/models HTTP/1.1\r\n\r\n",
    b"CANARY /v1/models HTTP/1.1\r\n\r\n",
    b"CANARY\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: CANARY\r\nCookie: CANARY\r\nUser-Agent: CANARY\r\n"
    b"Referer: CANARY\r\nX-Lane: CANARY\r\nX-Session-Id: CANARY\r\nX-Forwarded-For: CANARY\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nAuthorization: Basic CANARY\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nAuthorization: Bearer CANARY\x00\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nCANARY CANARY: a\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nCANARY",
    b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nCANARY",
)
"""The word in every place of a request that HTTP has, and in some that it has not."""


ROOMS: Final = {
    "lanes": [{"name": "chat", "tokens": 4096}],
    "pools": [{"pool": "a", "kvTokens": 65536, "maxNumSeqs": 16}],
}
BEARER: Final = {"Authorization": f"Bearer {KEY}"}
BAD_BODIES: Final = (
    f"{{{CANARY}",
    f'{{"n": 2, "prompt": "{CANARY}"}}',
    f'{{"prompt": "{CANARY}", "max_tokens": 40000}}',
    f'"{CANARY}"' * 90_000,
)


@asynccontextmanager
async def kept(box: GateBox, folder: Path) -> AsyncIterator[int]:
    """A keeper, as a process that writes into `keeper.log`, beside this gate; the port of its page."""
    files, keys, port = folder / "files", folder / "keys", free_port()
    for each in (files, keys):
        each.mkdir()
    (keys / "nightly").write_text(KEY)
    worker = {"name": "w0", "address": box.haproxy.text.servers[0].address, "pool": "a"}
    said: dict[str, Any] = {"rooms": ROOMS, "workers": [worker]}
    for name, value in said.items():
        (files / f"{name}.json").write_text(json.dumps(value))
    duty = {name: files / f"{name}.json" for name in said} | {
        "folder": box.haproxy.folder,
        "keys": keys,
    }
    words = [str(word) for name, value in duty.items() for word in (f"--{name}", value)]
    where = ("--host", "127.0.0.1", "--port", str(port))
    command = (sys.executable, "-m", "plimsoll.cli.main", "keeper", *words, *where)
    keeper = Child("keeper", command, log=folder / "keeper.log")
    try:
        yield port
        os.kill(keeper.pid, signal.SIGTERM)
        await until(lambda: not keeper.is_running, "the keeper has ended")
    finally:
        keeper.kill()


async def ask_all(box: GateBox) -> list[Answer]:
    """Everything that has the word in it, by known people, unknown ones and none."""

    async def completed(key: str) -> Answer:
        body = json.dumps({"prompt": f"{CANARY} " * 40, "max_tokens": 2}).encode()
        bearer = {"Authorization": f"Bearer {key}"}
        return await ask(box.port, body, path="/v1/completions", headers=bearer)

    async def is_known() -> bool:
        return (await completed(KEY)).status == 200

    await until(is_known, "the keeper has told HAProxy the key")
    told = [await completed(UNKNOWN_KEY)]
    for request in PRIVATE:
        raw = request.replace(b"CANARY", CANARY.encode())
        told.append(await send(box.port, raw, within=Patience.STAND_IN_ANSWER))
    for path in ("/v1/completions", f"/v1/{CANARY}"):
        told += [
            await ask(box.port, body.encode(), path=path, headers=BEARER) for body in BAD_BODIES
        ]
    return told


def test_neither_keys_nor_prompts_are_written_anywhere(tmp_path: Path, suite: str) -> None:
    """Over all that HAProxy and the keeper log, answer, show and keep in files."""
    folder = tmp_path / "run"

    async def story(box: GateBox) -> None:
        async with kept(box, tmp_path) as page:
            told = await ask_all(box)
            assert {400, 401, 404, 413} <= {each.status for each in told}

            async def has_read() -> bool:
                text = (await ask(page, method="GET", path="/metrics")).body.decode()
                return all(f'status="{status}"' in text for status in (200, 400, 401, 404, 413))

            await until(has_read, "the keeper has read the lines")
            shown = [await ask(page, method="GET", path=path) for path in ("/metrics", "/state")]
        written = {
            "answers": repr([(each.headers, each.body) for each in told]).encode(),
            "HAProxy's log": box.haproxy.logged().encode(),
            "the keeper's log": (tmp_path / "keeper.log").read_bytes(),
            "the keeper's pages": b"".join(each.body for each in shown),
            "files": b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file()),
        }
        assert all(written.values())
        assert b'"key":"nightly"' in written["HAProxy's log"]
        for where, text in written.items():
            assert CANARY.encode() not in text.lower(), where

    lane = CHAT._replace(queue_seconds=5)
    box = a_gate(folder, suite=suite, workers=1, has_keys=True, lanes=(lane,), request_seconds=1)
    server = box.haproxy.text.servers[0]._replace(slots=(16,))
    box.haproxy.text = box.haproxy.text._replace(servers=(server, GateServer(name="spare")))
    run(box, story)
