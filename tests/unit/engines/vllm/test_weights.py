"""Are the bytes of the fullest rank those that vLLM builds?"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from plimsoll.engines.vllm.weights import vocabulary_bytes_of_rank, weights_bytes_of_rank
from plimsoll.facts.hf_config import model_facts
from plimsoll.facts.hf_weights import counted_weights
from plimsoll.facts.model import ModelFacts, Weights
from plimsoll.facts.source import Confidence, FactSource, Provenance

DATA = Path(__file__).parents[3] / "data"
CONFIGS = DATA / "hf_configs"
ROWS: list[dict[str, Any]] = json.loads((DATA / "vllm_kv.json").read_text())["rows"]

FULLEST: dict[tuple[str, int, int, str], int] = {}
for _row in ROWS:
    if size := _row.get("weights_bytes_this_rank"):
        key = (Path(_row["config"]).name, _row["tp"], _row["pp"], _row["compute_capability"])
        FULLEST[key] = max(size, FULLEST.get(key, 0))
"""Bytes of the fullest rank by config, ranks, stages and card, as vLLM 0.33.0 builds the language model."""

NOT_COUNTED = {"deepseek-v4-flash.json"}
"""Families whose tensors we do not know: their headers tell."""


@cache
def _model(name: str) -> ModelFacts:
    config = json.loads((CONFIGS / name).read_text())
    # the oracle builds the language model alone
    weights = counted_weights(config, towers=False)
    assert weights is not None
    found = model_facts(
        config,
        id=name,
        weights=weights,
        provenance=Provenance(source=FactSource.FILES, confidence=Confidence.EXACT),
    )
    assert isinstance(found, ModelFacts), found
    return found


@pytest.mark.parametrize(
    ("name", "cards", "stages", "capability"),
    [key for key in sorted(FULLEST) if key[0] not in NOT_COUNTED],
)
def test_the_fullest_rank_holds_what_vllm_builds(
    name: str, cards: int, stages: int, capability: str
) -> None:
    major, _, minor = capability.partition(".")
    ours = weights_bytes_of_rank(
        _model(name), cards=cards, stages=stages, capability=(int(major), int(minor))
    )
    # scales of attention (480 B of gemma-4-31b-nvfp4) and norms between stages are left out
    assert FULLEST[name, cards, stages, capability] == pytest.approx(ours, rel=1e-6)


def test_most_are_equal_to_the_byte() -> None:
    equal = sum(
        size
        == weights_bytes_of_rank(
            _model(name),
            cards=cards,
            stages=stages,
            capability=(int(capability.partition(".")[0]), int(capability.partition(".")[2])),
        )
        for (name, cards, stages, capability), size in FULLEST.items()
        if name not in NOT_COUNTED
    )
    counted = sum(name not in NOT_COUNTED for name, *_ in FULLEST)
    assert equal >= counted - 3


def test_towers_are_loaded_unless_the_language_model_runs_alone() -> None:
    config = json.loads((CONFIGS / "gemma-3-27b.json").read_text())
    with_tower, without = counted_weights(config), counted_weights(config, towers=False)
    assert with_tower is not None
    assert without is not None
    assert 846_120_672 == with_tower.total_bytes - without.total_bytes


def test_an_unknown_family_is_not_guessed_at() -> None:
    assert counted_weights({"architectures": ["NobodyForCausalLM"]}) is None


def test_key_projections_are_copied_where_ranks_outnumber_heads() -> None:
    model = _model("qwen3-30b-a3b.json")
    keys = model.weights.kv_projection_bytes
    four, eight = (weights_bytes_of_rank(model, cards=cards) for cards in (4, 8))
    rest = model.weights.total_bytes - keys - model.weights.replicated_bytes
    assert four - rest // 4 - model.weights.replicated_bytes == keys // 4
    assert eight - rest // 8 - model.weights.replicated_bytes == keys // 4


def test_the_vocabulary_is_filled_up_to_whole_shards() -> None:
    model = _model("llama-3.1-8b.json").model_copy(
        update={"vocab_size": 1000, "weights": Weights(total_bytes=1000, vocabulary_bytes=1000)}
    )
    assert 1024 == vocabulary_bytes_of_rank(model, 1)
    assert 128 == vocabulary_bytes_of_rank(model, 8)


def test_experts_lie_whole_on_some_ranks_under_expert_parallelism() -> None:
    model = _model("qwen3-30b-a3b.json")
    cut = weights_bytes_of_rank(model, cards=8)
    spread = weights_bytes_of_rank(model, cards=8, expert_parallel=True)
    assert cut == spread
    uneven = model.model_copy(update={"experts": 127})
    assert weights_bytes_of_rank(uneven, cards=8, expert_parallel=True) > cut


def test_older_cards_fill_up_mxfp4_experts() -> None:
    model = _model("gpt-oss-20b.json")
    assert 13_761_264_768 == weights_bytes_of_rank(model, cards=1, capability=(9, 0))
    assert 14_679_227_520 == weights_bytes_of_rank(model, cards=1, capability=(8, 0))
    assert 14_679_227_520 == weights_bytes_of_rank(model, cards=1)


def test_without_a_split_everything_but_what_is_replicated_is_cut() -> None:
    model = _model("llama-3.1-8b.json").model_copy(
        update={"weights": Weights(total_bytes=1001, replicated_bytes=1)}
    )
    assert 251 == weights_bytes_of_rank(model, cards=4)
