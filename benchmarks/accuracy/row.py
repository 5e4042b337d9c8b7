"""What does one case of the accuracy report say?"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """How the planned figure stands to the reported one, good ones first."""

    EQUAL = "equal"
    """To the byte, block or printed digit."""
    WITHIN = "within"
    """Inside the tolerance of its kind of check."""
    REFUSED_ALIKE = "refused-alike"
    """The engine refused, and so does the plan."""
    UNDER = "under"
    """The plan promises less than the engine has, by more than the tolerance: room is wasted."""
    OVER = "over"
    """The plan promises more than the engine has: a promise that would break."""
    WRONG = "wrong"
    """A refusal where the engine started, or a plan where it refused, or a figure that must be equal."""
    NOT_PLANNED = "not-planned"
    """The model does not plan this case, and `reason` says why."""


MET = frozenset({Verdict.EQUAL, Verdict.WITHIN, Verdict.REFUSED_ALIKE})
"""Verdicts that keep the promise."""


@dataclass(frozen=True)
class Check:
    """One figure of a case."""

    what: str
    """The figure with its unit, e.g. `kv pool bytes per card`, `max concurrency`."""
    planned: float | None
    """Ours; None for a refusal or where we do not plan it."""
    reported: float | None
    """The engine's; None for a refusal."""
    verdict: Verdict
    reason: str = ""
    """Why it is not met, or what should be known; empty where the figures speak."""

    @property
    def error(self) -> float | None:
        """planned / reported - 1; None where either is missing."""
        if self.planned is None or not self.reported:
            return None
        return self.planned / self.reported - 1


@dataclass(frozen=True)
class Row:
    """One case: an oracle's row, a probe, a public reading."""

    id: str
    engine: str
    """vllm or llama.cpp, with release where it is stated."""
    model: str
    architecture: str
    card: str
    checks: tuple[Check, ...] = ()
    """Every figure that was compared; the first is the one that the row is known by."""
    reason: str = ""
    """Why nothing was compared, when `checks` is empty."""
    source: str = ""
    """Where the reported figures are from."""
    peers: dict[str, float] = field(default_factory=dict)
    """What others say of the first figure, by their name."""

    @property
    def verdict(self) -> Verdict:
        """The worst of the checks."""
        order = tuple(Verdict)
        return max(
            (check.verdict for check in self.checks), key=order.index, default=Verdict.NOT_PLANNED
        )

    def as_dict(self) -> dict[str, Any]:
        """As `-o json` prints it: id, planned, reported, error, verdict, reason, and every check."""
        first = self.checks[0] if self.checks else None
        reasons = [check.reason for check in self.checks if check.reason]
        return {
            "id": self.id,
            "engine": self.engine,
            "model": self.model,
            "architecture": self.architecture,
            "card": self.card,
            "planned": first.planned if first else None,
            "reported": first.reported if first else None,
            "error": first.error if first else None,
            "verdict": self.verdict.value,
            "reason": "; ".join(reasons) or self.reason,
            "checks": [asdict(check) | {"error": check.error} for check in self.checks],
            "peers": self.peers,
            "source": self.source,
        }
