"""What is to be seen of growth at one moment, and by which rule?"""

from collections.abc import Callable
from typing import Final

from plimsoll.diagnose.horizons import slope_over_horizons
from plimsoll.diagnose.shapes import clean_line, per_work
from plimsoll.diagnose.view import Seen, View, surest


def look(view: View) -> Seen | None:
    """The first rule that sees growth without a doubt answers, else the first that sees any. An overrun is
    asked for beside them: it needs no second look."""
    if not view.has_enough:
        return None
    return surest(rule(view) for rule in RULES)


RULES: Final[tuple[Callable[[View], Seen | None], ...]] = (
    per_work,
    slope_over_horizons,
    clean_line,
)
