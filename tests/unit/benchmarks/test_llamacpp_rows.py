"""Are llama.cpp's own buffers met, and do readings that cannot be met say why?"""

from __future__ import annotations

import json
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from benchmarks.accuracy.llamacpp import oracle_rows, reading_rows
from benchmarks.accuracy.llamacpp_models import model_of
from benchmarks.accuracy.row import Row, Verdict

from plimsoll.engines.llama_cpp import memory

DATA = Path(__file__).parents[2] / "data"
ORACLE: dict[str, Any] = json.loads((DATA / "llamacpp_buffers.json").read_text())
READINGS: dict[str, Any] = json.loads((DATA / "llamacpp_readings.json").read_text())


def rows_of(folder: Path, **changed: Any) -> tuple[Row, ...]:
    path = folder / "rows.json"
    path.write_text(json.dumps({**ORACLE, "probe_cases": [], "server_cases": [], **changed}))
    return oracle_rows(path)


def test_every_buffer_is_equal() -> None:
    found = oracle_rows(DATA / "llamacpp_buffers.json")
    assert Counter({Verdict.EQUAL: 534, Verdict.REFUSED_ALIKE: 1}) == Counter(
        row.verdict for row in found
    )
    counted = Counter(check.what.split()[0] for row in found for check in row.checks)
    assert (973, 973, 973, 494) == tuple(
        counted[what] for what in ("weights", "kv", "compute", "total")
    )


def test_a_buffer_that_differs_is_not_equal(tmp_path: Path) -> None:
    case = deepcopy(next(c for c in ORACLE["probe_cases"] if "DEV0" in c["bytes"]))
    case["bytes"]["DEV0"]["compute"] += 1
    (row,) = rows_of(tmp_path, probe_cases=[case])
    assert row.verdict is not Verdict.EQUAL
    wrong = [check for check in row.checks if check.verdict is not Verdict.EQUAL]
    assert all(check.what.split()[0] in {"compute", "total"} for check in wrong)


def test_bytes_that_no_mix_gives_are_a_bound_and_say_so(tmp_path: Path) -> None:
    name = "llama8b-Q4_K_M.gguf"
    model = deepcopy(ORACLE["models"][name])
    model["layer_bytes"] = [size + 7 for size in model["layer_bytes"]]
    case = next(
        c for c in ORACLE["probe_cases"] if c["model"] == name and c["flags"].get("n_gpu_layers")
    )
    (row,) = rows_of(tmp_path, models={name: model}, probe_cases=[case])
    compute = next(check for check in row.checks if check.what.startswith("compute"))
    assert "no mix of types" in compute.reason
    assert (compute.planned or 0) >= (compute.reported or 0)


@pytest.mark.parametrize("name", ORACLE["models"])
def test_the_tensors_of_every_model_are_found(name: str) -> None:
    gguf = model_of(name, ORACLE["models"][name])
    assert memory.is_exact(gguf)
    for group in gguf.blocks:
        assert {sum(t.bytes for t in group.tensors)} == {gguf.block_bytes[i] for i in group.at}


def test_readings_are_met_or_say_why() -> None:
    found = reading_rows(DATA / "llamacpp_readings.json")
    assert len(READINGS["readings"]) == len(found)
    allowed = {
        Verdict.EQUAL,
        Verdict.WITHIN,
        Verdict.REFUSED_ALIKE,
        Verdict.NOT_PLANNED,
    }
    assert allowed >= {row.verdict for row in found}
    for row in found:
        if row.verdict is Verdict.NOT_PLANNED:
            assert row.reason or all(check.reason for check in row.checks if not check.planned)
