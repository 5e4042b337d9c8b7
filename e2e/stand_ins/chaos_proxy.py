"""A wire to the API server that breaks where a story wants it to.

    with ChaosProxy.to(cluster) as wire:
        kubeconfig = wire.kubeconfig(cluster.service_account_kubeconfig(namespace, name))
        wire.break_at(3, Moment.AFTER, operator.kill)

HTTPS on loopback in front (plain HTTP without an identity, but then client-go keeps its token to
itself), HTTPS behind; tokens and watches pass through. It counts what may change something (POST,
PUT, PATCH, DELETE) from one, and runs a callback at a chosen one: BEFORE means that the API server
never hears of it, AFTER that it has answered and the client never learns.

It can also be slow, drop every n-th request, answer with a status of its own, once or always, and
trouble watches: say a line in the API server's place, or stay open and pass nothing on.
"""

from __future__ import annotations

import asyncio
import enum
import json
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from controlplane.cluster import ControlPlane
from controlplane.pki import Identity, write_kubeconfig
from stand_ins.background import Background

MUTATING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
# A question in a POST's clothes: it changes nothing.
QUESTIONS: Final = ("accessreviews", "rulesreviews", "selfsubjectreviews", "tokenreviews")
HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "upgrade"}
)
LEASES: Final = "/apis/coordination.k8s.io/"  # renewed by the clock, so they would blur the count


class Moment(enum.Enum):
    """When the wire breaks, seen from the API server's answer to the request."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True)
class Mutation:
    """One request that may have changed something."""

    number: int
    method: str
    path: str
    body: bytes = b""
    at_seconds: float = 0.0
    """Since 1970, when it came."""


@dataclass(frozen=True)
class BreakPoint:
    """At which mutation, on which side of it, and what happens then."""

    number: int | None
    """Any when None."""
    moment: Moment
    callback: Callable[[], object]
    ending: str = ""
    """Of the path."""


@dataclass
class Script:
    """An answer that is given in the API server's place, so many times."""

    ending: str
    status: int
    times: int


@dataclass(eq=False)
class Watched:
    """One watch that is open."""

    plural: str
    response: web.StreamResponse
    begun_seconds: float = field(default_factory=time.monotonic)
    is_hushed: bool = False
    """The connection stays open and nothing passes any more."""
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


