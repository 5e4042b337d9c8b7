"""Rows of vLLM's own planning code, and the models behind them, for tests of the KV layout."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from plimsoll.facts.hf_config import model_facts
from plimsoll.facts.model import KvGroup, KvKind, ModelFacts, RecurrentKind, RecurrentState, Weights
from plimsoll.facts.source import Confidence, FactSource, Provenance

DATA = Path(__file__).parent / "data"
ROWS: list[dict[str, Any]] = json.loads((DATA / "vllm_kv.json").read_text(encoding="utf-8"))["rows"]

BY_HAND = Provenance(source=FactSource.SPEC, confidence=Confidence.EXACT)


@cache
def model_of(config: str) -> ModelFacts:
    """The model behind a row's config."""
    found = model_facts(
        json.loads((DATA / config).read_text(encoding="utf-8")),
        id=Path(config).stem,
        weights=Weights(total_bytes=0),
        provenance=BY_HAND,
    )
    assert isinstance(found, ModelFacts), found
    return found


def row(identity: str) -> dict[str, Any]:
    """One row by its id."""
    return next(row for row in ROWS if row["id"] == identity)


def model(*groups: KvGroup, **changes: Any) -> ModelFacts:
    """A model by hand: only what its KV depends on is meant."""
    fields: dict[str, Any] = {
        "id": "by hand",
        "architecture": "LlamaForCausalLM",
        "layers": max((max(g.at) + 1 if g.at else g.layers for g in groups), default=0),
        "hidden_size": 4096,
        "intermediate_size": 16384,
        "attention_heads": 32,
        "vocab_size": 32_000,
        "max_position_embeddings": 131_072,
        "kv_groups": groups,
        "weights": Weights(total_bytes=0),
        "provenance": BY_HAND,
    }
    return ModelFacts(**fields | changes)


def heads(
    layers: int,
    kind: KvKind = KvKind.FULL,
    *,
    kv_heads: int = 8,
    width: int = 128,
    window: int | None = None,
    at: tuple[int, ...] = (),
) -> KvGroup:
    """Layers with keys and values per head."""
    return KvGroup(
        kind=kind,
        layers=layers,
        kv_heads=kv_heads,
        key_dim=width,
        value_dim=width,
        window_tokens=window,
        at=at,
    )


def latent(layers: int, *, width: int = 576, at: tuple[int, ...] = ()) -> KvGroup:
    """Layers with one latent a token."""
    return KvGroup(kind=KvKind.MLA, layers=layers, kv_heads=1, key_dim=width, value_dim=0, at=at)


def recurrent(layers: int, state: RecurrentState, at: tuple[int, ...] = ()) -> KvGroup:
    """Layers with a state a sequence."""
    return KvGroup(
        kind=KvKind.RECURRENT, layers=layers, kv_heads=0, key_dim=0, value_dim=0, state=state, at=at
    )


DELTA = RecurrentState(
    kind=RecurrentKind.GATED_DELTA,
    conv_kernel=4,
    inner_channels=8192,
    heads=32,
    head_dim=128,
    key_heads=16,
    state_dim=128,
)
"""Qwen3-Next's."""
MAMBA2 = RecurrentState(
    kind=RecurrentKind.MAMBA2,
    conv_kernel=4,
    inner_channels=8192,
    heads=128,
    head_dim=64,
    key_heads=1,
    state_dim=128,
)
"""Granite 4.0 H Small's."""
MAMBA1 = RecurrentState(kind=RecurrentKind.MAMBA1, conv_kernel=4, inner_channels=8192, state_dim=16)
"""Jamba's."""


def qwen3_next() -> ModelFacts:
    """Every fourth layer attends, the others keep a state."""
    full = tuple(range(3, 48, 4))
    rest = tuple(n for n in range(48) if n not in full)
    return model(
        recurrent(36, DELTA, rest), heads(12, kv_heads=2, width=256, at=full), attention_heads=16
    )
