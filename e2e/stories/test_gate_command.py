"""Does `plimsoll gate` read a keeper's page through a real API server, with rights that people have?

The page is the keeper's own text, served at the address of a pod that a story makes: no kubelet runs here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from controlplane import netns
from controlplane.cluster import API_ONLY, ControlPlane
from dashboard_gate import LANES, GateDay
from installation import REPOSITORY
from patience import Patience, eventually
from plimsoll.keeper.page import metrics_text
from plimsoll.render.gateway_objects import PAGE_PORT, gate_selector

TEAM: Final = "team"
ADDRESS: Final = netns.NODE_ADDRESSES[-1]
"""The API server asks no loopback address, so the pod has one of those that nodes have inside."""
PROGRAM: Final = Path(sys.executable).with_name("plimsoll")
GATEWAY: Final = {"gates": 1, "readyGates": 1, "isDoor": True, "name": "chat-gate"}

pytestmark = pytest.mark.skipif(
    not netns.inside(), reason="a pod's address that is no loopback is there in a namespace only"
)


class Desk(NamedTuple):
    """A cluster with one gate, and who may see it."""

    cluster: ControlPlane
    page_url: str

    def says(self, *words: str, who: str | None = None) -> subprocess.CompletedProcess[str]:
        """The command as one of the people, or without a cluster."""
        given = (
            ()
            if who is None
            else ("--kubeconfig", self.cluster.service_account_kubeconfig(TEAM, who))
        )
        return subprocess.run(
            [PROGRAM, "gate", *words, *given], capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    day = GateDay(("chat-h100-0", "chat-h100-1"))
    for minute in range(15 * 60):
        day.minute(minute / 60)
    text = metrics_text(day.told, day.tally, LANES)
    with serving(text) as url, ControlPlane(parts=API_ONLY) as cluster:
        cluster.ensure_namespace(TEAM)
        for path in sorted((REPOSITORY / "crds").glob("*.yaml")):
            cluster.kubectl("apply", "--server-side", "-f", path)
        eventually(
            lambda: cluster.kubectl("get", "infd", "-A", check=False).returncode == 0,
            within=Patience.CRD_SERVED,
            says="the API server serves our kinds",
        )
        make(cluster)
        yield Desk(cluster, url)


class serving:  # noqa: N801 - reads as a word
    """A page at the keeper's port of the pod's address."""

    def __init__(self, text: str) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_page = self.path == "/metrics"
                self.send_response(200 if is_page else 404)
                self.end_headers()
                self.wfile.write(text.encode() if is_page else b"")

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer((ADDRESS, PAGE_PORT), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://{ADDRESS}:{PAGE_PORT}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def make(cluster: ControlPlane) -> None:
    """The InferenceDeployment with its gate, the gate's pod, and two people."""
    of_team = {"namespace": TEAM}
    raw = yaml.safe_load((REPOSITORY / "docs/examples/chat-and-batch.yaml").read_text())
    raw["metadata"] = {"name": "chat", **of_team}
    container = {"name": "keeper", "image": "nowhere/plimsoll:1"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "chat-gate-0", "labels": gate_selector("chat"), **of_team},
        "spec": {"containers": [container], "automountServiceAccountToken": False},
    }
    accounts = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, **of_team}}
        for name in ("default", "editor", "viewer")
    ]
    cluster.apply(*accounts, raw, pod)
    cluster.apply(
        role("infd", ["plimsoll.dev"], ["inferencedeployments"]),
        *(binding(name, "Role", "infd") for name in ("editor", "viewer")),
        # what Kubernetes' own roles are made of; no controller adds them up here
        binding("editor", "ClusterRole", "system:aggregate-to-edit"),
        binding("editor", "ClusterRole", "system:aggregate-to-view"),
        binding("viewer", "ClusterRole", "system:aggregate-to-view"),
    )
    for kind, name, status in (
        ("infd", "chat", {"gateway": GATEWAY}),
        ("pod", "chat-gate-0", {"podIP": ADDRESS, "phase": "Running"}),
    ):
        body = json.dumps({"status": status})
        cluster.kubectl(
            *("patch", kind, name, "-n", TEAM, "--subresource=status", "--type=merge", "-p", body)
        )


def role(name: str, groups: list[str], resources: list[str]) -> dict[str, Any]:
    rule = {"apiGroups": groups, "resources": resources, "verbs": ["get", "list", "watch"]}
    metadata = {"name": name, "namespace": TEAM}
    api = "rbac.authorization.k8s.io/v1"
    return {"apiVersion": api, "kind": "Role", "metadata": metadata, "rules": [rule]}


def binding(who: str, kind: str, name: str) -> dict[str, Any]:
    api = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{api}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{who}-{name.replace(':', '-')}", "namespace": TEAM},
        "roleRef": {"apiGroup": api, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": who, "namespace": TEAM}],
    }


def test_who_may_edit_sees_the_lanes(desk: Desk) -> None:
    said = desk.says("chat", "-n", TEAM, "-o", "json", who="editor")
    assert said.returncode == 0, said.stderr
    data = json.loads(said.stdout)
    assert {} == data["unread"]
    assert GATEWAY.items() <= data["gateway"].items()
    chat, batch = data["lanes"]
    assert chat["borrowed"] == chat["slots"] - chat["plannedSlots"] > 0 < batch["lent"]
    assert chat["queued"] > 0 < chat["refused"]["queue_wait"]
    assert all(each["promisedTokens"] <= each["kvTokens"] for each in data["workers"])


def test_who_may_view_sees_the_status_and_why_not_more(desk: Desk) -> None:
    said = desk.says("chat", "-n", TEAM, who="viewer")
    assert said.returncode == 0, said.stderr
    assert "1 of 1 gates ready; the Service leads to them" in said.stdout
    assert "chat-gate-0 is not counted: " in said.stdout
    assert 'cannot get resource "pods/proxy"' in " ".join(said.stdout.split())


def test_a_page_that_can_be_reached_needs_no_cluster(desk: Desk) -> None:
    first, second = (
        desk.says("--page", desk.page_url),
        desk.says("--page", f"{desk.page_url}/metrics"),
    )
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert first.stdout == second.stdout
    assert "queue_full" in first.stdout
