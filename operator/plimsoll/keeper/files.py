"""What is the keeper told by files, and when has one changed?

The operator hands the plan over as a ConfigMap, the keys lie in a Secret: both are files that change as a
whole, some time after they were written. A file that is not there, or cannot be read as meant, leaves
what was read before: a keeper with an old plan is better than one without.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Generic, TypeVar

from pydantic import Field, TypeAdapter

from plimsoll.facts.record import Record
from plimsoll.gate.keys import KeysError, hashed
from plimsoll.gate.records import GateRooms
from plimsoll.gate.roster import PodSeen
from plimsoll.gate.visit import Elder, Standing

log = logging.getLogger(__name__)
T = TypeVar("T")


class WorkerFile(Record):
    """One worker, in a file of workers: for a gate that stands in no cluster."""

    name: str
    """Its name."""
    address: str
    """Host and port of its engine."""
    pool: str
    """Name of its pool."""
    is_ready: bool = True
    """Whether it may get requests."""
    is_leaving: bool = False
    """Whether it is to be drained."""


class ElderFile(Record):
    """A gate that stood there before."""

    name: str
    """Name of its pod."""
    page: str = ""
    """Host and port of its keeper's page."""
    since: int = 0
    """Which of its standings it must have acted on before its word counts."""


class StandingFile(Record):
    """Which of several gates this one is."""

    gates: Annotated[int, Field(ge=1, le=2)]
    """Gates that share the plan."""
    place: Annotated[int, Field(ge=0, le=1)]
    """Its place among them, from 0."""
    since: int = 0
    """When it was told, epoch seconds."""
    elders: tuple[ElderFile, ...] = ()
    """Gates that it yields to."""


_WORKERS = TypeAdapter(tuple[WorkerFile, ...])


class Followed(Generic[T]):
    """A file, read again when it has changed."""

    def __init__(self, path: Path, read: Callable[[Path], T], first: T) -> None:
        self._path = path
        self._read = read
        self._seen: tuple[int, int] | None = None
        self.value = first
        self.problem = ""

    def __call__(self) -> T:
        """What the file says now, or said when it could last be read."""
        try:
            stat = self._path.stat()
            mark = (stat.st_mtime_ns, stat.st_ino)
            if mark != self._seen:
                self._seen = mark
                self.value = self._read(self._path)
                self.problem = ""
        except (OSError, ValueError) as error:
            said = f"{self._path}: {error}"
            if said != self.problem:
                log.warning("a file cannot be used", extra={"why": said})
            self.problem = said
        return self.value


def read_rooms(path: Path) -> GateRooms:
    """The plan. Raises ValueError or OSError."""
    return GateRooms.model_validate_json(path.read_bytes())


def read_workers(path: Path) -> tuple[PodSeen, ...]:
    """A JSON list of workers. Raises ValueError or OSError."""
    return tuple(
        PodSeen(each.name, each.address, each.pool, each.is_ready, each.is_leaving)
        for each in _WORKERS.validate_python(json.loads(path.read_bytes()))
    )


def read_standing(path: Path) -> Standing:
    """Which of several gates this one is. Raises ValueError or OSError."""
    said = StandingFile.model_validate_json(path.read_bytes())
    elders = tuple(Elder(each.name, each.page, each.since) for each in said.elders)
    return Standing(gates=said.gates, place=said.place, since=said.since, elders=elders)


def read_keys(folder: Path) -> dict[str, str]:
    """Digests and names of the keys in a mounted Secret. Raises KeysError or OSError."""
    entries = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not path.is_file():
            continue
        try:
            entries[path.name] = path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise KeysError(f"key {path.name} is no text") from error
    return hashed(entries)
