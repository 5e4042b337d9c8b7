"""How do a node, a plan and a pod look in a terminal?"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

import real_worker
from controlplane.cluster import Manifest, condition
from teller import Teller
from world import World

PRODUCT: Final = "nvidia.com/gpu.product"
ENGINES: Final = {"vllm": "vLLM", "llamaCpp": "llama.cpp"}
OWNERS: Final = {
    "Driver": "driver",
    "OtherProcesses": "others",
    "Context": "context",
    "Weights": "weights",
    "ActivationPeak": "activations",
    "Collectives": "collectives",
    "CudaGraphs": "graphs",
    "KvCache": "KV cache",
    "Headroom": "headroom",
}
"""Names of the ledger's owners for people."""
GIB: Final = 1 << 30
SMALLEST_SHOWN_BYTES: Final = GIB // 20


def show_nodes(tell: Teller, nodes: tuple[Manifest, ...]) -> None:
    """What a fleet offers, before it has joined."""
    tell.table(("NODE", "GPU TYPE, AS LABELLED", "OFFERS"), map(node_row, nodes))


def node_row(node: Manifest) -> tuple[str, str, str]:
    """Name, product and the cards that a node offers."""
    labels = node["metadata"]["labels"]
    offers = [
        f"{amount} x {name}"
        for name, amount in sorted(node["status"]["capacity"].items())
        if "/" in name and amount != "0"
    ]
    return node["metadata"]["name"], labels[PRODUCT], ", ".join(offers)


def show_plan(tell: Teller, pool: Mapping[str, Any]) -> None:
    """One pool of a status: the sentence, the card, the flags."""
    plan = pool["plan"]
    tell.named(
        pool["name"],
        f"{ENGINES[plan['engine']]} {plan['release']} on {plan['cards']} x {plan['gpuProduct']}",
    )
    tell.named("why", plan["explanation"])
    shown = [line for line in plan["ledger"] if line["bytes"] >= SMALLEST_SHOWN_BYTES]
    parts = (f"{OWNERS[line['owner']]} {line['bytes'] / GIB:.1f}" for line in shown)
    tell.named("one card", f"{plan['cardBytes'] / GIB:.1f} GiB: {', '.join(parts)}")
    tell.named("pinned", shlex.join(real_worker.pinned(plan)))


def show_pods(tell: Teller, world: World, deployment: str) -> None:
    """`kubectl get pods -o wide`, with what matters here."""
    nodes = {node["metadata"]["name"]: node for node in world.cluster.get("/api/v1/nodes")["items"]}
    tell.table(
        ("POD", "NODE", "GPU TYPE", "CARDS", "STATUS"),
        (pod_row(pod, nodes) for pod in world.pods(deployment)),
    )


def pod_row(pod: Manifest, nodes: Mapping[str, Manifest]) -> tuple[str, str, str, str, str]:
    """Where a pod runs, on which cards, and how it is."""
    node = pod["spec"].get("nodeName", "")
    limits: dict[str, str] = pod["spec"]["containers"][0]["resources"]["limits"]
    cards = next(amount for name, amount in limits.items() if "/" in name)
    product = nodes[node]["metadata"]["labels"][PRODUCT] if node else ""
    is_ready = condition(pod, "Ready") == "True"
    status = "Ready" if is_ready else str(pod["status"]["phase"])
    return pod["metadata"]["name"], node, product, cards, status
