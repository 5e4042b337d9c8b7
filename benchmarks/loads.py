"""How long from `kubectl apply` until all is made?

What happened when is read from the API server's audit log afterwards, so looking costs the measured
nothing.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from controlplane import fleet
from controlplane.cluster import ControlPlane, Manifest
from installation import USER
from patience import Patience, eventually
from world import EXAMPLES, World

NAMESPACE: Final = "bench"
NODES: Final = 40
CARDS_OF_A_NODE: Final = 16
"""640 cards: room for the 500 that 100 objects of five ask for."""
ALL_THERE_SECONDS: Final = 600.0
CHILDREN: Final = {
    "Service": "/api/v1/namespaces/{}/services",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
}
PODS: Final = "/api/v1/namespaces/{}/pods"
CHILD_RESOURCES: Final = frozenset({"services", "deployments", "poddisruptionbudgets"})
CREATED: Final = 201

Audited = tuple[dict[str, Any], float]
"""One line of the audit log, and when it was answered in seconds of the epoch."""


@dataclass(frozen=True)
class Took:
    """Seconds from the start of `kubectl apply`."""

    command: float
    """Until kubectl ended."""
    children: float
    """Until the last child was made."""
    pods: float
    """Until the last pod was made."""
    planned: float = 0.0
    """Until the last object had a status."""

    @property
    def done(self) -> float:
        """All planned and all children made."""
        return max(self.children, self.planned)


@contextmanager
def cluster_with_cards() -> Iterator[ControlPlane]:
    """Nodes enough, each with many cards, so that pods find a place and the scheduler is no part of it."""
    nodes = [
        fleet.whole_cards(f"a6000-{n}", fleet.A6000, CARDS_OF_A_NODE, cpu="192", memory="2048Gi")
        for n in range(NODES)
    ]
    with ControlPlane() as cluster:
        cluster.add_nodes(*nodes)
        yield cluster


# ---- what is applied ----------------------------------------------------------------------------


def objects(count: int, prefix: str) -> list[Manifest]:
    """The mixed-fleet example so many times, with one worker in each of its two pools."""
    example = yaml.safe_load((EXAMPLES / "mixed-fleet.yaml").read_text())
    example["metadata"]["namespace"] = NAMESPACE
    example["spec"]["replicas"] = len(example["spec"]["pools"])
    for pool in example["spec"]["pools"]:
        pool["replicas"] = 1
    made = []
    for n in range(count):
        one = json.loads(json.dumps(example))
        one["metadata"]["name"] = f"{prefix}-{n:03}"
        made.append(one)
    return made


def rendered(wanted: Sequence[Manifest]) -> list[Manifest]:
    """What `plimsoll render` makes of them, without an owner, for there is none on kubectl's side."""
    command = (Path(sys.executable).with_name("plimsoll"), "render", "-f", "-")
    done = subprocess.run(
        command, input=yaml.safe_dump_all(wanted), capture_output=True, text=True, check=True
    )
    children = [each for each in yaml.safe_load_all(done.stdout) if each]
    for child in children:
        child["metadata"].pop("ownerReferences", None)
    return children


# ---- doing it -----------------------------------------------------------------------------------


def apply_alone(world: World, one: Manifest) -> Took:
    """One object, measured and taken away again."""
    took = apply_and_wait(world, [one], rendered([one]), objects_are=True)
    world.kubectl("delete", "infd", one["metadata"]["name"])
    await_none(world)
    return took


def apply_and_wait(
    world: World,
    applied: Sequence[Manifest],
    children: Sequence[Manifest],
    *options: str,
    objects_are: bool,
) -> Took:
    """Apply, wait until all children and a pod for each Deployment are there, read how long it took."""
    text = yaml.safe_dump_all(applied)
    began = time.time()
    world.cluster.kubectl("apply", *options, "-f", "-", input=text)
    command = time.time() - began
    await_children(world, children)
    deployments = sum(child["kind"] == "Deployment" for child in children)
    await_count(world, PODS, deployments)
    if objects_are:
        for one in applied:
            world.condition(one["metadata"]["name"], "Planned")
    log = list(audited(world.cluster.audit_log, since_seconds=began))
    return Took(
        command=command,
        children=last(log, CHILD_RESOURCES, began),
        pods=last(log, {"pods"}, began),
        planned=last_first_status(log, began) if objects_are else 0.0,
    )


def await_children(world: World, children: Sequence[Manifest]) -> None:
    """Until the very children that `plimsoll render` names are there, no more and no fewer."""
    for kind, path in CHILDREN.items():
        expected = {child["metadata"]["name"] for child in children if child["kind"] == kind}
        await_count(world, path, len(expected))
        there = {
            each["metadata"]["name"] for each in world.cluster.get(path.format(NAMESPACE))["items"]
        }
        if there != expected:
            raise AssertionError(f"{kind}: rendered {sorted(expected)}, there {sorted(there)}")


def await_count(world: World, path: str, count: int) -> None:
    """Until so many are there; asks for one and the number of the rest."""
    eventually(
        lambda: counted(world, path) >= count,
        within=ALL_THERE_SECONDS,
        says=f"{count} of {path} are there",
    )


def counted(world: World, path: str) -> int:
    """How many there are."""
    answer = world.cluster.get(path.format(NAMESPACE) + "?limit=1")
    return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount", 0))


def remove(world: World, children: Sequence[Manifest]) -> None:
    """Take them away and wait until all is gone."""
    world.cluster.kubectl("delete", "-f", "-", input=yaml.safe_dump_all(children))
    await_none(world)


def await_none(world: World) -> None:
    """Until nothing is left of what was made."""
    for path in (*CHILDREN.values(), PODS):
        eventually(
            lambda path=path: counted(world, path) == 0,  # type: ignore[misc]
            within=Patience.POD_GONE,
            says=f"{path} is empty",
        )


# ---- what the audit log tells -------------------------------------------------------------------


def audited(path: Path, *, since_seconds: float) -> Iterator[Audited]:
    """Every line in our namespace, with the time when it was answered."""
    for line in path.read_text().splitlines():
        event = json.loads(line)
        if event.get("objectRef", {}).get("namespace") != NAMESPACE:
            continue
        answered = datetime.datetime.fromisoformat(event["stageTimestamp"]).timestamp()
        if answered >= since_seconds:
            yield event, answered


def last(log: Sequence[Audited], resources: Collection[str], began: float) -> float:
    """Seconds until the last of these was made."""
    times = [
        answered
        for event, answered in log
        if event["objectRef"]["resource"] in resources
        and "subresource" not in event["objectRef"]
        and event["responseStatus"]["code"] == CREATED
    ]
    return max(times) - began


def last_first_status(log: Sequence[Audited], began: float) -> float:
    """Seconds until the last object got its first status."""
    first: dict[str, float] = {}
    for event, answered in log:
        about = event["objectRef"]
        what = (about["resource"], about.get("subresource"), event["user"]["username"])
        is_written = event["responseStatus"]["code"] < 300
        if what == ("inferencedeployments", "status", USER) and is_written:
            first.setdefault(about["name"], answered)
    return max(first.values()) - began
