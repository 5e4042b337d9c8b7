"""Where do two sets of facts of one model differ, and which of them is heavier?"""

import hashlib
from collections.abc import Iterator
from typing import Final

from plimsoll.facts.model import GgufFacts, ModelFacts

SLACK_OF_BYTES: Final = 0.001
"""Published sizes are rounded to four digits or so, and leave out a tensor or two; the plan's own bounds
(activations, graphs) err by more on the safe side."""


def differences(
    now: ModelFacts | GgufFacts, listed: ModelFacts | GgufFacts | None
) -> Iterator[str]:
    """What the files say otherwise than the catalogue, in sentences."""
    if listed is None:
        return
    for what, (ours, theirs) in _compared(now, listed).items():
        if ours != theirs:
            yield f"{what}: the files say {ours:,}, the catalogue {theirs:,}; the files win"


def is_heavier(now: ModelFacts | GgufFacts, then: ModelFacts | GgufFacts) -> bool:
    """Whether a plan that was made on `then` may promise bytes that are not there."""
    if type(now) is not type(then):
        return True
    for what, (ours, theirs) in _compared(now, then).items():
        if ours > theirs + (theirs * SLACK_OF_BYTES if what.endswith("in bytes") else 0):
            return True
    return {group.kind for group in now.kv_groups} != {group.kind for group in then.kv_groups}


def _compared(
    now: ModelFacts | GgufFacts, then: ModelFacts | GgufFacts
) -> dict[str, tuple[int, int]]:
    """What memory depends on, from both."""
    pairs = {
        "KV values per token": (_kv_values(now), _kv_values(then)),
        "layers that keep KV": (_kv_layers(now), _kv_layers(then)),
        "vocabulary": (now.vocab_size, then.vocab_size),
    }
    if isinstance(now, ModelFacts) and isinstance(then, ModelFacts):
        return pairs | {
            "layers": (now.layers, then.layers),
            "hidden size": (now.hidden_size, then.hidden_size),
            "weights in bytes": (now.weights.total_bytes, then.weights.total_bytes),
            "experts": (now.experts, then.experts),
        }
    if isinstance(now, GgufFacts) and isinstance(then, GgufFacts):
        return pairs | {
            "blocks": (len(now.block_bytes), len(then.block_bytes)),
            "blocks in bytes": (sum(now.block_bytes), sum(then.block_bytes)),
            "output in bytes": (now.output_bytes, then.output_bytes),
        }
    return pairs


def _kv_values(facts: ModelFacts | GgufFacts) -> int:
    return sum(g.layers * g.kv_heads * (g.key_dim + g.value_dim) for g in facts.kv_groups)


def _kv_layers(facts: ModelFacts | GgufFacts) -> int:
    return sum(g.layers for g in facts.kv_groups)


def facts_digest(facts: ModelFacts | GgufFacts) -> str:
    """Of everything but where they are from."""
    text = facts.model_dump_json(exclude={"provenance"}, exclude_defaults=True)
    return hashlib.sha256(text.encode()).hexdigest()
