"""What does a server look like whose cache is broken? This one, a proxy in front of a sound one.

    with Corrupting(url, every=3) as proxy: ... proxy.url

A stand-in that corrupts digits on purpose: of every so many answers one digit is another. Everything else, the
tokens that are counted too, is the sound server's.
"""

from __future__ import annotations

import json
import re
from typing import Final

import aiohttp
from aiohttp import web

from stand_ins.background import Background

_DIGIT: Final = re.compile(r"\d")
ANSWERS: Final = ("/v1/completions", "/v1/chat/completions")


class Corrupting(Background):
    """A proxy on a free port of the loopback."""

    def __init__(self, upstream: str, *, every: int = 1) -> None:
        """`every` third answer is wrong for 3, all of them for 1."""
        super().__init__("corrupting")
        self._upstream = upstream
        self._every = every
        self._answers = 0
        self.url = ""
        self.corrupted = 0

    async def _start(self) -> None:
        self._session = aiohttp.ClientSession()
        self._runner = web.ServerRunner(web.Server(self._pass_on), shutdown_timeout=0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _pass_on(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        async with self._session.request(
            request.method,
            f"{self._upstream}{request.path_qs}",
            data=body or None,
            headers={"Content-Type": "application/json"},
        ) as answer:
            text = await answer.text()
            if answer.status == 200 and request.path in ANSWERS:
                self._answers += 1
                if self._answers % self._every == 0:
                    text = self._corrupt(text)
            return web.Response(text=text, status=answer.status, content_type=answer.content_type)

    def _corrupt(self, text: str) -> str:
        """The answer with its second digit (the first, where there is but one) changed by one."""
        told = json.loads(text)
        choice = told["choices"][0]
        holder, name = (choice["message"], "content") if "message" in choice else (choice, "text")
        said = holder[name] or ""
        digits = [found.start() for found in _DIGIT.finditer(said)]
        if digits:
            at = digits[min(1, len(digits) - 1)]
            holder[name] = f"{said[:at]}{(int(said[at]) + 1) % 10}{said[at + 1 :]}"
            self.corrupted += 1
        return json.dumps(told)
