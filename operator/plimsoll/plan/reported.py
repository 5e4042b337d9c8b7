"""What does an engine say of itself once it has started, and what may the next plan count on?

What it does not say is None: unknown, never zero and never what was planned.
"""

from typing import NamedTuple

from plimsoll.engines.base import EngineName


class EngineReport(NamedTuple):
    """One worker's own figures."""

    engine: EngineName
    """Which engine."""
    blocks: int | None = None
    """vLLM: blocks of the pool on each rank, the null block included."""
    block_tokens: int | None = None
    """vLLM: tokens of a block as it is allocated; what several KV groups make of it is not said here."""
    tokens: int | None = None
    """vLLM from 0.24: what the engine itself says the pool holds for sequences of the whole length, every
    KV group counted; the null block is in it. Blocks times `block_tokens` is no such figure."""
    concurrency: float | None = None
    """vLLM from 0.24: sequences of the whole length, the null block included."""
    utilization: float | None = None
    """vLLM: its share of the card."""
    sized_by: str = ""
    """vLLM: the setting that sizes the pool in place of the share; empty where the share does."""
    engines: int = 1
    """vLLM: data-parallel engines behind the page; their blocks are added up."""
    slots: int | None = None
    """llama-server: sequences at once."""
    slot_tokens: int | None = None
    """llama-server: tokens of one slot."""


class Ceiling(NamedTuple):
    """What an engine held, where a plan had promised more; later plans promise no more than this."""

    tokens: int
    """Tokens that the pool holds for sequences of `length` tokens."""
    length: int
    """Tokens of one sequence for which that was said."""
    sequences: int | None = None
    """llama-server: its slots; None where the engine does not limit them."""
