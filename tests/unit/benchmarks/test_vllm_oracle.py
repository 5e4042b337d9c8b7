"""Does the accuracy report tell equal figures from others, and refusals from plans?"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

from benchmarks.accuracy.row import Row, Verdict
from benchmarks.accuracy.vllm_oracle import rows

import kv_rows


def _rows(folder: Path, *raw: dict[str, Any]) -> tuple[Row, ...]:
    configs = folder / "hf_configs"
    configs.mkdir()
    for each in {each["config"] for each in raw}:
        (folder / each).write_text((kv_rows.DATA / each).read_text())
    path = folder / "rows.json"
    path.write_text(json.dumps({"rows": raw}))
    return rows(path)


def test_every_row_of_the_data_is_equal() -> None:
    found = rows(kv_rows.DATA / "vllm_kv.json")
    assert 254 == len(found)
    assert {Verdict.EQUAL, Verdict.REFUSED_ALIKE} == {row.verdict for row in found}
    assert {"bytes per request"} == {row.checks[0].what for row in found}


def test_every_row_of_the_further_models_is_equal() -> None:
    found = rows(kv_rows.DATA / "vllm_kv_more.json")
    assert len(found) > 500
    assert {Verdict.EQUAL, Verdict.REFUSED_ALIKE} == {row.verdict for row in found}


def test_a_figure_that_differs_is_wrong(tmp_path: Path) -> None:
    other = deepcopy(kv_rows.row("r001"))
    other["bytes_per_full_request"] += 1
    (row,) = _rows(tmp_path, other)
    assert Verdict.WRONG is row.verdict
    assert ["bytes per request"] == [
        check.what for check in row.checks if check.verdict is Verdict.WRONG
    ]


def test_a_refusal_by_one_side_alone_is_wrong(tmp_path: Path) -> None:
    other = deepcopy(kv_rows.row("r006"))
    other["capacity"] = [
        {
            "available_bytes": 2**32,
            "num_blocks": 2048,
            "kv_cache_size_tokens": 1,
            "max_concurrency": 1.0,
        },
        {"available_bytes": 2**34, "refused": True, "estimated_max_model_len": 1},
    ]
    (row,) = _rows(tmp_path, other)
    reasons = [check.reason for check in row.checks if check.verdict is Verdict.WRONG]
    assert ["refused by the plan alone", "refused by the engine alone"] == reasons


def test_a_model_or_card_that_we_refuse_says_why(tmp_path: Path) -> None:
    other = deepcopy(kv_rows.row("r080")) | {
        "kv_cache_dtype": "fp8",
        "compute_capability": "8.0",
    }
    (row,) = _rows(tmp_path, other)
    assert Verdict.WRONG is row.verdict
    assert "no attention kernel takes Mla" in row.checks[0].reason
