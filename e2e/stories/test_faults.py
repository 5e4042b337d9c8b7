"""One fault at a time, on a real control plane: what Plimsoll does then, and what it must not do.

docs/faults.md lists all faults with their tests; those that have a story of their own elsewhere are not
repeated here. One cluster for all; its operator speaks over a wire that breaks where a story wants it to.
A story whose operator ends on purpose starts the next one, as a kubelet would.
"""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from controlplane import fleet
from controlplane.cluster import ALL_PARTS, CONTENT_TYPES, OUR_NAMESPACE, ControlPlane, Manifest
from installation import REPOSITORY, USER, Installation, Operator
from objects import small
from patience import Patience, eventually, steadily
from soak_ground import LIES, LyingKubelets
from stand_ins.chaos_proxy import ChaosProxy
from world import World

GIB: Final = 1 << 30
DEADLINE_SECONDS: Final = 6.0
SETTINGS: Final = {
    "PLIMSOLL_RESYNC_SECONDS": "3",
    "PLIMSOLL_WATCH_SECONDS": "0.5",
    "PLIMSOLL_STALE_SECONDS": "3",
    "PLIMSOLL_LEASE_SECONDS": "9",
    "PLIMSOLL_RENEW_DEADLINE_SECONDS": str(DEADLINE_SECONDS),
    "PLIMSOLL_RETRY_SECONDS": "0.5",
}
CRD: Final = "inferencedeployments.plimsoll.dev"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{OUR_NAMESPACE}/leases/plimsoll"
CLOCK: Final = Path(__file__).parents[1] / "stand_ins" / "shifted_clock"
CHILDREN: Final = ("deployments", "services", "poddisruptionbudgets")
HELD_BYTES: Final = 4 * GIB


class Corner(World):
    """The stories' namespace, with the wire between operator and API server."""

    def __init__(self, installed: Installation, wire: ChaosProxy, kubelets: LyingKubelets) -> None:
        super().__init__(installed, "faults")
        self.wire, self.kubelets = wire, kubelets
        self.kubeconfig = wire.kubeconfig(installed.kubeconfig)

    def start(self, **more: str) -> Operator:
        """Another operator, and wait until it leads."""
        self.installed.stop()
        return self.installed.start(kubeconfig=self.kubeconfig, **(SETTINGS | more))

    def operator(self) -> Operator:
        """The one that runs, with the usual settings."""
        running = self.installed.operator
        if running is None or not running.process.is_running:
            self.installed.operator = None
            return self.start()
        return running

    def settle(self, name: str, workers: int = 2, **spec: Any) -> set[str]:
        """An object with its workers ready and nothing more to write; the workers' UIDs."""
        self.operator()
        self.apply(small(self, name=name, workers=workers, **spec))
        self.await_ready(name, workers)
        self.unwritten()
        return self.uids(name)

    def unwritten(self) -> float:
        """Wait until nothing has been written for a while; now."""

        def is_quiet() -> bool:
            since = time.time() - 2.0
            return not [each for each in self.wire.mutations if each.at_seconds > since]

        eventually(is_quiet, within=Patience.PLAN_WRITTEN, says="the operator is quiet")
        return time.time()

    def sent(self, since_seconds: float) -> list[str]:
        """What the operator sent since then, but for its Lease."""
        return [
            f"{m.method} {m.path}" for m in self.wire.mutations if m.at_seconds >= since_seconds
        ]

    def sent_to_children(self, since_seconds: float) -> list[str]:
        return [
            each for each in self.sent(since_seconds) if any(f"/{c}/" in each for c in CHILDREN)
        ]

    def uids(self, name: str) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.pods(name)}

    def remove(self, name: str) -> None:
        """The object and all that is its own."""
        self.kubectl("delete", "infd", name, "--timeout=30s")
        eventually(lambda: not self.pods(name), within=Patience.POD_GONE, says=f"{name} is gone")


@pytest.fixture(scope="module")
def corner() -> Iterator[Corner]:
    """Two types of cards, kubelets that can lie, a policy that can be taken away."""
    with ControlPlane() as cluster:
        cluster.add_nodes(fleet.h100_x8("h100-0"), fleet.l40s_x4("l40s-0"))
        installed = Installation(
            cluster, "security.hostPath=true", "security.hostPathByNamespace=true"
        )
        kubelets = LyingKubelets(cluster, curve=lambda _: HELD_BYTES, has_fine_stamps=True)
        with ChaosProxy.to(cluster) as wire, kubelets:
            made = Corner(installed, wire, kubelets)
            made.start()
            yield made
            installed.stop()


