"""How do HAProxy's container and the keeper tell each other that the gate ends?

By empty files in the folder that they share, for neither sees the other's processes. The pod's end begins with
`leaving`; when proxies have forgotten the pod there is `left`, and the keeper answers with `retired`: nothing is
raised any more. With `empty` nobody is served any more, and HAProxy is stopped. While requests run it must not
be: a stopping HAProxy closes its admin socket, and nobody could see how far it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from plimsoll.render.gateway_objects import EMPTY, LEAVING, LEFT, RETIRED

EMPTY_VISITS: Final = 3
"""So many visits in a row must find nobody: a request may be between two of HAProxy's lists."""


class Marks:
    """The files of one gate."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._empty_visits = 0

    @property
    def is_leaving(self) -> bool:
        """Whether the pod ends."""
        return (self._folder / LEAVING).exists()

    @property
    def has_left(self) -> bool:
        """Whether proxies have forgotten it."""
        return (self._folder / LEFT).exists()

    @property
    def is_empty(self) -> bool:
        """Whether we said that nobody is served any more."""
        return (self._folder / EMPTY).exists()

    def retired(self, *, is_empty: bool) -> None:
        """A whole visit raised nothing, and found somebody or nobody."""
        (self._folder / RETIRED).touch()
        self._empty_visits = self._empty_visits + 1 if is_empty else 0
        if self._empty_visits >= EMPTY_VISITS:
            (self._folder / EMPTY).touch()
