"""A small web server in the test's own loop: each path has an answer, and what was asked is kept."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Answer = None | bytes | int | Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class PageBox:
    """Paths and their answers: a body, a status, a handler, or None while the box stands."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[web.BaseRequest] = []
        self.address = ""
        self.over = asyncio.Event()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request."""
        self.asked.append(request)
        answer = self.answers.get(request.path, 404)
        if answer is None:
            await self.over.wait()
            return web.Response()
        if isinstance(answer, bytes):
            return web.Response(body=answer)
        if isinstance(answer, int):
            return web.Response(status=answer, text="no")
        return await answer(request)


@asynccontextmanager
async def page_box(tls: ssl.SSLContext | None = None) -> AsyncIterator[PageBox]:
    """A server on a free port of the loopback."""
    box = PageBox()
    runner = web.ServerRunner(web.Server(box.answer), handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    box.address = f"127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield box
    finally:
        box.over.set()
        await runner.cleanup()


class Counts:
    """What was told to the metrics."""

    def __init__(self) -> None:
        self.answered: list[str] = []
        self.reasons: list[str] = []

    def scraped(self, source: str, seconds: float) -> None:
        """One was answered."""
        assert seconds >= 0
        self.answered.append(source)

    def missed(self, source: str, reason: str, count: int = 1) -> None:
        """Something gave nothing."""
        assert source
        self.reasons += [reason] * count
