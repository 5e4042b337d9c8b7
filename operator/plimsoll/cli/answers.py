"""What did the core say to one pool?"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from plimsoll.cli.exits import Exit
from plimsoll.plan.records import Outcome, PlanRequest, Refusal


class Answer(NamedTuple):
    """One pool of one InferenceDeployment, what was asked for it and what came back."""

    deployment: str
    """namespace/name of the InferenceDeployment."""
    pool: str
    """Name of the pool."""
    model: str
    """Public identity of the model."""
    gpu: str
    """The card's product as asked; empty where no card was found to ask about."""
    request: PlanRequest | None
    """What the planner was asked; None where the spec was refused before that."""
    outcome: Outcome
    """The plan, or why there is none."""

    @property
    def is_refused(self) -> bool:
        """Whether there is no plan."""
        return isinstance(self.outcome, Refusal)

    def to_json(self) -> dict[str, Any]:
        """As plain data: the outcome is the record's own JSON."""
        return {
            "deployment": self.deployment,
            "pool": self.pool,
            "gpu": self.gpu,
            "fits": not self.is_refused,
            "outcome": self.outcome.to_json(),
        }


def exit_code(answers: Iterable[Answer]) -> Exit:
    """0 when all fit, 3 when one does not."""
    return Exit.REFUSED if any(answer.is_refused for answer in answers) else Exit.FITS
