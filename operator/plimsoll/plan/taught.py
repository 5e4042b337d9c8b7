"""How does what deaths taught stand in a question and in its ledger?"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from plimsoll.engines.base import ByteOwner, LedgerLine
from plimsoll.facts.source import Confidence
from plimsoll.plan.steps import NO_CAP, Steps
from plimsoll.units import gib

if TYPE_CHECKING:
    from plimsoll.plan.records import PlanRequest


def on_the_card(request: "PlanRequest") -> "PlanRequest":
    """The question with the card as a dying worker found it: what something else held is not free."""
    held = request.steps.held_bytes
    if held <= request.gpu.held_by_others_bytes:
        return request
    return request._replace(gpu=request.gpu.model_copy(update={"held_by_others_bytes": held}))


def with_found(lines: tuple[LedgerLine, ...], steps: Steps) -> tuple[LedgerLine, ...]:
    """The ledger with what the engine found taken beyond the plan; it is counted to the activations."""
    if not steps.found_bytes:
        return lines
    return tuple(
        line.model_copy(
            update={
                "bytes": line.bytes + steps.found_bytes,
                "confidence": Confidence.MEASURED,
                "source": f"{line.source}; and {gib(steps.found_bytes)} that the engine found taken when it "
                "would not start",
            }
        )
        if line.owner is ByteOwner.ACTIVATION
        else line
        for line in lines
    )


def notes(steps: Steps) -> Iterator[str]:
    """What a plan has otherwise than arithmetic alone would."""
    if steps.is_nothing:
        return
    if steps.reserve_bytes:
        yield f"{gib(steps.reserve_bytes)} of each card more are kept free, since a worker ran out of it"
    if steps.budget_notches:
        yield "the engine's share goes further into the headroom, since a worker found too little for its cache"
    if steps.held_bytes:
        yield f"{gib(steps.held_bytes)} of each card count as held by others, as a worker found them at start"
    for cap, words in (
        (steps.max_model_len, "no longer than {:,} tokens"),
        (steps.max_num_seqs, "no more than {:,} sequences"),
        (steps.max_num_batched_tokens, "steps of no more than {:,} tokens"),
        (steps.ubatch_size, "physical batches of no more than {:,} tokens"),
    ):
        if cap != NO_CAP:
            yield f"{words.format(cap)}, since a worker died of more"
    if steps.largest_graph != NO_CAP:
        yield (
            f"graphs of no more than {steps.largest_graph:,} rows, since a worker died of more"
            if steps.largest_graph
            else "no CUDA graphs, since a worker died of capturing them; small batches are slower"
        )
    if steps.cache_ram_bytes != NO_CAP:
        yield f"a prompt cache of no more than {gib(steps.cache_ram_bytes)}, since a worker was killed with more"
    if steps.host_bytes:
        yield f"{gib(steps.host_bytes)} of host memory more, since a worker was killed for less"
