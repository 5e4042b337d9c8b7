"""The text of `plimsoll plan`, whole."""

from __future__ import annotations

from pathlib import Path

from plimsoll.cli.answers import Answer, exit_code
from plimsoll.cli.exits import Exit
from plimsoll.cli.report import report, summary
from plimsoll.cli.text import Page
from plimsoll.plan.records import Plan
from plimsoll.units import MIB

PAGE = Page(width=100, colour=False)
GOLDEN = Path(__file__).parent / "report.txt"


def test_the_whole_text_at_100_columns(answers: tuple[Answer, ...]) -> None:
    assert report(answers, page=PAGE) == GOLDEN.read_text(encoding="utf-8")


def test_no_line_is_wider_than_80_columns_when_the_page_is_not(answers: tuple[Answer, ...]) -> None:
    lines = report(answers, page=Page(width=80, colour=False)).splitlines()
    assert max(map(len, lines)) <= 80


def test_the_ledger_ends_with_the_whole_card(answers: tuple[Answer, ...], plan: Plan) -> None:
    assert sum(line.bytes for line in plan.ledger) == 24564 * MIB
    assert "  whole card       23.99  100.0 %" in report(answers, page=PAGE).splitlines()


def test_a_llama_cpp_plan_says_how_many_layers_stay_on_the_card(
    answers: tuple[Answer, ...], plan: Plan
) -> None:
    partly = plan.model_copy(update={"gpu_layers": 63, "layers": 81})
    text = report([answers[0]._replace(outcome=partly)], page=PAGE)
    assert "  on the card  63 of 81 layers" in text.splitlines()


def test_colour_marks_what_fits_and_what_is_refused(answers: tuple[Answer, ...]) -> None:
    said = summary(answers, page=Page(width=100, colour=True))
    assert said == "2 pools: \x1b[32m1 fits\x1b[0m, \x1b[31m1 is refused\x1b[0m"


def test_one_refusal_is_enough_for_exit_code_3(answers: tuple[Answer, ...]) -> None:
    assert exit_code(answers[:1]) is Exit.FITS
    assert exit_code(answers) is Exit.REFUSED
