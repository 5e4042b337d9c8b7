"""`plimsoll facts` on folders and files that are whole, and on those that are not."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import yaml

from gguf_writer import gguf
from plimsoll.api.v1alpha1 import InlineFacts
from plimsoll.cli.exits import Exit
from plimsoll.cli.main import main
from plimsoll.facts.inspection import read_report

Capture = pytest.CaptureFixture[str]

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}
SHAPES = {
    "model.embed_tokens.weight": [100, 64],
    "model.layers.0.mlp.up_proj.weight": [128, 64],
    "model.layers.1.mlp.up_proj.weight": [128, 64],
    "model.norm.weight": [64],
}
WEIGHT_BYTES = 2 * (100 * 64 + 2 * 128 * 64 + 64)


def safetensors(shapes: dict[str, list[int]]) -> bytes:
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2
        for length in shape:
            size *= length
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(at)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Llama of two layers in two files with an index."""
    path = tmp_path / "Tiny-Llama"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG))
    names = list(SHAPES)
    files = {"a.safetensors": names[:2], "b.safetensors": names[2:]}
    for file, held in files.items():
        (path / file).write_bytes(safetensors({name: SHAPES[name] for name in held}))
    index = {"weight_map": {name: file for file, held in files.items() for name in held}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def gguf_file(path: Path, **changes: Any) -> Path:
    tensors = [
        ("token_embd.weight", (64, 100), "F16"),
        ("blk.0.attn_k.weight", (64, 32), "F16"),
        ("blk.0.ffn_up.weight", (64, 128), "F16"),
        ("output_norm.weight", (64,), "F32"),
    ]
    metadata = {
        "general.architecture": "llama",
        "general.file_type": 1,
        "llama.block_count": 1,
        "llama.context_length": 2048,
        "llama.embedding_length": 64,
        "llama.feed_forward_length": 128,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.vocab_size": 100,
        **changes,
    }
    head = gguf(metadata, tensors)
    data = 2 * (64 * 100 + 64 * 32 + 64 * 128) + 4 * 64
    path.write_bytes(head + bytes(-len(head) % 32 + data))
    return path


def test_a_folder_gives_facts_that_a_manifest_carries(folder: Path, capsys: Capture) -> None:
    assert main(["facts", str(folder)]) == Exit.FITS
    facts = InlineFacts.model_validate(yaml.safe_load(capsys.readouterr().out))
    assert facts.gguf is None
    assert facts.model is not None
    assert facts.model.id == "Tiny-Llama"
    assert facts.model.weights.total_bytes == WEIGHT_BYTES
    assert facts.model.provenance.detail == "config.json and the headers of 2 safetensors files"


def test_a_gguf_file_and_a_folder_give_both(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    file = gguf_file(tmp_path / "tiny-F16.gguf")
    assert main(["facts", str(folder), str(file), "-o", "json", "--id", "our/tiny"]) == Exit.FITS
    facts = InlineFacts.model_validate(json.loads(capsys.readouterr().out))
    assert facts.model is not None
    assert facts.gguf is not None
    assert (facts.model.id, facts.gguf.id) == ("our/tiny", "our/tiny")
    assert facts.gguf.quantization == "F16"


def test_a_config_map_holds_the_same_facts(folder: Path, capsys: Capture) -> None:
    main(["facts", str(folder)])
    plain = yaml.safe_load(capsys.readouterr().out)
    assert main(["facts", str(folder), "--config-map", "tiny", "-n", "inference"]) == Exit.FITS
    config_map = yaml.safe_load(capsys.readouterr().out)
    assert config_map["kind"] == "ConfigMap"
    assert config_map["metadata"] == {"name": "tiny", "namespace": "inference"}
    assert yaml.safe_load(config_map["data"]["facts.yaml"]) == plain


def test_files_that_no_index_names_do_not_count(folder: Path, capsys: Capture) -> None:
    (folder / "consolidated.safetensors").write_bytes(safetensors(SHAPES))
    assert main(["facts", str(folder), "-o", "json"]) == Exit.FITS
    facts = json.loads(capsys.readouterr().out)
    assert facts["model"]["weights"]["totalBytes"] == WEIGHT_BYTES


def test_a_missing_part_is_refused_by_name(folder: Path, capsys: Capture) -> None:
    (folder / "b.safetensors").unlink()
    assert main(["facts", str(folder)]) == Exit.REFUSED
    out, err = capsys.readouterr()
    assert out == ""
    assert "are not there: b.safetensors; finish the download" in err


def test_a_file_that_was_cut_off_is_refused_by_name(folder: Path, capsys: Capture) -> None:
    whole = (folder / "b.safetensors").read_bytes()
    (folder / "b.safetensors").write_bytes(whole[:-1])
    assert main(["facts", str(folder)]) == Exit.REFUSED
    assert f"b.safetensors: it has {len(whole) - 1:,} of {len(whole):,}" in capsys.readouterr().err


def test_weights_of_another_model_are_refused(folder: Path, capsys: Capture) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG | {"hidden_size": 128}))
    assert main(["facts", str(folder)]) == Exit.REFUSED
    assert "config.json says hidden_size 128" in capsys.readouterr().err


def test_an_unknown_architecture_is_refused_by_name(folder: Path, capsys: Capture) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG | {"architectures": ["NewForCausalLM"]}))
    assert main(["facts", str(folder)]) == Exit.REFUSED
    assert "NewForCausalLM" in capsys.readouterr().err


