"""How many keys and values do models keep whose layers are all alike?"""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.facts.hf_config import kv_groups
from plimsoll.facts.hf_fields import NotUnderstoodError
from plimsoll.facts.model import KvKind

STREAM: dict[str, Any] = {
    "num_hidden_layers": 8,
    "hidden_size": 1024,
    "num_attention_heads": 16,
}


def heads(config: dict[str, Any]) -> tuple[int, int, int, int]:
    """Layers, KV heads, widths of key and value of the only group."""
    (group,) = kv_groups(config)
    assert KvKind.FULL is group.kind
    return (group.layers, group.kv_heads, group.key_dim, group.value_dim)


@pytest.mark.parametrize(
    ("architecture", "fields", "expected"),
    [
        ("LlamaForCausalLM", {}, (8, 16, 64, 64)),
        ("LlamaForCausalLM", {"num_key_value_heads": 4, "head_dim": 128}, (8, 4, 128, 128)),
        ("Qwen2MoeForCausalLM", {"num_key_value_heads": 4, "head_dim": 128}, (8, 4, 64, 64)),
        ("OPTForCausalLM", {}, (8, 16, 64, 64)),
        ("GPTNeoXForCausalLM", {}, (8, 16, 64, 64)),
        ("FalconForCausalLM", {"multi_query": True}, (8, 1, 64, 64)),
        ("FalconForCausalLM", {"multi_query": False}, (8, 16, 64, 64)),
        (
            "FalconForCausalLM",
            {"new_decoder_architecture": True, "num_kv_heads": 8},
            (8, 8, 64, 64),
        ),
        (
            "MiniCPM3ForCausalLM",
            {"qk_nope_head_dim": 64, "qk_rope_head_dim": 32},
            (8, 16, 96, 96),
        ),
        ("Step1ForCausalLM", {"num_attention_groups": 2}, (8, 2, 64, 64)),
        (
            "HunYuanMoEV1ForCausalLM",
            {"num_key_value_heads": 8, "head_dim": 128, "use_cla": False},
            (8, 8, 128, 128),
        ),
        ("MiniMaxM2ForCausalLM", {"attn_type_list": [1] * 8}, (8, 8, 128, 128)),
    ],
)
def test_heads_of_families(
    architecture: str, fields: dict[str, Any], expected: tuple[int, int, int, int]
) -> None:
    assert expected == heads({"architectures": [architecture], **STREAM, **fields})


def test_gpt_2_and_its_like_have_names_of_their_own() -> None:
    config = {"n_layer": 8, "n_embd": 1024, "n_head": 16}
    assert (8, 16, 64, 64) == heads({"architectures": ["GPT2LMHeadModel"], **config})
    assert (8, 1, 64, 64) == heads({"architectures": ["GPTBigCodeForCausalLM"], **config})
    assert (8, 16, 64, 64) == heads(
        {"architectures": ["GPTBigCodeForCausalLM"], **config, "multi_query": False}
    )


def test_chatglm_has_one_kv_head_for_a_group_of_queries() -> None:
    config = {
        "architectures": ["ChatGLMModel"],
        "num_layers": 8,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "multi_query_group_num": 2,
    }
    assert (8, 2, 64, 64) == heads({**config, "multi_query_attention": True})
    assert (8, 16, 64, 64) == heads({**config, "multi_query_attention": False})


def test_dbrx_has_its_kv_heads_inside() -> None:
    config = {
        "architectures": ["DbrxForCausalLM"],
        "n_layers": 8,
        "d_model": 1024,
        "n_heads": 16,
        "attn_config": {"kv_n_heads": 4, "clip_qkv": 8},
    }
    assert (8, 4, 64, 64) == heads(config)
    with pytest.raises(NotUnderstoodError, match=r"attn_config\.kv_groups"):
        heads({**config, "attn_config": {"kv_n_heads": 4, "kv_groups": 2}})


def test_kv_heads_must_divide_the_query_heads() -> None:
    with pytest.raises(NotUnderstoodError, match="num_key_value_heads is 5"):
        heads({"architectures": ["LlamaForCausalLM"], **STREAM, "num_key_value_heads": 5})


def test_layers_that_share_their_cache_in_hunyuan_are_refused() -> None:
    with pytest.raises(NotUnderstoodError, match="use_cla is true"):
        heads({"architectures": ["HunYuanMoEV1ForCausalLM"], **STREAM, "use_cla": True})


def block(no_op: bool = False, per_group: int | None = 2, **more: Any) -> dict[str, Any]:
    return {"attention": {"no_op": no_op, "n_heads_in_group": per_group, **more}, "ffn": {}}


def test_llama_nemotron_has_other_heads_in_each_layer_and_none_in_some() -> None:
    blocks = [block(), block(no_op=True, per_group=None), block(per_group=4), block()] * 2
    groups = kv_groups({"architectures": ["DeciLMForCausalLM"], **STREAM, "block_configs": blocks})
    assert [(8, (0, 3, 4, 7)), (4, (2, 6))] == [(g.kv_heads, g.at) for g in groups]


@pytest.mark.parametrize("more", [{"window_length": 4096}, {"replace_with_linear": True}])
def test_a_block_with_something_new_is_refused_by_name(more: dict[str, Any]) -> None:
    blocks = [block()] * 7 + [block(**more)]
    with pytest.raises(NotUnderstoodError, match=next(iter(more))):
        kv_groups({"architectures": ["DeciLMForCausalLM"], **STREAM, "block_configs": blocks})


def test_whisper_keeps_what_the_encoder_heard_beside_its_own_words() -> None:
    config = {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "is_encoder_decoder": True,
        "d_model": 1280,
        "decoder_layers": 4,
        "encoder_layers": 32,
        "num_hidden_layers": 32,
        "decoder_attention_heads": 20,
        "encoder_attention_heads": 20,
    }
    assert [(KvKind.FULL, 4, 20, 64), (KvKind.CROSS, 4, 20, 64)] == [
        (g.kind, g.layers, g.kv_heads, g.key_dim) for g in kv_groups(config)
    ]


def test_a_number_of_layers_that_no_model_has_is_refused_at_once() -> None:
    with pytest.raises(NotUnderstoodError, match="num_hidden_layers is 1000000000000"):
        heads({"architectures": ["LlamaForCausalLM"], **STREAM, "num_hidden_layers": 10**12})
    with pytest.raises(NotUnderstoodError, match="n_layer is 1000000000000"):
        heads({"architectures": ["GPT2LMHeadModel"], "n_layer": 10**12, "n_embd": 64, "n_head": 2})
