"""Does an accepted plan still hold on the card as it is seen now?

A newer planner does not replace a plan that still fits, so that an operator upgrade moves no pods.
"""

from __future__ import annotations

import math
from typing import Final

from plimsoll.engines.base import ByteOwner, EngineName
from plimsoll.facts.gpu import GpuFacts
from plimsoll.plan.records import Plan

_OF_THE_WORLD: Final = (ByteOwner.DRIVER, ByteOwner.OTHERS, ByteOwner.HEADROOM)
"""Lines that the card brings or that are left over; the rest is what the worker takes."""
_INSIDE_SHARE: Final = (
    ByteOwner.WEIGHTS,
    ByteOwner.ACTIVATION,
    ByteOwner.COLLECTIVES,
    ByteOwner.GRAPHS,
    ByteOwner.KV_CACHE,
)


def still_fits(plan: Plan, gpu: GpuFacts) -> bool:
    """Whether every byte that the plan promised is still there on this card."""
    if plan.gpu_product != gpu.product:
        return False
    taken = sum(line.bytes for line in plan.ledger if line.owner not in _OF_THE_WORLD)
    if taken + gpu.reserved_bytes + gpu.held_by_others_bytes > gpu.total_bytes:
        return False
    if plan.engine is not EngineName.VLLM or plan.gpu_memory_utilization is None:
        return True
    # the engine's share is a fraction of what it sees: on a smaller card it is a smaller share
    requested = math.ceil(gpu.usable_bytes * plan.gpu_memory_utilization)
    context = plan.line(ByteOwner.CONTEXT)
    if requested > gpu.usable_bytes - gpu.held_by_others_bytes - context:
        return False
    inside = sum(plan.line(owner) for owner in _INSIDE_SHARE)
    if not plan.env:  # graphs come on top of the share in releases without the estimate
        inside -= plan.line(ByteOwner.GRAPHS)
    return inside <= requested
