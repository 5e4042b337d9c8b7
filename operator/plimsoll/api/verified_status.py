"""What does a pool's status keep of the comparison with its engine?"""

from __future__ import annotations

from typing import Final

from plimsoll.facts.record import Record

AWAITED: Final = "Awaited"
VERIFIED: Final = "Verified"
SHORT: Final = "Short"
MORE: Final = "More"
UNREADABLE: Final = "Unreadable"


class CeilingStatus(Record):
    """What the engine held where a plan had promised more."""

    question: str
    """Digest of the question for which it counts."""
    tokens: int
    """Tokens that its pool holds for sequences of `length`."""
    length: int
    """Tokens of one sequence."""
    sequences: int | None = None
    """Slots of llama-server."""
    lowered: int = 1
    """How often the question's plan was lowered."""


class VerifiedStatus(Record):
    """The plan beside the engine's own figures."""

    plan: str = ""
    """Digest of the plan, as on its pods."""
    verdict: str
    """Awaited, Verified, Short, More or Unreadable."""
    message: str = ""
    """The same as a sentence."""
    at: str = ""
    """Since when, RFC 3339 in UTC."""
    pod: str = ""
    """The worker that holds least."""
    uid: str = ""
    """Its UID."""
    planned_blocks: int | None = None
    """Blocks that were promised; vLLM."""
    reported_blocks: int | None = None
    """Blocks that are there."""
    planned_tokens: int | None = None
    """Tokens of whole sequences that were promised."""
    reported_tokens: int | None = None
    """Tokens that are there."""
    error_percent: float | None = None
    """planned / reported - 1 of the tokens; above zero too much was promised."""
    accepted_at: str | None = None
    """When the plan was accepted; left out for a plan from before plans were verified."""
    ceiling: CeilingStatus | None = None
    """What later plans of the same question may promise at most."""
