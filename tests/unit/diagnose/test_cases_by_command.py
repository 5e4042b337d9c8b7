"""Public reports through `plimsoll diagnose`: files made again from the numbers that they give, and what the
command must say of each."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from plimsoll.cli.exits import Exit
from plimsoll.cli.main import main
from plimsoll.units import GB, GIB, MIB

Curve = Callable[[float], float]
Capture = pytest.CaptureFixture[str]


class Case(NamedTuple):
    """One record, and what is to be said at its end."""

    source: str
    what: str
    hours: float
    memory: Curve
    verdict: str
    decision: str = "Hold"
    reason: str | None = None
    cause: str | None = None
    every: float = 30.0
    noise: float = 5 * MIB
    files: Mapping[str, Curve] = MappingProxyType({})
    options: tuple[str, ...] = ()


def straight(first: float, last: float, hours: float) -> Curve:
    return lambda hour: first + (last - first) * hour / hours


def filling(first: float, last: float, hours: float) -> Curve:
    return lambda hour: first + (last - first) * min(1.0, hour / hours)


def level(value: float) -> Curve:
    return lambda _: value


def counter(per_hour: float) -> Curve:
    return lambda hour: per_hour * hour


def stepped(before: float, after: float, at: float) -> Curve:
    return lambda hour: before if hour < at else after


def tokens(hour: float) -> float:
    """300 at a time, twelve times, with idle hours between."""
    starts = (0.3, 1.1, 2.9, 3.2, 5.0, 5.4, 8.1, 8.6, 9.0, 11.5, 12.2, 13.9)
    return sum(300.0 * min(1.0, max(0.0, (hour - start) * 10)) for start in starts)


def day(mean: float, swing: float) -> Curve:
    return lambda hour: mean + swing * math.sin(hour / 24 * 2 * math.pi)


FLAT = level(9 * GIB)
CASES = (
    # growth
    Case(
        "vllm-project/vllm#44175",
        "90 bytes a request, and a step in latency",
        12,
        straight(6.00 * GIB, 6.57 * GIB, 12),
        "Growth",
        "Recycle",
        noise=3 * MIB,
        files={"ttft": stepped(0.04, 0.155, 7), "load": level(5.0)},
    ),
    Case(
        "vllm-project/vllm#44490",
        "the same leak with flat latency, its limit far away",
        8,
        straight(9 * GIB, 9 * GIB + 4_012_263 * 90, 8),
        "QuietGrowth",
        noise=2 * MIB,
        files={"ttft": level(0.232)},
        options=("--limit", "64Gi"),
    ),
    Case(
        "vllm-project/vllm#44490",
        "the same leak with its limit near",
        8,
        straight(9 * GIB, 9 * GIB + 4_012_263 * 90, 8),
        "QuietGrowth",
        "Recycle",
        noise=2 * MIB,
        files={"ttft": level(0.232)},
        options=("--limit", "9.45Gi"),
    ),
    Case("vllm-project/vllm#44490", "after the patch", 8, FLAT, "Steady", noise=2 * MIB),
    Case(
        "vllm-project/vllm#52089",
        "host memory keeps growing",
        12,
        straight(20 * GIB, 26 * GIB, 12),
        "QuietGrowth",
        noise=40 * MIB,
    ),
    Case(
        "vllm-project/vllm#22736",
        "a worker climbs through twelve hours of steady load",
        12,
        straight(8 * GIB, 14 * GIB, 12),
        "QuietGrowth",
        noise=40 * MIB,
        files={"load": level(16.0)},
    ),
    Case(
        "yhfgyyf/vllm-deepseek-v4-sm89#50",
        "no limit: nothing to project to",
        20,
        straight(120 * GIB, 150 * GIB, 20),
        "QuietGrowth",
        reason="NoLimit",
        noise=50 * MIB,
    ),
    Case(
        "yhfgyyf/vllm-deepseek-v4-sm89#50",
        "the node's 251.5 GiB given as its limit",
        20,
        straight(120 * GIB, 150 * GIB, 20),
        "QuietGrowth",
        "Recycle",
        noise=50 * MIB,
        files={"load": level(8.0)},
        options=("--limit", "251.5Gi"),
    ),
    Case(
        "ikawrakow/ik_llama.cpp#2320",
        "222 GB after 5 h with a cap of 8192 MiB",
        5,
        straight(30 * GB, 252 * GB, 5),
        "QuietGrowth",
        "Recycle",
        cause="Overrun",
        noise=100 * MIB,
        options=("--cache-cap", "8192Mi"),
    ),
    Case(
        "TheTom/llama-cpp-turboquant#350",
        "a cache without a cap fills a host of 60 GB within an hour",
        1.05,
        straight(5 * GB, 59.7 * GB, 1.05),
        "QuietGrowth",
        "Recycle",
        cause="Overrun",
        options=("--limit", "60G"),
    ),
    Case(
        "ggml-org/llama.cpp#25953",
        "3.23 MB per token, idle between",
        15,
        lambda hour: 1.1 * GB + 3.23e6 * tokens(hour),
        "QuietGrowth",
        noise=1e6,
        files={"work": tokens},
    ),
    Case(
        "ggml-org/llama.cpp#25953",
        "13 points of it, and a limit",
        12,
        straight(1.1 * GB, 12.7 * GB, 12),
        "QuietGrowth",
        "Recycle",
        every=3600,
        noise=1e6,
        options=("--limit", "16G"),
    ),
    Case(
        "ggml-org/llama.cpp#25953",
        "13 points within an hour, judged as a load test",
        1,
        straight(1.1 * GB, 12.7 * GB, 1),
        "QuietGrowth",
        "Recycle",
        every=300,
        noise=1e6,
        options=("--limit", "16G", "--hour", "5m"),
    ),
    Case(
        "ggml-org/llama.cpp#28933",
        "6.9 GiB in the first hour and a half",
        1.5,
        straight(5.3 * GIB, 12.2 * GIB, 1.5),
        "WarmingUp",
    ),
    Case(
        "ggml-org/llama.cpp#28933",
        "12.19 GiB, then a band of 12.4 to 12.8",
        8,
        lambda hour: (12.19 + min(0.4, hour) + 0.2 * math.sin(9 * hour)) * GIB,
        "Steady",
    ),
    Case(
        "ollama/ollama#17924",
        "eight GiB in 60 requests: still rising",
        3,
        straight(20.5 * GIB, 28.5 * GIB, 3),
        "WarmingUp",
        options=("--limit", "48Gi"),
    ),
    Case(
        "ollama/ollama#17924",
        "still rising after six hours",
        6,
        straight(20.5 * GIB, 28.5 * GIB, 6),
        "QuietGrowth",
        options=("--limit", "48Gi"),
    ),
    Case(
        "ollama/ollama#17924",
        "by requests: 60 of them, then flat for 1,790",
        37,
        filling(20.5 * GIB, 28.5 * GIB, 1.2),
        "Steady",
        noise=20 * MIB,
        files={"work": counter(50), "load": level(1.0)},
        options=("--limit", "48Gi"),
    ),
    Case(
        "ollama/ollama#18106",
        "anonymous memory and swap in one file",
        5.5,
        straight(0.4 * GIB, 9.35 * GIB, 5.5),
        "QuietGrowth",
        noise=20 * MIB,
    ),
    Case(
        "ollama/ollama#18106",
        "RSS falls back, the swap is in a file of its own",
        5.5,
        lambda hour: 70 * MIB + 2 * GIB * max(0.0, 1 - hour),
        "QuietGrowth",
        noise=MIB,
        files={"swap": lambda hour: 9.28 * GIB * hour / 5.5 + GIB - GIB * max(0.0, 1 - hour)},
    ),
    Case(
        "vllm-project/vllm-omni#6462",
        "66 MiB in 960 aborted requests",
        5,
        straight(2.9 * GIB, 2.9 * GIB + 66 * MIB, 5),
        "QuietGrowth",
        noise=0.5 * MIB,
    ),
    Case(
        "Blaizzy/mlx-vlm#1393",
        "1.7 s at first, about double after 16 requests, memory climbing",
        6,
        straight(20 * GIB, 26 * GIB, 6),
        "Growth",
        "Recycle",
        noise=30 * MIB,
        files={"ttft": stepped(1.7, 3.4, 0.5)},
    ),
    Case(
        "ggml-org/llama.cpp#22360",
        "all slots busy, and more requests than slots",
        12,
        FLAT,
        "Pressure",
        cause="Queue",
        noise=2 * MIB,
        files={
            "load": stepped(2.0, 4.0, 9),
            "ttft": stepped(0.4, 4.0, 9),
            "waiting": stepped(0.0, 6.0, 9),
        },
    ),
    # preemption
    Case(
        "vllm-project/vllm#44594",
        "1,065 preemptions at 128 requests",
        12,
        FLAT,
        "Pressure",
        cause="Preemptions",
        noise=2 * MIB,
        files={
            "load": level(100.0),
            "waiting": level(28.0),
            "ttft": stepped(0.5, 25.5, 8),
            "preemptions": counter(1065),
            "requests": counter(2000),
        },
    ),
    Case(
        "Tandemn-Labs/tandemn-system#11",
        "72 run, 184 wait, 480 preemptions in 5,000 requests",
        6,
        FLAT,
        "Pressure",
        cause="Preemptions",
        noise=2 * MIB,
        files={
            "load": level(72.0),
            "waiting": level(184.0),
            "preemptions": counter(80),
            "requests": counter(833),
        },
    ),
    Case(
        "inference-sim/inference-sim#963",
        "1,538 preemptions in 19,801 requests that all complete",
        6,
        FLAT,
        "Steady",
        noise=2 * MIB,
        files={
            "load": level(40.0),
            "waiting": level(0.2),
            "preemptions": counter(256),
            "requests": counter(3300),
        },
    ),
    # memory metrics
    Case(
        "starkware-libs/sequencer#14064",
        "24 to 46 % of the limit by RSS for 14 days, the load unknown",
        14 * 24,
        day(0.35 * 16 * GIB, 0.10 * 16 * GIB),
        "Steady",
        every=300,
        options=("--limit", "16Gi"),
    ),
    Case(
        "kubernetes/kubernetes#43916",
        "flat anonymous memory after the weights are loaded",
        8,
        level(6 * GIB),
        "Steady",
    ),
    Case(
        "vllm-project/vllm#11902",
        "20 GB more while it loads, and they stay",
        24,
        lambda hour: 3 * GB + 20 * GB * min(1.0, hour * 6),
        "Steady",
        noise=10 * MIB,
        options=("--limit", "32G"),
    ),
    Case(
        "vllm-project/vllm#28923",
        "past its limit while the weights load, not Ready yet",
        0.7,
        straight(1 * GIB, 250 * GIB, 0.7),
        "WarmingUp",
        options=("--limit", "256Gi", "--ready", "3600"),
    ),
    Case(
        "vllm-project/vllm#28923",
        "killed while it loads, again and again",
        2.1,
        lambda hour: 1 * GIB + 254 * GIB * ((hour / 0.4) % 1),
        "WarmingUp",
        options=("--limit", "256Gi"),
    ),
    Case(
        "vllm-project/vllm#28923",
        "a load peak that is given back once it is Ready",
        24,
        lambda hour: 250 * GIB * hour / 0.5 if hour < 0.5 else 100 * GIB,
        "Steady",
        options=("--limit", "256Gi", "--ready", "1800"),
    ),
    # shapes of the same kinds
    Case("", "a sawtooth with a period of four hours", 24, lambda h: (8 + 2 * (h / 4 % 1)) * GIB, "Steady"),
    Case("", "daily samples of a fortnight that rise", 14 * 24, straight(6 * GB, 16 * GB, 14 * 24),
         "QuietGrowth", every=86400.0),
    Case("", "daily samples of a fortnight, flat", 14 * 24, level(6 * GB), "Steady", every=86400.0),
    Case("", "a step in the middle of its life", 24, stepped(8 * GIB, 13 * GIB, 7), "Steady"),
    Case("", "a clear rise that is too young", 5, straight(2 * GIB, 6 * GIB, 5), "WarmingUp",
         noise=300 * MIB),
    Case("", "a leak that begins after a day", 40, lambda h: (9 + 0.2 * max(0.0, h - 20)) * GIB,
         "QuietGrowth", "Recycle", files={"load": level(8.0)}, options=("--limit", "16Gi")),
)  # fmt: skip


def written(path: Path, curve: Curve, hours: float, every: float, noise: float) -> str:
    draw = random.Random(7)
    rows = (
        f"{at * every:.0f},{max(0.0, curve(at * every / 3600) + draw.gauss(0, noise)):.6f}"
        for at in range(int(hours * 3600 / every) + 1)
    )
    path.write_text("seconds,value\n" + "\n".join(rows) + "\n")
    return str(path)


def asked(case: Case, folder: Path, capsys: Capture) -> dict[str, Any]:
    memory = written(folder / "memory.csv", case.memory, case.hours, case.every, case.noise)
    words = ["--memory", memory, *case.options]
    for option, curve in case.files.items():
        path = folder / f"{option}.csv"
        words += [f"--{option}", written(path, curve, case.hours, max(60.0, case.every), 0.0)]
    assert Exit.FITS == main(["diagnose", *words, "-o", "json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.source} {case.what}".strip())
def test_a_public_report_is_answered(case: Case, tmp_path: Path, capsys: Capture) -> None:
    found = asked(case, tmp_path, capsys)
    assert (case.verdict, case.decision) == (found["verdict"], found["recycle"]["decision"])
    if case.cause is not None:
        assert case.cause == found["cause"]
    if case.reason is not None:
        assert case.reason == found["recycle"]["reason"]
    if case.decision == "Hold":
        assert "firstReached" not in found["recycle"]


def case_of(what: str) -> Case:
    return next(case for case in CASES if what in case.what)


def test_a_leak_is_not_said_to_cause_the_latency(tmp_path: Path, capsys: Capture) -> None:
    """vllm-project/vllm#44175: a later fix removed the slope, and the step in latency stayed."""
    found = asked(case_of("a step in latency"), tmp_path, capsys)
    assert "not certain" in found["sentence"]
    assert abs(found["finding"]["bytesPerHour"] / MIB - 48.6) < 3


