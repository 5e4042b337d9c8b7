"""Do we read from a GGUF header what llama.cpp reads?"""

from __future__ import annotations

import json
import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from gguf_writer import gguf, text
from plimsoll.facts.gguf import GgufError, GgufHeader, gguf_facts, joined, read_gguf
from plimsoll.facts.gguf_layouts import LAYOUTS
from plimsoll.facts.model import (
    GgufFacts,
    KvGroup,
    KvKind,
    RecurrentKind,
    RecurrentState,
    UnknownLayout,
)

DATA = Path(__file__).parents[2] / "data"
GEMMA = json.loads((DATA / "gguf_gemma3_270m.json").read_text(encoding="utf-8"))
SHAPES: dict[str, dict[str, Any]] = {
    row["file"]: row
    for row in json.loads((DATA / "gguf_shapes.json").read_text(encoding="utf-8"))["models"]
}
RECURRENT = {"mamba2-2.7b.gguf", "qwen3next-80b.gguf"}


def gemma_file() -> bytes:
    metadata = {
        key: ["a"] * 5000 if isinstance(value, dict) else value
        for key, value in GEMMA["metadata"].items()
    }
    return gguf(metadata, [(t["name"], t["ne"], t["type"]) for t in GEMMA["tensors"]])


def header_of(data: bytes) -> GgufHeader:
    return read_gguf(BytesIO(data))


def unrolled(pairs: list[list[int]]) -> tuple[int, ...]:
    return tuple(size for size, times in pairs for _ in range(times))


def keys_of(row: dict[str, Any]) -> dict[str, Any]:
    """Metadata as the model's converter writes it."""
    arch = row["arch"]
    keys = {
        "general.architecture": arch,
        f"{arch}.block_count": row["block_count"],
        f"{arch}.context_length": row["context_length"],
        f"{arch}.embedding_length": row["embedding_length"],
        f"{arch}.feed_forward_length": row["feed_forward_length"],
        f"{arch}.attention.head_count": row["head_count"],
        f"{arch}.attention.head_count_kv": row["head_count_kv"],
        f"{arch}.attention.key_length": row["key_length"],
        f"{arch}.attention.value_length": row["value_length"],
        f"{arch}.attention.sliding_window": row["sliding_window"],
        f"{arch}.expert_count": row["expert_count"],
        f"{arch}.expert_used_count": row["expert_used_count"],
        f"{arch}.expert_feed_forward_length": row["expert_feed_forward_length"],
    }
    for key, value in row.get("ssm", {}).items():
        keys[f"{arch}.ssm.{key}"] = value
    if "mla" in row:
        keys[f"{arch}.attention.kv_lora_rank"] = row["mla"]["kv_lora_rank"]
        keys[f"{arch}.attention.key_length_mla"] = 192
        keys[f"{arch}.rope.dimension_count"] = row["mla"]["rope_dimension_count"]
    return {key: value for key, value in keys.items() if value}


