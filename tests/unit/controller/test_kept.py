"""Floors in one ConfigMap: what comes back, what it weighs, and what is made of rubbish."""

from __future__ import annotations

import json
import random
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.controller.kept import MOST_BYTES, pack, unpack
from plimsoll.facts.series import FloorBin, LatencyBin
from plimsoll.facts.watched import PastLife

T0 = 1_796_040_000.0
SIZE = 600.0


def life(number: int, hours: int = 72) -> PastLife:
    """A worker with a sawtooth on a slope and a daily load, three requests a second."""
    chance = random.Random(number)
    bins, latencies, peak, work = [], [], 0.0, 0.0
    for step in range(1, hours * 6 + 1):
        load = chance.uniform(0, 40)
        peak, work = max(peak, load), work + chance.randrange(100_000)
        floor = (10 << 30) + step * (1 << 20) + chance.randrange(200 << 20)
        at = T0 + step * SIZE
        bins.append(FloorBin(at, floor, load, peak, work))
        latencies.append(LatencyBin(at, chance.randrange(1800), chance.random(), chance.random()))
    return PastLife(f"uid-{number}", "engine", T0 - 7.0, tuple(bins), tuple(latencies))


def test_what_is_kept_comes_back_to_the_kibibyte_and_the_millisecond() -> None:
    before = life(1)
    (after,) = unpack(pack([before], bin_seconds=SIZE))
    assert before[:3] == after[:3]
    for one, other in zip(before.bins, after.bins, strict=True):
        assert one.at_seconds == other.at_seconds
        assert abs(one.floor_bytes - other.floor_bytes) <= 512
        assert one.work == other.work
        assert one.load is not None
        assert other.load is not None
        assert abs(one.load - other.load) <= 0.0051
    for before_it, after_it in zip(before.latencies, after.latencies, strict=True):
        assert before_it.requests == after_it.requests
        assert before_it.ttft_p95_seconds is not None
        assert after_it.ttft_p95_seconds is not None
        assert abs(before_it.ttft_p95_seconds - after_it.ttft_p95_seconds) <= 0.00051


def test_packing_what_was_unpacked_gives_the_same_bytes() -> None:
    packed = pack([life(1), life(2)], bin_seconds=SIZE)
    assert packed == pack(unpack(packed), bin_seconds=SIZE)


def test_what_is_not_known_stays_unknown() -> None:
    bare = PastLife("u", "engine", T0, (FloorBin(T0, 4096),), (LatencyBin(T0, 3),))
    assert (bare,) == unpack(pack([bare], bin_seconds=SIZE))


def test_three_days_of_twenty_workers_fit_whole() -> None:
    lives = [life(number) for number in range(20)]
    packed = pack(lives, bin_seconds=SIZE)
    assert len(packed) <= MOST_BYTES
    assert [72 * 6] * 20 == [len(each.bins) for each in unpack(packed)]


def test_when_it_is_too_much_the_newest_bins_of_everyone_are_kept() -> None:
    lives = [life(number) for number in range(12)]
    packed = pack(lives, bin_seconds=SIZE, most_bytes=40_000)
    assert len(packed) <= 40_000
    kept = unpack(packed)
    assert 12 == len(kept)
    assert {lives[0].bins[-1].at_seconds} == {each.bins[-1].at_seconds for each in kept}
    assert all(20 < len(each.bins) < 72 * 6 for each in kept)


def test_nothing_fits_into_next_to_nothing() -> None:
    assert () == unpack(pack([life(1)], bin_seconds=SIZE, most_bytes=10))


def document(**change: Any) -> bytes:
    one = {
        "pod": "u", "container": "engine", "started": 1.0,
        "bins": [[1], [2], [None], [None], [None]], "latencies": [[], [], [], []],
    }  # fmt: skip
    whole = {"format": 1, "binSeconds": 600.0, "lives": [one | change.pop("life", {})]} | change
    return zlib.compress(json.dumps(whole).encode())


def test_the_document_of_the_next_test_is_right_without_its_faults() -> None:
    assert 1 == len(unpack(document()))


@pytest.mark.parametrize(
    "rubbish",
    [
        b"",
        b"no",
        zlib.compress(b"{}"),
        zlib.compress(b"[]"),
        zlib.compress(b"[" * 100_000),
        zlib.compress(b"no"),
        document()[:-5],
        document(format=2),
        document(binSeconds=0),
        document(binSeconds="NaN"),
        document(lives=7),
        document(life={"pod": 7}),
        document(life={"started": None}),
        document(life={"bins": [[1], [2], [None], [None]]}),
        document(life={"bins": [[1, 1], [2], [None], [None], [None]]}),
        document(life={"bins": [[1], [-2], [None], [None], [None]]}),
        document(life={"bins": [[1], [0.5], [None], [None], [None]]}),
        document(life={"bins": [[1], ["2"], [None], [None], [None]]}),
        document(life={"bins": [[1], [None], [None], [None], [None]]}),
        document(life={"bins": [[None], [1], [None], [None], [None]]}),
        document(life={"bins": [[1, 0], [1, 1], [None] * 2, [None] * 2, [None] * 2]}),
        document(life={"latencies": 7}),
        zlib.compress(b" " * (65 << 20)),
    ],
)
def test_rubbish_is_refused_with_a_word_and_never_a_crash(rubbish: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        unpack(rubbish)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_a_flipped_byte_is_never_a_crash(noise: bytes, place: int) -> None:
    packed = bytearray(pack([life(1, hours=2)], bin_seconds=SIZE))
    packed[place % len(packed) : place % len(packed) + len(noise)] = noise
    try:
        unpack(bytes(packed))
    except ValueError:
        return
