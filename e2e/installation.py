"""Plimsoll as Helm installs it, with the operator as a process beside the cluster.

The chart brings CRDs, service account and RBAC; `operator.replicas=0` leaves the process to us. It
runs under its service account's token and can do nothing that the chart does not grant.
"""

from __future__ import annotations

import http.client
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from audit import AuditLog, Grant, granted
from controlplane.cluster import OUR_NAMESPACE, ControlPlane, free_ports
from controlplane.processes import Child
from patience import Patience, eventually, stretched

REPOSITORY: Final = Path(__file__).resolve().parents[1]
CHART: Final = REPOSITORY / "charts" / "plimsoll"
RELEASE: Final = "plimsoll"
USER: Final = f"system:serviceaccount:{OUR_NAMESPACE}:{RELEASE}"
ANOTHER_POD: Final = {"PLIMSOLL_IDENTITY": "another-pod"}
"""For an operator that is not the one before it: it waits until that one's Lease has run out."""
SHORT_LEASE: Final = {
    "PLIMSOLL_LEASE_SECONDS": "10",
    "PLIMSOLL_RENEW_DEADLINE_SECONDS": "8",
    "PLIMSOLL_RETRY_SECONDS": "1",
}
"""For who waits for that: as short as a machine allows on which an operator may get no turn for seconds. One that
cannot renew in time ends, as it should, and here nobody would start it again."""
# Most fake pods have no engine that could be read; nobody should wait for one.
VERIFY: Final = {"PLIMSOLL_VERIFY_SECONDS": "0.5", "PLIMSOLL_VERIFY_GRACE_SECONDS": "0.5"}


class Operator:
    """The operator's process."""

    def __init__(
        self, cluster: ControlPlane, kubeconfig: Path, settings: Mapping[str, str]
    ) -> None:
        self.cluster = cluster
        self.health_port, self.metrics_port = free_ports(2)
        environment = {
            **os.environ,
            "PLIMSOLL_KUBECONFIG": str(kubeconfig),
            "PLIMSOLL_HOST": "127.0.0.1",
            "PLIMSOLL_HEALTH_PORT": str(self.health_port),
            "PLIMSOLL_METRICS_PORT": str(self.metrics_port),
            "PLIMSOLL_LEASE_NAMESPACE": OUR_NAMESPACE,
            "PLIMSOLL_IDENTITY": f"{socket.gethostname()}-{self.health_port}",
            "PYTHONUNBUFFERED": "1",
            "PLIMSOLL_ALLOW_HOST_PATH": "true",  # real nodes have their models in folders
            **VERIFY,
            **settings,
        }
        command = (Path(sys.executable).with_name("plimsoll"), "run")
        self.process = Child(
            "operator", command, log=cluster.dir / "log" / "operator.log", env=environment
        )

    def get(self, path: str, *, port: int | None = None) -> tuple[int, str]:
        """Status and text of one of its own endpoints."""
        connection = http.client.HTTPConnection(
            "127.0.0.1",
            port or self.health_port,
            timeout=stretched(Patience.HTTP_ANSWER),
        )
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metrics(self) -> str:
        """Its own metrics, as Prometheus reads them."""
        return self.get("/metrics", port=self.metrics_port)[1]

    def wait_until_ready(self) -> None:
        """It leads and has seen the cluster."""

        def ready() -> bool:
            self.process.must_run()
            return self.get("/readyz")[0] == http.client.OK

        eventually(ready, within=Patience.OPERATOR_UP, says="the operator is ready")

    def stop(self) -> int:
        """SIGTERM, as Kubernetes stops a pod; its exit status."""
        return self.process.terminate(Patience.OPERATOR_GONE)

    def kill(self) -> None:
        """SIGKILL: nothing is said, nothing is given back."""
        self.process.kill()


class Installation:
    """One release of the chart in one cluster."""

    def __init__(self, cluster: ControlPlane, *values: str) -> None:
        self.cluster = cluster
        self.log = AuditLog(cluster.audit_log)
        self.operator: Operator | None = None
        # no agents either, unless asked for: on fake nodes nothing runs, and real ones have no such image
        defaults = ("operator.replicas=0", "agent.enabled=false")
        words = [word for value in (*defaults, *values) for word in ("--set", value)]
        cluster.helm(
            "upgrade",
            "--install",
            RELEASE,
            CHART,
            "-n",
            OUR_NAMESPACE,
            "--create-namespace",
            *words,
        )
        eventually(
            lambda: cluster.kubectl("get", "infd,gpunodes", "-A", check=False).returncode == 0,
            within=Patience.CRD_SERVED,
            says="the API server serves our kinds",
        )
        self.kubeconfig = cluster.service_account_kubeconfig(OUR_NAMESPACE, RELEASE)

    def start(self, *, kubeconfig: Path | None = None, **settings: str) -> Operator:
        """Start the operator, with further settings in its environment, and wait until it leads.

        One pod, whose container starts again: it has one name for all its lives, so a killed one's Lease is
        its own. `ANOTHER_POD` is not that one.
        """
        identity = {"PLIMSOLL_IDENTITY": f"{RELEASE}-in-{self.cluster.dir.name}"}
        self.operator = Operator(self.cluster, kubeconfig or self.kubeconfig, identity | settings)
        self.operator.wait_until_ready()
        return self.operator

    def stop(self) -> None:
        """Stop the operator, if it runs."""
        if self.operator is not None:
            self.operator.stop()
            self.operator = None

    def grants(self) -> frozenset[Grant]:
        """What the chart's RBAC, as installed, gives the operator."""
        manifest = self.cluster.helm("get", "manifest", RELEASE, "-n", OUR_NAMESPACE).stdout
        return granted(yaml.safe_load_all(manifest), USER)