def file_of(row: dict[str, Any], **more: object) -> bytes:
    """A header whose blocks have the bytes of the row, as one tensor of single bytes each."""
    tensors: list[tuple[str, list[int], str]] = [
        (f"blk.{index}.ffn_down.weight", [size], "I8")
        for index, size in enumerate(unrolled(row["layer_bytes"]))
    ]
    for name, size in row["other_tensor_bytes"].items():
        rows = row["vocab_size"] if name in {"token_embd.weight", "output.weight"} else 1
        tensors.append((name, [size // rows, rows], "I8"))
    return gguf({**keys_of(row), **more}, tensors)  # type: ignore[dict-item]


def facts_of(data: bytes) -> GgufFacts | UnknownLayout:
    return gguf_facts(header_of(data), id="a.gguf")


def llama_with(**more: object) -> GgufFacts | UnknownLayout:
    return facts_of(file_of(SHAPES["llama8b-Q4_K_M.gguf"], **more))


# --- the header -------------------------------------------------------------------------------------


def test_a_real_file_has_the_tensors_that_it_has() -> None:
    found = header_of(gemma_file())
    assert [(t["name"], tuple(t["ne"]), t["type"], t["bytes"]) for t in GEMMA["tensors"]] == [
        (t.name, t.shape, t.type, t.bytes) for t in found.tensors
    ]
    assert GEMMA["tensor_bytes_total"] == sum(t.bytes for t in found.tensors)


def test_metadata_comes_as_written_and_long_lists_are_passed_over() -> None:
    found = header_of(gemma_file()).metadata
    assert 18 == found["gemma3.block_count"]
    assert "gemma3" == found["general.architecture"]
    assert found["tokenizer.ggml.add_bos_token"] is True
    assert found["tokenizer.ggml.tokens"] is None
    assert found["gemma3.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-6)


def test_only_the_header_is_read() -> None:
    data = gemma_file()
    stream = BytesIO(data + b"\xff" * 4096)
    read_gguf(stream)
    assert len(data) == stream.tell()


def test_the_weights_begin_at_a_multiple_of_the_alignment() -> None:
    found = header_of(gguf({"general.alignment": 64}, [("a", [100], "I8"), ("b", [64], "I8")]))
    assert 0 == found.data_offset % 64
    assert found.data_offset + 128 + 64 == found.file_bytes


def test_every_kind_of_value_is_read() -> None:
    values = {0: b"\x01", 1: b"\xff", 2: b"\x01\x00", 3: b"\xff\xff", 4: b"\x01\0\0\0"}
    values |= {5: b"\xff\xff\xff\xff", 6: struct.pack("<f", 0.5), 7: b"\x01", 8: text("é")}
    values |= {10: struct.pack("<Q", 2**40), 11: struct.pack("<q", -(2**40))}
    values |= {12: struct.pack("<d", 0.25), 9: struct.pack("<IQ2H", 2, 2, 7, 8)}
    body = b"".join(text(str(kind)) + struct.pack("<I", kind) + raw for kind, raw in values.items())
    found = header_of(b"GGUF" + struct.pack("<IQQ", 2, 0, len(values)) + body).metadata
    expected = {"0": 1, "1": -1, "2": 1, "3": -1, "4": 1, "5": -1, "6": 0.5, "7": True, "8": "é"}
    assert {**expected, "10": 2**40, "11": -(2**40), "12": 0.25, "9": (7, 8)} == found


def test_lists_of_lists_are_passed_over() -> None:
    inner = struct.pack("<IQ", 4, 2) + struct.pack("<II", 1, 2)
    body = (
        text("deep")
        + struct.pack("<IIQ", 9, 9, 2)
        + inner * 2
        + text("next")
        + struct.pack("<IB", 0, 5)
    )
    found = header_of(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + body).metadata
    assert {"deep": None, "next": 5} == found


@pytest.mark.parametrize("step", range(0, 4000, 97))
def test_a_file_that_was_cut_off_says_where(step: int) -> None:
    data = gemma_file()
    cut = data[: len(data) * step // 4000]
    with pytest.raises(GgufError, match=r"the file ends inside .* cut off"):
        header_of(cut)


def test_the_error_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "half.gguf"
    path.write_bytes(gemma_file()[:1000])
    with path.open("rb") as stream, pytest.raises(GgufError, match=r"half\.gguf"):
        read_gguf(stream)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"PK\x03\x04" + b"\0" * 64, "not with b'GGUF'"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 0x1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "little-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "which no model has"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "which no model has"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**50), "which no model has"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 99),
            "value type 99",
        ),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 4, 2**60),
            "which no model has",
        ),
        (
            b"GGUF"
            + struct.pack("<IQQ", 3, 0, 1)
            + text("k")
            + struct.pack("<I", 9)
            + struct.pack("<IQ", 9, 1) * 2000,
            "lists in lists",
        ),
        (gguf({}, [("t", [1, 1, 1, 1, 1], "F32")]), "5 dimensions"),
        (gguf({}, [("t", [100], "Q6_K")]), "not whole Q6_K blocks"),
        (
            gguf({}, [("t", [32], "F32")])[:-12] + struct.pack("<IQ", 4, 0),
            "element type 4",
        ),
        (gguf({"general.alignment": 0}, []), "general.alignment is 0"),
    ],
)
def test_what_is_no_gguf_header_is_told_apart(data: bytes, words: str) -> None:
    with pytest.raises(GgufError, match=words):
        header_of(data)