def ended(operator: Operator) -> int:
    """Wait until it has ended by itself; its exit status."""
    eventually(
        lambda: not operator.process.is_running,
        within=Patience.OPERATOR_GONE,
        says="the operator ends",
    )
    assert operator.process.returncode is not None
    return operator.process.returncode


def figures(operator: Operator, metric: str) -> dict[str, float]:
    """Lines of one of its metrics."""
    found = (line.rpartition(" ") for line in operator.metrics().splitlines())
    return {name: float(value) for name, _, value in found if name.startswith(metric + "{")}


# ---- the API server -----------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 410])
def test_an_api_server_that_answers_everything_with(corner: Corner, status: int) -> None:
    """429 with Retry-After, 500, 410: nobody dies, and what was asked for meanwhile comes."""
    name = f"answers-{status}"
    before = corner.settle(name)
    operator = corner.operator()
    corner.wire.refuse(status)
    corner.kubectl("scale", f"infd/{name}", "--replicas=3")
    steadily(
        lambda: operator.process.is_running and operator.get("/healthz")[0] == http.client.OK,
        during=2.0,
        says="the operator is alive and says so",
    )
    corner.wire.recover()
    corner.await_ready(name, 3)
    assert operator.process.is_running
    assert before <= corner.uids(name)
    corner.remove(name)


def test_an_outage_beyond_the_lease_costs_one_restart_and_no_loop(corner: Corner) -> None:
    before = corner.settle("outage")
    operator = corner.operator()
    corner.wire.refuse()
    assert 1 == ended(operator)
    since = time.time()
    successor = Operator(corner.cluster, corner.kubeconfig, SETTINGS)
    corner.installed.operator = successor
    eventually(
        lambda: successor.get("/healthz")[0] == http.client.OK,
        within=Patience.OPERATOR_UP,
        says="its successor is alive without an API server",
    )
    steadily(
        lambda: successor.process.is_running,
        during=Patience.NOTHING_HAPPENS,
        says="it waits and does not end again",
    )
    corner.wire.recover()
    successor.wait_until_ready()
    corner.await_ready("outage", 2)
    corner.unwritten()
    assert [] == corner.sent_to_children(since)
    assert before == corner.uids("outage")
    corner.remove("outage")


def test_conflicts_and_refusals_are_tried_again_and_lose_no_condition(corner: Corner) -> None:
    """409 on the status and on a child, 422 on whatever comes next."""
    before = corner.settle("refused-writes")
    kinds = {c["type"] for c in corner.object("refused-writes")["status"]["conditions"]}
    corner.wire.answer("/refused-writes/status", 409, times=2)
    corner.wire.answer("/poddisruptionbudgets/refused-writes-h100", 409)
    corner.wire.answer("/poddisruptionbudgets/refused-writes-h100", 422)
    corner.kubectl("delete", "pdb/refused-writes-h100")
    corner.kubectl("scale", "infd/refused-writes", "--replicas=3")
    corner.await_ready("refused-writes", 3)
    eventually(
        lambda: corner.get("policy/v1:poddisruptionbudgets/refused-writes-h100"),
        within=Patience.PLAN_WRITTEN,
        says="the budget is back",
    )
    after = corner.object("refused-writes")["status"]
    assert kinds <= {c["type"] for c in after["conditions"]}
    assert before <= corner.uids("refused-writes")
    corner.remove("refused-writes")


# ---- watches ------------------------------------------------------------------------------------


def test_an_object_deleted_in_the_gap_of_a_watch_leaves_no_ghost(corner: Corner) -> None:
    """410, and the list after it no longer has the object: its end was never told."""
    corner.settle("ghost")
    operator = corner.operator()
    gauge = "plimsoll_kv_budget_bytes"
    assert any("ghost" in line for line in figures(operator, gauge))
    assert corner.wire.hush()
    corner.remove("ghost")
    since = time.time()
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    corner.wire.say({"type": "ERROR", "object": gone}, ends=True)
    eventually(
        lambda: not any("ghost" in line for line in figures(operator, gauge)),
        within=Patience.FIGURE_SEEN,
        says="the ghost is gone from the figures",
    )
    assert operator.process.is_running
    assert [] == [each for each in corner.sent(since) if "ghost" in each]
    corner.settle("after-the-gap", 1)
    corner.remove("after-the-gap")


