"""What does gguf-parser-go say of a GGUF on these devices?

Its answers travel in the oracle's own file: v0.28.1 was called as a library on each of its cases, without
the platform's footprint. Host first, then the cards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.accuracy.peers.peer import Figure, Peer, Quantity, Question, Silent

VERSION: Final = "0.28.1"
FIELD: Final = "gguf_parser_0_28_1"
"""Where a case of the oracle carries its answer."""
PARTS: Final[Mapping[Quantity, tuple[str, ...]]] = {
    Quantity.GGUF_WEIGHTS: ("weight",),
    Quantity.GGUF_KV: ("kv",),
    Quantity.GGUF_COMPUTE: ("compute",),
    Quantity.GGUF_TOTAL: ("weight", "kv", "compute"),
}


def gguf_bytes(question: Question) -> Figure:
    """The sum over the devices that are asked for."""
    if not question.gguf_parser:
        return Silent("its answer is not recorded for this case")
    devices = [question.gguf_parser[at] for at in question.devices]
    parts = PARTS[question.quantity]
    return float(sum(device[part] for device in devices for part in parts))


PEER: Final = Peer(
    name="gguf-parser-go",
    version=VERSION,
    how="run: github.com/gpustack/gguf-parser-go v0.28.1 as a library; answers in the oracle's file",
    gguf=gguf_bytes,
)
