"""Laws that hold for every KV layout, whatever the model."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

import kv_rows
from plimsoll.engines.vllm import pool
from plimsoll.engines.vllm.ask import KvAsk
from plimsoll.engines.vllm.pool import Fits, Pool
from plimsoll.facts.model import KvGroup, KvKind, ModelFacts
from plimsoll.units import MIB

KINDS = (KvKind.FULL, KvKind.SLIDING, KvKind.CHUNKED)
LAWS = settings(deadline=None, max_examples=120)


@st.composite
def models(draw: st.DrawFn) -> ModelFacts:
    """Attention of one to three shapes, latents, or a hybrid; layers anywhere."""
    layers = draw(st.integers(4, 48))
    of_layer = draw(st.lists(st.integers(0, 2), min_size=layers, max_size=layers))
    base = draw(st.sampled_from(("heads", "latent", "hybrid")))
    groups: list[KvGroup] = []
    for number in sorted(set(of_layer)):
        at = tuple(layer for layer, which in enumerate(of_layer) if which == number)
        if base == "latent":
            groups.append(kv_rows.latent(len(at), at=at))
        elif base == "hybrid" and number == 0 and len(set(of_layer)) > 1:
            state = draw(st.sampled_from((kv_rows.DELTA, kv_rows.MAMBA1, kv_rows.MAMBA2)))
            groups.append(kv_rows.recurrent(len(at), state, at))
        else:
            kind = draw(st.sampled_from(KINDS))
            groups.append(
                kv_rows.heads(
                    len(at),
                    kind,
                    kv_heads=draw(st.sampled_from((1, 2, 4, 8, 16))),
                    width=draw(st.sampled_from((64, 96, 128, 256))),
                    window=None if kind is KvKind.FULL else draw(st.integers(1, 9000)),
                    at=at,
                )
            )
    return kv_rows.model(*groups, layers=layers, attention_heads=16)


@st.composite
def asks(draw: st.DrawFn) -> KvAsk:
    """Flags and cards."""
    return KvAsk(
        max_model_len=draw(st.integers(1, 200_000)),
        max_num_batched_tokens=draw(st.sampled_from((256, 2048, 8192))),
        capability=draw(st.sampled_from(((8, 0), (8, 9), (9, 0), (10, 0), (12, 0)))),
        kv_dtype=draw(st.sampled_from(("auto", "fp8"))),
        has_async_scheduling=draw(st.booleans()),
        has_prefix_caching=draw(st.sampled_from((None, True, False))),
    )


def _pool(model: ModelFacts, ask: KvAsk, **changes: Any) -> Pool:
    found = pool.pool_of(model, ask._replace(**changes))
    assume(isinstance(found, Pool))
    assert isinstance(found, Pool)
    return found


@LAWS
@given(models(), asks(), st.integers(1, 80_000), st.integers(0, 20_000))
def test_more_memory_never_gives_fewer_blocks(
    model: ModelFacts, ask: KvAsk, mib: int, more: int
) -> None:
    found = _pool(model, ask)
    small, large = (pool.whole(found, amount * MIB) for amount in (mib, mib + more))
    if isinstance(small, Fits):
        assert isinstance(large, Fits)
        assert large.blocks >= small.blocks
        assert large.concurrency >= small.concurrency >= 1


@LAWS
@given(models(), asks(), st.integers(1, 200_000), st.integers(0, 50_000))
def test_a_longer_sequence_never_needs_fewer_blocks(
    model: ModelFacts, ask: KvAsk, tokens: int, more: int
) -> None:
    stage = _pool(model, ask).stages[0]
    assert stage.blocks(tokens) <= stage.blocks(tokens + more)


@LAWS
@given(models(), asks())
def test_the_estimated_length_fits_and_one_more_does_not(model: ModelFacts, ask: KvAsk) -> None:
    found = _pool(model, ask)
    stage = found.stages[0]
    room = stage.block_bytes * max(1, stage.blocks(ask.max_model_len) // 2 + 1)
    answer = pool.whole(found, room)
    if isinstance(answer, Fits):
        return
    longest = answer.estimated_max_model_len
    assert longest < ask.max_model_len
    if longest:
        assert stage.block_bytes * (stage.blocks(longest) + pool.NULL_BLOCKS) <= room
    assert stage.block_bytes * (stage.blocks(longest + 1) + pool.NULL_BLOCKS) > room


@LAWS
@given(models(), asks(), st.sampled_from((2, 4, 8)))
def test_more_cards_never_take_more_bytes_of_each(
    model: ModelFacts, ask: KvAsk, cards: int
) -> None:
    assume(not any(group.kind is KvKind.RECURRENT for group in model.kv_groups))
    one, many = _pool(model, ask), _pool(model, ask, tp=cards)
    assume(one.block_tokens == many.block_tokens)
    assert many.token_bytes <= one.token_bytes
    assert many.token_bytes * cards >= one.token_bytes


@LAWS
@given(models(), asks(), st.randoms(use_true_random=False))
def test_the_order_of_layers_of_the_same_kinds_changes_nothing(
    model: ModelFacts, ask: KvAsk, random: Any
) -> None:
    order = list(range(model.layers))
    random.shuffle(order)
    moved = tuple(
        group.model_copy(update={"at": tuple(sorted(order[layer] for layer in group.at))})
        for group in model.kv_groups
    )
    shuffled = model.model_copy(update={"kv_groups": moved})
    before, after = _pool(model, ask).stages[0], _pool(shuffled, ask).stages[0]
    assert before.block_bytes == after.block_bytes
    assert before.blocks(ask.max_model_len) == after.blocks(ask.max_model_len)


@LAWS
@given(models(), asks())
def test_every_cache_is_in_exactly_one_group(model: ModelFacts, ask: KvAsk) -> None:
    found = _pool(model, ask)
    assert sum(group.layers for group in model.kv_groups) == sum(
        group.layers for group in found.stages[0].groups
    )


@LAWS
@given(models(), asks())
def test_without_the_hybrid_manager_a_sequence_holds_every_token(
    model: ModelFacts, ask: KvAsk
) -> None:
    found = _pool(model, ask, has_hybrid_manager=False)
    kinds = {group.kind for group in model.kv_groups}
    if KvKind.FULL in kinds:
        assert all(each.most_tokens is None for g in found.stages[0].groups for each in g.demands)
