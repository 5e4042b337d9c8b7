"""A server that speaks OpenAI's API is asked as it is, and what goes wrong is told with its address."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from aiohttp import web

from page_box import Answer, page_box
from plimsoll.telemetry.openai import AbsentError, AskError, Server

T = TypeVar("T")
MODELS = json.dumps({"data": [{"id": "m", "max_model_len": 4096}]}).encode()


def asking(
    answers: dict[str, Answer], ask: Callable[[Server], Awaitable[T]], **more: Any
) -> tuple[T, list[str], list[float]]:
    """What came of it, the paths that were asked, and how long was waited."""

    async def run() -> tuple[T, list[str], list[float]]:
        waited: list[float] = []

        async def pause(seconds: float) -> None:
            waited.append(seconds)

        async with page_box() as box:
            box.answers = answers
            async with Server(f"http://{box.address}/v1/", pause=pause, **more) as server:
                found = await ask(server)
            return found, [request.path for request in box.asked], waited

    return asyncio.run(run())


def test_what_is_served_and_how_much_fits_as_vllm_tells() -> None:
    most, paths, _ = asking({"/v1/models": MODELS}, lambda server: server.meet(None))
    assert (4096, ["/v1/models"]) == (most, paths)


def test_and_as_llama_server_tells() -> None:
    pages: dict[str, Answer] = {
        "/v1/models": json.dumps({"data": [{"id": "m", "meta": {"n_ctx_train": 1}}]}).encode(),
        "/props": json.dumps({"default_generation_settings": {"n_ctx": 2048}}).encode(),
    }
    most, _, _ = asking(pages, lambda server: server.meet(None))
    assert 2048 == most
    del pages["/props"]
    assert asking(pages, lambda server: server.meet(None))[0] is None


@pytest.mark.parametrize(
    ("page", "count"),
    [({"count": 7, "tokens": [1]}, 7), ({"tokens": [1, 2, 3]}, 3)],
)
def test_tokens_are_counted_by_either_engine(page: dict[str, Any], count: int) -> None:
    answers: dict[str, Answer] = {"/tokenize": json.dumps(page).encode()}
    assert count == asking(answers, lambda server: server.count("text"))[0]


def test_without_a_tokenizer_usage_counts_and_the_tokenizer_is_asked_once() -> None:
    told = {"choices": [{"text": "x"}], "usage": {"prompt_tokens": 11}}
    answers: dict[str, Answer] = {"/v1/completions": json.dumps(told).encode()}

    async def twice(server: Server) -> list[int | None]:
        return [await server.count("a"), await server.count("b")]

    found, paths, _ = asking(answers, twice)
    assert [11, 11] == found
    assert ["/tokenize", "/v1/completions", "/v1/completions"] == paths


def test_a_busy_server_is_asked_again_when_it_says() -> None:
    tries = iter((429, 503))

    async def busy(request: web.BaseRequest) -> web.StreamResponse:
        status = next(tries, None)
        if status is None:
            return web.json_response({"choices": [{"text": "yes"}]})
        return web.Response(status=status, headers={"Retry-After": "3"})

    answer, _, waited = asking(
        {"/v1/completions": busy}, lambda server: server.ask("?", most_tokens=1)
    )
    assert ("yes", None) == answer
    assert [3.0, 3.0] == waited


@pytest.mark.parametrize(
    ("page", "error", "words"),
    [
        (404, AbsentError, "HTTP 404"),
        (401, AskError, "is an API key missing"),
        (500, AskError, "HTTP 500"),
        (503, AskError, "HTTP 503"),
        (302, AskError, "HTTP 302"),
        (b"<html>", AskError, "not the JSON of OpenAI's API"),
        (b"[]", AskError, "not the JSON of OpenAI's API"),
        (b"{}", AskError, "without choices"),
    ],
)
def test_what_goes_wrong_is_told(page: Answer, error: type[AskError], words: str) -> None:
    with pytest.raises(error, match=words):
        asking({"/v1/completions": page}, lambda server: server.ask("?", most_tokens=1))


def test_a_key_goes_into_the_header_and_no_redirect_is_followed() -> None:
    seen: list[str | None] = []

    async def elsewhere(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization"))
        return web.Response(status=307, headers={"Location": "/v1/models"})

    with pytest.raises(AskError, match="HTTP 307") as told:
        asking(
            {"/v1/completions": elsewhere, "/v1/models": MODELS},
            lambda server: server.ask("?", most_tokens=1),
            key="sesame",
        )
    assert ["Bearer sesame"] == seen
    assert "sesame" not in str(told.value)


def test_a_null_answer_is_an_empty_one() -> None:
    told = {"choices": [{"message": {"content": None}}]}

    async def chat(server: Server) -> str:
        await server.choose_api("auto")
        return (await server.ask("?", most_tokens=8)).text

    said, paths, _ = asking({"/v1/chat/completions": json.dumps(told).encode()}, chat)
    assert ("", ["/v1/completions", "/v1/chat/completions"]) == (said, paths)
