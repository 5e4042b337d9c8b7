"""Does the expected number of sequences keep its promise?"""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

import worlds
from plimsoll.facts.lengths import LengthHistogram
from plimsoll.plan.concurrency import expected_sequences, largest, load_of
from plimsoll.units import ceil_div

ROOM = 120_000
Z99 = 2.326347874


def test_less_risk_means_fewer_sequences() -> None:
    load = load_of([worlds.one_lane()], longest=16_384, cost=lambda tokens: tokens)
    counts = [expected_sequences(load, ROOM, risk=risk) for risk in (0.1, 0.01, 0.001, 0.0001)]
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) == len(counts)


def test_no_room_means_no_sequence() -> None:
    load = load_of([worlds.one_lane()], longest=16_384, cost=lambda tokens: tokens)
    assert expected_sequences(load, 10, risk=0.001) == 0


def test_lengths_are_cut_at_the_longest() -> None:
    load = load_of([worlds.one_lane()], longest=1000, cost=lambda tokens: tokens)
    assert load.mean <= load.most <= 1000


def test_lanes_count_by_their_share_of_tokens() -> None:
    chat = worlds.one_lane(prompt=(700, 3000), output=(250, 900))._replace(share=0.7)
    batch = worlds.one_lane(prompt=(22000, 30000), output=(400, 1200))._replace(share=0.3)
    alone = [load_of([lane], longest=32_768, cost=lambda t: t).mean for lane in (chat, batch)]
    mixed = load_of([chat, batch], longest=32_768, cost=lambda t: t).mean
    assert mixed == pytest.approx(1 / (0.7 / alone[0] + 0.3 / alone[1]), rel=1e-3)


def test_whole_blocks_cost_half_a_block_more_on_average() -> None:
    lanes = [worlds.one_lane(), worlds.one_lane(prompt=(700, 3000), output=(250, 900))]
    tokens = load_of(lanes, longest=16_384, cost=lambda tokens: tokens).mean
    blocks = load_of(lanes, longest=16_384, cost=lambda tokens: ceil_div(tokens, 16)).mean
    assert blocks * 16 - tokens == pytest.approx(8, abs=1)


def test_a_bounded_group_costs_no_more_than_its_window() -> None:
    load = load_of([worlds.one_lane()], longest=16_384, cost=lambda tokens: min(tokens, 1000))
    assert load.most == pytest.approx(1000, rel=0.05)
    assert load.mean < 1000


def test_equal_requests_differ_only_in_what_is_written() -> None:
    fixed = worlds.one_lane(prompt=(1000, 1000), output=(400, 400))
    load = load_of([fixed], longest=16_384, cost=lambda tokens: tokens)
    assert load.mean == pytest.approx(1200, rel=0.01)
    assert 1400 * 7 < 10_000 < 1200 * 9
    assert expected_sequences(load, 10_000, risk=0.001) in {7, 8}


def test_long_answers_are_met_more_often_than_they_arrive() -> None:
    """The mean age of an answer is E[answer squared] / (2 E[answer])."""
    writing = worlds.one_lane(prompt=(1, 1), output=(400, 1600))
    sigma = math.log(4) / Z99
    mean_age = 400 * math.exp(1.5 * sigma**2) / 2
    load = load_of([writing], longest=65_536, cost=lambda tokens: tokens)
    assert load.mean == pytest.approx(1 + mean_age, rel=0.02)


def test_long_prompts_are_met_more_often_the_longer_they_are_read() -> None:
    """With hardly an answer the stay is all reading, and the mean is E[prompt squared] / E[prompt]."""
    reading = worlds.one_lane(prompt=(4000, 16_000), output=(1, 1))
    sigma = math.log(4) / Z99
    load = load_of([reading], longest=131_072, cost=lambda tokens: tokens)
    assert load.mean == pytest.approx(4000 * math.exp(1.5 * sigma**2), rel=0.02)


def test_a_histogram_and_its_quantiles_agree() -> None:
    """A histogram drawn from the log-normal plans a little fewer sequences: its buckets are coarse."""
    lane = worlds.one_lane()
    rng = random.Random(20261129)
    seen = lane._replace(
        prompt_tokens=_histogram(rng, 1800, 11_000), output_tokens=_histogram(rng, 350, 1500)
    )
    by_quantiles, by_count = (
        expected_sequences(
            load_of([each], longest=16_384, cost=lambda tokens: tokens), ROOM, risk=0.001
        )
        for each in (lane, seen)
    )
    assert 0.85 * by_quantiles <= by_count <= 1.02 * by_quantiles


def _histogram(rng: random.Random, p50: int, p99: int) -> LengthHistogram:
    sigma = math.log(p99 / p50) / Z99
    draws = [round(rng.lognormvariate(math.log(p50), sigma)) for _ in range(20_000)]
    bounds = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
    edges = (-1, *bounds, 10**9)
    counts = [sum(low < each <= high for each in draws) for low, high in pairwise(edges)]
    return LengthHistogram(bounds=bounds, counts=tuple(counts), total_tokens=sum(draws))


@pytest.mark.parametrize("near", [0, 1, 30, 36, 37, 300, 4096])
def test_the_search_ends_where_it_ends_from_wherever_it_starts(near: int) -> None:
    load = load_of([worlds.one_lane()], longest=16_384, cost=lambda tokens: tokens)
    assert expected_sequences(load, ROOM, risk=0.001, near=near) == expected_sequences(
        load, ROOM, risk=0.001
    )


def test_the_largest_number_is_found() -> None:
    assert largest(lambda n: n <= 37, at_most=1000) == 37
    assert largest(lambda n: n == 0, at_most=1000) == 0
    assert largest(lambda _: True, at_most=1000) == 1000
