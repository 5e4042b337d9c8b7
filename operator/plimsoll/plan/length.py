"""Which length does the traffic ask for when nobody set one?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plimsoll.plan.records import Lane, PlanRequest

DEFAULT_LENGTH_TOKENS: Final = 8192
"""Planned for when neither a length nor traffic is given, and the model allows it."""


def length_of(request: PlanRequest, longest: int) -> int:
    """The length to plan for: as asked, else as the traffic needs, else a common one.

    `longest` is what the model was made for; only what was asked may lie beyond it, to be refused.
    """
    asked = request.overrides.max_model_len or request.max_model_len
    if asked is not None:
        return asked
    if request.lanes:
        return length_from_traffic(request.lanes, longest)
    return min(DEFAULT_LENGTH_TOKENS, longest)


def length_field(request: PlanRequest) -> str:
    """The field that set the length, as the user knows it."""
    return (
        "limits.maxModelLen"
        if request.overrides.max_model_len is None
        else "the pool's maxModelLen"
    )


def length_from_traffic(lanes: Sequence[Lane], longest: int) -> int:
    """The next power of two at or above prompt p99 + output p99 of the longest lane, in tokens.

    At most `longest`, what the model was made for. Prompts of 11,000 and answers of 1,500 tokens ask
    for 16,384.
    """
    need = max(lane.prompt_tokens.p99 + lane.output_tokens.p99 for lane in lanes)
    return min(1 << (need - 1).bit_length(), longest)
