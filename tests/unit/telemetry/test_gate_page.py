"""What is taken for a keeper's page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.gate.figures import Sample, figures_of
from plimsoll.gate.tally import Tally
from plimsoll.keeper.loop import Told
from plimsoll.keeper.page import metrics_text
from plimsoll.telemetry.gate_page import read_gate_page
from plimsoll.telemetry.source import Reason, ScrapeError


def test_the_keepers_own_page_is_read_and_what_others_say_is_left_out() -> None:
    page = metrics_text(Told(), Tally(), ()) + "up 1\n"
    read = read_gate_page(page)
    assert Sample("plimsoll_gate_answers", {}, 0.0) in read
    assert {each.name for each in read if not each.name.startswith("plimsoll_gate_")} == set()


@pytest.mark.parametrize(
    ("text", "reason", "said"),
    [
        ("vllm:num_requests_running 3\n", Reason.ABSENT, "port 8406"),
        ("plimsoll_gate_queued{lane=\"chat\"} 1\n", Reason.ABSENT, "no plimsoll_gate_answers"),
        ("", Reason.MALFORMED, "cut off"),
        ("plimsoll_gate_answers 1\nplimsoll_gate_slo", Reason.MALFORMED, "cut off"),
        ("plimsoll_gate_answers{ one\n", Reason.MALFORMED, "no page of metrics"),
        (
            'plimsoll_gate_answers 1\nplimsoll_gate_slots{lane="chat",pod="a"} 1\n',
            Reason.MALFORMED,
            "plimsoll_gate_slots has no label worker: a keeper of another version",
        ),
        (
            'plimsoll_gate_answers 1\nplimsoll_gate_wait_seconds_bucket{lane="a",le="long"} 1\n',
            Reason.MALFORMED,
            "no page of metrics: could not convert",
        ),
        ("plimsoll_gate_answers NaN\n", Reason.MALFORMED, "has the value nan"),
        ("<html><body>Not Found</body></html>\n", Reason.ABSENT, "no plimsoll_gate_answers"),
    ],
)  # fmt: skip
def test_other_pages_are_refused_with_the_way_out(text: str, reason: Reason, said: str) -> None:
    with pytest.raises(ScrapeError, match=said) as caught:
        read_gate_page(text)
    assert reason is caught.value.reason


PAGES = metrics_text(Told(), Tally(), ())
WORDS = st.sampled_from(
    ("plimsoll_gate_", "slots", "answers", "{", "}", 'lane="a"', ",", 'worker="w"', " ", "1", "-Inf", "\n", "# TYPE ")
)  # fmt: skip


@given(st.lists(WORDS, max_size=30).map("".join) | st.text(max_size=60))
def test_whatever_is_read_can_be_counted_or_is_refused(text: str) -> None:
    try:
        page = read_gate_page(f"{PAGES}{text}\n")
    except ScrapeError:
        return
    assert figures_of([page]).gates == 1