def test_an_error_on_a_watch_costs_a_restart_and_no_write(corner: Corner) -> None:
    before = corner.settle("watch-error")
    operator, since = corner.operator(), time.time()
    error = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd"}
    corner.wire.say({"type": "ERROR", "object": error}, "pods", ends=True)
    assert 1 == ended(operator)
    corner.operator()
    corner.unwritten()
    assert [] == corner.sent_to_children(since)
    assert before == corner.uids("watch-error")
    corner.remove("watch-error")


def test_a_silent_watch_is_asked_for_anew(corner: Corner) -> None:
    """The connection is open and nothing comes. 2 s here, 70 s by default: it is a setting."""
    bound = 2.0
    operator = corner.start(PLIMSOLL_WATCH_SILENCE_SECONDS=str(bound))
    eventually(
        lambda: "nodes" in corner.wire.watches,
        within=Patience.OPERATOR_UP,
        says="nodes are watched",
    )
    begun = corner.wire.watches_begun.count("nodes")
    assert corner.wire.hush("nodes")
    started = time.monotonic()
    eventually(
        lambda: corner.wire.watches_begun.count("nodes") > begun and "nodes" in corner.wire.watches,
        within=Patience.CONDITION_SEEN,
        says="nodes are watched anew",
    )
    assert time.monotonic() - started < bound + Patience.NOTHING_HAPPENS
    assert operator.process.is_running
    corner.installed.stop()


def test_a_watch_that_misses_a_change_ends_the_process(corner: Corner) -> None:
    """What the watch did not tell, a comparison with a list does; then the process starts anew."""
    corner.settle("deaf")
    operator = corner.start(PLIMSOLL_WATCH_CHECK_SECONDS="3", PLIMSOLL_RESYNC_SECONDS="600")
    eventually(
        lambda: "inferencedeployments" in corner.wire.watches,
        within=Patience.OPERATOR_UP,
        says="our objects are watched",
    )
    assert corner.wire.hush("inferencedeployments")
    corner.kubectl("scale", "infd/deaf", "--replicas=3")
    assert 1 == ended(operator)
    assert "watch is deaf" in operator.process.log.read_text()
    corner.operator()
    corner.await_ready("deaf", 3)
    corner.remove("deaf")


# ---- the operator -------------------------------------------------------------------------------


def test_a_frozen_leader_that_goes_on_writes_nothing(corner: Corner) -> None:
    """Frozen past its right to write, with work to do when it goes on and the Lease with another."""
    before = corner.settle("frozen")
    operator = corner.operator()
    pid = operator.process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        since = time.time()
        # the user's change waits in the frozen one's socket; the Lease goes to somebody else
        corner.kubectl("scale", "infd/frozen", "--replicas=3")
        spec = {"holderIdentity": "another", "leaseDurationSeconds": 1}
        code, answer = corner.cluster.request(
            "PATCH", LEASE, {"spec": spec}, content_type=CONTENT_TYPES["PATCH"]
        )
        assert code == http.client.OK, answer
        steadily(
            lambda: before == corner.uids("frozen"),
            during=DEADLINE_SECONDS + 0.5,
            says="nobody acts",
        )
    finally:
        os.kill(pid, signal.SIGCONT)
    assert 1 == ended(operator)
    assert [] == corner.sent(since)
    corner.operator()
    corner.await_ready("frozen", 3)
    corner.remove("frozen")


