"""The graph allocator: holes, results in place, and what is freed when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.engines.llama_cpp.pools import CARD_ALIGNMENT, Pool, allocate
from plimsoll.engines.llama_cpp.splits import schedule
from plimsoll.engines.llama_cpp.tensors import (
    HOST,
    LEAF,
    Graph,
    Tensor,
    graph_input,
    multiplied,
    same,
)


def weight(shape: tuple[int, ...], place: int) -> Tensor:
    return Tensor(LEAF, shape, place=place, is_weight=True)


def sizes(
    result: Tensor, *, cards: int, op_offload: bool = True, copies: int = 1
) -> tuple[int, ...]:
    graph = Graph()
    graph.expand(result)
    found = schedule(graph, cards=cards, op_offload=op_offload, copies=copies)
    return allocate(found.nodes, found.leaves, cards)


def test_the_smallest_hole_that_fits_is_taken() -> None:
    pool = Pool(1)
    offsets = [pool.take(size) for size in (100, 10, 50, 10)]
    pool.give(offsets[0], 100)
    pool.give(offsets[2], 50)
    assert offsets[2] == pool.take(40)
    assert offsets[0] == pool.take(90)
    assert 170 == pool.peak


def test_holes_that_touch_become_one() -> None:
    pool = Pool(1)
    first, second, _ = (pool.take(10) for _ in range(3))
    pool.give(first, 10)
    pool.give(second, 10)
    assert first == pool.take(20)
    assert 30 == pool.peak


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=40))
def test_what_is_given_back_in_any_order_is_whole_again(taken: list[int]) -> None:
    pool = Pool(CARD_ALIGNMENT)
    held = [(pool.take(size), size) for size in taken]
    for offset, size in sorted(held, key=lambda pair: pair[1]):
        pool.give(offset, size)
    peak = pool.peak
    assert 0 == pool.take(peak)
    assert peak == pool.peak


def test_a_result_overwrites_a_source_that_nobody_else_reads() -> None:
    def result(*, scaled: bool) -> Tensor:
        values = multiplied(weight((64, 1024), 0), graph_input((64, 8)))
        return multiplied(weight((1024, 64), 0), same("scale", values) if scaled else values)

    assert sizes(result(scaled=False), cards=1) == sizes(result(scaled=True), cards=1)


def test_a_weight_of_the_host_is_brought_for_a_large_batch_alone() -> None:
    few, many, never = (
        sizes(
            multiplied(
                weight((1024, 1024), HOST),
                multiplied(weight((64, 1024), 0), graph_input((64, rows))),
            ),
            cards=1,
            op_offload=offload,
        )[0]
        for rows, offload in ((8, True), (64, True), (64, False))
    )
    assert many >= 4 * 1024 * 1024
    assert few < 4 * 1024 * 1024
    assert never < 4 * 1024 * 1024


def test_a_pipeline_keeps_four_copies_of_every_input() -> None:
    def result() -> Tensor:
        first = multiplied(weight((64, 64), 0), graph_input((64, 512)))
        return multiplied(weight((64, 64), 1), first)

    single, pipeline = (sizes(result(), cards=2, copies=copies) for copies in (1, 4))
    assert pipeline[2] == 4 * single[2]
    assert pipeline[1] > single[1]
