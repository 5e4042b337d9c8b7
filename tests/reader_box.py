"""A server that speaks OpenAI's API and reads registers by heart: a stand-in for an engine with a sound cache.

It looks the number up in the prompt, as the best of models would, so what a probe says of it is known beforehand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from stand_ins.background import Background

_NAMED: Final = re.compile(r"\n\n[^\n]*the number of the (\w+ \w+) locker[^\n]*$", re.IGNORECASE)


class ReaderBox(Background):
    """On a free port of the loopback; words of the prompt are its tokens."""

    def __init__(
        self,
        *,
        models: tuple[str, ...] = ("reader",),
        holds: int | None = 8192,
        tokenize: str = "vllm",
        has_completions: bool = True,
        key: str | None = None,
        forgets: Callable[[int], bool] = lambda answer: False,
    ) -> None:
        """`tokenize` is vllm, llama or none; `forgets` says of the n-th answer whether it is wrong."""
        super().__init__("reader")
        self.models, self.holds, self.tokenize = models, holds, tokenize
        self.has_completions, self.key, self.forgets = has_completions, key, forgets
        self.url = ""
        self.answers = 0
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def _start(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _stop(self) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.Response(status=401, text="no key")
        body = json.loads(await request.read() or b"{}")
        self.asked.append((request.path, body))
        match request.path:
            case "/v1/models":
                entries: list[dict[str, Any]] = [{"id": name} for name in self.models]
                if self.holds is not None:
                    entries = [entry | {"max_model_len": self.holds} for entry in entries]
                return _json({"data": entries})
            case "/tokenize" if self.tokenize == "vllm":
                return _json({"count": tokens(body["prompt"])})
            case "/tokenize" if self.tokenize == "llama":
                return _json({"tokens": [0] * tokens(body["content"])})
            case "/v1/completions" if self.has_completions:
                return self._said(body["prompt"], lambda text: {"text": f" {text}."})
            case "/v1/chat/completions":
                prompt = body["messages"][0]["content"]
                return self._said(prompt, lambda text: {"message": {"content": text}})
        return web.Response(status=404, text="no such path")

    def _said(self, prompt: str, choice: Callable[[str], dict[str, Any]]) -> web.Response:
        if self.holds is not None and tokens(prompt) > self.holds:
            return web.Response(status=400, text="the prompt is too long")
        named = _NAMED.search(prompt)
        number = "Paris"
        if named is not None:
            self.answers += 1
            found = re.search(rf"number of the {named[1]} locker is (\d+)\.", prompt)
            number = "I do not know" if found is None else found[1]
            if self.forgets(self.answers):
                number = str(int(number) + 1) if number.isdigit() else number
        return _json({"choices": [choice(number)], "usage": {"prompt_tokens": tokens(prompt)}})


def tokens(text: str) -> int:
    """As this model has them: one for each word."""
    return len(text.split())


def _json(data: dict[str, Any]) -> web.Response:
    return web.Response(text=json.dumps(data), content_type="application/json")