def test_a_clock_that_is_an_hour_wrong(corner: Corner, tmp_path: Path) -> None:
    """An hour ahead, then an hour behind, while the operator runs and when it starts."""
    before = corner.settle("clock", recycling={"cooldown": "1s", "surge": "Never"})
    shift = tmp_path / "shift"
    shift.write_text("0")
    clock = {"PYTHONPATH": str(CLOCK), "SHIFTED_CLOCK": str(shift)}
    operator = corner.start(**clock)
    ready = corner.condition("clock", "Ready")
    corner.unwritten()
    since = time.time()
    for seconds in (3600, -3600):
        told = figures_at(operator)
        shift.write_text(str(seconds))
        eventually(
            lambda told=told: abs(figures_at(operator) - told) > 3000,  # type: ignore[misc]
            within=Patience.FIGURE_SEEN,
            says="a resync happened at the wrong time",
        )
        steadily(
            lambda: operator.process.is_running and operator.get("/readyz")[0] == http.client.OK,
            during=1.0,
            says="it leads on",
        )
    corner.start(**clock)
    corner.unwritten()
    assert [] == corner.sent_to_children(since)
    assert [] == [each for each in corner.sent(since) if each.endswith("/eviction")]
    assert before == corner.uids("clock")
    assert ready["lastTransitionTime"] == corner.condition("clock", "Ready")["lastTransitionTime"]
    corner.installed.stop()
    corner.remove("clock")


def figures_at(operator: Operator) -> float:
    """When it listed everyone last, by its own clock."""
    name = "plimsoll_last_resync_timestamp_seconds "
    lines = operator.metrics().splitlines()
    return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))


# ---- nodes and figures --------------------------------------------------------------------------


def test_a_node_that_vanishes_takes_its_figures_and_nothing_else(corner: Corner) -> None:
    on_l40s = {
        "name": "l40s",
        "engine": "vllm",
        "gpu": {"product": fleet.L40S.product, "perWorker": 1},
    }
    corner.settle("vanishes", pools=[on_l40s])
    operator, node = corner.operator(), corner.cluster.get("/api/v1/nodes/l40s-0")
    resident = "plimsoll_worker_resident_bytes"
    eventually(
        lambda: sum('deployment="vanishes"' in line for line in figures(operator, resident)) == 2,
        within=Patience.FIGURE_SEEN,
        says="both workers' memory is seen",
    )
    plan = corner.object("vanishes")["status"]["pools"][0]["plan"]
    since = time.time()
    corner.cluster.kubectl("delete", "node", "l40s-0")
    eventually(
        lambda: not any('deployment="vanishes"' in line for line in figures(operator, resident)),
        within=Patience.FIGURE_SEEN,
        says="their memory is unknown",
    )
    steadily(lambda: "vanishes-l40s" in corner.deployments(), during=2.0, says="the pool stays")
    assert [] == [each for each in corner.sent(since) if "/pods/" in each]
    assert plan == corner.object("vanishes")["status"]["pools"][0]["plan"]
    kept = {key: node["metadata"][key] for key in ("name", "labels", "annotations")}
    code, answer = corner.cluster.request(
        "POST", "/api/v1/nodes", node | {"metadata": kept, "spec": {}}
    )
    assert code == http.client.CREATED, answer
    corner.await_ready("vanishes", 2)
    assert [] == corner.sent_to_children(since)
    corner.remove("vanishes")


@pytest.mark.parametrize("lie", sorted(LIES))
def test_figures_that_cannot_be_are_no_figures(corner: Corner, lie: str) -> None:
    """Zero, below zero, no number, more than there is, old, missing: unknown, and nobody is recycled."""
    name = "lied-about"
    if not corner.pods(name):
        corner.settle(name, recycling={"cooldown": "1s", "surge": "Never"})
    operator, before = corner.operator(), corner.uids(name)

    def seen() -> list[float]:
        lines = figures(operator, "plimsoll_worker_resident_bytes")
        return [value for line, value in lines.items() if f'deployment="{name}"' in line]

    eventually(
        lambda: seen() == [HELD_BYTES] * 2,
        within=Patience.FIGURE_SEEN,
        says="the true figures are seen",
    )
    corner.kubelets.lie = lie
    try:
        eventually(
            lambda: seen() in ([], [0.0, 0.0]),
            within=Patience.FIGURE_SEEN,
            says="the lie is not believed",
        )
        assert before == corner.uids(name)
        assert "Unknown" == corner.condition(name, "MemoryStable")["status"]
    finally:
        corner.kubelets.lie = ""
    asked = corner.installed.log.writes_by(USER, corner.started)
    assert not [r for r in asked if r.use.resource == "pods/eviction"]


# ---- what is installed --------------------------------------------------------------------------


