"""What fits this model, engine, GPU type and traffic?

Pure: the same request gives the same plan, on a laptop and in the operator.
"""

from __future__ import annotations

from plimsoll.engines.base import EngineName
from plimsoll.plan.offload import plan_llama_cpp
from plimsoll.plan.paged import plan_vllm
from plimsoll.plan.records import Plan, PlanRequest, Refusal


def plan(request: PlanRequest) -> Plan | Refusal:
    """Settings, flags and ledger, or the reason why not and the nearest thing that would fit."""
    outcome = _of_engine(request)
    if isinstance(outcome, Refusal) or not request.notes:
        return outcome
    return outcome.model_copy(update={"notes": (*outcome.notes, *request.notes)})


def _of_engine(request: PlanRequest) -> Plan | Refusal:
    match request.engine:
        case EngineName.VLLM:
            return plan_vllm(request)
        case EngineName.LLAMA_CPP:
            return plan_llama_cpp(request)
