"""One cluster, one fleet and one installed Plimsoll for the stories that do not break them.

Stories that kill a part of the control plane start their own. Each story has its own namespace; after
each the audit log must show no refused verb, and after all of them no verb that was never used. Where
PLIMSOLL_UNUSED_VERBS names a file, this is one part of the stories: what it left unused is written there,
and whoever runs all parts sees to it that no verb was left by every one (tests/everything.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit import compare
from controlplane import fleet
from controlplane.cluster import ControlPlane
from installation import USER, Installation
from world import World


@pytest.fixture(scope="session")
def cluster() -> Iterator[ControlPlane]:
    """The control plane with a mixed fleet of fake nodes."""
    with ControlPlane() as started:
        started.add_nodes(
            fleet.a6000_x4("a6000-0"),
            fleet.a6000_x4("a6000-1"),
            fleet.a6000_x1("a6000-2"),
            fleet.rtx4090_x1("rtx4090-0"),
            fleet.h100_x8("h100-0"),
            fleet.h100_mig_mixed("h100-mig-0"),
            fleet.no_gpu("cpu-0"),
        )
        yield started


@pytest.fixture(scope="session")
def plimsoll(cluster: ControlPlane) -> Iterator[Installation]:
    """Plimsoll installed by Helm, its operator running; every granted verb must have been used."""
    installed = Installation(cluster)
    installed.start()
    yield installed
    installed.stop()
    comparison = compare(
        installed.grants(), installed.log.verbs_used(USER), installed.log.denied(USER)
    )
    if part := os.environ.get("PLIMSOLL_UNUSED_VERBS"):
        Path(part).write_text(comparison.unused_lines(), encoding="utf-8")
        assert not comparison.denied, f"RBAC against the audit log:\n{comparison}"
        return
    assert comparison.is_exact, f"RBAC against the audit log:\n{comparison}"


@pytest.fixture
def world(request: pytest.FixtureRequest, plimsoll: Installation) -> Iterator[World]:
    """A namespace of the story's own, and the audit log from here on."""
    if plimsoll.operator is None or not plimsoll.operator.process.is_running:
        plimsoll.start()
    started = time.time()
    story = World(plimsoll, request.node.name)
    yield story
    story.leave()
    denied = plimsoll.log.denied(USER, since_seconds=started)
    assert not denied, f"the chart's RBAC refused {sorted(denied)}"
