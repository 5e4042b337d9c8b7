"""What is a keeper told when it starts?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from plimsoll.facts.record import Record

PREFIX: Final = "PLIMSOLL_KEEPER_"


class Duty(Record):
    """Where everything lies. Each field is an option, and a variable in the environment."""

    folder: Path = Path("/run/plimsoll")
    """Folder shared with HAProxy: sockets and maps."""
    rooms: Path = Path("/etc/plimsoll/rooms.json")
    """File with the plan: lanes, and one worker of each pool."""
    workers: Path = Path("/etc/plimsoll/workers.json")
    """File with the workers: name, address, pool, isReady, isLeaving."""
    standing: Path | None = None
    """File with gates and place, for a keeper that is told them, and all else, only after its start: it waits."""
    keys: Path | None = None
    """Folder with one API key per file; no key is needed when left out."""
    host: str = ""
    """Address of the page with metrics; all when left out."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8406
    """Port of the page with metrics."""
    gates: Annotated[int, Field(ge=1, le=2)] = 1
    """Gates that share the plan."""
    place: Annotated[int, Field(ge=0, le=1)] = 0
    """Which of them this is, from 0."""
    name: str = ""
    """Name under which its page tells of this gate; the host's when left out."""
    lend: bool = True
    """Whether idle slots are lent: true or false."""


def read_duty(environment: Mapping[str, str], **given: object) -> Duty:
    """What the command line says, else the environment, else the default. Raises ValidationError."""
    said: dict[str, object] = {
        name: environment[PREFIX + name.upper()]
        for name in Duty.model_fields
        if PREFIX + name.upper() in environment
    }
    return Duty.model_validate(
        said | {name: value for name, value in given.items() if value is not None}
    )
