"""Are layers put together, padded and packed as vLLM does it?"""

from __future__ import annotations

import pytest

from plimsoll.engines.vllm import groups
from plimsoll.engines.vllm.alike import EngineRefusesError, Group
from plimsoll.engines.vllm.specs import LayerSpec, SpecKind

FULL = LayerSpec(SpecKind.FULL, 16, rows=8, row_bytes=512, dtype="bfloat16")
WINDOW = FULL._replace(kind=SpecKind.SLIDING, window_tokens=1024)
LATENT = LayerSpec(SpecKind.MLA, 16, row_bytes=1152, dtype="bfloat16")
STATE = LayerSpec(SpecKind.RECURRENT, 16, row_bytes=60_000, sharded_by_dcp=False, state_blocks=3)


def _grouped(*specs: LayerSpec, manager: bool = True, outermost: bool = False) -> tuple[Group, ...]:
    return groups.grouped(specs, has_hybrid_manager=manager, is_block_outermost=outermost)


def _layers(*specs: LayerSpec, manager: bool = True) -> list[tuple[int, ...]]:
    return [group.layers for group in _grouped(*specs, manager=manager)]


def test_layers_alike_are_one_group() -> None:
    assert [(0, 1, 2)] == _layers(FULL, FULL, FULL)
    assert [(0, 1)] == _layers(WINDOW, WINDOW)


def test_one_type_with_pages_of_two_sizes_is_one_mixed_group() -> None:
    (group,) = _grouped(FULL, FULL._replace(rows=4))
    assert group.is_mixed
    assert FULL.page_bytes * 3 // 2 == group.page_bytes


def test_a_kind_is_dealt_in_turn_to_groups_as_large_as_the_smallest() -> None:
    specs = [WINDOW] * 5 + [FULL]
    assert [(0,), (1,), (2,), (3,), (4,), (5,)] == _layers(*specs)
    specs = ([WINDOW] * 2 + [FULL]) * 2
    assert [(0, 3), (1, 4), (2, 5)] == _layers(*specs)


def test_groups_are_as_large_as_the_largest_kind_when_that_is_near() -> None:
    sizes = [len(layers) for layers in _layers(*[WINDOW] * 12, *[FULL] * 13)]
    assert [12, 13] == sizes
    sizes = [len(layers) for layers in _layers(*[WINDOW] * 4, *[FULL] * 6)]
    assert [4, 3, 3] == sizes


def test_a_page_that_divides_the_largest_gets_a_longer_block() -> None:
    narrow = WINDOW._replace(rows=2)
    found = _grouped(narrow, FULL)
    assert [64, 16] == [group.specs[0].block_tokens for group in found]
    assert {FULL.page_bytes} == {group.page_bytes for group in found}


def test_a_page_that_does_not_divide_is_padded() -> None:
    odd = WINDOW._replace(rows=3)
    found = _grouped(odd, FULL)
    assert [16, 16] == [group.specs[0].block_tokens for group in found]
    assert FULL.page_bytes == found[0].specs[0].padded_bytes


def test_states_are_padded_to_the_page() -> None:
    found = _grouped(STATE, FULL)
    assert {FULL.page_bytes} == {group.page_bytes for group in found}


def test_a_latent_cannot_be_padded_so_windows_beside_it_are_kept_whole() -> None:
    (group,) = _grouped(LATENT, WINDOW._replace(rows=5))
    assert group.is_mixed
    assert [SpecKind.MLA, SpecKind.FULL] == [spec.kind for spec in group.specs]
    with pytest.raises(EngineRefusesError, match="cannot be made equal"):
        _grouped(LATENT, STATE._replace(row_bytes=100_000))


def test_without_the_hybrid_manager_windows_are_kept_whole() -> None:
    (group,) = _grouped(WINDOW, FULL, manager=False)
    assert SpecKind.FULL is group.specs[0].kind
    assert 2 * FULL.page_bytes == group.page_bytes
    (alone,) = _grouped(WINDOW, WINDOW, manager=False)
    assert SpecKind.SLIDING is alone.specs[0].kind


def test_two_windows_cannot_be_kept_whole_together() -> None:
    with pytest.raises(EngineRefusesError, match="512, 1024"):
        _grouped(WINDOW, WINDOW._replace(window_tokens=512), FULL, manager=False)


def test_pages_side_by_side_are_split_into_groups_of_like_width() -> None:
    small = LayerSpec(SpecKind.SLIDING_MLA, 4, row_bytes=2160, window_tokens=8)
    large = small._replace(row_bytes=8208)
    window = LayerSpec(SpecKind.SLIDING_MLA, 64, row_bytes=585, window_tokens=128)
    specs = [window] * 43 + [small, large] * 21
    found = _grouped(*specs, outermost=True)
    assert [22, 21, 42] == [len(group.layers) for group in found]
    assert max(g.page_bytes for g in found) == groups.block_bytes(found, is_block_outermost=True)


def test_the_widest_group_is_the_block() -> None:
    found = _grouped(*[WINDOW] * 12, *[FULL] * 13)
    assert 13 * FULL.page_bytes == groups.block_bytes(found, is_block_outermost=False)


def test_blocks_larger_than_a_kernels_page_hold_whole_ones_of_it() -> None:
    odd = FULL._replace(block_tokens=96, row_bytes=100, rows=1, kernel_tokens=64, padded_bytes=9700)
    assert 32 * 100 == odd._replace(padded_bytes=None).stride_alignment
    assert 16_000 == FULL._replace(padded_bytes=15_000, stride_bytes=4000).stride_page_bytes


def test_a_stage_holds_only_its_own_layers() -> None:
    found = groups.held(_grouped(*[WINDOW] * 2, *[FULL] * 2), {0, 1})
    assert [(0, 1), ()] == [group.layers for group in found]
    assert 2 * FULL.page_bytes == groups.block_bytes(found, is_block_outermost=False)
