"""What does a pool's status tell the planner of its workers' deaths?

Apart from the status's own types, which `plimsoll plan` does not load.
"""

import re
from typing import TYPE_CHECKING, Final

from plimsoll.plan.steps import Steps, steps_of

if TYPE_CHECKING:
    from plimsoll.api.deaths_status import TaughtStatus

_NUMBER: Final = re.compile(r"(\w+)=(-?\d+)")


def steps_taught(taught: "TaughtStatus | None", question: str) -> Steps:
    """What the planner is to do otherwise for this question."""
    if taught is None or taught.question != question or not taught.steps:
        return Steps()
    known = {_camel(name): name for name in Steps._fields}
    found = dict(_NUMBER.findall(taught.steps[-1].settings))
    return steps_of({known[name]: int(value) for name, value in found.items() if name in known})


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)
