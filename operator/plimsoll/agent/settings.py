"""What can be set when an agent starts?

Everything has a default that suits a node; tests change these values, never a branch of the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from plimsoll.facts.record import Record

PREFIX: Final = "PLIMSOLL_"


class AgentSettings(Record):
    """How this agent runs. In the environment each is PLIMSOLL_ and its name in capitals."""

    kubeconfig: str | None = None
    """File with address and credentials; None takes $KUBECONFIG, then the pod's service account."""
    node_name: str | None = None
    """Name of this node; None takes NODE_NAME, then the node in the service account's token."""
    rescan_seconds: float = Field(default=120.0, gt=0)
    """Between two looks, unless the driver tells of something before. Also the heartbeat."""
    calm_seconds: float = Field(default=5.0, ge=0)
    """The least between two looks, however much the driver tells."""
    answer_seconds: float = Field(default=60.0, gt=0)
    """The longest that one look may take; a driver that hangs on a dying card takes for ever."""
    meminfo: Path = Path("/proc/meminfo")
    """Where the host's memory stands."""
    log_format: str = Field(default="text", pattern="^(text|json)$")
    """Shape of the log: text or json."""
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$")
    """The least that is logged."""


def read_agent_settings(environment: Mapping[str, str], **given: object) -> AgentSettings:
    """From the environment, with what was given on the command line on top (None is not given).

    Raises ValueError (pydantic's ValidationError) naming what is wrong.
    """
    values: dict[str, Any] = {}
    if environment.get("NODE_NAME"):
        values["node_name"] = environment["NODE_NAME"]
    for name in AgentSettings.model_fields:
        if (text := environment.get(PREFIX + name.upper())) is not None:
            values[name] = text
    values |= {name: value for name, value in given.items() if value is not None}
    return AgentSettings.model_validate(values)
