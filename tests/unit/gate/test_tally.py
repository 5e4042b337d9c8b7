"""Do lines add up, and does what is no line do no harm?"""

from __future__ import annotations

import json

import pytest

from plimsoll.gate.tally import Line, Tally, read_line

SERVED = (
    '{"lane":"chat","key":"-","server":"s1","status":200,"reason":"-","waited_ms":12,"total_ms":90,'
    '"body_bytes":"142","sent_bytes":217,"ended":"----","in_flight":1,"queued":0}'
)
REFUSED = (
    SERVED.replace("200", "429")
    .replace('"reason":"-"', '"reason":"queue_full"')
    .replace('_ms":12', '_ms":-1')
)


def test_a_line_is_read() -> None:
    assert Line("chat", 200, "", 0.012, 142) == read_line("<134>" + SERVED)
    assert Line("chat", 429, "queue_full", None, 142) == read_line(REFUSED)


@pytest.mark.parametrize(
    "text", ["", "Server pool/s1 is UP", "{", "{}", "[1]", SERVED[:-5], '{"lane":{}}']
)
def test_what_is_no_line_is_none(text: str) -> None:
    assert read_line(text) is None


def test_requests_are_counted_by_lane_status_and_reason() -> None:
    tally = Tally()
    for text in (SERVED, SERVED, REFUSED):
        line = read_line(text)
        assert line is not None
        tally.add(line)
    assert {("chat", 200, ""): 2, ("chat", 429, "queue_full"): 1} == tally.requests
    assert {"chat": 284} == tally.body_bytes


def test_the_wait_of_95_in_100_is_told_by_its_bound() -> None:
    tally = Tally()
    assert tally.waited_p95_seconds("chat") is None
    for waited in [1] * 95 + [700] * 5:
        line = read_line(json.dumps(json.loads(SERVED) | {"waited_ms": waited}))
        assert line is not None
        tally.add(line)
    assert 0.005 == tally.waited_p95_seconds("chat")
    tally.add(Line("chat", 200, "", 0.7, 1))
    assert 1.0 == tally.waited_p95_seconds("chat")
    for _ in range(200):
        tally.add(Line("chat", 200, "", 99.0, 1))
    assert float("inf") == tally.waited_p95_seconds("chat")
