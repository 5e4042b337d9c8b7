"""Which traffic is a plan made for, as the user wrote it or as an engine counted it, and does a gate split it?"""

from collections.abc import Iterator
from typing import Any

from plimsoll.api.pool import Pool
from plimsoll.api.spec import InferenceDeploymentSpec
from plimsoll.engines.base import EngineName
from plimsoll.engines.shadow import VLLM_HABITS, shadowed
from plimsoll.engines.vllm import flags
from plimsoll.facts.lengths import FEW_REQUESTS, LengthHistogram
from plimsoll.plan.lanes import AtTheGate, LaneAtGate
from plimsoll.plan.records import Lane, TokenQuantiles
from plimsoll.units import counted


def lanes_of(spec: InferenceDeploymentSpec) -> tuple[Lane, ...]:
    """The traffic as lanes: one called "all" when it is not split; none when nothing is said."""
    traffic = spec.traffic
    if traffic is None:
        return ()
    if traffic.prompt_tokens is not None and traffic.output_tokens is not None:
        return (
            Lane(
                name="all",
                prompt_tokens=TokenQuantiles(
                    p50=traffic.prompt_tokens.p50, p99=traffic.prompt_tokens.p99
                ),
                output_tokens=TokenQuantiles(
                    p50=traffic.output_tokens.p50, p99=traffic.output_tokens.p99
                ),
            ),
        )
    return tuple(
        Lane(
            name=lane.name,
            prompt_tokens=TokenQuantiles(p50=lane.prompt_tokens.p50, p99=lane.prompt_tokens.p99),
            output_tokens=TokenQuantiles(p50=lane.output_tokens.p50, p99=lane.output_tokens.p99),
            share=lane.share_percent / 100,
        )
        for lane in traffic.lanes
    )


def counted_from(lanes: tuple[Lane, ...]) -> Iterator[str]:
    """From how many requests the lengths are known."""
    for lane in lanes:
        if isinstance(lane.output_tokens, LengthHistogram):
            requests = lane.output_tokens.requests
            few = ", too few to show a tail of one in a thousand" if requests < FEW_REQUESTS else ""
            yield f"lengths are those of {counted(requests, 'request')} that the engine counted{few}"


def gate_words(spec: InferenceDeploymentSpec, pool: Pool) -> dict[str, Any] | None:
    """What of the gateway a plan of this pool depends on, in the user's words; None where it depends on nothing.

    Only vLLM is told of lanes, and only where a gate keeps them: llama.cpp's slots are divided beforehand.
    Without an image there is no gate, whatever else is written; which image it is moves no worker.
    """
    gateway = spec.gateway
    is_there = gateway.enabled and gateway.image is not None
    if not is_there or spec.traffic is None or not spec.traffic.lanes:
        return None
    if pool.engine is not EngineName.VLLM:
        return None
    return gateway.model_dump(
        mode="json", exclude_unset=True, include={"enabled", "inter_token_milliseconds"}
    )


def at_the_gate(spec: InferenceDeploymentSpec, pool: Pool) -> AtTheGate | None:
    """The lanes as the gate will count them; None where there is no gate, or nothing for it to split."""
    if gate_words(spec, pool) is None or spec.traffic is None:
        return None
    from plimsoll.api.gateway import FAR_LONGER, rooms_of  # noqa: PLC0415 - only with a gate

    lanes = spec.traffic.lanes
    milliseconds = spec.gateway.inter_token_milliseconds
    words = (*spec.engines.of(pool.engine).extra_args, *pool.extra_args)
    ours = {row.name for row in flags.LANE_ROWS}
    rows = (*flags.ROWS, *flags.LANE_ROWS)
    return AtTheGate(
        lanes=tuple(
            LaneAtGate(
                name=room.name,
                tokens=room.tokens,
                share_percent=room.share_percent,
                priority=room.priority,
                borrow=room.borrow,
                most_per_worker=room.most_per_worker,
                prompt_tokens=lane.prompt_tokens.p50,
                is_long=any(
                    lane.prompt_tokens.p50 >= FAR_LONGER * other.prompt_tokens.p99
                    for other in lanes
                ),
            )
            for room, lane in zip(rooms_of(spec, {}).lanes, lanes, strict=True)
        ),
        gap_seconds=None if milliseconds is None else milliseconds / 1000,
        said=frozenset(shadowed(words, (), rows=rows, pinned=ours, habits=VLLM_HABITS)),
    )
