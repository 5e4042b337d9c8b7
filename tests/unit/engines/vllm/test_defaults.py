"""Do our defaults follow the release and the card?"""

from __future__ import annotations

import pytest

from plimsoll.engines.base import Release
from plimsoll.engines.vllm import defaults
from plimsoll.engines.vllm.defaults import Settings
from plimsoll.units import GIB

NEW = Release.of("0.33.0")


@pytest.mark.parametrize(
    ("total_gib", "product", "release", "expected"),
    [
        (80, "NVIDIA-H100-80GB-HBM3", "0.33.0", Settings(1024, 8192)),
        (80, "NVIDIA-A100-SXM4-80GB", "0.33.0", Settings(256, 2048)),
        (24, "NVIDIA-GeForce-RTX-4090", "0.33.0", Settings(256, 2048)),
        (119, "NVIDIA-GB10", "0.33.0", Settings(256, 2048)),
        (185, "NVIDIA-GB200", "0.33.0", Settings(1024, 16384)),
        (185, "NVIDIA-GB200", "0.26.0", Settings(1024, 8192)),
    ],
)
def test_large_cards_take_larger_steps(
    total_gib: int, product: str, release: str, expected: Settings
) -> None:
    assert expected == defaults.settings(total_gib * GIB, product, Release.of(release))


def test_before_v1_a_prompt_up_to_32k_is_one_step() -> None:
    assert Settings(256, 32768) == defaults.settings_before_v1(32768)
    assert Settings(256, 2048) == defaults.settings_before_v1(32769)
    assert Settings(256, 2048) == defaults.settings_before_v1(512)


def test_the_older_engine_runs_on_older_cards_until_it_was_removed() -> None:
    assert defaults.is_before_v1(Release.of("0.7.2"), (9, 0))
    assert defaults.is_before_v1(Release.of("0.8.5"), (7, 0))
    assert not defaults.is_before_v1(Release.of("0.8.5"), (8, 0))
    assert not defaults.is_before_v1(Release.of("0.11.0"), (7, 5))
    assert not defaults.is_before_v1(NEW, None)


def test_the_share_grew_with_the_graphs_it_pays_for() -> None:
    assert 0.9 == defaults.utilization(Release.of("0.19.1"))
    assert 0.92 == defaults.utilization(Release.of("0.20.0"))
