"""What is known when findings are made, and in which words is one said?"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from plimsoll.api.advise_as_is import AsIs
from plimsoll.api.advise_records import CardTold, Finding, Level
from plimsoll.api.advise_subject import Subject
from plimsoll.engines.llama_cpp.running import FITS_ITSELF, LlamaCppRun
from plimsoll.plan.records import Plan, Refusal


class Seen(NamedTuple):
    """All that is known when findings are made."""

    subject: Subject
    """What was read."""
    as_is: AsIs
    """The question of the settings as they are."""
    now: Plan | Refusal | None
    """Its answer."""
    ours: Plan | Refusal | None
    """What would be pinned."""
    card: CardTold
    """The cards that the pod asks for."""
    is_ours_alone: bool = False
    """Whether only the planner refuses the settings as they are."""
    budgets: Sequence[Mapping[str, Any]] | None = None
    """PodDisruptionBudgets among the documents; None where nobody looked."""

    @property
    def fits_itself(self) -> bool:
        """Whether llama-server lowers at load what nobody set."""
        run = self.subject.run
        return (
            isinstance(run, LlamaCppRun)
            and run.gpu_layers is None
            and run.fits_itself is not False
            and not self.subject.row.is_before(FITS_ITSELF)
        )


def matters(about: str, message: str) -> Finding:
    """A finding that should not wait."""
    return Finding(level=Level.MATTERS, about=about, message=message)


def advice(about: str, message: str) -> Finding:
    """A finding that may."""
    return Finding(level=Level.ADVICE, about=about, message=message)


def unknown(about: str, message: str) -> Finding:
    """What could not be told."""
    return Finding(level=Level.UNKNOWN, about=about, message=message)
