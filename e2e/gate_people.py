"""Clients as people write them: with the `openai` package, one question after the other, in threads.

A client never tries again by itself, so that nothing that failed is hidden. Every other question is streamed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import count
from typing import Any, Final, NamedTuple, Self

import openai
from openai.types.chat import ChatCompletionChunk, ChatCompletionUserMessageParam

from patience import Patience, stretched

ENDED_WELL: Final = ("stop", "length")
PAUSE_SECONDS: Final = 0.25
"""Between an answer and the next question."""


class Heard(NamedTuple):
    """What came of one question."""

    problem: str
    """Empty for a whole answer; else what the package raised, or what was missing."""
    prompt_tokens: int = 0
    tokens: int = 0
    """Of the answer, as the engine counted them."""
    is_streamed: bool = False


class NotWholeError(Exception):
    """A stream ended before its answer did."""


def client(url: str, key: str) -> openai.OpenAI:
    """The package as it comes, but for its second tries."""
    return openai.OpenAI(
        base_url=f"{url}/v1",
        api_key=key,
        max_retries=0,
        timeout=stretched(Patience.CHAT_ANSWER),
    )


def user(text: str) -> list[ChatCompletionUserMessageParam]:
    """One message."""
    return [{"role": "user", "content": text}]


def whole(stream: Iterable[ChatCompletionChunk]) -> Heard:
    """Read a stream to its end. Raises NotWholeError when it lacks its reason to end or its counts."""
    ended, heard = None, None
    for chunk in stream:
        for choice in chunk.choices:
            ended = choice.finish_reason or ended
        if chunk.usage is not None:
            heard = Heard("", chunk.usage.prompt_tokens, chunk.usage.completion_tokens, True)
    if ended not in ENDED_WELL or heard is None:
        raise NotWholeError(f"ended with {ended}, counts {heard}")
    return heard


class Person:
    """Asks one thing after the other until told to stop."""

    def __init__(self, url: str, key: str, *, model: str, prompt: str, most_tokens: int) -> None:
        self.heard: list[Heard] = []
        self._client = client(url, key)
        self._asked: dict[str, Any] = {"model": model, "max_tokens": most_tokens, "temperature": 0}
        self._prompt = prompt
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        """Tell it to stop, and hear its last answer out."""
        self._ended.set()
        self._thread.join()
        self._client.close()

    def _go_on(self) -> None:
        for number in count(1):
            self.heard.append(self._ask(number))
            if self._ended.wait(PAUSE_SECONDS):
                return

    def _ask(self, number: int) -> Heard:
        """The number makes each prompt another one from its first words on."""
        messages = user(f"{number}. {self._prompt}")
        try:
            if number % 2:
                return whole(
                    self._client.chat.completions.create(
                        messages=messages,
                        stream=True,
                        stream_options={"include_usage": True},
                        **self._asked,
                    )
                )
            answer = self._client.chat.completions.create(messages=messages, **self._asked)
        except (openai.OpenAIError, NotWholeError) as error:
            return Heard(f"{type(error).__name__}: {error}")
        usage = answer.usage
        if answer.choices[0].finish_reason not in ENDED_WELL or usage is None:
            return Heard(f"not whole: {answer}")
        return Heard("", usage.prompt_tokens, usage.completion_tokens)