# --- split files ------------------------------------------------------------------------------------


def parts() -> tuple[GgufHeader, GgufHeader]:
    row = SHAPES["llama8b-Q4_K_M.gguf"]
    whole = header_of(file_of(row, **{"split.no": 0, "split.count": 2}))
    first = whole.model_copy(update={"tensors": whole.tensors[:20]})
    second = GgufHeader(
        version=3,
        metadata={"split.no": 1, "split.count": 2},
        tensors=whole.tensors[20:],
        data_offset=0,
        alignment=32,
    )
    return first, second


def test_parts_in_any_order_make_the_whole() -> None:
    first, second = parts()
    expected = gguf_facts(header_of(file_of(SHAPES["llama8b-Q4_K_M.gguf"])), id="a.gguf")
    assert expected == gguf_facts(joined([second, first]), id="a.gguf")


def test_a_missing_part_is_named() -> None:
    with pytest.raises(GgufError, match="split in 2 files; part 2 is missing"):
        joined(parts()[:1])


def test_one_part_alone_gives_no_facts() -> None:
    found = gguf_facts(parts()[0], id="a.gguf")
    assert isinstance(found, UnknownLayout)
    assert "all parts are needed" in found.message


def test_no_part_at_all_is_an_error() -> None:
    with pytest.raises(GgufError, match="no GGUF file"):
        joined([])


# --- the facts --------------------------------------------------------------------------------------


def test_facts_of_the_real_gemma_file() -> None:
    found = facts_of(gemma_file())
    assert isinstance(found, GgufFacts)
    shape = SHAPES["gemma.gguf"]
    embedding = shape["other_tensor_bytes"]["token_embd.weight"]
    assert unrolled(shape["layer_bytes"]) == found.block_bytes
    assert (embedding, embedding + 2560, True) == (
        found.embedding_bytes,
        found.output_bytes,
        found.tied_output,
    )
    assert ("Q4_K_M", 640, 2048, 4, 262_144, 32_768) == (
        found.quantization,
        found.embedding_length,
        found.feed_forward_length,
        found.head_count,
        found.vocab_size,
        found.context_length,
    )
    assert tuple(shape["swa_layers"]) == found.sliding_blocks
    sliding = KvGroup(
        kind=KvKind.SLIDING,
        layers=15,
        kv_heads=1,
        key_dim=256,
        value_dim=256,
        window_tokens=512,
        at=tuple(shape["swa_layers"]),
    )
    full = KvGroup(
        kind=KvKind.FULL, layers=3, kv_heads=1, key_dim=256, value_dim=256, at=(5, 11, 17)
    )
    assert (sliding, full) == found.kv_groups
    assert (1_075_200, 450_560) == (
        found.largest_ffn_tensor_bytes,
        found.largest_attention_tensor_bytes,
    )


@pytest.mark.parametrize("file", sorted(SHAPES.keys() - RECURRENT))
def test_blocks_windows_and_heads_are_those_that_llama_cpp_loaded(file: str) -> None:
    row = SHAPES[file]
    found = facts_of(file_of(row))
    assert isinstance(found, GgufFacts), found.message
    others = row["other_tensor_bytes"]
    output = sum(size for name, size in others.items() if name.startswith("output"))
    if row["tied_output"]:
        output += others["token_embd.weight"]
    assert unrolled(row["layer_bytes"]) == found.block_bytes
    assert output == found.output_bytes
    assert row["tied_output"] == found.tied_output
    assert row["vocab_size"] == found.vocab_size
    assert tuple(row.get("swa_layers", ())) == found.sliding_blocks
    assert row["block_count"] == sum(group.layers for group in found.kv_groups)
    assert (row["expert_count"], row["expert_used_count"]) == (
        found.expert_count,
        found.expert_used_count,
    )
    if "mla" in row:
        latent = sum(row["mla"].values())
        assert [(KvKind.MLA, 1, latent, 0)] == [
            (g.kind, g.kv_heads, g.key_dim, g.value_dim) for g in found.kv_groups
        ]
    else:
        widths = {(row["head_count_kv"], row["key_length"], row["value_length"])}
        assert widths == {(g.kv_heads, g.key_dim, g.value_dim) for g in found.kv_groups}


