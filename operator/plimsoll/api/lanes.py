"""Which traffic is a plan made for: as the user wrote it, or as an engine counted it?"""

from collections.abc import Iterator

from plimsoll.api.spec import InferenceDeploymentSpec
from plimsoll.facts.lengths import FEW_REQUESTS, LengthHistogram
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
