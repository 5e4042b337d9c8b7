"""Which name is there twice?"""

from __future__ import annotations

from collections.abc import Iterable


def repeated(names: Iterable[str]) -> tuple[int, str] | None:
    """Place and name of the first that comes a second time; None when each is there once."""
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            return index, name
        seen.add(name)
    return None
