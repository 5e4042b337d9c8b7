"""`plimsoll diagnose` on files that a person may have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cli.exits import Exit
from plimsoll.cli.main import main
from plimsoll.cli.replay import lives_of
from plimsoll.facts.series import Sample
from plimsoll.units import GIB

Capture = pytest.CaptureFixture[str]


def csv(path: Path, hours: float, first: float, per_hour: float, *, after: float = 0.0) -> str:
    """A sample a minute; rises after so many hours."""
    values = (
        f"{60 * minute},{first + per_hour * max(0.0, minute / 60 - after):.6f}"
        for minute in range(int(hours * 60) + 1)
    )
    lines = ["seconds,value", *values]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def answer(capsys: Capture, *words: str) -> dict[str, Any]:
    assert Exit.FITS == main(["diagnose", *words, "-o", "json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_leak_is_told_with_its_time_and_its_numbers(tmp_path: Path, capsys: Capture) -> None:
    memory = csv(tmp_path / "memory.csv", 40, 9 * GIB, 0.2 * GIB, after=15)
    load = csv(tmp_path / "load.csv", 40, 8, 0)
    found = answer(capsys, "--memory", memory, "--load", load, "--limit", "16Gi")
    assert "QuietGrowth" == found["verdict"]
    assert 17 < found["firstReached"]["hours"] < 25
    assert abs(found["finding"]["bytesPerHour"] / GIB - 0.2) < 0.02
    assert "Recycle" == found["recycle"]["decision"]
    assert ["WarmingUp", "Steady", "QuietGrowth"] == [c["verdict"] for c in found["changes"]]


def test_latency_that_rises_along_is_growth(tmp_path: Path, capsys: Capture) -> None:
    memory = csv(tmp_path / "memory.csv", 12, 6 * GIB, 0.05 * GIB)
    ttft = csv(tmp_path / "ttft.csv", 12, 0.04, 0.1, after=7)
    found = answer(capsys, "--memory", memory, "--ttft", ttft)
    assert "Growth" == found["verdict"]
    assert "Recycle" == found["recycle"]["decision"]
    assert found["evidence"]["ttftP95Seconds"] > 0.3


def test_a_slope_that_is_asked_for_is_demanded(tmp_path: Path, capsys: Capture) -> None:
    memory = csv(tmp_path / "memory.csv", 40, 9 * GIB, 0.1 * GIB)
    assert "Steady" == answer(capsys, "--memory", memory, "--slope", "200Mi")["verdict"]


def test_a_prometheus_range_is_read(tmp_path: Path, capsys: Capture) -> None:
    values = [[1_780_000_000 + 60 * at, str(9 * GIB)] for at in range(600)]
    values[7][1] = "NaN"
    series = {"metric": {"pod": "chat-0"}, "values": values}
    body = {"status": "success", "data": {"resultType": "matrix", "result": [series]}}
    path = tmp_path / "memory.json"
    path.write_text(json.dumps(body))
    found = answer(capsys, "--memory", str(path))
    assert ("Steady", 599) == (found["verdict"], found["seen"]["samples"])
    body["data"]["result"].append(series)  # type: ignore[index]
    path.write_text(json.dumps(body))
    assert Exit.BAD_INPUT == main(["diagnose", "--memory", str(path)])
    assert "2 series" in capsys.readouterr().err


def test_hourly_samples_make_hourly_bins(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "memory.csv"
    rows = (f"{3600 * at},{9 * GIB + 0.1 * GIB * max(0, at - 20):.0f}" for at in range(72))
    path.write_text("\n".join(rows))
    found = answer(capsys, "--memory", str(path))
    assert ("QuietGrowth", 3600.0) == (found["verdict"], found["seen"]["binSeconds"])


def test_words_and_a_curve_are_for_people(tmp_path: Path, capsys: Capture) -> None:
    memory = csv(tmp_path / "memory.csv", 12, 9 * GIB, 0)
    drawing = tmp_path / "memory.svg"
    assert Exit.FITS == main(["diagnose", "--memory", memory, "--svg", str(drawing)])
    said = capsys.readouterr().out
    assert said.startswith("Steady\n  Memory is flat at 9.0 GiB")
    assert "Hold: Steady" in said
    assert "Over time: " in said
    assert drawing.read_text().startswith("<svg ")


REFUSED = [
    ("seconds,value\n0,6000\n60,6001\n", "give bytes"),
    ("seconds,mib\n0,6000\n", "give bytes"),
    ("seconds,value\n0,3068996\n60,3069000\n", "KiB times 1024"),
    ("1780000000000,9e9\n1780000030000,9e9\n", "milliseconds"),
    ("seconds,value\n0,9e30\n", "more than any node has"),
    ("seconds,value\n", "no sample"),
    ("seconds,value\n0;5\n", ":2:"),
    ("seconds,value\n0,five\n", ":2:"),
    ("seconds,value\nnan,5\n", "no time"),
    ('{"data": 5}', "not a range"),
    ('{"data": ', "JSON"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_nonsense_is_refused_with_a_way_out(
    text: str, words: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "memory.csv"
    path.write_text(text)
    assert Exit.BAD_INPUT == main(["diagnose", "--memory", str(path)])
    said = capsys.readouterr().err
    assert "--memory" in said
    assert words in said


def test_options_that_cannot_be_read_are_named(tmp_path: Path, capsys: Capture) -> None:
    memory = csv(tmp_path / "memory.csv", 2, 9 * GIB, 0)
    for words in (
        ("--limit", "many"),
        ("--ready", "now"),
        ("--warm-up", "1 hour"),
        ("--hour", "1s"),
        ("--hour", "soon"),
        ("--cache-cap", "-1"),
    ):
        assert Exit.BAD_INPUT == main(["diagnose", "--memory", memory, *words])
        assert words[0] in capsys.readouterr().err


def test_a_cache_without_a_cap_is_named_as_such(tmp_path: Path, capsys: Capture) -> None:
    """llama-server's --cache-ram -1: TheTom/llama-cpp-turboquant#350."""
    memory = csv(tmp_path / "memory.csv", 2, 9 * GIB, 0)
    assert Exit.BAD_INPUT == main(["diagnose", "--memory", memory, "--cache-cap", "-1"])
    said = capsys.readouterr().err
    assert "without a cap" in said
    assert "--cache-ram" in said


