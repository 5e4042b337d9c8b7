"""Do windows and chunks stand at the layers where the engine puts them?"""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.facts.hf_config import kv_groups
from plimsoll.facts.hf_fields import NotUnderstoodError
from plimsoll.facts.model import KvKind

SIZES: dict[str, Any] = {
    "num_hidden_layers": 12,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
}
Seen = list[tuple[KvKind, int, int | None]]


def seen(architecture: str, **fields: Any) -> Seen:
    """Kind, layers and window of each group."""
    groups = kv_groups({"architectures": [architecture], **SIZES, **fields})
    return [(group.kind, group.layers, group.window_tokens) for group in groups]


def test_a_window_of_the_config_is_at_all_layers_and_zero_is_none() -> None:
    assert [(KvKind.SLIDING, 12, 4096)] == seen("LlamaForCausalLM", sliding_window=4096)
    assert [(KvKind.FULL, 12, None)] == seen("LlamaForCausalLM", sliding_window=0)
    assert [(KvKind.FULL, 12, None)] == seen("LlamaForCausalLM", sliding_window=None)


def test_mistral_slides_unless_the_file_says_null() -> None:
    assert [(KvKind.SLIDING, 12, 4096)] == seen("MistralForCausalLM")
    assert [(KvKind.FULL, 12, None)] == seen("MistralForCausalLM", sliding_window=None)


def test_a_list_puts_the_window_where_it_says() -> None:
    kinds = ["full_attention"] * 9 + ["sliding_attention"] * 3
    assert [(KvKind.FULL, 9, None), (KvKind.SLIDING, 3, 128)] == seen(
        "LlamaForCausalLM", sliding_window=128, layer_types=kinds
    )
    full = ["full_attention"] * 12
    assert [(KvKind.FULL, 12, None)] == seen(
        "LlamaForCausalLM", sliding_window=128, layer_types=full
    )


def test_a_class_that_reads_no_list_is_not_given_a_mixed_one() -> None:
    kinds = ["full_attention"] * 9 + ["sliding_attention"] * 3
    with pytest.raises(NotUnderstoodError, match="does not tell apart"):
        seen("MixtralForCausalLM", sliding_window=128, layer_types=kinds)


def test_qwen_switches_its_window_on_for_all_layers_or_none() -> None:
    assert [(KvKind.FULL, 12, None)] == seen(
        "Qwen2ForCausalLM", sliding_window=128, use_sliding_window=False, max_window_layers=6
    )
    assert [(KvKind.SLIDING, 12, 128)] == seen(
        "Qwen2ForCausalLM", sliding_window=128, use_sliding_window=True, max_window_layers=0
    )
    with pytest.raises(NotUnderstoodError, match="use_sliding_window is True"):
        seen("Qwen2ForCausalLM", sliding_window=128, use_sliding_window=True, max_window_layers=6)


def test_a_list_of_the_wrong_length_is_refused_with_both_numbers() -> None:
    with pytest.raises(NotUnderstoodError, match="names 3 layers but num_hidden_layers is 12"):
        seen("Gemma3ForCausalLM", layer_types=["full_attention"] * 3)


@pytest.mark.parametrize(
    ("architecture", "fields", "full", "window"),
    [
        ("Gemma2ForCausalLM", {"sliding_window": 4096}, 6, 4096),
        ("Gemma3ForCausalLM", {"sliding_window": 512}, 2, 512),
        ("Gemma3ForCausalLM", {"sliding_window": 512, "sliding_window_pattern": 4}, 3, 512),
        ("Cohere2ForCausalLM", {"sliding_window": 4096}, 3, 4097),
        ("Cohere2ForCausalLM", {"sliding_window": 4096, "sliding_window_pattern": 2}, 6, 4097),
        ("Olmo3ForCausalLM", {}, 3, 4096),
        ("CwmForCausalLM", {}, 3, 8192),
        ("AfmoeForCausalLM", {"global_attn_every_n_layers": 6}, 2, 1024),
        ("GptOssForCausalLM", {}, 6, 128),
        ("Exaone4ForCausalLM", {"sliding_window": 4096, "sliding_window_pattern": 4}, 3, 4096),
        ("SmolLM3ForCausalLM", {"sliding_window": 64, "use_sliding_window": True}, 9, 64),
        ("Dots1ForCausalLM", {"sliding_window": 64, "max_window_layers": 8}, 8, 64),
    ],
)
def test_patterns_of_families(
    architecture: str, fields: dict[str, Any], full: int, window: int
) -> None:
    found = {(kind, layers, size) for kind, layers, size in seen(architecture, **fields)}
    assert {(KvKind.FULL, full, None), (KvKind.SLIDING, 12 - full, window)} == found