class ChaosProxy(Background):
    """One wire between one client and the API server."""

    def __init__(
        self,
        api_url: str,
        *,
        ca: Path,
        identity: Identity | None = None,
        ignoring: Sequence[str] = (LEASES,),
    ) -> None:
        super().__init__("wire")
        self._ignoring = tuple(ignoring)
        self._api_url = api_url.rstrip("/")
        self._ca = ca
        self._front = None if identity is None else serving(identity)
        self._tls = ssl.create_default_context(cafile=str(ca))
        self._mutations: list[Mutation] = []
        self._break_points: list[BreakPoint] = []
        self._refusing_status: int | None = None
        self._delay_seconds = 0.0
        self._dropping = 0
        self._requests = 0
        self._scripts: list[Script] = []
        self._watches: list[Watched] = []
        self._begun: list[str] = []
        self._port = 0

    @classmethod
    def to(cls, cluster: ControlPlane) -> Self:
        """With the API server's own certificate in front."""
        return cls(cluster.api_url, ca=cluster.ca_file, identity=cluster.api_identity)

    # ---- what stories ask for -------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"{'https' if self._front else 'http'}://127.0.0.1:{self._port}"

    @property
    def mutations(self) -> tuple[Mutation, ...]:
        """In the order in which they came, those that never got through included."""
        return tuple(self._mutations)

    def kubeconfig(self, source: Path) -> Path:
        """The source's user and token, this wire's address; written beside it."""
        document = yaml.safe_load(source.read_text())
        user, context = document["users"][0], document["contexts"][0]["context"]
        return write_kubeconfig(
            source.with_name(f"{source.name}.wire"),
            server=self.url,
            user=user["name"],
            ca=self._ca if self._front else None,
            credentials=user["user"],
            namespace=context.get("namespace", "default"),
        )

    def forget(self) -> None:
        """Count from one again, with no break points."""
        self._break_points.clear()
        self._mutations.clear()

    def break_at(self, number: int, moment: Moment, callback: Callable[[], object]) -> None:
        """At the mutation of this number run `callback` in a thread, then drop the connection."""
        self._break_points.append(BreakPoint(number, moment, callback))

    def break_on(self, ending: str, moment: Moment, callback: Callable[[], object]) -> None:
        """At the first mutation whose path ends like this run `callback`, then drop the connection."""
        self._break_points.append(BreakPoint(None, moment, callback, ending))

    def refuse(self, status: int | None = None) -> None:
        """Answer nothing: no one listens and open connections end; or `status` to everything."""
        self._refusing_status = status
        if status is None:
            self._run(self._close_door())

    def slow_down(self, seconds: float) -> None:
        """Each request is kept back for so long."""
        self._delay_seconds = seconds

    def drop_every(self, count: int) -> None:
        """Of so many requests one is dropped without a word: in turn before the API server heard of it and
        after it answered."""
        self._dropping = count

    def answer(self, ending: str, status: int, *, times: int = 1) -> None:
        """The next so many mutations whose path ends like this get `status`; the API server never hears."""
        self._scripts.append(Script(ending, status, times))

    def recover(self) -> None:
        """The same address works again, and as well as ever. Watches that were hushed stay silent."""
        self._refusing_status = None
        self._delay_seconds, self._dropping = 0.0, 0
        self._scripts.clear()
        if not self._is_listening:
            self._run(self._open_door())

    # ---- watches --------------------------------------------------------------------------------

    @property
    def watches_begun(self) -> tuple[str, ...]:
        """The kind, by its plural, of each watch that was asked for, in order."""
        return tuple(self._begun)

    @property
    def watches(self) -> tuple[str, ...]:
        """Kinds of the watches that are open and heard."""
        return tuple(each.plural for each in self._watches if not each.is_hushed)

    def hush(self, plural: str = "") -> int:
        """Watches of this kind (all when empty) that are open now stay open and pass nothing on; how many.
        One that is asked for later is heard."""
        hushed = [each for each in self._watches if plural in ("", each.plural)]
        for each in hushed:
            each.is_hushed = True
        return len(hushed)

    def say(self, event: Mapping[str, Any], plural: str = "", *, ends: bool = False) -> None:
        """An event of our own on the watches of this kind (all when empty), which may then end."""
        self._run(self._say(json.dumps(event).encode() + b"\n", plural, ends=ends))

    async def _say(self, line: bytes, plural: str, *, ends: bool) -> None:
        for each in [each for each in self._watches if plural in ("", each.plural)]:
            await each.response.write(line)
            if ends:
                each.is_over.set()

    # ---- its life -------------------------------------------------------------------------------

    async def _start(self) -> None:
        # no time-out: a watch is as long as its asker wants
        self._upstream = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        self._server = web.Server(self._pass_on, handler_cancellation=True)
        await self._open_door()

    async def _stop(self) -> None:
        await self._close_door()
        await self._server.shutdown(timeout=0.1)  # 0 would be without end
        await self._upstream.close()

    @property
    def _is_listening(self) -> bool:
        return self._door.is_serving()

    async def _open_door(self) -> None:
        self._door = await self._loop.create_server(
            self._server, "127.0.0.1", self._port, reuse_address=True, ssl=self._front
        )
        self._port = self._door.sockets[0].getsockname()[1]

    async def _close_door(self) -> None:
        self._door.close()
        for connection in list(self._server.connections):
            connection.force_close()
            if connection.transport is not None:
                connection.transport.abort()

    # ---- one request ----------------------------------------------------------------------------

    async def _pass_on(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._refusing_status is not None:
            return refusal(self._refusing_status)
        body = await request.content.read()
        number = self._count(request, body)
        is_dropped = self._drops()
        if await self._breaks(number, Moment.BEFORE) or is_dropped is Moment.BEFORE:
            return hang_up(request)
        if self._delay_seconds:
            await asyncio.sleep(self._delay_seconds)
        if number is not None and (status := self._scripted(request.path)) is not None:
            return refusal(status)
        try:
            if is_watch(request):
                return await self._forward_watch(request)
            return await self._forward(request, body, number, is_dropped=is_dropped is not None)
        except aiohttp.ClientError:  # the API server went away, so does the wire
            return hang_up(request)

    def _asked(
        self, request: web.BaseRequest, body: bytes = b""
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self._upstream.request(
            request.method,
            URL(f"{self._api_url}{request.raw_path}", encoded=True),
            data=body or None,
            headers=passed(request.headers),
            allow_redirects=False,
        )

    async def _forward(
        self, request: web.BaseRequest, body: bytes, number: int | None, *, is_dropped: bool
    ) -> web.StreamResponse:
        async with self._asked(request, body) as answer:
            if await self._breaks(number, Moment.AFTER) or is_dropped:
                return hang_up(request)
            response = web.StreamResponse(status=answer.status, headers=passed(answer.headers))
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    async def _forward_watch(self, request: web.BaseRequest) -> web.StreamResponse:
        """Line by line, so that a line of our own never cuts one of the API server's in two."""
        async with self._asked(request) as answer:
            response = web.StreamResponse(status=answer.status, headers=passed(answer.headers))
            await response.prepare(request)
            watched = Watched(plural_of(request.path), response)
            self._watches.append(watched)
            self._begun.append(watched.plural)
            over = asyncio.ensure_future(watched.is_over.wait())
            passing = asyncio.ensure_future(self._pass_lines(answer, watched))
            try:
                await asyncio.wait({over, passing}, return_when=asyncio.FIRST_COMPLETED)
                if passing.done():
                    passing.result()  # the API server went away in mid-sentence
            finally:
                self._watches.remove(watched)
                over.cancel()
                passing.cancel()
                await asyncio.gather(over, passing, return_exceptions=True)
            await response.write_eof()
            return response

    async def _pass_lines(self, answer: aiohttp.ClientResponse, watched: Watched) -> None:
        begun = b""
        async for chunk in answer.content.iter_any():
            whole, _, begun = (begun + chunk).rpartition(b"\n")
            if whole and not watched.is_hushed:
                await watched.response.write(whole + b"\n")
        if watched.is_hushed:  # the API server has ended it, and even that is not passed on
            await watched.is_over.wait()

    def _drops(self) -> Moment | None:
        """On which side this request is dropped, if it is."""
        self._requests += 1
        if not self._dropping or self._requests % self._dropping:
            return None
        is_odd = self._requests // self._dropping % 2
        return Moment.BEFORE if is_odd else Moment.AFTER

    def _scripted(self, path: str) -> int | None:
        for script in self._scripts:
            if path.endswith(script.ending):
                script.times -= 1
                if script.times <= 0:
                    self._scripts.remove(script)
                return script.status
        return None

    def _count(self, request: web.BaseRequest, body: bytes) -> int | None:
        """Its number among the mutations, from one; None when it is none."""
        is_mutation = request.method in MUTATING and "dryRun" not in request.query
        if not is_mutation or request.path.endswith(QUESTIONS):
            return None
        if request.path.startswith(self._ignoring):
            return None
        number = len(self._mutations) + 1
        self._mutations.append(
            Mutation(number, request.method, request.path, body, at_seconds=time.time())
        )
        return number

    async def _breaks(self, number: int | None, moment: Moment) -> bool:
        if number is None:
            return False
        path = self._mutations[number - 1].path
        broken = [
            point
            for point in self._break_points
            if point.moment is moment
            and point.number in (None, number)
            and path.endswith(point.ending)
        ]
        for point in broken:
            if point.number is None:
                self._break_points.remove(point)
            await self._loop.run_in_executor(None, point.callback)
        return bool(broken)


def is_watch(request: web.BaseRequest) -> bool:
    return request.query.get("watch") in ("true", "1")


def plural_of(path: str) -> str:
    """The kind that a list or a watch is of."""
    return path.rstrip("/").rpartition("/")[2]


def serving(identity: Identity) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(identity.certificate, identity.key)
    return context


def passed(headers: Any) -> list[tuple[str, str]]:
    """What concerns the two ends and not the wire between."""
    return [(name, value) for name, value in headers.items() if name.lower() not in HOP_BY_HOP]


def refusal(status: int) -> web.Response:
    """An answer that a client of Kubernetes understands."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
    return web.json_response(body, status=status, headers={"Retry-After": "1"})


def hang_up(request: web.BaseRequest) -> web.Response:
    """Drop the connection without a word; the response goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=502)
