"""What can a client send that it should not, and what comes of it? A real HAProxy, the oldest and the current release.

Before it stand clients that keep to no rule, behind it a worker that writes down every byte that reaches it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from controlplane.haproxy import SUITES, gate_possible
from engine_paths import ALL, disguised
from gate_box import GateBox, Haproxy, free_port, until
from gate_client import ask, chat, send
from h2_client import H2Request, ask_h2
from patience import Patience
from plimsoll.render.gateway import GENERATES
from plimsoll.render.gateway_records import GateServer, GateText
from stand_ins.recording import Recording, Request
from stories.test_gateway import BATCH, CHAT, a_gate, run

pytestmark = [
    pytest.mark.skipif(gate_possible() is not None, reason=str(gate_possible())),
    pytest.mark.parametrize("suite", SUITES),
]
POST: Final = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n"
LENGTH_2: Final = b"Content-Length: 2\r\n"
SMUGGLED: Final = b"GET /metrics HTTP/1.1\r\nHost: gate\r\n\r\n"
CLOSED: Final = 0
"""The connection was ended without an answer, as 3.2 does with some that are no HTTP."""
AT_ONCE: Final = 16
Story = Callable[[Haproxy, Recording], Awaitable[None]]


def recorded(folder: Path, suite: str, story: Story, **more: object) -> Haproxy:
    """A gate with one worker that writes down what reaches it."""

    async def whole() -> Haproxy:
        worker, port = Recording(), free_port()
        lanes = (CHAT._replace(priority=3), BATCH._replace(priority=7))
        server = GateServer(name="s0", address=f"127.0.0.1:{port}", slots=(64, 64))
        text = GateText(lanes, (server,), free_port(), free_port(), request_seconds=1)
        gate = Haproxy(folder, text._replace(**more), suite=suite)  # type: ignore[arg-type]
        await worker.serve(port)
        await gate.start(healthy=1)
        try:
            await story(gate, worker)
        finally:
            await gate.stop()
            await worker.stop()
        return gate

    return asyncio.run(whole())


async def reached(gate: Haproxy, worker: Recording) -> list[Request]:
    """What reached the worker up to now: one more request is sent, and nothing can come after it."""
    assert 200 == (await ask(gate.text.port, b'{"last": 1}')).status
    await until(lambda: any(b"last" in each.body for each in worker.heard), "the last one came")
    return [each for each in worker.take() if b"last" not in each.body]


# ---- paths ---------------------------------------------------------------------------------------


def test_no_other_path_of_an_engine_is_reached_however_it_is_written(
    tmp_path: Path, suite: str
) -> None:
    async def story(gate: Haproxy, worker: Recording) -> None:
        port, turn = gate.text.port, asyncio.Semaphore(AT_ONCE)

        async def status(method: str, path: str) -> tuple[str, str, int]:
            async with turn:
                body = b"{}" if method == "POST" else b""
                return method, path, (await ask(port, body, path=path, method=method)).status

        plain = [(method, path) for method in ("GET", "POST") for path in ALL]
        hidden = [("POST", each) for path in (*ALL, *GENERATES) for each in disguised(path)]
        told = await asyncio.gather(*(status(*pair) for pair in (*plain, *hidden)))
        let_in = {path for _, path, answered in told if answered not in (400, 404, CLOSED)}
        meant = {path.partition("?")[0].removeprefix("http://gate") for path in let_in}
        assert set(GENERATES) == meant
        assert len(told) - len(let_in) > 2500
        assert {each.line.split(" ")[1] for each in await reached(gate, worker)} == let_in

    recorded(tmp_path, suite, story)


# ---- what is no proper request -------------------------------------------------------------------

MALFORMED: Final[dict[str, tuple[bytes, set[int]]]] = {
    "chunked": (POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", {411}),
    "chunked, then a length": (
        POST + b"Transfer-Encoding: chunked\r\n" + LENGTH_2 + b"\r\n2\r\n{}\r\n0\r\n\r\n",
        {411},
    ),
    "a length, then chunked": (
        POST + LENGTH_2 + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + SMUGGLED,
        {411},
    ),
    "no length": (POST + b"\r\n", {411}),
    "two lengths": (POST + LENGTH_2 + b"Content-Length: 40\r\n\r\n{}" + SMUGGLED, {400}),
    "two lengths in one": (POST + b"Content-Length: 2, 40\r\n\r\n{}" + SMUGGLED, {400}),
    "length below zero": (POST + b"Content-Length: -1\r\n\r\n{}", {400}),
    "length with a sign": (POST + b"Content-Length: +2\r\n\r\n{}", {400}),
    "length in another base": (POST + b"Content-Length: 0x2\r\n\r\n{}", {400}),
    "empty length": (POST + b"Content-Length:\r\n\r\n{}", {400}),
    "length beyond 64 bit": (POST + b"Content-Length: 99999999999999999999\r\n\r\n{}", {400}),
    "length beyond the bound": (POST + b"Content-Length: 300000\r\n\r\n{}", {413}),
    "unknown coding": (POST + LENGTH_2 + b"Transfer-Encoding: xchunked\r\n\r\n{}", {400}),
    "coding with a tab": (POST + LENGTH_2 + b"Transfer-Encoding: \x0bchunked\r\n\r\n{}", {400}),
    "coding with a space": (POST + LENGTH_2 + b"Transfer-Encoding : chunked\r\n\r\n{}", {400}),
    "coding on a second line": (
        POST + LENGTH_2 + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        {400, 411},
    ),
    "two codings": (POST + LENGTH_2 + b"Transfer-Encoding: chunked, identity\r\n\r\n{}", {400}),
    "two lines of codings": (
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        {400},
    ),
    "200 headers": (
        POST + b"".join(b"X-%d: a\r\n" % n for n in range(200)) + LENGTH_2 + b"\r\n{}",
        {400},
    ),
    "a header of 20 kB": (
        POST + b"X-Long: " + b"a" * 20_000 + b"\r\n" + LENGTH_2 + b"\r\n{}",
        {431},
    ),
    "a header beyond the buffer": (
        POST + b"X-Long: " + b"a" * 400_000 + b"\r\n" + LENGTH_2 + b"\r\n{}",
        {400, 431},
    ),
    "a path beyond the buffer": (
        b"POST /v1/chat/completions?" + b"a" * 400_000 + POST[25:] + LENGTH_2 + b"\r\n{}",
        {400, 414},
    ),
    "a blank in a name": (POST + b"Bad Header: a\r\n" + LENGTH_2 + b"\r\n{}", {400}),
    "a line that is no header": (POST + b"garbage\r\n" + LENGTH_2 + b"\r\n{}", {400}),
    "a lone carriage return": (
        POST + b"X-A: a\rX-Vllm-Priority: -9\r\n" + LENGTH_2 + b"\r\n{}",
        {400},
    ),
    "two hosts": (POST + b"Host: other\r\n" + LENGTH_2 + b"\r\n{}", {400}),
    "HTTP/0.9": (b"GET /v1/models\r\n\r\n", {400}),
    "a method that is none": (b"PO\x01ST" + POST[4:] + LENGTH_2 + b"\r\n{}", {400}),
    "TLS": (bytes.fromhex("16030100a5010000a10303") + bytes(170), {400}),
    "PROXY protocol": (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + POST + LENGTH_2 + b"\r\n{}", {400}),
    "CONNECT": (b"CONNECT gate:80 HTTP/1.1\r\nHost: gate:80\r\n\r\n", {400, 404}),
    "TRACE": (b"TRACE /v1/models HTTP/1.1\r\nHost: gate\r\n\r\n", {405}),
}
"""What is sent, and how it may be answered: each is a way to smuggle a second request, or to fill memory."""


def test_what_is_no_proper_request_never_reaches_a_worker(tmp_path: Path, suite: str) -> None:
    async def story(gate: Haproxy, worker: Recording) -> None:
        for name, (request, wanted) in MALFORMED.items():
            answer = await send(gate.text.port, request, within=Patience.STAND_IN_ANSWER)
            assert answer.problem != "hung", name
            no_http = CLOSED if 400 in wanted else None
            assert answer.status in wanted | {no_http}, (name, answer)
        assert [] == await reached(gate, worker)

    recorded(tmp_path, suite, story)


ODD: Final = {
    "the same length twice": POST + LENGTH_2 + LENGTH_2 + b"\r\n{}",
    "the same length twice in one": POST + b"Content-Length: 2, 2\r\n\r\n{}",
    "a length with zeros": POST + b"Content-Length: 00002\r\n\r\n{}",
    "line feeds alone": (POST + LENGTH_2 + b"\r\n{}").replace(b"\r\n", b"\n"),
    "a value on two lines": POST + b"X-A: a\r\n X-Vllm-Priority: -9\r\n" + LENGTH_2 + b"\r\n{}",
    "an underscore": POST + b"Transfer_Encoding: chunked\r\n" + LENGTH_2 + b"\r\n{}",
    "another request behind it": POST + LENGTH_2 + b"\r\n{}" + SMUGGLED,
    "HTTP/1.0": POST.replace(b"1.1", b"1.0") + LENGTH_2 + b"\r\n{}",
    "a wish to go on": POST + b"Expect: 100-continue\r\n" + LENGTH_2 + b"\r\n{}",
    "an upgrade to a websocket": POST.replace(b"close", b"Upgrade")
    + b"Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    + b"Sec-WebSocket-Version: 13\r\n"
    + LENGTH_2
    + b"\r\n{}",
    "an upgrade to HTTP/2": POST.replace(b"close", b"Upgrade, HTTP2-Settings")
    + b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
    + LENGTH_2
    + b"\r\n{}",
}
"""Let in, and one request of two bytes for the worker."""


def test_what_is_odd_is_one_plain_request_for_the_worker(tmp_path: Path, suite: str) -> None:
    async def story(gate: Haproxy, worker: Recording) -> None:
        for name, request in ODD.items():
            answer = await send(gate.text.port, request, within=Patience.STAND_IN_ANSWER)
            assert answer.status in (100, 200), (name, answer)
            (only,) = await reached(gate, worker)
            assert b"{}" == only.body, name
            assert [2] == [int(length) for length in only.all_of("Content-Length")], name
            assert [] == only.all_of("Transfer-Encoding"), name
            assert [] == only.all_of("Upgrade"), name
            assert ["3"] == only.all_of("X-Vllm-Priority"), name

    recorded(tmp_path, suite, story)


def test_a_websocket_finds_no_door(tmp_path: Path, suite: str) -> None:
    """Neither by HTTP/1.1 nor by HTTP/2; on a path that has one, nothing is switched."""
    wish = {
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    }

    async def story(gate: Haproxy, worker: Recording) -> None:
        port = gate.text.port
        for path, wanted in (("/v1/realtime", 404), ("/v1/responses", 405), ("/v1/models", 200)):
            answer = await ask(port, method="GET", path=path, headers=wish)
            assert (path, wanted) == (path, answer.status)
        streams = [
            H2Request(
                path,
                method="CONNECT",
                protocol="websocket",
                headers={"sec-websocket-version": "13"},
            )
            for path in ("/v1/realtime", "/v1/responses", "/v1/models")
        ]
        told = await ask_h2(port, streams, within=Patience.STAND_IN_ANSWER)
        assert [404, 405] == [each.status for each in told[:2]]
        assert told[2].status != 101
        for each in await reached(gate, worker):
            assert each.line.startswith("GET /v1/models ")
            assert [] == each.all_of("Upgrade")

    recorded(tmp_path, suite, story)


# ---- lanes and priorities ------------------------------------------------------------------------


def test_what_the_gate_tells_engines_cannot_be_forged(tmp_path: Path, suite: str) -> None:
    forged = (
        b"X-Plimsoll-Lane: vip\r\nx-plimsoll-lane: batch\r\nX-Plimsoll-Priority: -9\r\n"
        b"X-Vllm-Priority: -9\r\nx-vllm-priority: -8\r\nX-VLLM-PRIORITY:-7\r\nX-Lane: vip\r\n"
    )
    by_header = POST.replace(b"close", b"close, X-Vllm-Priority, X-Plimsoll-Lane")

    def headers(request: Request) -> tuple[list[str], ...]:
        names = ("X-Plimsoll-Lane", "X-Plimsoll-Priority", "X-Vllm-Priority", "X-Lane")
        return tuple(request.all_of(name) for name in names)

    async def story(gate: Haproxy, worker: Recording) -> None:
        port = gate.text.port
        for begin in (POST, by_header):
            assert 200 == (await send(port, begin + forged + LENGTH_2 + b"\r\n{}")).status
        stream = H2Request(
            "/v1/chat/completions",
            b"{}",
            headers={"content-length": "2", "x-vllm-priority": "-9", "x-plimsoll-lane": "batch"},
        )
        assert [200] == [each.status for each in await ask_h2(port, [stream])]
        told = {str(headers(each)) for each in await reached(gate, worker)}
        assert {str((["chat"], ["3"], ["3"], []))} == told
        assert 200 == (await ask(port, b"{}", headers={"X-Lane": "batch"})).status
        (asked,) = await reached(gate, worker)
        assert (["batch"], ["7"], ["7"], []) == headers(asked)

    recorded(tmp_path, suite, story)


def test_where_lanes_have_no_priority_nobody_brings_one(tmp_path: Path, suite: str) -> None:
    async def story(gate: Haproxy, worker: Recording) -> None:
        forged = {"X-Vllm-Priority": "-9", "X-Plimsoll-Priority": "-9", "X-Plimsoll-Lane": "vip"}
        assert 200 == (await ask(gate.text.port, b"{}", headers=forged)).status
        (asked,) = await reached(gate, worker)
        assert [] == asked.all_of("X-Vllm-Priority") == asked.all_of("X-Plimsoll-Priority")
        assert ["chat"] == asked.all_of("X-Plimsoll-Lane")

    recorded(tmp_path, suite, story, lanes=(CHAT._replace(priority=None), BATCH))


# ---- HTTP/2 --------------------------------------------------------------------------------------


def test_http2_meets_the_same_limits(tmp_path: Path, suite: str) -> None:
    """Many requests on one connection are as many requests."""

    async def story(box: GateBox) -> None:
        body = chat(100, 40)
        length = {"content-length": str(len(body))}
        streams = [H2Request("/v1/chat/completions", body, headers=length) for _ in range(60)]
        told = [each.status for each in await ask_h2(box.port, streams)]
        assert {200, 429} == set(told)
        assert told.count(200) >= 9 + CHAT.queue_length
        assert 9 == box.engines[0].peaks.in_flight

    box = a_gate(tmp_path, suite=suite, workers=1)
    small = box.haproxy.text.servers[0]._replace(slots=(9, 1))
    box.haproxy.text = box.haproxy.text._replace(servers=(small,))
    run(box, story)


def test_http2_is_no_way_round_the_rules(tmp_path: Path, suite: str) -> None:
    async def story(gate: Haproxy, worker: Recording) -> None:
        door = "/v1/chat/completions"
        two = {"content-length": "2"}
        rows = (
            (H2Request("/metrics", method="GET"), {404}),
            (H2Request("/v1/models/../../metrics", method="GET"), {404}),
            (H2Request(f"{door} HTTP/1.1\r\nX-A: b", b"{}", headers=two), {CLOSED, 400}),
            (H2Request(door, b"{}"), {411}),
            (H2Request(door, b"{}", headers={"content-length": "40"}), {CLOSED, 400}),
            (H2Request(door, b"{}" + SMUGGLED, headers=two), {CLOSED, 400}),
            (H2Request(door, b"{}", headers=two | {"transfer-encoding": "chunked"}), {CLOSED, 400}),
            (
                H2Request(door, b"{}", headers=two | {"x-a": "b\r\nX-Vllm-Priority: -9"}),
                {CLOSED, 400},
            ),
            (H2Request(door, b"{}", headers=two | {"X-Upper": "a"}), {CLOSED, 400}),
            (H2Request(door, b"{}", headers={"content-length": "300000"}), {CLOSED, 400, 413}),
        )
        for request, wanted in rows:
            (answer,) = await ask_h2(gate.text.port, [request], within=Patience.STAND_IN_ANSWER)
            assert answer.status in wanted, (request, answer)
        assert [] == await reached(gate, worker)

    recorded(tmp_path, suite, story)