def test_retention_is_told_with_its_remedy(tmp_path: Path, capsys: Capture) -> None:
    """vllm-project/vllm-omni#6462: the same code is level on a host with more processors."""
    assert "MALLOC_ARENA_MAX" in asked(case_of("aborted requests"), tmp_path, capsys)["advice"]


def test_a_leak_is_told_by_token(tmp_path: Path, capsys: Capture) -> None:
    found = asked(case_of("3.23 MB per token"), tmp_path, capsys)
    assert abs(found["finding"]["bytesPerWork"] / 3.23e6 - 1) < 0.1


def test_an_overrun_is_told_long_before_a_window_is_full(tmp_path: Path, capsys: Capture) -> None:
    found = asked(case_of("8192 MiB"), tmp_path, capsys)
    assert found["recycle"]["firstReached"]["hours"] < 1.2


def test_preemptions_are_answered_with_fewer_sequences(tmp_path: Path, capsys: Capture) -> None:
    assert "maxNumSeqs" in asked(case_of("1,065"), tmp_path, capsys)["advice"]


def test_memory_that_was_swapped_out_is_asked_for(tmp_path: Path, capsys: Capture) -> None:
    """ollama/ollama#18106: RSS falls back to about 70 MiB while 9.35 GiB are held."""
    hidden = case_of("a file of its own")._replace(files={}, verdict="Steady")
    found = asked(hidden, tmp_path, capsys)
    assert "Steady" == found["verdict"]
    assert "--swap" in found["advice"]


def test_a_worker_that_is_killed_while_it_loads_is_no_case_for_a_recycle(
    tmp_path: Path, capsys: Capture
) -> None:
    found = asked(case_of("again and again"), tmp_path, capsys)
    assert found["seen"]["lives"] >= 5
    assert "memory limit" in found["advice"]


def test_a_load_test_is_told_how_it_can_be_judged(tmp_path: Path, capsys: Capture) -> None:
    short = case_of("as a load test")._replace(options=())
    found = asked(short, tmp_path, capsys)
    assert "WarmingUp" == found["verdict"]
    assert "--hour" in found["advice"]
