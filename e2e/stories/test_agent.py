"""Two agents with two nodes' tokens on a real API server: what each writes, and what neither may."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from agents import AGENT, GPU_NODES, MIB, Agent, card, kubeconfig_on
from audit import AuditLog, compare, granted
from controlplane import fleet
from controlplane.cluster import API_ONLY, OUR_NAMESPACE, CommandError, ControlPlane
from installation import RELEASE, Installation
from patience import Patience, eventually
from stand_ins.nvml import compiler

pytestmark = pytest.mark.skipif(
    compiler() is None, reason="the stand-in of NVML is a C library, and there is no C compiler"
)
OFTEN = {"PLIMSOLL_RESCAN_SECONDS": "0.5"}
SELDOM = {"PLIMSOLL_RESCAN_SECONDS": "600", "PLIMSOLL_CALM_SECONDS": "0"}


@pytest.fixture(scope="module")
def installed() -> Iterator[Installation]:
    """etcd and API server with two nodes, and the chart with its agents' account, role and policy."""
    with ControlPlane(parts=API_ONLY) as cluster:
        cluster.add_nodes(fleet.a6000_x1("node-a"), fleet.a6000_x1("node-b"), ready=False)
        yield Installation(cluster, "agent.enabled=true")


@pytest.fixture
def agent(installed: Installation) -> Iterator[Callable[..., Agent]]:
    """Starts agents and stops them."""
    started: list[Agent] = []

    def start(node: str, *cards: dict[str, Any], settings: dict[str, str], **said: Any) -> Agent:
        one = Agent(installed.cluster, node, **settings)
        one.say(*cards, **said)
        one.start()
        started.append(one)
        return one

    yield start
    for one in started:
        one.stop()


def status_body(node: str) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "plimsoll.dev/v1alpha1",
            "kind": "GPUNode",
            "metadata": {"name": node},
            "status": {
                "cards": [{"uuid": "GPU-written", "product": "Huge", "totalBytes": 1 << 50}]
            },
        }
    )


def object_body(node: str) -> str:
    return yaml.safe_dump(
        {"apiVersion": "plimsoll.dev/v1alpha1", "kind": "GPUNode", "metadata": {"name": node}}
    )


def write_status(cluster: ControlPlane, kubeconfig: Path, node: str) -> None:
    words = ("apply", "--server-side", "--subresource=status", "--force-conflicts")
    cluster.kubectl(
        *words,
        *("--validate=false", "--field-manager=a-liar", "-f", "-"),
        input=status_body(node),
        kubeconfig=kubeconfig,
    )


def create(cluster: ControlPlane, kubeconfig: Path, node: str) -> None:
    cluster.kubectl(
        *("create", "--validate=false", "-f", "-"), input=object_body(node), kubeconfig=kubeconfig
    )


def refused(does: Callable[[], None]) -> str:
    """What the API server says; a policy takes a moment to be in force."""

    def said() -> str:
        with pytest.raises(CommandError) as refusal:
            does()
        return str(refusal.value)

    return eventually(said, within=Patience.CRD_SERVED, says="the policy is in force")


def test_an_agent_tells_of_its_own_node(
    installed: Installation, agent: Callable[..., Agent]
) -> None:
    one = agent("node-a", card("GPU-a"), settings=OFTEN)
    eventually(one.seen, within=Patience.OPERATOR_UP, says="the agent has told")
    (told,) = one.seen()["cards"]
    assert ("NVIDIA-RTX-A6000", 48676 * MIB, 0) == (
        told["product"],
        told["usableBytes"],
        told["heldByOthersBytes"],
    )
    assert ("True", "NvmlAnswers") == one.condition("DriverAnswers")
    found = installed.cluster.get(f"{GPU_NODES}/node-a")
    node = installed.cluster.get("/api/v1/nodes/node-a")
    (owner,) = found["metadata"]["ownerReferences"]
    assert ("Node", node["metadata"]["uid"]) == (owner["kind"], owner["uid"])
    first = found["status"]
    eventually(
        lambda: one.seen()["heartbeat"] != first["heartbeat"],
        within=Patience.CONDITION_SEEN,
        says="the heartbeat moves",
    )
    assert first | {"heartbeat": ""} == one.seen() | {"heartbeat": ""}
    one.say(card("GPU-a"), **{"init.error": 9})
    eventually(
        lambda: one.condition("DriverAnswers") == ("False", "DriverNotLoaded"),
        within=Patience.CONDITION_SEEN,
        says="the missing driver is told",
    )
    assert first["cards"] == one.seen()["cards"]
    assert 0 == one.stop()


