"""Does the report count what is there, list what is not met, and stay the same until a figure changes?"""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Final

import pytest
from benchmarks.accuracy import plot, report
from benchmarks.accuracy.__main__ import BAD_INPUT, check, main
from benchmarks.accuracy.cases import ROOT, SOURCES, Compared, quantity_of, with_peers
from benchmarks.accuracy.peers.peer import Figure, Quantity, Silent
from benchmarks.accuracy.row import Check, Row, Verdict
from benchmarks.accuracy.summary import summary

SILENT: Final = Silent("it has no such figure")


def compared(
    id_: str,
    planned: float | None,
    reported: float | None,
    verdict: Verdict,
    *,
    reason: str = "",
    **peers: Figure,
) -> Compared:
    row = Row(id_, "vllm 0.33.0", "a-model", "LlamaForCausalLM", "L4")
    one = Check("KV pool bytes per card", planned, reported, verdict, reason)
    return Compared(Row(**{**vars(row), "checks": (one,)}), one, Quantity.POOL, peers)


FIGURES: Final = (
    compared("a", 99.0, 100.0, Verdict.WITHIN, aiconfigurator=104.0, gpustack=SILENT),
    compared("b", 97.0, 100.0, Verdict.WITHIN, aiconfigurator=99.0, gpustack=SILENT),
    compared("c", 110.0, 100.0, Verdict.OVER, reason="the step is not stated", gpustack=SILENT),
    compared("d", None, 100.0, Verdict.NOT_PLANNED, reason="unknown layout"),
)


def test_a_group_counts_met_over_and_not_planned() -> None:
    (engine,) = summary(FIGURES).engines
    assert (4, 2, 1, 1) == (engine.count, engine.met, engine.over_promises, engine.not_planned)
    assert engine.worst_id == "c"
    assert round(engine.median_error or 0, 9) == 0.03


def test_a_peer_is_compared_on_the_rows_that_both_plan() -> None:
    (peer,) = summary(FIGURES).peers
    assert ("aiconfigurator", 2, 1, 1, 0) == (
        peer.peer,
        peer.count,
        peer.over_promises,
        peer.nearer,
        peer.plimsoll_over_promises,
    )
    assert round(peer.median_error or 0, 9) == 0.025
    assert round(peer.plimsoll_median_error or 0, 9) == 0.02


def test_a_target_that_is_missed_is_told() -> None:
    told = summary(FIGURES)
    assert [False, True] == [target.reached for target in told.targets]
    assert "NOT reached" in report.as_text(with_peers(FIGURES), told)


def test_what_is_not_met_is_listed_with_its_reason() -> None:
    text = report.as_markdown(FIGURES, summary(FIGURES), [])
    unmet = text.partition("## Not met, one by one")[2]
    assert "| c | a-model | L4 | KV pool bytes per card | 110 | 100 | +10.0 % | over |" in unmet
    assert "the step is not stated" in unmet
    assert "unknown layout" in unmet.partition("## Not planned")[2]


def test_a_peer_that_is_nearer_shows() -> None:
    text = report.as_markdown(FIGURES, summary(FIGURES), [])
    nearer = text.partition("## Where a peer is nearer")[2].partition("##")[0]
    assert "| b | KV pool bytes per card | aiconfigurator | -1.00 % | -3.00 % |" in nearer


def test_json_has_a_row_a_case_and_a_summary() -> None:
    told = json.loads(report.as_json(with_peers(FIGURES), summary(FIGURES)))
    assert ["a", "b", "c", "d"] == [row["id"] for row in told["rows"]]
    assert {"id", "planned", "reported", "error", "verdict", "reason"} <= set(told["rows"][0])
    assert told["rows"][0]["peers"] == {"aiconfigurator": 104.0}
    assert told["summary"]["checks"][0]["count"] == 4


def test_the_plot_is_xml_with_a_dot_for_each_place() -> None:
    drawn = ET.fromstring(plot.svg(FIGURES))
    dots = [each for each in drawn.iter() if each.get("class") == "k0" and each.get("r") == "3"]
    assert len(dots) >= 3
    assert drawn.find("{http://www.w3.org/2000/svg}title") is not None


def test_the_page_and_the_plot_do_not_depend_on_a_run() -> None:
    random.seed()
    pages = {(report.as_markdown(FIGURES, summary(FIGURES), []), plot.svg(FIGURES)) for _ in "ab"}
    assert len(pages) == 1


def test_a_page_that_differs_is_told_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    path = ROOT / "docs" / "measured" / "README.md"
    text = path.read_text(encoding="utf-8")
    assert check({path: text}) == 0
    assert check({path: text + "one more line\n"}) == 1
    assert "+one more line" in capsys.readouterr().out.splitlines()


def test_a_file_that_is_missing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--readings", str(tmp_path / "none.json")]) == BAD_INPUT
    assert "--readings" in capsys.readouterr().err


def test_the_four_options_keep_their_names() -> None:
    assert ["vllm-oracle", "readings", "llamacpp-oracle", "llamacpp-readings"] == [
        source.option for source in SOURCES
    ]


@pytest.mark.parametrize(
    ("what", "quantity"),
    [
        ("KV pool bytes per card", Quantity.POOL),
        ("bytes per full request", Quantity.REQUEST),
        ("max concurrency at 16 GiB", Quantity.CONCURRENCY),
        ("KV tokens", Quantity.TOKENS),
        ("outcome", Quantity.STARTS),
        ("weight bytes of a rank", None),
    ],
)
def test_a_check_is_known_by_its_words(what: str, quantity: Quantity | None) -> None:
    assert quantity_of(what) == quantity