def test_files_of_other_times_are_refused(tmp_path: Path, capsys: Capture) -> None:
    memory = csv(tmp_path / "memory.csv", 8, 9 * GIB, 0)
    load = tmp_path / "load.csv"
    load.write_text("1780000000,4\n1780000060,4\n")
    assert Exit.BAD_INPUT == main(["diagnose", "--memory", memory, "--load", str(load)])
    said = capsys.readouterr().err
    assert "--load: its times run from 1780000000 to 1780000060" in said


def test_percentages_of_a_pool_are_refused(tmp_path: Path, capsys: Capture) -> None:
    memory = csv(tmp_path / "memory.csv", 8, 9 * GIB, 0)
    used = csv(tmp_path / "kv.csv", 8, 95, 0)
    assert Exit.BAD_INPUT == main(["diagnose", "--memory", memory, "--kv-use", used])
    assert "from 0 to 1" in capsys.readouterr().err


def test_numbers_of_requests_are_no_seconds(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "memory.csv"
    path.write_text("\n".join(f"{at},{12 * GIB}" for at in range(80)))
    found = answer(capsys, "--memory", str(path))
    assert "WarmingUp" == found["verdict"]
    assert "--work" in found["advice"]


def test_the_life_before_the_newest_is_told(tmp_path: Path, capsys: Capture) -> None:
    """Killed at its limit after 20 h, and new since an hour."""
    path = tmp_path / "memory.csv"
    rows = (f"{60 * at},{(2 + 14 * (at / 1200 % 1)) * GIB:.0f}" for at in range(1200 + 60))
    path.write_text("\n".join(rows))
    found = answer(capsys, "--memory", str(path), "--limit", "16Gi")
    assert ("WarmingUp", "QuietGrowth") == (found["verdict"], found["seen"]["lifeBefore"])
    assert "The life before came to QuietGrowth" in found["advice"]


def test_when_it_was_ready_counts_for_the_newest_life_too(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "memory.csv"
    rows = (f"{60 * at},{(1 + 254 * (at / 24 % 1)) * GIB:.0f}" for at in range(100))
    path.write_text("\n".join(rows))
    found = answer(capsys, "--memory", str(path), "--ready", "9000")
    assert ("WarmingUp", "It is not Ready yet.") == (found["verdict"], found["sentence"])


def test_too_few_samples_are_unknown(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "memory.csv"
    path.write_text(f"0,{GIB}\n5,{GIB}\n10,{GIB}\n")
    assert Exit.REFUSED == main(["diagnose", "--memory", str(path)])
    assert capsys.readouterr().out.startswith("Unknown\n")


def test_a_fall_to_where_it_began_is_a_restart() -> None:
    climb = [Sample(float(at), 1e9 + 1e8 * (at % 20)) for at in range(50)]
    assert [20, 20, 10] == [len(life) for life in lives_of(tuple(climb))]
    dip = [Sample(float(at), 4e9 - (1.5e9 if at == 5 else 0)) for at in range(10)]
    assert [10] == [len(life) for life in lives_of(tuple(dip))]
