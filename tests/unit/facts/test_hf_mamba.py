"""Which layers are Mamba's, and how large is what they keep?"""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.facts.hf_config import kv_groups
from plimsoll.facts.hf_fields import NotUnderstoodError
from plimsoll.facts.model import KvGroup, KvKind, RecurrentKind, RecurrentState

SIZES: dict[str, Any] = {
    "num_hidden_layers": 8,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
}
MAMBA2 = {
    "mamba_expand": 2,
    "mamba_n_heads": 32,
    "mamba_d_head": 64,
    "mamba_n_groups": 1,
    "mamba_d_state": 128,
    "mamba_d_conv": 4,
}
STATE = RecurrentState(
    kind=RecurrentKind.MAMBA2,
    conv_kernel=4,
    inner_channels=2048,
    heads=32,
    head_dim=64,
    key_heads=1,
    state_dim=128,
)


def places(groups: tuple[KvGroup, ...]) -> list[tuple[KvKind, tuple[int, ...]]]:
    return [(group.kind, group.at) for group in groups]


def test_mamba_alone_keeps_only_states() -> None:
    (group,) = kv_groups(
        {"architectures": ["MambaForCausalLM"], "num_hidden_layers": 8, "hidden_size": 1024}
    )
    assert (
        RecurrentState(kind=RecurrentKind.MAMBA1, conv_kernel=4, inner_channels=2048, state_dim=16)
        == group.state
    )
    assert (8, ()) == (group.layers, group.at)


def test_mamba_2_alone_has_groups_and_heads() -> None:
    (group,) = kv_groups(
        {
            "architectures": ["Mamba2ForCausalLM"],
            "num_hidden_layers": 8,
            "hidden_size": 1024,
            "num_heads": 32,
            "n_groups": 8,
        }
    )
    assert group.state is not None
    assert (2048, 32, 64, 8, 128) == (
        group.state.inner_channels,
        group.state.heads,
        group.state.head_dim,
        group.state.key_heads,
        group.state.state_dim,
    )


def test_jamba_attends_at_every_eighth_layer_from_the_fourth() -> None:
    found = kv_groups({"architectures": ["JambaForCausalLM"], **SIZES, "num_hidden_layers": 16})
    at = dict(places(found))
    assert (4, 12) == at[KvKind.FULL]
    assert 14 == len(at[KvKind.RECURRENT])


def test_granite_says_layer_by_layer_and_works_out_its_head_width() -> None:
    kinds = ["mamba"] * 5 + ["attention"] + ["mamba"] * 2
    config = {"architectures": ["GraniteMoeHybridForCausalLM"], **SIZES, **MAMBA2}
    found = kv_groups({**config, "layer_types": kinds, "mamba_d_head": "auto"})
    assert [(KvKind.RECURRENT, (0, 1, 2, 3, 4, 6, 7)), (KvKind.FULL, (5,))] == places(found)
    assert STATE == found[0].state
    other_name = kv_groups({**config, "layers_block_type": kinds})
    assert other_name == found


def test_bamba_names_the_layers_that_attend() -> None:
    config = {
        "architectures": ["BambaForCausalLM"],
        **SIZES,
        **MAMBA2,
        "attn_layer_indices": [2, 5],
    }
    assert (2, 5) == dict(places(kv_groups(config)))[KvKind.FULL]


def test_falcon_h1_keeps_both_in_every_layer() -> None:
    config = {"architectures": ["FalconH1ForCausalLM"], **SIZES, **MAMBA2, "mamba_d_ssm": None}
    attention, state = kv_groups(config)
    assert tuple(range(8)) == attention.at == state.at
    assert STATE == state.state
    narrower = kv_groups({**config, "mamba_d_ssm": 1536, "mamba_d_head": 48})
    assert narrower[1].state is not None
    assert 1536 == narrower[1].state.inner_channels


NEMOTRON: dict[str, Any] = {
    "architectures": ["NemotronHForCausalLM"],
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "mamba_num_heads": 32,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
}


def test_nemotron_h_says_it_by_letters_or_names_and_experts_keep_nothing() -> None:
    by_letter = kv_groups({**NEMOTRON, "hybrid_override_pattern": "ME*-M"})
    assert [(KvKind.RECURRENT, (0, 4)), (KvKind.FULL, (2,))] == places(by_letter)
    names = ["mamba", "moe", "attention", "mlp", "mamba"]
    assert by_letter == kv_groups({**NEMOTRON, "layers_block_type": names})


def test_nemotron_h_counts_its_list_and_not_its_number() -> None:
    found = kv_groups({**NEMOTRON, "hybrid_override_pattern": "M*M", "num_hidden_layers": 52})
    assert 3 == sum(group.layers for group in found)


def test_nemotron_h_keeps_its_states_in_float32_unless_it_says_otherwise() -> None:
    config = {**NEMOTRON, "hybrid_override_pattern": "M*"}
    (state, _) = kv_groups(config)
    assert state.state is not None
    assert "float32" == state.state.state_dtype
    (state, _) = kv_groups({**config, "mamba_ssm_cache_dtype": "bfloat16"})
    assert state.state is not None
    assert "bfloat16" == state.state.state_dtype


def test_a_letter_that_we_do_not_know_is_named() -> None:
    with pytest.raises(NotUnderstoodError, match="hybrid_override_pattern holds 'X'"):
        kv_groups({**NEMOTRON, "hybrid_override_pattern": "MX*"})
    with pytest.raises(NotUnderstoodError, match="say what the layers are"):
        kv_groups({**NEMOTRON, "hybrid_override_pattern": ""})


def test_zamba_2_shares_its_attention_and_keeps_each_use_apart() -> None:
    config = {
        "architectures": ["Zamba2ForCausalLM"],
        **SIZES,
        "layers_block_type": [
            "mamba",
            "mamba",
            "hybrid",
            "mamba",
            "mamba",
            "hybrid",
            "mamba",
            "mamba",
        ],
        "n_mamba_heads": 32,
    }
    state, attention = kv_groups(config)
    assert (tuple(range(8)), (2, 5)) == (state.at, attention.at)
    assert (16, 128) == (attention.kv_heads, attention.key_dim)


def test_plamo_2_attends_in_the_middle_of_each_step() -> None:
    config = {
        "architectures": ["Plamo2ForCausalLM"],
        **SIZES,
        "mamba_step": 4,
        "hidden_size_per_head": 64,
        "mamba_num_heads": 16,
        "mamba_d_state": 64,
        "mamba_d_conv": 4,
    }
    assert (2, 6) == dict(places(kv_groups(config)))[KvKind.FULL]