@pytest.mark.parametrize("file", sorted(RECURRENT))
def test_recurrent_blocks_are_those_that_llama_cpp_loaded(file: str) -> None:
    row = SHAPES[file]
    found = facts_of(file_of(row, **{f"{row['arch']}.attention.head_count": 16}))
    assert isinstance(found, GgufFacts), found.message
    (states,) = (group for group in found.kv_groups if group.state is not None)
    assert tuple(row["recurrent_layers"]) == states.at
    ssm, state = row["ssm"], states.state
    assert state is not None
    assert (ssm["conv_kernel"], ssm["inner_size"], ssm["state_size"]) == (
        state.conv_kernel,
        state.inner_channels,
        state.state_dim,
    )
    attention = [index for group in found.kv_groups if group.state is None for index in group.at]
    assert sorted({*range(row["block_count"])} - {*states.at}) == sorted(attention)


def recurrent_with(arch: str, tensors: dict[str, int], **keys: object) -> GgufFacts | UnknownLayout:
    """A model of four blocks, each with these tensors of single bytes."""
    base: dict[str, Any] = {
        "general.architecture": arch,
        f"{arch}.block_count": 4,
        f"{arch}.context_length": 4096,
        f"{arch}.embedding_length": 64,
        f"{arch}.feed_forward_length": 128,
        f"{arch}.attention.head_count": 4,
        **{f"{arch}.{key}": value for key, value in keys.items()},
    }
    listed: list[tuple[str, list[int], str]] = [("token_embd.weight", [64, 100], "I8")]
    listed += [
        (f"blk.{i}.{name}", [size], "I8") for i in range(4) for name, size in tensors.items()
    ]
    return facts_of(gguf(base, listed))


SSM = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 256,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 8,
    "ssm.group_count": 1,
}


def states_of(found: GgufFacts | UnknownLayout) -> tuple[tuple[int, ...], RecurrentState]:
    assert isinstance(found, GgufFacts), found.message
    (group,) = (group for group in found.kv_groups if group.state is not None)
    assert group.state is not None
    return group.at, group.state


def test_blocks_without_kv_heads_are_recurrent_in_a_hybrid() -> None:
    keys = {**SSM, "attention.head_count_kv": [0, 0, 2, 0]}
    at, state = states_of(recurrent_with("granitehybrid", {"ssm_in.weight": 64}, **keys))
    assert ((0, 1, 3), RecurrentKind.MAMBA2, 8, 32) == (at, state.kind, state.heads, state.head_dim)


def test_in_nemotron_h_blocks_with_a_feed_forward_width_are_not_recurrent() -> None:
    keys = {
        **SSM,
        "attention.head_count_kv": [0, 0, 2, 0],
        "feed_forward_length": [0, 128, 0, 0],
    }
    at, _ = states_of(recurrent_with("nemotron_h", {"ssm_in.weight": 64}, **keys))
    assert (0, 3) == at


def test_every_fourth_block_has_attention_or_as_the_file_says() -> None:
    tensors = {"ssm_out.weight": 64}
    assert (0, 1, 2) == states_of(recurrent_with("qwen35", tensors, **SSM))[0]
    named = {**SSM, "full_attention_interval": 2}
    assert (0, 2) == states_of(recurrent_with("qwen35", tensors, **named))[0]
    listed = {**SSM, "attention.recurrent_layers": [True, False, False, True]}
    at, state = states_of(recurrent_with("qwen35", tensors, **listed))
    assert ((0, 3), RecurrentKind.GATED_DELTA) == (at, state.kind)


