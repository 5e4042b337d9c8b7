"""Where do delta nets, short convolutions and linear attention stand, and what do they keep?"""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.facts.hf_config import kv_groups
from plimsoll.facts.hf_fields import NotUnderstoodError
from plimsoll.facts.model import KvKind, RecurrentKind, RecurrentState

SIZES: dict[str, Any] = {
    "num_hidden_layers": 8,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
}


def test_qwen3_next_attends_at_every_fourth_layer() -> None:
    state, attention = kv_groups({"architectures": ["Qwen3NextForCausalLM"], **SIZES})
    assert (3, 7) == attention.at
    assert (
        RecurrentState(
            kind=RecurrentKind.GATED_DELTA,
            conv_kernel=4,
            inner_channels=2 * 16 * 128 + 32 * 128,
            heads=32,
            head_dim=128,
            key_heads=16,
            state_dim=128,
        )
        == state.state
    )


def test_an_interval_or_a_list_moves_the_layers_that_attend() -> None:
    config = {"architectures": ["Qwen3NextForCausalLM"], **SIZES}
    assert (1, 3, 5, 7) == kv_groups({**config, "full_attention_interval": 2})[1].at
    kinds = ["full_attention"] * 2 + ["linear_attention"] * 6
    assert (0, 1) == kv_groups({**config, "layer_types": kinds})[0].at


def test_qwen3_5_says_in_what_its_states_are_kept() -> None:
    config = {"architectures": ["Qwen3_5ForCausalLM"], **SIZES, "mamba_ssm_dtype": "float32"}
    state = kv_groups(config)[0].state
    assert state is not None
    assert "float32" == state.state_dtype


def test_olmo_hybrid_works_out_the_widths_of_its_delta_net() -> None:
    state = kv_groups({"architectures": ["OlmoHybridForCausalLM"], **SIZES})[0].state
    assert state is not None
    assert (16, 48, 16, 96) == (state.key_heads, state.state_dim, state.heads, state.head_dim)


KIMI: dict[str, Any] = {
    "architectures": ["KimiLinearForCausalLM"],
    "num_hidden_layers": 4,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "linear_attn_config": {
        "kda_layers": [1, 2, 3],
        "full_attn_layers": [4],
        "num_heads": 32,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
    },
}


def test_kimi_counts_its_layers_from_one() -> None:
    state, latent = kv_groups(KIMI)
    assert ((0, 1, 2), (3,), 576) == (state.at, latent.at, latent.key_dim)
    assert (
        RecurrentState(
            kind=RecurrentKind.KIMI_DELTA,
            conv_kernel=4,
            inner_channels=3 * 32 * 128,
            heads=32,
            head_dim=128,
            key_heads=32,
            state_dim=128,
            state_dtype="float32",
        )
        == state.state
    )


def test_kimi_k3_bounds_its_gate() -> None:
    inside = {**KIMI["linear_attn_config"], "gate_lower_bound": -5.0, "use_full_rank_gate": True}
    state = kv_groups({**KIMI, "linear_attn_config": inside})[0].state
    assert state is not None
    assert state.bounded_gate


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"full_attn_layers": [3, 4]}, "do not name each of 4 layers once"),
        ({"kda_layers": [1, 2]}, "do not name each of 4 layers once"),
        ({"gate_kind": "novel"}, r"linear_attn_config\.gate_kind"),
    ],
)
def test_what_is_strange_inside_is_refused(change: dict[str, Any], words: str) -> None:
    inside = {**KIMI["linear_attn_config"], **change}
    with pytest.raises(NotUnderstoodError, match=words):
        kv_groups({**KIMI, "linear_attn_config": inside})


@pytest.mark.parametrize(
    ("architecture", "fields", "channels"),
    [("Lfm2ForCausalLM", {"conv_dim": 1536}, 1536), ("Lfm2MoeForCausalLM", {}, 1024)],
)
def test_lfm2_keeps_the_last_tokens_of_a_convolution(
    architecture: str, fields: dict[str, Any], channels: int
) -> None:
    config = {"architectures": [architecture], **SIZES, "full_attn_idxs": [2, 5], **fields}
    state, attention = kv_groups(config)
    assert (2, 5) == attention.at
    assert (
        RecurrentState(kind=RecurrentKind.SHORT_CONVOLUTION, conv_kernel=3, inner_channels=channels)
        == state.state
    )


def test_minimax_text_01_runs_linear_attention_where_its_list_is_zero() -> None:
    config = {
        "architectures": ["MiniMaxText01ForCausalLM"],
        **SIZES,
        "head_dim": 128,
        "attn_type_list": [0, 0, 0, 1] * 2,
    }
    state, attention = kv_groups(config)
    assert (3, 7) == attention.at
    assert RecurrentState(kind=RecurrentKind.LIGHTNING, heads=16, head_dim=128) == state.state
    with pytest.raises(NotUnderstoodError, match="attn_type_list holds"):
        kv_groups({**config, "attn_type_list": [0, 2] * 4})


def test_ring_attends_by_latents_at_the_end_of_each_group() -> None:
    config = {
        "architectures": ["BailingMoeV2_5ForCausalLM"],
        **SIZES,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "layer_group_size": 4,
    }
    state, latent = kv_groups(config)
    assert (KvKind.MLA, (3, 7), 576) == (latent.kind, latent.at, latent.key_dim)
    assert RecurrentState(kind=RecurrentKind.LIGHTNING, heads=16, head_dim=64) == state.state
