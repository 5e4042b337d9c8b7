"""What does a pool's status keep of its workers' deaths?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field
from pydantic.alias_generators import to_camel

from plimsoll.facts.record import Record
from plimsoll.plan.steps import Steps, settings_of

KEPT_DEATHS: Final = 16


class DeathStatus(Record):
    """One death of a worker, and the step made after it."""

    pod: str
    """Name of the pod."""
    uid: str = ""
    """Its UID."""
    at: str = ""
    """When, RFC 3339 in UTC."""
    kind: str
    """The fact, in PascalCase."""
    message: str = ""
    """What was seen."""
    numbers: str = ""
    """What its last words gave."""
    plan: str = ""
    """Digest of its plan."""
    outcome: str = ""
    """Stepped, Watched, ServesElsewhere, NothingToChange, HeldBack or OutOfSteps."""
    move: str = ""
    """What was changed, in PascalCase."""
    change: str = ""
    """From what to what."""
    settings: str = ""
    """All that the plan does otherwise since."""


class TaughtStatus(Record):
    """What deaths of workers taught."""

    question: str = ""
    """Digest of the question for which steps count."""
    deaths: Annotated[tuple[DeathStatus, ...], Field(max_length=KEPT_DEATHS)] = ()
    """Deaths, newest first."""
    served_plan: str = ""
    """Digest of the last plan that served."""

    @property
    def steps(self) -> tuple[DeathStatus, ...]:
        """Deaths after which something was changed, oldest first."""
        return tuple(death for death in reversed(self.deaths) if death.move)

    def with_death(self, death: DeathStatus) -> TaughtStatus:
        """One death more; the oldest go, but never one that was a step."""
        deaths = [death, *self.deaths]
        goes = next((old for old in reversed(deaths) if not old.move), None)
        if len(deaths) > KEPT_DEATHS and goes is not None:
            deaths.remove(goes)
        return self.model_copy(update={"deaths": tuple(deaths)})


def numbers_told(numbers: Mapping[str, int]) -> str:
    """ "triedBytes=2147483648 freeBytes=1299227607" """
    return " ".join(f"{name}={value}" for name, value in numbers.items())


def settings_told(steps: Steps) -> str:
    """The same for a status."""
    return numbers_told({to_camel(name): value for name, value in settings_of(steps).items()})
