"""Are the promises kept on start-ups that people reported?"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest
from benchmarks.accuracy import reading_pool
from benchmarks.accuracy.named import bits_of, model_of, short
from benchmarks.accuracy.row import Check, Row, Verdict
from benchmarks.accuracy.vllm_readings import rows

from plimsoll.facts.model import ModelFacts
from plimsoll.units import GIB

PATH: Final = Path(__file__).parents[2] / "data" / "vllm_readings.json"
ROWS: Final = rows(PATH)


def _checks(what: str) -> list[tuple[Row, Check]]:
    return [(row, check) for row in ROWS for check in row.checks if check.what.startswith(what)]


def test_every_reading_has_a_row_and_each_row_a_figure_or_a_reason() -> None:
    assert 86 == len(ROWS)
    assert all(row.checks or row.reason for row in ROWS)


def test_no_planned_pool_is_a_promise_that_would_break() -> None:
    over = [row.id for row, check in _checks("kv pool") if check.verdict is Verdict.OVER]
    assert [] == over


def test_the_planned_pool_is_near_at_the_median() -> None:
    errors = [c.error for _, c in _checks("kv pool") if c.planned is not None]
    assert len(errors) >= 28
    assert -0.08 <= median(error for error in errors if error is not None) <= 0.01


def test_what_is_not_planned_says_why() -> None:
    silent = [
        row.id
        for row in ROWS
        for check in row.checks
        if check.verdict is Verdict.NOT_PLANNED and not check.reason
    ]
    assert [] == silent


def test_refusals_are_foreseen_and_starts_are_not_refused() -> None:
    wrong = [row.id for row, check in _checks("outcome") if check.verdict is Verdict.WRONG]
    assert [] == wrong


def test_tokens_of_a_given_kv_memory_are_within_half_a_per_cent() -> None:
    near = {Verdict.EQUAL, Verdict.WITHIN, Verdict.NOT_PLANNED}
    far = [row.id for row, check in _checks("kv tokens") if check.verdict not in near]
    assert [] == [key for key in far if key not in SWEEPS]


SWEEPS: Final = {"v080", "v081"}
"""Steps of a share in a distribution whose engine is not named: states are booked otherwise there."""


def _reading(**said: Any) -> dict[str, Any]:
    reported = {
        key: said.pop(key)
        for key in ("weights_gib", "available_kv_gib", "activation_peak_gib", "non_torch_gib")
        if key in said
    }
    return {
        "id": "x",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "gpu": "H100 80GB",
        "gpu_memory_gib_total": 79.18,
        "gpu_memory_utilization": 0.9,
        "tp": 1,
        **said,
        "reported": {"weights_gib": 14.99, **reported},
    }


def _planned_gib(**said: Any) -> float:
    found = reading_pool.planned(_reading(**said))
    assert not isinstance(found, str), found
    return found[0] / GIB


def test_a_release_that_pays_for_graphs_leaves_less_than_one_that_does_not() -> None:
    before, after = (_planned_gib(engine_version=release) for release in ("0.17.1", "0.20.0"))
    assert after < before


def test_an_unstated_release_counts_as_the_one_that_leaves_least() -> None:
    stated = [_planned_gib(engine_version=release) for release in ("0.11.0", "0.33.0")]
    assert _planned_gib() <= min(stated)


def test_fewer_sequences_leave_more() -> None:
    assert _planned_gib(max_num_seqs=8) > _planned_gib()


def test_a_peak_of_other_settings_is_told_and_not_planned() -> None:
    found = reading_pool.planned(_reading(activation_peak_gib=20.0))
    assert isinstance(found, str)
    assert "settings are not stated" in found


def test_an_unnamed_model_is_planned_by_the_bounds_of_its_size() -> None:
    assert _planned_gib(model=None) <= _planned_gib()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen2.5-32B fp8", "qwen2.5-32b"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "llama-3.3-70b"),
        ("unsloth/meta-llama-3.1-8b-instruct-bnb-4bit", "llama-3.1-8b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", "qwen2.5-14b"),
        ("Qwen1.5-7B-Chat-GPTQ-Int4", "qwen1.5-7b"),
        ("DeepSeek-V4 (Flash class)", "deepseek-v4-flash"),
    ],
)
def test_a_name_is_read_without_publisher_quantisation_and_tuning(name: str, expected: str) -> None:
    assert expected == short(name)


def test_names_that_nobody_knows_give_a_reason() -> None:
    assert "no public shape" in str(model_of("nobody/has-this-9B"))
    assert "names no model" in str(model_of(None))
    assert isinstance(model_of("Qwen2.5-32B fp8"), ModelFacts)


def test_bits_stand_in_the_name() -> None:
    assert 8 == bits_of("Qwen3-Omni-30B int8")
    assert 4 == bits_of("32B AWQ")
    assert bits_of("Qwen3-8B") is None
