"""Which of a model's blocks, experts and caches lie on which card?

llama-model.cpp, load_tensors, b11434: of N layers on the cards the first is the output, the others are
the last N - 1 blocks; entry i of the N goes to the first card whose cumulative share exceeds i / N.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from plimsoll.engines.llama_cpp.tensors import HOST
from plimsoll.facts.model import GgufFacts

OUTPUT_FIRST_SINCE: Final = "b7500"
"""From here the first layer on the cards is the output (ggml-org/llama.cpp#18148, merged in December 2025
after b7410; the later build is the safe one). Before, the output followed last: -ngl N were N blocks."""


class Placement(NamedTuple):
    """Where everything lies; cards count from 0, HOST is host memory."""

    blocks: tuple[int, ...]
    """Place of each block."""
    output: int
    """Place of the output norm and projection."""
    cards: int
    """Cards that the server sees, used or not."""
    host_experts: int = 0
    """Blocks from the first whose experts stay in host memory (--n-cpu-moe)."""

    @property
    def first_block(self) -> int:
        """The first block on a card; their number when none is."""
        found = (index for index, place in enumerate(self.blocks) if place != HOST)
        return next(found, len(self.blocks))

    def is_full(self) -> bool:
        """Whether every block and the output are on cards, experts aside."""
        return self.output != HOST and HOST not in self.blocks

    def blocks_on(self, place: int) -> tuple[int, ...]:
        """Blocks in one place."""
        return tuple(index for index, found in enumerate(self.blocks) if found == place)


def layer_count(gguf: GgufFacts) -> int:
    """What llama.cpp counts as layers: blocks plus one for the output. 81 for a 70B."""
    return len(gguf.block_bytes) + 1


def place(
    gguf: GgufFacts,
    *,
    gpu_layers: int,
    shares: Sequence[float] = (1,),
    host_experts: int = 0,
    output_first: bool = True,
) -> Placement:
    """The placement for -ngl, -ts (one share for each card; none without cards) and --n-cpu-moe."""
    total = layer_count(gguf)
    entries = min(gpu_layers, total) if shares else 0
    first = total - entries
    if not output_first and first > 0:
        first -= 1
    whole = sum(shares)
    places: list[int] = [HOST] * total
    for entry in range(entries):
        cumulative = 0.0
        for card, share in enumerate(shares):
            cumulative += share
            if cumulative * entries > entry * whole:
                places[first + entry] = card
                break
        else:
            places[first + entry] = len(shares) - 1
    return Placement(
        blocks=tuple(places[:-1]),
        output=places[-1],
        cards=len(shares),
        host_experts=min(host_experts, total - 1),
    )
