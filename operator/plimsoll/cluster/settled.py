"""Which differences have we already tried to put right, in vain?

An admission webhook may add to what we apply, a newer API server may write it in another form. Then a
difference remains after our write, and trying again would only start a contest. We remember what we
wanted and what came back; as long as both stay the same there is nothing more to do. Kept in memory:
after a restart each is tried once more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

_MOVING: Final = frozenset({"status"})
_MOVING_METADATA: Final = frozenset({"managedFields", "resourceVersion", "generation"})


class Settled:
    """What came of our writes where it was not what we asked for, by uid of the object."""

    def __init__(self) -> None:
        self._outcomes: dict[str, tuple[str, str]] = {}
        self._told: dict[str, frozenset[tuple[str, str]]] = {}

    def is_as_good_as_it_gets(
        self, uid: str, wanted: Mapping[str, Any], live: Mapping[str, Any]
    ) -> bool:
        """Whether this very wish already led to this very object."""
        return uid in self._outcomes and self._outcomes[uid] == (_digest(wanted), _digest(live))

    def remember(self, uid: str, wanted: Mapping[str, Any], live: Mapping[str, Any]) -> None:
        """Our write of `wanted` left the object like this."""
        self._outcomes[uid] = (_digest(wanted), _digest(live))

    def is_news(self, uid: str, failures: frozenset[tuple[str, str]]) -> bool:
        """Whether these failures of one object (reason, message) differ from those told last."""
        if self._told.get(uid, frozenset()) == failures:
            return False
        self._told[uid] = failures
        return bool(failures)

    def forget(self, *uids: str) -> None:
        """These objects are gone."""
        for uid in uids:
            self._outcomes.pop(uid, None)
            self._told.pop(uid, None)


def _digest(thing: Mapping[str, Any]) -> str:
    """Of an object or a status, without the fields that move by themselves."""
    kept = dict(thing)
    if "metadata" in kept:
        kept = {key: value for key, value in kept.items() if key not in _MOVING}
        kept["metadata"] = {
            key: value for key, value in kept["metadata"].items() if key not in _MOVING_METADATA
        }
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