def test_beside_attention_every_block_is_both() -> None:
    found = recurrent_with(
        "falcon-h1", {"ssm_in.weight": 64}, **SSM, **{"attention.head_count_kv": 2}
    )
    assert isinstance(found, GgufFacts), found.message
    assert [(0, 1, 2, 3), (0, 1, 2, 3)] == [group.at for group in found.kv_groups]


def test_short_convolutions_keep_their_taps() -> None:
    keys = {"shortconv.l_cache": 3, "attention.head_count_kv": [0, 2, 0, 2]}
    at, state = states_of(recurrent_with("lfm2", {"shortconv.conv.weight": 64}, **keys))
    assert ((0, 2), RecurrentKind.SHORT_CONVOLUTION, 3, 64) == (
        at,
        state.kind,
        state.conv_kernel,
        state.inner_channels,
    )


def test_blocks_that_read_the_cache_of_others_keep_nothing() -> None:
    pattern = [True, True, False, True]
    keys = {
        "attention.sliding_window": 512,
        "attention.sliding_window_pattern": pattern,
        "attention.shared_kv_layers": 1,
    }
    found = recurrent_with("gemma4", {"attn_q.weight": 64}, **keys)
    assert isinstance(found, GgufFacts), found.message
    assert [(0, 1), (2,)] == [group.at for group in found.kv_groups]


def test_tensors_are_listed_with_their_blocks() -> None:
    found = facts_of(gemma_file())
    assert isinstance(found, GgufFacts)
    assert tuple(range(18)) == tuple(sorted(index for group in found.blocks for index in group.at))
    for group in found.blocks:
        size = sum(tensor.bytes for tensor in group.tensors)
        assert {size} == {found.block_bytes[index] for index in group.at}
    assert {"token_embd.weight", "output_norm.weight"} == {t.name for t in found.outside}


def test_the_bytes_of_experts_are_told_from_the_rest() -> None:
    found = recurrent_with("qwen3moe", {"attn_q.weight": 64, "ffn_up_exps.weight": 512})
    assert isinstance(found, GgufFacts), found.message
    (group,) = found.blocks
    assert [512] == [tensor.bytes for tensor in group.tensors if "exps" in tensor.name]


def test_the_window_of_gemma_2_has_a_default() -> None:
    row = {**SHAPES["llama8b-Q4_K_M.gguf"], "arch": "gemma2"}
    found = facts_of(file_of(row))
    assert isinstance(found, GgufFacts)
    assert tuple(range(0, 32, 2)) == found.sliding_blocks
    assert [4096, None] == [group.window_tokens for group in found.kv_groups]


def test_the_window_of_phi_3_is_off() -> None:
    row = {**SHAPES["llama8b-Q4_K_M.gguf"], "arch": "phi3", "sliding_window": 2047}
    found = facts_of(file_of(row))
    assert isinstance(found, GgufFacts)
    assert () == found.sliding_blocks


@pytest.mark.parametrize(
    ("pattern", "sliding"),
    [
        (3, tuple(i for i in range(18) if i % 3 < 2)),
        ([True] * 2 + [False] * 16, (0, 1)),
        ([1] * 18, tuple(range(18))),
        (0, tuple(range(18))),
        (1, ()),
    ],
)
def test_a_pattern_in_the_file_wins(pattern: object, sliding: tuple[int, ...]) -> None:
    found = facts_of(
        file_of(SHAPES["gemma.gguf"], **{"gemma3.attention.sliding_window_pattern": pattern})
    )
    assert isinstance(found, GgufFacts)
    assert sliding == found.sliding_blocks


def test_blocks_with_other_heads_are_groups_of_their_own_and_blocks_without_keep_nothing() -> None:
    found = llama_with(**{"llama.attention.head_count_kv": [8] * 20 + [4] * 8 + [0] * 4})
    assert isinstance(found, GgufFacts)
    assert [(20, 8), (8, 4)] == [(group.layers, group.kv_heads) for group in found.kv_groups]


