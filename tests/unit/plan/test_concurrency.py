"""Does the expected number of sequences keep its promise?"""

from __future__ import annotations

import random

import pytest

import worlds
from plimsoll.plan.concurrency import expected_sequences, largest, load_of
from plimsoll.plan.records import Lane, TokenQuantiles
from plimsoll.units import ceil_div

ROOM = 120_000
Z99 = 2.326347874


def _simulated_excess(lane: Lane, sequences: int, *, trials: int, longest: int) -> float:
    """The chance that live tokens exceed the room, by drawing whole steady states."""
    rng = random.Random(20261129)

    def log_normal(lengths: TokenQuantiles) -> tuple[float, float]:
        import math

        sigma = math.log(lengths.p99 / lengths.p50) / Z99
        return math.log(lengths.p50), sigma

    prompt_mu, prompt_sigma = log_normal(lane.prompt_tokens)
    output_mu, output_sigma = log_normal(lane.output_tokens)
    over = 0
    for _ in range(trials):
        live = 0.0
        for _ in range(sequences):
            prompt = rng.lognormvariate(prompt_mu, prompt_sigma)
            # a live answer is met in proportion to its length, somewhere between start and end
            answer = rng.lognormvariate(output_mu + output_sigma**2, output_sigma)
            live += min(prompt + answer * rng.random(), longest)
        over += live > ROOM
    return over / trials


@pytest.mark.parametrize(
    "lane",
    [
        worlds.one_lane(),
        worlds.one_lane(prompt=(700, 3000), output=(250, 900)),
        worlds.one_lane(prompt=(200, 400), output=(1500, 6000)),
    ],
    ids=["rag", "chat", "writing"],
)
def test_the_risk_is_kept_in_simulation(lane: Lane) -> None:
    load = load_of([lane], longest=16_384, cost=lambda tokens: tokens)
    sequences = expected_sequences(load, ROOM, risk=0.01)
    trials = max(400, 400_000 // sequences)
    assert _simulated_excess(lane, sequences, trials=trials, longest=16_384) <= 0.02
    more = round(sequences * 1.25)
    assert _simulated_excess(lane, more, trials=trials, longest=16_384) > 0.01


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
    assert load.mean <= 1000


def test_lanes_count_by_their_share_of_tokens() -> None:
    chat = worlds.one_lane(prompt=(700, 3000), output=(250, 900))._replace(share=0.7)
    batch = worlds.one_lane(prompt=(22000, 30000), output=(400, 1200))._replace(share=0.3)
    alone = [load_of([lane], longest=32_768, cost=lambda t: t).mean for lane in (chat, batch)]
    mixed = load_of([chat, batch], longest=32_768, cost=lambda t: t).mean
    assert mixed == pytest.approx(1 / (0.7 / alone[0] + 0.3 / alone[1]), rel=1e-9)


def test_counting_by_whole_blocks_changes_nothing() -> None:
    lanes = [worlds.one_lane(), worlds.one_lane(prompt=(700, 30000), output=(250, 900))]
    one_by_one, by_block = (
        load_of(lanes, longest=16_380, cost=lambda tokens: ceil_div(tokens, 16), step=step)
        for step in (1, 16)
    )
    assert one_by_one == pytest.approx(by_block, rel=1e-9)


def test_equal_quantiles_have_no_spread() -> None:
    fixed = worlds.one_lane(prompt=(1000, 1000), output=(1, 1))
    load = load_of([fixed], longest=16_384, cost=lambda tokens: tokens)
    assert load.deviation == pytest.approx(0, abs=1)
    assert expected_sequences(load, 10_010, risk=0.001) in {9, 10}


def test_the_largest_number_is_found() -> None:
    assert largest(lambda n: n <= 37, at_most=1000) == 37
    assert largest(lambda n: n == 0, at_most=1000) == 0
    assert largest(lambda _: True, at_most=1000) == 1000
