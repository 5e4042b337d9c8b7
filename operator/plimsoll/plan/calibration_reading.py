"""What does one verified worker teach about the lines beside weights and pool?"""

import math
from typing import Final

from plimsoll.engines.base import ByteOwner, EngineName
from plimsoll.plan.calibration import Measurement, problem_of
from plimsoll.plan.paged_ask import calibration_key, inside_owners, prepare, size
from plimsoll.plan.records import Plan, PlanRequest, Refusal
from plimsoll.plan.reported import EngineReport
from plimsoll.plan.verify import Geometry

SHARE_DIFFERS: Final = 0.0005
"""Shares are pinned in thousandths; one that differs by half of that is another."""


def reading_of(
    plan: Plan,
    request: PlanRequest,
    report: EngineReport,
    geometry: Geometry | None,
    *,
    extras: str = "",
    at_text: str = "",
) -> Measurement | str:
    """The measurement, or why nothing is learnt. `extras` is the digest of what the user added.

    The rest is requested - weights - blocks x block bytes: never less than what was taken, and less than one
    block more. Learnt is only what is told from a pool that the share sized, in blocks as they were planned.
    """
    if plan.engine is not EngineName.VLLM or report.blocks is None:
        return "only vLLM says how large its pool came out"
    if report.sized_by:
        return f"{report.sized_by} sizes the pool, whatever the rest takes"
    if report.engines > 1:
        return "blocks of several engines are added up"
    share = plan.gpu_memory_utilization
    if share is None or report.utilization is None:
        return "the share of the card is not known"
    if abs(share - report.utilization) >= SHARE_DIFFERS:
        return f"the engine runs with a share of {report.utilization:g}, not {share:g}"
    if geometry is None or not geometry.is_sure or report.block_tokens != geometry.block_tokens:
        return "its blocks are not laid out as planned for sure"
    # what deaths found is part of what was taken, and no part of the bounds
    ask = prepare(
        request._replace(
            calibration=(),
            ceiling=None,
            steps=request.steps._replace(found_bytes=0),
            max_model_len=plan.max_model_len,
        )
    )
    if isinstance(ask, Refusal):
        return "the question cannot be laid out any more"
    sizing = size(ask, plan.concurrency.max_num_seqs)
    owners = inside_owners(ask.release)
    weights = sum(line.bytes for line in sizing.lines if line.owner is ByteOwner.WEIGHTS)
    requested = math.ceil(ask.gpu.usable_bytes * share)
    found = Measurement(
        key=calibration_key(ask)._replace(extras=extras),
        measured_bytes=requested - weights - report.blocks * geometry.block_bytes,
        bound_bytes=sum(line.bytes for line in sizing.lines if line.owner in owners),
        since=at_text,
        until=at_text,
    )
    problem = problem_of(found)
    return found if problem is None else f"{problem}: facts of model or card are wrong"