def test_blocks_that_only_draft_keep_nothing() -> None:
    row = {**SHAPES["llama8b-Q4_K_M.gguf"], "arch": "glm4moe"}
    found = facts_of(file_of(row, **{"glm4moe.nextn_predict_layers": 1}))
    assert isinstance(found, GgufFacts)
    assert [31] == [group.layers for group in found.kv_groups]
    assert 32 == len(found.block_bytes)


def test_sliding_blocks_may_have_widths_of_their_own() -> None:
    row = {**SHAPES["gemma.gguf"], "arch": "gemma4"}
    pattern = [index % 6 != 5 for index in range(18)]
    more = {
        "gemma4.attention.key_length_swa": 128,
        "gemma4.attention.value_length_swa": 128,
        "gemma4.attention.sliding_window_pattern": pattern,
    }
    found = facts_of(file_of(row, **more))
    assert isinstance(found, GgufFacts)
    assert [(KvKind.SLIDING, 128), (KvKind.FULL, 256)] == [
        (g.kind, g.key_dim) for g in found.kv_groups
    ]


def test_the_width_follows_from_the_heads_when_it_is_not_given() -> None:
    row = {**SHAPES["llama8b-Q4_K_M.gguf"], "key_length": 0, "value_length": 0}
    found = facts_of(file_of(row))
    assert isinstance(found, GgufFacts)
    assert [(128, 128)] == [(g.key_dim, g.value_dim) for g in found.kv_groups]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("llama.ssm.conv_kernel", 4, "recurrent layers"),
        ("llama.attention.indexer.top_k", 2048, "an index"),
        ("llama.attention.shared_kv_layers", 10, "share the KV of others"),
        ("llama.pooling_type", 1, "embeds"),
        ("general.architecture", "newarch", "newarch.block_count is not given"),
        ("llama.block_count", 33, "at block 32"),
        ("llama.block_count", 2**31, "more than the 36 tensors"),
        ("llama.attention.head_count_kv", [8] * 3, "3 items for 32 blocks"),
        ("llama.context_length", "long", "llama.context_length is 'long'"),
    ],
)
def test_what_is_not_understood_is_named(key: str, value: object, words: str) -> None:
    found = llama_with(**{key: value})
    assert isinstance(found, UnknownLayout)
    assert words in found.message
    assert "model.facts" in found.message


def test_an_architecture_outside_the_table_is_named() -> None:
    row = {**SHAPES["llama8b-Q4_K_M.gguf"], "arch": "newarch"}
    found = facts_of(file_of(row))
    assert isinstance(found, UnknownLayout)
    assert "newarch is not in our table" in found.message


@pytest.mark.parametrize("arch", sorted(LAYOUTS))
def test_no_architecture_of_the_table_ends_in_an_error(arch: str) -> None:
    """Facts, or a sentence that names what lacks."""
    found = facts_of(file_of({**SHAPES["llama8b-Q4_K_M.gguf"], "arch": arch}))
    assert isinstance(found, GgufFacts) or arch in found.message


def test_a_file_without_an_embedding_is_no_whole_model() -> None:
    row = SHAPES["llama8b-Q4_K_M.gguf"]
    found = facts_of(file_of({**row, "other_tensor_bytes": {"output_norm.weight": 16}}))
    assert isinstance(found, UnknownLayout)
    assert "token_embd.weight" in found.message


@pytest.mark.parametrize(
    ("number", "name"), [(15, "Q4_K_M"), (18, "Q6_K"), (7, "Q8_0"), (38, "MXFP4_MOE")]
)
def test_the_file_type_has_a_name(number: int, name: str) -> None:
    found = llama_with(**{"general.file_type": number})
    assert isinstance(found, GgufFacts)
    assert name == found.quantization


def test_without_a_file_type_the_heaviest_element_type_stands_in() -> None:
    found = llama_with()
    assert isinstance(found, GgufFacts)
    assert "I8" == found.quantization
