"""How is a server asked that speaks OpenAI's API, whoever made it?

vLLM, llama-server and gateways in front of them agree on little beyond `/v1/completions`: what a server is called,
how long a text is and how much fits is asked in each one's way, and what nobody tells is not guessed. No redirects
are followed: they would carry a key elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import aiohttp

TIMEOUT_SECONDS: Final = 600.0
"""Of one request: a prompt of 128k tokens on a busy card takes minutes."""
TRIES: Final = 4
"""Of one request that is told to come later, or that nobody answers."""
LONGEST_PAUSE_SECONDS: Final = 30.0
MOST_BYTES: Final = 64 << 20
"""The tokens of a text of a million of them, as /tokenize lists them, are below 16 MB."""
_SHOWN: Final = 300
_LATER: Final = (429, 502, 503, 504)
_ABSENT: Final = (404, 405, 501)
_DENIED: Final = (401, 403)


class AskError(Exception):
    """The server cannot be asked, or does not answer as the API says; the message says which and how."""


class AbsentError(AskError):
    """The server has no such path."""


class Answer(NamedTuple):
    """What a server said."""

    text: str
    """Its answer."""
    prompt_tokens: int | None
    """What it counted of the prompt, where it tells."""


class Server:
    """One server and one model on it. Made inside the running event loop."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`url` is the server's, with or without /v1; `key` goes into the Authorization header only."""
        root = url.rstrip("/")
        self.root = root.removesuffix("/v1")
        self.model = ""
        self.is_chat = False
        self._has_tokenize = True
        self._pause = pause
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=15.0),
            headers={"User-Agent": "plimsoll"}
            | ({"Authorization": f"Bearer {key}"} if key else {}),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def meet(self, model: str | None) -> int | None:
        """Find out what is served, and the most tokens of prompt and answer; None when nobody tells.

        With several models and none named it cannot be known which is meant. Raises AskError.
        """
        listed = await self._get("/v1/models")
        entries = [each for each in _list(listed, "data") if isinstance(each.get("id"), str)]
        names = [each["id"] for each in entries]
        if model is None and len(names) != 1:
            there = ", ".join(names) or "none"
            raise AskError(
                f"{self.root} serves several models or none ({there}); name one by --model"
            )
        self.model = model or names[0]
        found = next((each for each in entries if each["id"] == self.model), {})
        told = found.get("max_model_len")
        if isinstance(told, int):
            return told
        with contextlib.suppress(AskError):
            props = await self._get("/props")
            told = (props.get("default_generation_settings") or {}).get("n_ctx")
        return told if isinstance(told, int) else None

    async def count(self, text: str) -> int | None:
        """Tokens of a text by the server's own tokenizer; None when it does not count.

        vLLM takes `prompt` and tells `count`, llama-server takes `content` and tells `tokens`.
        """
        if self._has_tokenize:
            body = {"model": self.model, "prompt": text, "content": text, "add_special": True}
            try:
                told = await self._post("/tokenize", body)
            except AskError:
                told = {}
            if isinstance(told.get("count"), int):
                return int(told["count"])
            if isinstance(told.get("tokens"), list):
                return len(told["tokens"])
            self._has_tokenize = False
        return (await self.ask(text, most_tokens=1)).prompt_tokens

    async def choose_api(self, wanted: str) -> None:
        """Whether to ask for more text or to chat: `completions`, `chat`, or `auto`, which takes chat only
        where a server has no completions. Raises AskError."""
        self.is_chat = wanted == "chat"
        if wanted == "auto":
            try:
                await self.ask("The capital of France is", most_tokens=1)
            except AbsentError:
                self.is_chat = True

    async def ask(self, prompt: str, *, most_tokens: int) -> Answer:
        """The likeliest answer to a prompt; more text ends with its line. Raises AskError."""
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": most_tokens,
            "temperature": 0,
            "seed": 1,
        }
        if self.is_chat:
            body["messages"] = [{"role": "user", "content": prompt}]
            told = await self._post("/v1/chat/completions", body)
        else:
            told = await self._post("/v1/completions", body | {"prompt": prompt, "stop": ["\n"]})
        choices = _list(told, "choices")
        if not choices:
            raise AskError(f"{self.root} answered without choices: {json.dumps(told)[:_SHOWN]}")
        said = (
            (choices[0].get("message") or {}).get("content")
            if self.is_chat
            else choices[0].get("text")
        )
        usage = told.get("usage") or {}
        counted = usage.get("prompt_tokens")
        return Answer(said or "", counted if isinstance(counted, int) else None)

    async def _get(self, path: str) -> dict[str, Any]:
        return await self._request("GET", path, None)

    async def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._request("POST", path, body)

    async def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """The object in a 200's body. Whoever asks to come later is asked again, a few times."""
        url = f"{self.root}{path}"
        for left in range(TRIES - 1, -1, -1):
            try:
                async with self._session.request(
                    method, url, json=body, allow_redirects=False
                ) as answer:
                    text = await _text(answer)
                    if answer.status == 200:
                        return _object(url, text)
                    if answer.status not in _LATER or left == 0:
                        raise _told(url, answer.status, text)
                    wait = _seconds(answer.headers.get("Retry-After"))
            except TimeoutError as error:
                raise AskError(f"{url}: no answer in time") from error
            except aiohttp.InvalidURL as error:
                raise AskError(f"{url}: not an address; write http://host:port") from error
            except aiohttp.ClientConnectorError as error:
                raise AskError(f"{url}: cannot be reached: {error}") from error
            except (aiohttp.ClientError, OSError) as error:
                if left == 0:
                    raise AskError(f"{url}: {error or type(error).__name__}") from error
                wait = None
            await self._pause(min(LONGEST_PAUSE_SECONDS, wait or 2.0 ** (TRIES - 1 - left)))
        raise AssertionError("the last try returns or raises")


async def _text(answer: aiohttp.ClientResponse) -> str:
    body = bytearray()
    async for chunk in answer.content.iter_chunked(1 << 16):
        body += chunk
        if len(body) > MOST_BYTES:
            raise AskError(f"{answer.url}: more than {MOST_BYTES:,} bytes")
    return body.decode("utf-8", "replace")


def _object(url: str, text: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise AskError(f"{url}: not the JSON of OpenAI's API: {text[:_SHOWN]}")
    return told


def _told(url: str, status: int, text: str) -> AskError:
    said = " ".join(text[:_SHOWN].split())
    if status in _ABSENT:
        return AbsentError(f"{url}: HTTP {status}: {said}")
    if status in _DENIED:
        return AskError(
            f"{url}: HTTP {status}: {said}; is an API key missing, or another one needed?"
        )
    return AskError(f"{url}: HTTP {status}: {said}")


def _list(told: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = told.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None
