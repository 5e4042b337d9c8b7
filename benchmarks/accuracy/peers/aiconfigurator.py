"""What does aiconfigurator's own estimator say?

Run, not re-written: aiconfigurator-core in an environment of its own (record.py), its answers recorded.
`request` is its model's KV bytes of one sequence of that length; models it does not know go to its own
fallback, which reads config.json. `pool` is utilization x the stated total, less the stated weights,
less its own activation, runtime and communication bytes for that model, card and step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from benchmarks.accuracy.peers.peer import (
    Figure,
    Peer,
    Question,
    Silent,
    batched_tokens,
)
from benchmarks.accuracy.peers.recorded import NOT_RECORDED, answer

NAME: Final = "aiconfigurator"
VERSION: Final = "0.12.0"
KV_DTYPES: Final = {
    "auto": "bfloat16",
    "float16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_ds_mla": "fp8",
}
"""The engine's, and what it calls it. It is told the type that the engine uses, since left alone it takes
fp8 for models with fp8 weights, where vLLM keeps 16 bits."""
SYSTEMS: Final = {  # words of the card's name: its system
    ("GB200",): "gb200",
    ("GB300",): "gb300",
    ("B200",): "b200_sxm",
    ("B300",): "b300_sxm",
    ("H200",): "h200_sxm",
    ("H100", "PCIE"): "h100_pcie",
    ("H100",): "h100_sxm",
    ("A100", "PCIE"): "a100_pcie",
    ("A100",): "a100_sxm",
    ("A30",): "a30",
    ("L40S",): "l40s",
    ("L4",): "l4",
    ("RTX", "PRO", "6000"): "rtx_pro_6000_server",
}
"""The cards it has (aiconfigurator_core/systems); the first row whose words all appear."""


def asked_request(question: Question) -> dict[str, Any] | str:
    """What it is asked for one request, or why it cannot be."""
    if question.resolved_kv_dtype not in KV_DTYPES:
        return f"it has no KV type {question.resolved_kv_dtype}"
    if question.dcp > 1:
        return "it has no decode context parallelism for vLLM"
    if not question.hybrid_manager:
        return "it has no switch for vLLM's hybrid KV manager"
    if question.config is None:
        return "no config.json of this model at hand"
    if question.max_model_len is None:
        return "the case states no length"
    return {
        "kind": "request",
        "config": dict(question.config),
        "tp": question.tp,
        "pp": question.pp,
        "kv_dtype": KV_DTYPES[question.resolved_kv_dtype],
        "max_model_len": question.max_model_len,
    }


def asked_tokens(question: Question) -> dict[str, Any] | str:
    """What it is asked for the tokens of a KV memory, or why it cannot be."""
    asked = asked_request(replace(question, max_model_len=question.max_model_len or 1))
    if isinstance(asked, str):
        return asked
    asked.pop("max_model_len")
    if question.kv_memory_bytes is None:
        return "the case states no KV memory"
    return asked | {"kind": "tokens", "kv_memory_bytes": int(question.kv_memory_bytes)}


def asked_pool(question: Question) -> dict[str, Any] | str:
    """What it is asked for the bytes that are neither weights nor KV, or why it cannot be."""
    if not (question.card_bytes and question.utilization and question.weights_bytes_per_card):
        return "the case lacks the card's total, the utilization or the weights"
    words = set(question.card.upper().replace("-", " ").replace("_", " ").split())
    system = next((name for named, name in SYSTEMS.items() if words.issuperset(named)), None)
    if system is None:
        return f"it has no card {question.card or 'of that name'}"
    if question.config is None:
        return "no config.json of this model at hand"
    return {
        "kind": "pool",
        "config": dict(question.config),
        "system": system,
        "tp": question.tp,
        "pp": question.pp,
        "tokens": batched_tokens(question),
    }


def _recorded(asked: dict[str, Any] | str, what: str) -> Figure:
    if isinstance(asked, str):
        return Silent(asked)
    found = answer(NAME, asked)
    if found is None:
        return Silent(NOT_RECORDED)
    return float(found[what]) if what in found else Silent(str(found["reason"]))


def request_bytes(question: Question) -> Figure:
    """KV bytes of one sequence on one card."""
    return _recorded(asked_request(question), "bytes")


def tokens(question: Question) -> Figure:
    """Tokens that its curve puts into the KV memory."""
    return _recorded(asked_tokens(question), "tokens")


def pool_bytes(question: Question) -> Figure:
    """What it leaves for KV on one card."""
    other = _recorded(asked_pool(question), "other_bytes")
    if isinstance(other, Silent):
        return other
    budget = (question.card_bytes or 0) * (question.utilization or 0)
    return max(budget - (question.weights_bytes_per_card or 0) - other, 0.0)


PEER: Final = Peer(
    name=NAME,
    version=VERSION,
    how="run in its own environment: PyPI aiconfigurator-core 0.12.0, answers recorded",
    request=request_bytes,
    pool=pool_bytes,
    tokens=tokens,
)
