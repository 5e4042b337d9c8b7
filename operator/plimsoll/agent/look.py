"""What is to be seen here and now, without a cluster?"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from plimsoll.agent import nvml
from plimsoll.agent.reading import HostMemory, read_meminfo
from plimsoll.agent.settings import AgentSettings
from plimsoll.agent.status import status_of
from plimsoll.api.gpunode import GPUNodeStatus


def show(settings: AgentSettings) -> GPUNodeStatus:
    """One look, as it would be published of a node that nothing is known of."""
    return status_of(nvml.read(), host_memory(settings.meminfo), GPUNodeStatus(), now_text())


def host_memory(path: Path) -> HostMemory | None:
    """Of /proc/meminfo, or whatever stands in for it; None where it cannot be read."""
    try:
        return read_meminfo(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None


def now_text() -> str:
    """RFC 3339 in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: TID251 - here it becomes text
