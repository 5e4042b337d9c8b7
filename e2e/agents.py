"""Agents beside the cluster: the shipped program with a token as a pod's, and cards that a file tells of.

The token is bound to a pod on the node, as the kubelet asks for one, so that the API server knows which node
speaks. The program is `plimsoll agent`; only NVML below it is a stand-in.
"""

from __future__ import annotations

import http.client
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from controlplane.cluster import OUR_NAMESPACE, ControlPlane
from controlplane.pki import write_kubeconfig
from controlplane.processes import Child
from installation import RELEASE
from patience import Patience
from stand_ins.nvml import ANSWERS, build, write_answers

ACCOUNT: Final = f"{RELEASE}-agent"
AGENT: Final = f"system:serviceaccount:{OUR_NAMESPACE}:{ACCOUNT}"
GPU_NODES: Final = "/apis/plimsoll.dev/v1alpha1/gpunodes"
MIB: Final = 1 << 20


def card(uuid: str, **changed: Any) -> dict[str, Any]:
    """An RTX A6000 that nobody uses."""
    told = {
        "name": "NVIDIA RTX A6000",
        "uuid": uuid,
        "memory": 49140 * MIB,
        "reserved": 464 * MIB,
        "used": 0,
        "capability": "8.6",
        "ecc": 0,
        "addressing": 0,
        "events": 8,
    }
    return {**told, **changed}


def kubeconfig_on(cluster: ControlPlane, node: str | None) -> Path:
    """Credentials of the agents' account: bound to a pod on that node, or to no pod at all."""
    spec: dict[str, Any] = {"expirationSeconds": 86400}
    if node is not None:
        pod = _pod(cluster, node)["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod"}
        spec["boundObjectRef"] = bound | {"name": pod["name"], "uid": pod["uid"]}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = f"/api/v1/namespaces/{OUR_NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    status, answer = cluster.request("POST", path, body)
    if status != http.client.CREATED:
        raise LookupError(f"no token for {ACCOUNT}: {status} {answer}")
    return write_kubeconfig(
        cluster.dir / "kubeconfig" / f"agent-{node or 'nowhere'}",
        server=cluster.api_url,
        user=AGENT,
        ca=cluster.ca_file,
        credentials={"token": answer["status"]["token"]},
    )


def _pod(cluster: ControlPlane, node: str) -> Any:
    """A pod of the agents' account on that node; what runs in it is of no matter to the token."""
    path = f"/api/v1/namespaces/{OUR_NAMESPACE}/pods"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"agent-on-{node}"},
        "spec": {
            "nodeName": node,
            "serviceAccountName": ACCOUNT,
            "containers": [{"name": "agent", "image": "plimsoll/plimsoll:story"}],
        },
    }
    status, answer = cluster.request("POST", path, pod)
    if status == http.client.CONFLICT:
        return cluster.get(f"{path}/agent-on-{node}")
    if status != http.client.CREATED:
        raise LookupError(f"no pod on {node}: {status} {answer}")
    return answer


class Agent:
    """`plimsoll agent` as a process, on a node whose cards answer from a file."""

    def __init__(self, cluster: ControlPlane, node: str, **settings: str) -> None:
        self.cluster, self.node = cluster, node
        self.folder = cluster.dir / f"driver-{node}"
        self.folder.mkdir(exist_ok=True)
        build(self.folder)
        self.settings = settings
        self._process: Child | None = None

    def say(self, *cards: Mapping[str, Any], **node: Any) -> None:
        """What its driver answers from now on."""
        write_answers(self.folder / "answers", {"driver": "580.95.05", **node}, cards)

    def start(self) -> None:
        """With the cards of the last `say`."""
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.folder),
            ANSWERS: str(self.folder / "answers"),
            "PLIMSOLL_KUBECONFIG": str(kubeconfig_on(self.cluster, self.node)),
            "PYTHONUNBUFFERED": "1",
            **self.settings,
        }
        self._process = Child(
            f"agent-{self.node}",
            (Path(sys.executable).with_name("plimsoll"), "agent"),
            log=self.cluster.dir / "log" / f"agent-{self.node}.log",
            env=environment,
        )

    def stop(self) -> int | None:
        """SIGTERM; its exit status."""
        return self._process.terminate(Patience.OPERATOR_GONE) if self._process else None

    def seen(self) -> Any:
        """The status of its node's GPUNode; LookupError while there is none."""
        if self._process is not None:
            self._process.must_run()
        return self.cluster.get(f"{GPU_NODES}/{self.node}")["status"]

    def condition(self, name: str) -> tuple[str, str]:
        """Status and reason of one of its conditions."""
        found: Sequence[Mapping[str, str]] = self.seen()["conditions"]
        each = next(each for each in found if each["type"] == name)
        return each["status"], each["reason"]
