"""`plimsoll kv` on one question, and line by line."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import kv_rows
from plimsoll.cli.exits import Exit
from plimsoll.cli.main import main

Capture = pytest.CaptureFixture[str]
CONFIGS = kv_rows.DATA / "hf_configs"
LLAMA = str(CONFIGS / "llama-3.1-8b.json")


def _json(capsys: Capture, *words: str) -> dict[str, Any]:
    assert Exit.FITS == main(["kv", *words, "-o", "json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def _batch(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, lines: list[Any], *words: str
) -> tuple[int, list[dict[str, Any]]]:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    stream = io.TextIOWrapper(io.BytesIO(text.encode()))
    monkeypatch.setattr("sys.stdin", stream)
    code = main(["kv", *words, "--batch"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_whole_command_line_as_documented(capsys: Capture) -> None:
    found = _json(
        capsys, LLAMA, "--engine", "vllm", "--release", "0.33.0", "--tp", "1", "--pp", "1",
        "--dcp", "1", "--kv-dtype", "auto", "--max-model-len", "8192", "--max-num-batched-tokens",
        "2048", "--max-num-seqs", "1024", "--block-size", "16", "--gpu", "h100", "--kv-memory",
        "4294967296,16Gi",
    )  # fmt: skip
    assert 2_097_152 == found["poolBytesPerBlock"]
    assert 512 == found["blocksPerFullRequest"]
    assert 1_073_741_824 == found["bytesPerFullRequest"]
    assert [32] == [group["layers"] for group in found["groups"]]
    assert [(2048, 4.0, 32_768), (8192, 16.0, 131_072)] == [
        (each["numBlocks"], each["maxConcurrency"], each["tokens"]) for each in found["capacity"]
    ]


def test_too_little_memory_is_answered_with_the_longest_that_fits(capsys: Capture) -> None:
    found = _json(capsys, LLAMA, "--max-model-len", "32768", "--kv-memory", "4Gi")
    (held,) = found["capacity"]
    assert "32,768 tokens needs 4.0 GiB" in held["refused"]
    assert 32_752 == held["estimatedMaxModelLen"]
    assert "numBlocks" not in held
    (none,) = _json(capsys, LLAMA, "--kv-memory", "1Mi")["capacity"]
    assert none["estimatedMaxModelLen"] is None


def test_a_table_for_people(capsys: Capture) -> None:
    config = str(CONFIGS / "qwen3-next-80b-a3b.json")
    assert Exit.FITS == main(["kv", config, "--max-model-len", "32768", "--kv-memory", "4Gi,1Mi"])
    out = capsys.readouterr().out
    assert "h100-sxm (compute capability 9.0)" in out
    assert "14,155,776 B" in out
    assert "max_num_seqs at most 303" in out
    assert "refused: one sequence of 32,768 tokens" in out
    assert "not one token fits" in out


def test_the_length_and_step_are_the_models_and_the_cards_where_nobody_says(
    capsys: Capture,
) -> None:
    on_l4 = _json(capsys, LLAMA, "--gpu", "l4")
    assert (131_072, 2 * 2048) == (on_l4["maxModelLen"], on_l4["inFlightTokens"])
    assert 2 * 8192 == _json(capsys, LLAMA)["inFlightTokens"]
    assert 8192 == _json(capsys, LLAMA, "--no-async-scheduling")["inFlightTokens"]


def test_stages_are_answered_together_or_one_by_one(capsys: Capture) -> None:
    config = str(CONFIGS / "qwen2.5-7b.json")
    words = (config, "--pp", "3", "--max-model-len", "8192", "--kv-memory", "4Gi")
    together = _json(capsys, *words)
    alone = [_json(capsys, *words, "--pp-rank", str(rank)) for rank in range(3)]
    assert [14_563, 13_107, 14_563] == [each["capacity"][0]["numBlocks"] for each in alone]
    assert 13_107 == together["capacity"][0]["numBlocks"]
    assert alone[1]["poolBytesPerBlock"] == together["poolBytesPerBlock"]


def test_a_model_of_the_catalogue_needs_no_file(capsys: Capture) -> None:
    found = _json(capsys, "meta-llama/Llama-3.3-70B-Instruct", "--tp", "4")
    assert 81_920 * 16 == found["poolBytesPerBlock"]


def test_a_folder_is_its_config(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(Path(LLAMA).read_text())
    assert tmp_path.name == _json(capsys, str(tmp_path))["model"]


def test_an_unknown_layout_is_refused_by_name(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"architectures": ["NewKindForCausalLM"], "num_hidden_layers": 2}))
    assert Exit.REFUSED == main(["kv", str(path)])
    assert "NewKindForCausalLM" in capsys.readouterr().out
    assert Exit.REFUSED == main(["kv", str(path), "-o", "json"])
    assert "NewKindForCausalLM" in json.loads(capsys.readouterr().out)["refused"]


def test_what_the_engine_would_not_start_with_is_refused(capsys: Capture) -> None:
    config = str(CONFIGS / "deepseek-v3.json")
    assert Exit.REFUSED == main(["kv", config, "--gpu", "a100-80gb-sxm", "--kv-dtype", "fp8"])
    assert "vLLM would not start: no attention kernel takes Mla" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((LLAMA, "--gpu", "h1000"), "gpu: 'h1000' is not in the catalogue"),
        ((LLAMA, "--tp", "0"), "tp: 0 is not a whole number of at least 1"),
        ((LLAMA, "--kv-dtype", "fp7"), "kv_cache_dtype: 'fp7' is not one of auto"),
        ((LLAMA, "--kv-memory", "16GiB"), "kv_memory: '16GiB' is not a quantity of bytes"),
        ((LLAMA, "--pp", "2", "--pp-rank", "2"), "pp_rank: 2 is not one of the stages 0 to 1"),
        ((LLAMA, "--kv-cache-dtype-skip-layers", "x"), "x is neither a layer's index"),
        ((LLAMA, "--release", "new"), "'new' has no release number in it"),
        (("nowhere.json",), "config: nowhere.json is neither a config.json"),
        ((), "CONFIG: name a config.json"),
        ((LLAMA, "--engine", "llama-cpp"), "only vllm has"),
    ],
)
def test_bad_input_names_the_field_and_the_way_out(
    capsys: Capture, words: tuple[str, ...], said: str
) -> None:
    assert Exit.BAD_INPUT == main(["kv", *words])
    assert said in capsys.readouterr().err


def test_recorded_rows_are_answered_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    rows = kv_rows.ROWS[::17]
    code, found = _batch(monkeypatch, capsys, rows, str(kv_rows.DATA))
    assert Exit.FITS == code
    assert [row["id"] for row in rows] == [each["id"] for each in found]
    for row, each in zip(rows, found, strict=True):
        assert row["bytes_per_full_request"] == each["bytesPerFullRequest"]
        assert [c.get("num_blocks") for c in row["capacity"]] == [
            c.get("numBlocks") for c in each["capacity"]
        ]


def test_a_bad_line_is_answered_with_an_error_and_the_others_as_ever(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    lines = [
        "no json",
        "[1]",
        {"id": "a", "config": LLAMA, "tp": "x"},
        {"id": "b", "config": 3},
        {"id": "c", "config": LLAMA, "capacity": [3]},
        {"id": "d"},
        "",
        {"id": "e", "config": LLAMA, "max_model_len": 8192, "kv_memory": ["4Gi"]},
    ]
    code, found = _batch(monkeypatch, capsys, lines)
    assert Exit.BAD_INPUT == code
    assert 7 == len(found)
    assert ["error"] * 6 == ["error" if "error" in each else "answer" for each in found[:-1]]
    assert [1, 2, 3, 4, 5, 6] == [each["line"] for each in found[:-1]]
    assert 2048 == found[-1]["capacity"][0]["numBlocks"]


def test_a_line_may_carry_its_config_and_take_the_rest_from_the_options(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    config = json.loads(Path(LLAMA).read_text())
    lines = [
        {"id": 1, "config": config},
        {"id": 2, "config": config, "tp": 1, "device": "NVIDIA L4"},
        {"id": 3, "config": {**config, "architectures": ["NewKindForCausalLM"]}},
        {"id": 4},
    ]
    words = (LLAMA, "--tp", "2", "--max-model-len", "4096", "--gpu", "a100-80gb-sxm")
    code, found = _batch(monkeypatch, capsys, lines, *words)
    assert Exit.REFUSED == code
    assert [1_048_576, 2_097_152] == [each["poolBytesPerBlock"] for each in found[:2]]
    assert ["8.0", "8.9"] == [each["computeCapability"] for each in found[:2]]
    assert "NewKindForCausalLM" in found[2]["refused"]
    assert 1_048_576 == found[3]["poolBytesPerBlock"]
