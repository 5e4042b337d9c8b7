"""What would a KV cache of fewer bits gain for a question that is put at 16 bit?

Nothing, where something else binds: the concurrency that was asked for, the engine's most sequences, a host that
takes what the card does not.
"""

from typing import NamedTuple

from plimsoll.engines.base import EngineName
from plimsoll.plan.length import length_of
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Plan, PlanRequest, Refusal
from plimsoll.units import counted


class KvGain(NamedTuple):
    """The same question at 16 bit and with fewer."""

    plan: Plan | None
    """The plan with fewer bits; None where there is none."""
    is_gain: bool
    """Whether it holds more than the plan at 16 bit."""
    sentence: str
    """What is gained, or why nothing is; without a full stop."""


def kv_gain(request: PlanRequest, dtype: str) -> KvGain:
    """What `dtype` gains for a question whose KV cache dtype is auto.

    A gain is more sequences at once, more of whole length, a longer length, or more layers on the card.
    """
    fewer = plan(request._replace(kv_dtype=dtype))
    if isinstance(fewer, Refusal):
        return KvGain(None, False, f"{dtype} does not work here: {fewer.message.removesuffix('.')}")
    whole = plan(request._replace(kv_dtype="auto"))
    if isinstance(whole, Refusal):
        return KvGain(fewer, True, f"only with {dtype} it fits: {_holds(fewer)}")
    gains = [more > few for more, few in zip(_measures(fewer), _measures(whole), strict=True)]
    if any(gains):
        return KvGain(
            fewer, True, f"{dtype} would hold {_holds(fewer)}, 16 bit holds {_holds(whole)}"
        )
    return KvGain(
        fewer,
        False,
        f"{dtype} would gain nothing: 16 bit holds {_holds(whole)}, and so would {dtype}",
    )


def _measures(found: Plan) -> tuple[int, ...]:
    at_once = found.concurrency.max_num_seqs
    whole = min(found.concurrency.worst_case, at_once)  # more can never be live together
    return at_once, whole, found.max_model_len, found.gpu_layers or 0


def _holds(found: Plan) -> str:
    layers = ""
    if found.gpu_layers is not None and found.layers is not None:
        layers = f" with {found.gpu_layers} of {found.layers} layers on the card"
    return (
        f"{counted(found.concurrency.max_num_seqs, 'sequence')} at once "
        f"({found.concurrency.worst_case} of all {found.max_model_len:,} tokens){layers}"
    )


def planned_length(request: PlanRequest) -> int | None:
    """Tokens of the longest request that the plan of a question will admit; None without a model."""
    if request.engine is EngineName.VLLM:
        return length_of(request, request.model.max_position_embeddings) if request.model else None
    return length_of(request, request.gguf.context_length) if request.gguf else None