def test_a_folder_without_weights_is_refused(folder: Path, capsys: Capture) -> None:
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    assert main(["facts", str(folder)]) == Exit.REFUSED
    assert "no *.safetensors in it" in capsys.readouterr().err


def test_a_gguf_file_that_was_cut_off_is_refused(tmp_path: Path, capsys: Capture) -> None:
    file = gguf_file(tmp_path / "tiny.gguf")
    file.write_bytes(file.read_bytes()[:-100])
    assert main(["facts", str(file)]) == Exit.REFUSED
    assert "it was cut off" in capsys.readouterr().err


def test_a_part_of_a_split_model_finds_the_others(tmp_path: Path, capsys: Capture) -> None:
    split = {"split.count": 2, "split.no": 0}
    file = gguf_file(tmp_path / "tiny-00001-of-00002.gguf", **split)
    assert main(["facts", str(file)]) == Exit.REFUSED
    assert "part 2 is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("nowhere", None, "no such file"),
        ("model.bin", b"", "neither a folder nor a .gguf file"),
    ],
)
def test_what_is_no_model_is_bad_input(
    tmp_path: Path, capsys: Capture, name: str, content: bytes | None, says: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert main(["facts", str(path)]) == Exit.BAD_INPUT
    assert says in capsys.readouterr().err


def test_an_empty_folder_is_bad_input(tmp_path: Path, capsys: Capture) -> None:
    assert main(["facts", str(tmp_path)]) == Exit.BAD_INPUT
    assert "neither config.json nor a .gguf file in it" in capsys.readouterr().err


def test_a_config_that_is_no_json_is_bad_input(folder: Path, capsys: Capture) -> None:
    (folder / "config.json").write_text("version https://git-lfs.github.com/spec/v1")
    assert main(["facts", str(folder)]) == Exit.BAD_INPUT
    assert "config.json: not JSON" in capsys.readouterr().err


def test_a_name_that_kubernetes_would_refuse_is_bad_input(folder: Path, capsys: Capture) -> None:
    assert main(["facts", str(folder), "--config-map", "Tiny_Facts"]) == Exit.BAD_INPUT
    assert "--config-map: 'Tiny_Facts'" in capsys.readouterr().err


def test_an_index_that_names_a_tensor_in_the_wrong_file_is_refused(
    folder: Path, capsys: Capture
) -> None:
    index = {"weight_map": dict.fromkeys(SHAPES, "a.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert main(["facts", str(folder)]) == Exit.REFUSED
    assert (
        "a.safetensors: model.safetensors.index.json says that it holds model.layers.1."
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"vocab_size": 128}, "config.json says vocab_size 128, a.safetensors has 100 rows"),
        ({"num_hidden_layers": 3}, "config.json says num_hidden_layers 3, the files hold 2 layers"),
        ({"num_hidden_layers": 1}, "config.json says num_hidden_layers 1, the files hold 2 layers"),
        ({"intermediate_size": 96}, "config.json says intermediate_size 96 (96 rows), a.safeten"),
        ({"torch_dtype": "float32"}, "config.json says torch_dtype float32, 100% of the weights'"),
    ],
)
def test_a_config_that_contradicts_the_tensors_is_refused_by_field(
    folder: Path, capsys: Capture, changed: dict[str, Any], says: str
) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG | changed))
    assert main(["facts", str(folder)]) == Exit.REFUSED
    said = capsys.readouterr().err
    assert says in said
    assert "from the same place" in said


def test_a_safetensors_file_that_ends_inside_its_header_is_refused(
    folder: Path, capsys: Capture
) -> None:
    (folder / "a.safetensors").write_bytes((folder / "a.safetensors").read_bytes()[:40])
    assert main(["facts", str(folder)]) == Exit.REFUSED
    assert "a.safetensors: the file ends inside its header" in capsys.readouterr().err


def test_the_metadata_of_a_gguf_file_is_held_against_its_tensors(
    tmp_path: Path, capsys: Capture
) -> None:
    file = gguf_file(tmp_path / "tiny.gguf", **{"llama.embedding_length": 32})
    assert main(["facts", str(file)]) == Exit.REFUSED
    assert "llama.embedding_length is 32, token_embd.weight is 64 wide" in capsys.readouterr().err


def test_a_report_says_what_was_printed_and_changes_with_the_files(
    folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "message"
    assert main(["facts", str(folder), "-o", "json", "--report", str(path)]) == Exit.FITS
    first = read_report(path.read_text())
    assert first is not None
    assert first.model is not None
    assert first.model.to_json() == json.loads(capsys.readouterr().out)["model"]
    (folder / "config.json").write_text(json.dumps(CONFIG | {"rope_theta": 1.0}))
    main(["facts", str(folder), "--report", str(path)])
    second = read_report(path.read_text())
    assert second is not None
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize("gone", ["b.safetensors", "config.json", "."])
def test_a_refusal_is_reported_too(folder: Path, tmp_path: Path, gone: str) -> None:
    path = tmp_path / "message"
    if gone == ".":
        folder.rename(tmp_path / "elsewhere")
    else:
        (folder / gone).unlink()
    assert main(["facts", str(folder), "--report", str(path)]) != Exit.FITS
    report = read_report(path.read_text())
    assert report is not None
    assert str(folder) in report.refused


def test_a_report_is_of_one_path(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    arguments = ["facts", str(folder), str(folder), "--report", str(tmp_path / "message")]
    assert main(arguments) == Exit.BAD_INPUT
    assert "--report: takes what one PATH says" in capsys.readouterr().err