def test_smollm3_slides_nowhere_while_the_switch_is_off() -> None:
    assert [(KvKind.FULL, 12, None)] == seen("SmolLM3ForCausalLM", sliding_window=64)


def test_gpt_oss_alternates_whatever_a_list_says() -> None:
    with pytest.raises(NotUnderstoodError, match="takes for granted"):
        seen("GptOssForCausalLM", layer_types=["full_attention"] * 12)


def test_exaone_moe_gives_each_layer_its_own_window() -> None:
    kinds = ["sliding_attention", "sliding_attention", "full_attention"] * 4
    windows = [128, 4096, 0] * 4
    assert [(KvKind.SLIDING, 4, 128), (KvKind.SLIDING, 4, 4096), (KvKind.FULL, 4, None)] == seen(
        "ExaoneMoeForCausalLM", layer_types=kinds, sliding_windows=windows, sliding_window=4096
    )


def test_llama_4_attends_in_chunks_but_every_fourth_layer() -> None:
    assert [(KvKind.CHUNKED, 9, 8192), (KvKind.FULL, 3, None)] == seen("Llama4ForCausalLM")
    assert [(KvKind.FULL, 12, None)] == seen("Llama4ForCausalLM", attention_chunk_size=None)
    assert [(KvKind.CHUNKED, 10, 64), (KvKind.FULL, 2, None)] == seen(
        "Llama4ForCausalLM", attention_chunk_size=64, no_rope_layers=[1] * 10 + [0] * 2
    )
    with pytest.raises(NotUnderstoodError, match="do not name the same layers"):
        seen("Llama4ForCausalLM", layer_types=["full_attention"] * 12)


def test_gemma_4_has_wider_full_layers_with_heads_of_their_own() -> None:
    config = {
        "architectures": ["Gemma4ForCausalLM"],
        **SIZES,
        "sliding_window": 512,
        "num_global_key_value_heads": 2,
        "attention_k_eq_v": True,
    }
    assert [(KvKind.SLIDING, 4, 64), (KvKind.FULL, 2, 512)] == [
        (g.kind, g.kv_heads, g.key_dim) for g in kv_groups(config)
    ]
    apart = {**config, "attention_k_eq_v": False, "global_head_dim": 128}
    assert [(KvKind.SLIDING, 4, 64), (KvKind.FULL, 4, 128)] == [
        (g.kind, g.kv_heads, g.key_dim) for g in kv_groups(apart)
    ]


def test_the_last_layer_of_gemma_4_is_always_full() -> None:
    kinds = ["full_attention"] + ["sliding_attention"] * 11
    (full, _) = kv_groups({"architectures": ["Gemma4ForCausalLM"], **SIZES, "layer_types": kinds})
    assert (0, 11) == full.at


@pytest.mark.parametrize("architecture", ["Gemma3nForCausalLM", "Gemma4ForCausalLM"])
def test_layers_that_share_keep_nothing(architecture: str) -> None:
    config = {"architectures": [architecture], **SIZES, "num_kv_shared_layers": 4}
    at = sorted(index for group in kv_groups(config) for index in group.at)
    assert list(range(8)) == at
    with pytest.raises(NotUnderstoodError, match="leaves no layer to share with"):
        kv_groups({**config, "num_kv_shared_layers": 12})


def test_mimo_v2_has_other_heads_where_it_slides() -> None:
    config = {
        "architectures": ["MiMoV2FlashForCausalLM"],
        **SIZES,
        "head_dim": 192,
        "v_head_dim": 128,
        "hybrid_layer_pattern": [0, 1, 1] * 4,
        "swa_num_key_value_heads": 8,
        "swa_head_dim": 192,
        "swa_v_head_dim": 128,
        "sliding_window_size": 128,
        "attention_chunk_size": 128,
    }
    assert [(KvKind.FULL, 4, 4, 192, 128), (KvKind.SLIDING, 8, 8, 192, 128)] == [
        (g.kind, g.layers, g.kv_heads, g.key_dim, g.value_dim) for g in kv_groups(config)
    ]


def test_step_flash_lists_its_draft_layers_too() -> None:
    kinds = ["full_attention", "sliding_attention", "sliding_attention"] * 4
    drafts = ["sliding_attention"] * 3
    expected = [(KvKind.FULL, 4, None), (KvKind.SLIDING, 8, 512)]
    fields = {"num_nextn_predict_layers": 3, "sliding_window": 512}
    assert expected == seen("Step3p5ForCausalLM", layer_types=kinds + drafts, **fields)
    assert expected == seen("Step3p5ForCausalLM", layer_types=kinds, **fields)
    with pytest.raises(NotUnderstoodError, match="names 13 layers"):
        seen("Step3p5ForCausalLM", layer_types=kinds + drafts[:1], **fields)