def test_a_card_that_falls_off_is_told_at_once_and_known_after_a_restart(
    agent: Callable[..., Agent],
) -> None:
    """The next look would come in ten minutes; the driver's event brings it now."""
    one = agent("node-b", card("GPU-b"), card("GPU-c"), settings=SELDOM)
    eventually(
        lambda: len(one.seen()["cards"]) == 2, within=Patience.OPERATOR_UP, says="both are told"
    )
    one.say(card("GPU-b"), {"handle.error": 15}, event=79)
    eventually(
        lambda: one.condition("CardsRead") == ("False", "CardLost"),
        within=Patience.CONDITION_SEEN,
        says="the lost card is told",
    )
    assert [False, True] == [each["lost"] for each in one.seen()["cards"]]
    assert 0 == one.stop()
    one.start()
    before = one.seen()["heartbeat"]
    eventually(
        lambda: one.seen()["heartbeat"] != before,
        within=Patience.OPERATOR_UP,
        says="the new agent has told",
    )
    lost = one.seen()["cards"][1]
    assert ("GPU-c", True, 48676 * MIB) == (lost["uuid"], lost["lost"], lost["usableBytes"])


def test_an_agent_may_not_write_another_nodes_object(installed: Installation) -> None:
    cluster = installed.cluster
    tokens = {node: kubeconfig_on(cluster, node) for node in ("node-a", "node-b")}
    for node in tokens:
        if cluster.request("GET", f"{GPU_NODES}/{node}")[0] != http.client.OK:
            create(cluster, cluster.admin_kubeconfig, node)
    for own, other in (("node-a", "node-b"), ("node-b", "node-a")):
        before = cluster.get(f"{GPU_NODES}/{other}").get("status")
        said = refused(partial(write_status, cluster, tokens[own], other))
        assert f"the agent of node {own} may write GPUNode {own} only, not {other}" in said
        assert before == cluster.get(f"{GPU_NODES}/{other}").get("status")
    for own, token in tokens.items():
        write_status(cluster, token, own)
        assert "GPU-written" in str(cluster.get(f"{GPU_NODES}/{own}"))


def test_an_agent_may_not_make_another_nodes_object(installed: Installation) -> None:
    cluster = installed.cluster
    for own, other in (("node-a", "node-c"), ("node-b", "node-c")):
        token = kubeconfig_on(cluster, own)
        assert f"not {other}" in refused(partial(create, cluster, token, other))
    assert http.client.NOT_FOUND == cluster.request("GET", f"{GPU_NODES}/node-c")[0]


def test_a_token_of_no_pod_may_write_nothing(installed: Installation) -> None:
    cluster = installed.cluster
    nowhere = kubeconfig_on(cluster, None)
    assert "bound to no node" in refused(lambda: create(cluster, nowhere, "node-d"))
    assert "bound to no node" in refused(lambda: write_status(cluster, nowhere, "node-a"))


def test_whoever_is_no_agent_is_not_asked(installed: Installation) -> None:
    """The policy speaks of agents; a person with rights puts things right."""
    cluster = installed.cluster
    create(cluster, cluster.admin_kubeconfig, "node-e")
    cluster.kubectl("delete", "gpunode", "node-e")


def test_agents_use_each_verb_that_they_are_granted_and_no_other(
    installed: Installation,
) -> None:
    manifest = installed.cluster.helm("get", "manifest", RELEASE, "-n", OUR_NAMESPACE).stdout
    log = AuditLog(installed.cluster.audit_log)
    grants = granted(yaml.safe_load_all(manifest), AGENT)
    assert 3 == len(grants)
    comparison = compare(grants, log.verbs_used(AGENT))
    assert comparison.is_exact, str(comparison)