def test_without_its_policy_everything_goes_on(corner: Corner) -> None:
    """Policies refuse at the door; nothing inside leans on them."""
    before = corner.settle("no-policy")
    since = time.time()
    for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        corner.cluster.kubectl("delete", kind, "plimsoll-host-path")
    corner.settle("after-policy", 1)
    assert before == corner.uids("no-policy")
    assert [] == [each for each in corner.sent_to_children(since) if "no-policy" in each]
    corner.remove("no-policy")
    corner.remove("after-policy")


def test_a_crd_that_is_upgraded_while_running(corner: Corner) -> None:
    before = corner.settle("upgraded")
    operator, since = corner.operator(), time.time()
    crd = corner.cluster.get(f"{CRDS}/{CRD}")
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    status["properties"]["ofALaterRelease"] = {"type": "string", "maxLength": 64}
    code, answer = corner.cluster.request("PUT", f"{CRDS}/{CRD}", crd)
    assert code == http.client.OK, answer
    corner.unwritten()
    assert [] == corner.sent_to_children(since)
    corner.kubectl("scale", "infd/upgraded", "--replicas=3")
    corner.await_ready("upgraded", 3)
    assert operator.process.is_running
    assert before <= corner.uids("upgraded")
    corner.remove("upgraded")


# ---- the last ones: nothing is as before afterwards ---------------------------------------------


def test_etcd_restored_from_an_older_copy(corner: Corner) -> None:
    """Every resourceVersion goes back; what was done since is not known to anybody any more."""
    cluster = corner.cluster
    before = corner.settle("restored")
    data, copy = cluster.dir / "etcd", cluster.dir / "etcd-copy"
    stop_all(cluster)
    shutil.copytree(data, copy)
    start_all(cluster)
    corner.operator()
    corner.kubectl("scale", "infd/restored", "--replicas=4")
    revived(corner, lambda: corner.await_ready("restored", 4))
    version = int(corner.object("restored")["metadata"]["resourceVersion"])
    stop_all(cluster)
    shutil.rmtree(data)
    copy.rename(data)
    start_all(cluster)
    assert int(corner.object("restored")["metadata"]["resourceVersion"]) < version
    since = time.time()
    revived(corner, lambda: corner.await_ready("restored", 2))
    corner.kubectl("scale", "infd/restored", "--replicas=3")
    revived(corner, lambda: corner.await_ready("restored", 3))
    assert before <= corner.uids("restored")
    assert [] == [each for each in corner.sent(since) if "/pods/" in each]
    corner.remove("restored")


def stop_all(cluster: ControlPlane) -> None:
    for part in (*ALL_PARTS, "kube-apiserver", "etcd"):
        cluster.stop_part(part)


def start_all(cluster: ControlPlane) -> None:
    cluster.processes["etcd"].restart()
    for part in ("kube-apiserver", *ALL_PARTS):
        cluster.revive(part)


def revived(corner: Corner, wait: Any) -> None:
    """Wait, and start the operator anew should it end meanwhile."""
    corner.operator()
    try:
        wait()
    except AssertionError:
        running = corner.installed.operator
        if running is not None and running.process.is_running:
            raise
        corner.operator()
        wait()


def test_without_our_kind_it_says_so_and_ends(corner: Corner) -> None:
    """Removed while it runs, missing when it starts, there again."""
    operator = corner.operator()
    saved: Manifest = yaml.safe_load(
        (REPOSITORY / "crds" / "plimsoll.dev_inferencedeployments.yaml").read_text()
    )
    corner.cluster.kubectl("delete", "crd", CRD, "--timeout=30s")

    def notices() -> bool:
        return not operator.process.is_running or operator.get("/readyz")[0] != http.client.OK

    eventually(notices, within=Patience.OPERATOR_GONE, says="it says that the kind is missing")
    corner.installed.stop()
    corner.installed.operator = None
    said = operator.process.log.stat().st_size
    started = Operator(corner.cluster, corner.kubeconfig, SETTINGS)
    assert 1 == ended(started)
    log = started.process.log.read_text()[said:]
    assert "kind not served" in log
    assert "kubectl apply --server-side -f crds/" in log
    corner.cluster.apply(saved)
    eventually(
        lambda: corner.cluster.get("/apis/plimsoll.dev/v1alpha1/inferencedeployments"),
        within=Patience.CRD_SERVED,
        says="the kind is served again",
    )
    corner.settle("back", 1)
