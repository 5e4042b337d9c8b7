"""Where do latents, indexes and compressed latents stand?"""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.facts.hf_config import kv_groups
from plimsoll.facts.hf_fields import NotUnderstoodError
from plimsoll.facts.model import KvGroup, KvKind

SIZES: dict[str, Any] = {
    "num_hidden_layers": 12,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
}
V4: dict[str, Any] = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "num_hidden_layers": 4,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "head_dim": 512,
    "sliding_window": 128,
    "index_head_dim": 128,
}


def groups(architecture: str, **fields: Any) -> tuple[KvGroup, ...]:
    return kv_groups({"architectures": [architecture], **SIZES, **fields})


def test_a_latent_and_a_rotary_key_per_token() -> None:
    (group,) = groups("DeepseekV3ForCausalLM")
    assert (KvKind.MLA, 12, 1, 576, 0) == (
        group.kind,
        group.layers,
        group.kv_heads,
        group.key_dim,
        group.value_dim,
    )


def test_a_deepseek_without_rotary_widths_has_plain_heads() -> None:
    (group,) = groups(
        "DeepseekV2ForCausalLM", kv_lora_rank=None, qk_rope_head_dim=0, qk_nope_head_dim=0
    )
    assert (KvKind.FULL, 16, 128) == (group.kind, group.kv_heads, group.key_dim)


def test_sparse_attention_keeps_an_index_beside_each_latent() -> None:
    index, latent = groups("DeepseekV32ForCausalLM", index_topk=2048, index_head_dim=128)
    assert (KvKind.INDEXER, 12, 128) == (index.kind, index.layers, index.key_dim)
    assert (KvKind.MLA, 12, 576) == (latent.kind, latent.layers, latent.key_dim)


def owners(**fields: Any) -> tuple[int, ...]:
    (index,) = (g for g in groups("GlmMoeDsaForCausalLM", **fields) if g.kind is KvKind.INDEXER)
    return index.at


def test_layers_share_the_choice_of_the_last_that_has_an_index() -> None:
    assert tuple(range(12)) == owners()
    assert (0, 1, 2, 6, 10) == owners(index_topk_freq=4, index_skip_topk_offset=3)
    assert (0, 1, 5, 9) == owners(index_topk_freq=4)
    assert (0, 4, 8) == owners(index_topk_pattern="FSSS" * 3)


def test_indexer_types_is_not_what_the_engine_reads() -> None:
    assert (0, 1, 5, 9) == owners(index_topk_freq=4, indexer_types=["full"] * 12)


def test_longcat_has_two_attentions_in_a_layer() -> None:
    config = {"architectures": ["LongcatFlashForCausalLM"], **SIZES, "num_layers": 6}
    del config["num_hidden_layers"]
    (group,) = kv_groups(config)
    assert (12, 576) == (group.layers, group.key_dim)


def test_v4_keeps_a_window_and_a_latent_for_several_tokens() -> None:
    found = kv_groups({**V4, "compress_ratios": [0, 4, 128, 4, 0]})
    assert [(None, None, (0,)), (4, 128, (1, 3)), (128, None, (2,))] == [
        (g.compress_ratio, g.index_dim, g.at) for g in found
    ]
    assert {(KvKind.COMPRESSED_MLA, 512, 128)} == {
        (g.kind, g.key_dim, g.window_tokens) for g in found
    }


def test_v4_says_it_by_names_or_not_at_all() -> None:
    names = ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]
    by_name = kv_groups({**V4, "layer_types": [*names, names[1]]})
    assert by_name == kv_groups({**V4, "compress_ratios": [0, 4, 128, 4]})
    by_class = kv_groups(V4)
    assert by_class == kv_groups({**V4, "compress_ratios": [128, 128, 128, 4]})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"compress_ratios": [0, 4, 16, 4]}, r"compress_ratios holds \[16\]"),
        ({"compress_ratios": [0, 4]}, "2 compressed layers are named of 4"),
        ({"layer_types": ["novel_attention"] * 4}, "layer_types names novel_attention"),
        ({"compress_rate_csa": 8}, "compress_rates holds"),
    ],
)
def test_another_compression_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(NotUnderstoodError, match=words):
        kv_groups({**V4, **fields})


def sparse(**more: Any) -> dict[str, Any]:
    inside = {
        "sparse_index_dim": 128,
        "sparse_num_index_heads": 4,
        "sparse_attention_freq": [0, 1, 1, 1],
        "sparse_disable_index_value": [0, 1, 1, 1],
    }
    return {
        "architectures": ["MiniMaxM3SparseForCausalLM"],
        "num_hidden_layers": 4,
        "sparse_attention_config": {**inside, **more},
    }


def test_minimax_m3_has_an_index_key_at_its_sparse_layers() -> None:
    assert [(KvKind.FULL, 4, 4, 128), (KvKind.INDEXER, 3, 1, 128)] == [
        (g.kind, g.layers, g.kv_heads, g.key_dim) for g in kv_groups(sparse())
    ]


def test_a_list_that_goes_on_is_cut_and_one_that_ends_early_is_refused() -> None:
    (_, index) = kv_groups({**sparse(), "num_hidden_layers": 3})
    assert (1, 2) == index.at
    with pytest.raises(NotUnderstoodError, match="4 entries for 5 layers"):
        kv_groups({**sparse(), "num_hidden_layers": 5})


def test_an_index_with_values_or_something_new_in_it_is_refused() -> None:
    with pytest.raises(NotUnderstoodError, match="sparse_disable_index_value is 0"):
        kv_groups(sparse(sparse_disable_index_value=[0, 0, 1, 1]))
    with pytest.raises(NotUnderstoodError, match=r"sparse_attention_config\.sparse_kind"):
        kv_groups(sparse(sparse_kind="novel"))
