"""What does GPUStack's own estimator say?

Run, not re-written: gpustack.policies.utils.estimate_model_vram in an environment of its own (record.py), on
a model folder of the stated size; its answers recorded. It claims memory for a model and has no KV term,
so of the figures here it can only say whether the engine would start: it places a model where the claim
fits into utilization x total of the cards.
"""

from __future__ import annotations

from typing import Any, Final

from benchmarks.accuracy.peers.peer import Figure, Peer, Question, Silent
from benchmarks.accuracy.peers.recorded import NOT_RECORDED, answer

NAME: Final = "gpustack"
VERSION: Final = "2.3.0"
DEFAULT_UTILIZATION: Final = 0.9
"""Its own where the case states none (vllm_resource_fit_selector.py)."""


def asked_claim(question: Question) -> dict[str, Any] | str:
    """What it is asked, or why it cannot be."""
    if not (question.weights_bytes_per_card and question.card_bytes):
        return "the case lacks the weights or the card's total"
    return {
        "kind": "claim",
        "weights_bytes": int(question.weights_bytes_per_card * question.tp * question.pp),
    }


def starts(question: Question) -> Figure:
    """1 where the claim fits into the cards."""
    asked = asked_claim(question)
    if isinstance(asked, str):
        return Silent(asked)
    found = answer(NAME, asked)
    if found is None:
        return Silent(NOT_RECORDED)
    cards = question.tp * question.pp
    share = question.utilization or DEFAULT_UTILIZATION
    assert question.card_bytes
    return float(found["claim_bytes"] <= share * question.card_bytes * cards)


def no_kv(_: Question) -> Figure:
    """It claims a share of the card and never names KV."""
    return Silent("its estimate has no KV term")


PEER: Final = Peer(
    name=NAME,
    version=VERSION,
    how="run in its own environment: PyPI gpustack 2.3.0, estimate_model_vram, answers recorded",
    request=no_kv,
    pool=no_kv,
    starts=starts,
)
