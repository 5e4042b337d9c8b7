"""What a log line looks like."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from plimsoll.telemetry.log import set_up


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Leave logging as it was."""
    root = logging.getLogger()
    names = ("plimsoll", "kopf", "aiohttp", "kubernetes")
    levels = {name: logging.getLogger(name).level for name in names}
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


def logged(shape: str, phrase: str, level: int = logging.INFO, **fields: object) -> str:
    """One line."""
    stream = io.StringIO()
    set_up(shape, "info", stream)
    logging.getLogger("plimsoll.controller.loop").log(level, phrase, extra=fields)
    return stream.getvalue()


def test_text_is_a_phrase_and_fields() -> None:
    line = logged("text", "child put right", namespace="team", differs_in="args, env", count=3)
    when, rest = line.split(" ", 1)
    assert 'INFO loop child put right namespace=team differs_in="args, env" count=3\n' == rest
    assert when.endswith("Z")
    assert 24 == len(when)


def test_json_is_one_object_a_line() -> None:
    line = json.loads(logged("json", "visit failed", error='a "b"\nc', count=3))
    assert {"level": "info", "message": "visit failed", "error": 'a "b"\nc', "count": 3} == {
        key: line[key] for key in ("level", "message", "error", "count")
    }
    assert "plimsoll.controller.loop" == line["logger"]


def test_a_field_cannot_begin_a_new_line() -> None:
    line = logged("text", "visit failed", error="a\n2026-11-29 ERROR forged")
    assert 1 == len(line.splitlines())
    assert 1 == len(logged("text", "a\nb").splitlines())


@pytest.mark.parametrize("shape", ["text", "json"])
def test_a_token_never_gets_out(shape: str) -> None:
    line = logged(shape, "asked", header="Authorization: Bearer eyJhbGciOi.abc-def_123")
    assert "eyJ" not in line
    assert "***" in line


@pytest.mark.parametrize("shape", ["text", "json"])
def test_a_mistake_shows_where_it_was_made(shape: str) -> None:
    stream = io.StringIO()
    set_up(shape, "info", stream)
    try:
        raise ZeroDivisionError("here")
    except ZeroDivisionError:
        logging.getLogger("plimsoll").exception("failed")
    assert "ZeroDivisionError: here" in stream.getvalue()


def test_others_are_heard_when_something_is_wrong() -> None:
    stream = io.StringIO()
    set_up("text", "info", stream)
    logging.getLogger("kopf.objects").info("routine")
    logging.getLogger("plimsoll").debug("detail")
    assert "" == stream.getvalue()
    logging.getLogger("kopf.objects").warning("trouble")
    assert "trouble" in stream.getvalue()
