"""Is the kernel the one that vLLM would take on the card?"""

from __future__ import annotations

from typing import Any

from plimsoll.engines.vllm import backends, latents
from plimsoll.engines.vllm.kernels import Kernel, Layer, Situation, Sizes, preferred_block


def _chosen(width: int, *, dtype: str = "auto", mla: bool = False, **at: Any) -> Kernel | None:
    fields: dict[str, Any] = {
        "capability": (9, 0),
        "model_head_dim": width,
        "kv_dtype": dtype,
    } | at
    layer = Layer(head_dim=width, value_dim=0 if mla else width, kv_dtype=dtype, is_mla=mla)
    return backends.choose(layer, Situation(**fields))


def _name(width: int, **at: Any) -> str | None:
    kernel = _chosen(width, **at)
    return kernel and kernel.name


def _block(width: int, **at: Any) -> int | None:
    kernel = _chosen(width, **at)
    return kernel and preferred_block([kernel])


H100, A100, L4, B200, RTX, T4 = (9, 0), (8, 0), (8, 9), (10, 0), (12, 0), (7, 5)


def test_plain_heads_are_read_by_flash_attention_from_8_0() -> None:
    assert ["FLASH_ATTN"] * 5 == [
        _name(128, capability=each) for each in (H100, A100, L4, B200, RTX)
    ]
    assert "TRITON_ATTN" == _name(128, capability=T4)


def test_fp8_needs_flash_attention_3_or_4_else_triton_from_8_9_else_flashinfer() -> None:
    by_card = {
        each: _name(128, dtype="fp8", capability=each) for each in (H100, B200, L4, RTX, A100)
    }
    assert {
        H100: "FLASH_ATTN",
        B200: "FLASH_ATTN",
        L4: "TRITON_ATTN",
        RTX: "TRITON_ATTN",
        A100: None,
    } == by_card
    assert "FLASHINFER" == _name(128, dtype="fp8", capability=A100, has_flashinfer=True)


def test_heads_of_256_force_128_tokens_on_blackwell_alone() -> None:
    assert [16, 128] == [_block(256, capability=each) for each in (H100, B200)]
    assert 16 == _block(256, capability=B200, is_soft_capped=True)
    assert 16 == _block(256, capability=B200, dtype="fp8")
    assert "TRITON_ATTN" == _name(256, capability=B200, is_prefix_lm=True)


def test_heads_of_512_force_64_tokens_for_fp8_on_hopper() -> None:
    assert [16, 64] == [_block(512, dtype=dtype) for dtype in ("auto", "fp8")]
    assert "TRITON_ATTN" == _name(512, capability=A100)


def test_sinks_bar_flash_attention_2() -> None:
    assert ["FLASH_ATTN", "TRITON_ATTN"] == [
        _name(64, has_sinks=True, capability=each) for each in (H100, A100)
    ]


def test_latents_force_blocks_by_card_and_dtype() -> None:
    assert [16, 64] == [_block(576, mla=True, dtype=dtype) for dtype in ("auto", "fp8")]
    assert 128 == _block(576, mla=True, capability=B200)
    assert 32 == _block(576, mla=True, capability=B200, has_flashinfer=True)
    assert 16 == _block(576, mla=True, capability=A100)
    assert _name(576, mla=True, capability=A100, dtype="fp8") is None


def test_sparse_latents_have_kernels_from_hopper_on() -> None:
    names = [
        _name(576, mla=True, is_sparse=True, dtype=dtype, capability=each)
        for dtype, each in (("auto", H100), ("fp8", H100), ("auto", B200), ("auto", A100))
    ]
    assert ["FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE", "FLASHMLA_SPARSE", None] == names


def test_sparse_latents_on_blackwell_go_by_dtype_and_heads() -> None:
    sparse: dict[str, Any] = {"mla": True, "is_sparse": True, "capability": B200}
    assert "FLASHINFER_MLA_SPARSE" == _name(576, dtype="fp8", **sparse)
    assert "FLASHINFER_MLA_SPARSE" == _name(576, query_heads=16, **sparse)
    assert "FLASHMLA_SPARSE" == _name(576, dtype="nvfp4_ds_mla", **sparse)
    assert "FLASH_ATTN_MLA_SPARSE_FA4" == _name(576, query_heads=16, has_flashinfer=True, **sparse)
    narrow = _chosen(576, dtype="nvfp4_ds_mla", **sparse)
    assert narrow is not None
    assert Sizes(fixed=(64,)) == narrow.sizes


def test_latents_without_a_rotary_part_are_read_by_other_kernels() -> None:
    sparse: dict[str, Any] = {"mla": True, "is_sparse": True}
    assert "FLASHMLA_SPARSE" == _name(512, dtype="fp8_ds_mla", **sparse)
    assert _name(512, dtype="fp8", **sparse) is None
    assert "FLASHINFER_MLA_SPARSE_SM90" == _name(512, dtype="fp8", has_flashinfer=True, **sparse)
    assert "FLASHINFER_MLA_SPARSE" == _name(512, capability=B200, **sparse)


def test_context_parallelism_bars_kernels_that_cannot_share() -> None:
    assert "FLASHMLA_SPARSE" == _name(576, mla=True, is_sparse=True, dcp=8, dtype="fp8")
    assert _name(576, mla=True, is_sparse=True, dcp=8) is None
    assert _name(128, dtype="fp8", capability=L4, dcp=2) is None


def test_a_block_size_flag_passes_kernels_over_that_cannot_read_it() -> None:
    assert "TRITON_MLA" == _name(576, mla=True, capability=B200, block_tokens=64)
    assert _name(128, block_tokens=8) is None


def test_dtypes_that_only_one_kernel_packs() -> None:
    assert "TRITON_ATTN" == _name(128, dtype="int4_per_token_head")
    assert "TURBOQUANT" == _name(128, dtype="turboquant_k8v4", flash_attention=2)
    assert _name(128, dtype="nvfp4") is None
    assert "FLASHINFER" == _name(128, dtype="nvfp4", capability=B200, has_flashinfer=True)


def test_fp8_that_flash_attention_finds_it_cannot_read_too_late_is_no_start() -> None:
    wide = Layer(head_dim=192, value_dim=128, kv_dtype="fp8")
    at = Situation(capability=B200, model_head_dim=192, kv_dtype="fp8")
    assert backends.choose(wide, at) is None
    assert backends.choose(wide._replace(kv_dtype="auto"), at._replace(kv_dtype="auto"))
    assert _name(128, dtype="fp8", has_alibi=True) is None
    assert "TRITON_ATTN" == _name(128, dtype="fp8", has_alibi=True, capability=L4)


def test_turboquant_takes_no_windows() -> None:
    layer = Layer(head_dim=128, value_dim=128, kv_dtype="turboquant_k8v4", has_window=True)
    at = Situation(capability=H100, model_head_dim=128, kv_dtype="turboquant_k8v4")
    assert backends.choose(layer, at) is None


def test_several_kernels_share_the_smallest_block_that_all_read() -> None:
    compressed = (latents.V4_INDEXER, latents.V4_WINDOW, latents.V4_LATENT, latents.V4_COMPRESSOR)
    assert 256 == preferred_block(compressed)
    plain = _chosen(128)
    assert plain is not None
    assert 16 == preferred_block([plain, plain])


def test_the_largest_block_within_a_budget() -> None:
    assert 48 == Sizes(step=16).largest_within(63)
    assert 16 == Sizes(step=16).largest_within(3)
    assert [64, 16] == [Sizes(fixed=(16, 32, 64)).largest_within(n) for n in (100, 5)]
