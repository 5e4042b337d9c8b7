"""What do the nodes and the objects of a large site look like?

Eight GPU types in equal parts, four cards to a node; ten teams; each InferenceDeployment has three pools of
two workers on three of the types. Numbers are filled in by the caller, and everything is the same each time.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from controlplane import fleet
from controlplane.cluster import ControlPlane, Manifest
from controlplane.fleet import Card
from patience import eventually

TYPES: Final[Mapping[str, Card]] = {
    "a6000": fleet.A6000,
    "rtx4090": fleet.RTX_4090,
    "l40s": fleet.L40S,
    "a100-40": fleet.A100_40GB,
    "h100": fleet.H100,
    "h200": fleet.H200,
    "a100-80": Card("NVIDIA-A100-SXM4-80GB", 81920, "ampere", "8.0", is_mig_capable=True),
    "l4": Card("NVIDIA-L4", 23034, "ada-lovelace", "8.9"),
}
"""By pool name; memory as in catalog/data/gpus.json."""
NEW_TYPE: Final = Card("NVIDIA-RTX-X9000", 98304, "blackwell", "12.0")
"""No catalogue has it: until a node with it joins, nothing can be planned for it."""
CARDS_OF_A_NODE: Final = 4
POOLS: Final = (0, 1, 3)
"""Of the types, counted on from the object's own."""
WORKERS_OF_A_POOL: Final = 2
WORKERS: Final = len(POOLS) * WORKERS_OF_A_POOL
"""Of one object."""
CHILDREN: Final = 1 + 2 * len(POOLS)
"""Of one object: a Service, and a Deployment and a PodDisruptionBudget for each pool."""
TEAMS: Final = tuple(f"team-{n}" for n in range(10))
"""Namespaces."""
IMAGE, NEXT_IMAGE = "vllm/vllm-openai:v0.22.1", "vllm/vllm-openai:v0.22.1-patched"
AT_ONCE: Final = 4
THERE_SECONDS: Final = 600.0


class Size(NamedTuple):
    """How large the site is."""

    nodes: int
    objects: int

    @property
    def workers(self) -> int:
        """Pods that serve."""
        return self.objects * WORKERS

    def __str__(self) -> str:
        return f"{self.objects:,} objects, {self.nodes:,} nodes, {self.workers:,} workers"


FULL: Final = Size(1000, 500)
SHORT: Final = Size(100, 50)


def growing(size: Size) -> tuple[Size, ...]:
    """A quarter, a half, all of it."""
    return tuple(Size(size.nodes // part, size.objects // part) for part in (4, 2, 1))


# ---- nodes --------------------------------------------------------------------------------------


def nodes(first: int, count: int, card: Card | None = None) -> Iterator[Manifest]:
    """So many nodes from the `first` on; of the new type where a card is given."""
    cards = tuple(TYPES.values())
    for n in range(first, first + count):
        one = fleet.whole_cards(
            f"node-{n:04}", card or cards[n % len(cards)], CARDS_OF_A_NODE, cpu="192", memory="2Ti"
        )
        one["status"]["addresses"] = [
            {"type": "InternalIP", "address": node_address(n)},
            {"type": "Hostname", "address": one["metadata"]["name"]},
        ]
        yield one


def node_address(number: int) -> str:
    """Each node has its own; all lead to the one stand-in for kubelets (scale_stand_ins.py)."""
    return f"10.251.{number // 250}.{number % 250 + 1}"


def add_nodes(cluster: ControlPlane, wanted: Sequence[Manifest]) -> None:
    """Create them, several at a time, and wait until all are Ready."""

    def create(node: Manifest) -> None:
        status, answer = cluster.request("POST", "/api/v1/nodes", node)
        if status != HTTPStatus.CREATED:
            raise RuntimeError(f"node {node['metadata']['name']}: {status} {answer}")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(create, wanted))
    names = {node["metadata"]["name"] for node in wanted}

    def all_ready() -> bool:
        found = cluster.get("/api/v1/nodes?resourceVersion=0")["items"]
        ready = {n["metadata"]["name"] for n in found if fleet_ready(n)}
        return names <= ready

    eventually(all_ready, within=THERE_SECONDS, says=f"{len(names)} nodes are Ready")


def fleet_ready(node: Manifest) -> bool:
    """Whether kwok has taken the node up."""
    conditions = node["status"].get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


# ---- objects ------------------------------------------------------------------------------------


def objects(first: int, count: int) -> list[Manifest]:
    """So many InferenceDeployments from the `first` on."""
    return [_object(n) for n in range(first, first + count)]


def _object(number: int) -> Manifest:
    names = tuple(TYPES)
    chosen = [names[(number + step) % len(names)] for step in POOLS]
    return inference_deployment(
        f"chat-{number:03}",
        TEAMS[number % len(TEAMS)],
        {name: TYPES[name].product for name in chosen},
    )


def waiting_for_new_type() -> Manifest:
    """One that names a type which no node has yet."""
    return inference_deployment("waits", TEAMS[0], {"x9000": NEW_TYPE.product})


def inference_deployment(name: str, namespace: str, pools: Mapping[str, str]) -> Manifest:
    """An 8B model in so many pools; `pools` gives each one's product by its name."""
    return {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": len(pools) * WORKERS_OF_A_POOL,
            "model": {
                "name": "llama-3.1-8b",
                "id": "meta-llama/Llama-3.1-8B-Instruct",
                "uri": "pvc://models/Llama-3.1-8B-Instruct",
            },
            "pools": [
                {
                    "name": pool,
                    "gpu": {"product": product, "perWorker": 1},
                    "engine": "vllm",
                    "replicas": WORKERS_OF_A_POOL,
                }
                for pool, product in pools.items()
            ],
            "engines": {"vllm": {"image": IMAGE}},
            "traffic": {
                "promptTokens": {"p50": 1800, "p99": 11000},
                "outputTokens": {"p50": 350, "p99": 1500},
            },
            "recycling": {"mode": "Auto"},
        },
    }


def rendered(wanted: Sequence[Manifest]) -> list[Manifest]:
    """What `plimsoll render` makes of them, without an owner, for there is none on kubectl's side."""
    command = (Path(sys.executable).with_name("plimsoll"), "render", "-f", "-")
    text = "\n---\n".join(map(json.dumps, wanted))
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    children = [each for each in yaml.load_all(done.stdout, _LOADER) if each]
    for child in children:
        child["metadata"].pop("ownerReferences", None)
    return children


_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def text_of(things: Sequence[Manifest]) -> str:
    """For kubectl: YAML documents that are JSON, which is the quickest to write and to read."""
    return "\n---\n".join(map(json.dumps, things))


def claims() -> list[Manifest]:
    """A bound PersistentVolumeClaim for each team, so that the scheduler lets pods pass."""
    shared = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    pairs = (
        (
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"{team}-models"},
                "spec": {
                    **shared,
                    "capacity": {"storage": "1Ti"},
                    "hostPath": {"path": "/srv/models"},
                    "claimRef": {"namespace": team, "name": "models"},
                },
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "models", "namespace": team},
                "spec": {
                    **shared,
                    "volumeName": f"{team}-models",
                    "resources": {"requests": {"storage": "1Ti"}},
                },
            },
        )
        for team in TEAMS
    )
    return list(itertools.chain.from_iterable(pairs))
