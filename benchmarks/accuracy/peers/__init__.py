"""What do others say of the same cases? One module per peer, and which of them were run."""

from __future__ import annotations

from typing import Final

from benchmarks.accuracy.peers import (
    aiconfigurator,
    gguf_parser,
    gpustack,
    kaito_formula,
    llm_d_planner_formula,
)
from benchmarks.accuracy.peers.peer import Peer

PEERS: Final[tuple[Peer, ...]] = (
    aiconfigurator.PEER,
    gpustack.PEER,
    gguf_parser.PEER,
    llm_d_planner_formula.PEER,
    kaito_formula.PEER,
)
"""In the order of the report."""
