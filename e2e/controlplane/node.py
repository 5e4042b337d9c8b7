"""One real node: kubelet, containerd and runc, whose pods are real processes in real cgroups.

    with ControlPlane() as cluster, RealNode(cluster, gpus=1) as node: ...

Only inside `netns.py`. Its GPUs are a number in its status and nothing more. Pods have addresses
that this side reaches; pods reach no one outside.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from controlplane import fleet, netns
from controlplane.cluster import FOLDER_PREFIX, ControlPlane
from controlplane.fetch import is_fetched, node_parts
from controlplane.pki import write_kubeconfig
from controlplane.processes import Child
from patience import Patience, eventually

HERE: Final = Path(__file__).resolve().parent
CGROUPS: Final = Path("/sys/fs/cgroup")
UNINITIALIZED: Final = "node.cloudprovider.kubernetes.io/uninitialized"
HOUSEKEEPING: Final = "400ms"
"""Between two looks at a container's memory, at times twice that. By itself a kubelet takes 10 s, too long for
stories whose hours are short."""
REAL_LABEL: Final = "plimsoll.test/real"
SERVICES: Final = "10.96.0.0/16"
"""Service addresses are on this side, where whoever stands in for kube-proxy answers for them."""


def real_node_possible() -> str | None:
    """Why this process cannot start a real node; None when it can."""
    if not netns.inside():
        return netns.why_not() or "a real node needs `python e2e/controlplane/netns.py -- ...`"
    if not is_fetched():
        return "a real node needs `python e2e/controlplane/fetch.py` before"
    memory = (CGROUPS / "memory", CGROUPS / "cgroup.controllers")  # version 1, version 2
    if not any(path.exists() for path in memory):
        return "a real node needs a memory cgroup"
    return None


class RealNode:
    """A kubelet that has joined a control plane."""

    def __init__(
        self,
        cluster: ControlPlane,
        *,
        name: str = "real-0",
        address: str = netns.NODE_ADDRESSES[0],
        labels: Mapping[str, str] | None = None,
        gpus: int = 0,
        images: Sequence[Path] | None = None,
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.address = address
        self.labels = {REAL_LABEL: "true", **(labels or {})}
        self.gpus = gpus
        self.parts = node_parts()
        self.images = tuple(images or (self.parts.pause_image, self.parts.llama_image))
        self.dir = cluster.dir / f"node-{name}"
        self.processes: dict[str, Child] = {}
        self._cgroup = f"{cluster.dir.name}.{name}"
        number = netns.NODE_ADDRESSES.index(address)
        self._bridge = f"plimsoll{number}"
        self._pod_subnet = f"10.244.{number}.0/24"

    @property
    def kubelet_url(self) -> str:
        return f"https://{self.address}:{self.cluster.ports['kubelet']}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> Self:
        if reason := real_node_possible():
            raise RuntimeError(reason)
        try:
            self.dir.mkdir()
            sweep_cgroups()
            make_cgroup(self._cgroup)
            self._start_containerd()
            for image in self.images:
                self._ctr("images", "import", image)
            self._start_kubelet()
            self._introduce()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Leave nothing: no process, no mount, no network, no cgroup."""
        for child in reversed(self.processes.values()):
            child.kill()
        self.processes.clear()
        for pid in processes_naming(str(self.dir)):  # the shims
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        remove_cgroup(self._cgroup)
        for mount in mounts_under(self.dir):
            quietly("umount", "--lazy", mount)
        for namespace in sorted(Path("/run/netns").glob("cni-*")):
            quietly("ip", "netns", "delete", namespace.name)
        quietly("ip", "link", "delete", self._bridge)
        if os.environ.get("PLIMSOLL_KEEP") != "1":
            shutil.rmtree(self.dir, ignore_errors=True)

    # ---- its two processes ----------------------------------------------------------------------

    def _start_containerd(self) -> None:
        config = (HERE / "containerd.toml").read_text()
        for word, path in (
            ("NODE", self.dir),
            ("CNI", self.parts.cni),
            ("RUNC", self.parts.bin / "runc"),
        ):
            config = config.replace(f'"{word}', f'"{path}')
        (self.dir / "containerd.toml").write_text(config)
        (self.dir / "cni").mkdir()
        (self.dir / "cni" / "10-bridge.conflist").write_text(json.dumps(self._network()))
        self._start("containerd", self.parts.bin / "containerd", "--config", "containerd.toml")
        self._until_answered("containerd", ("version",), Patience.CONTAINERD_UP)

    def _start_kubelet(self) -> None:
        user = f"system:node:{self.name}"
        pki = self.cluster.pki
        client = pki.client(f"kubelet-{self.name}", f"/O=system:nodes/CN={user}")
        names = (f"IP:{self.address}", "IP:127.0.0.1", "DNS:localhost")
        server = pki.server(f"kubelet-server-{self.name}", f"/O=system:nodes/CN={user}", names)
        kubeconfig = write_kubeconfig(
            self.dir / "kubeconfig",
            server=self.cluster.api_url,
            user=user,
            ca=self.cluster.ca_file,
            credentials={
                "client-certificate": str(client.certificate),
                "client-key": str(client.key),
            },
        )
        config = self._kubelet_config() | {
            "tlsCertFile": str(server.certificate),
            "tlsPrivateKeyFile": str(server.key),
        }
        (self.dir / "kubelet.yaml").write_text(json.dumps(config))
        self._start(
            "kubelet",
            self.cluster.bin / "kubelet",
            *("--config", "kubelet.yaml", "--kubeconfig", kubeconfig),
            *("--root-dir", self.dir / "kubelet", "--cert-dir", self.dir / "kubelet" / "pki"),
            # its addresses are ours to say: by itself it takes none that is on loopback
            *("--hostname-override", self.name, "--cloud-provider", "external", "--v", "2"),
            *("--housekeeping-interval", HOUSEKEEPING),
        )

    def _start(self, name: str, *command: str | Path) -> None:
        path = f"{self.parts.bin}{os.pathsep}{self.cluster.environment['PATH']}"
        self.processes[name] = Child(
            name,
            command,
            log=self.cluster.dir / "log" / f"{self.name}-{name}.log",
            cwd=self.dir,
            env={**self.cluster.environment, "PATH": path},
        )

    def _kubelet_config(self) -> dict[str, Any]:
        cache = {"cacheAuthorizedTTL": "2s", "cacheUnauthorizedTTL": "2s"}
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "port": self.cluster.ports["kubelet"],
            "readOnlyPort": 0,
            "healthzPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True, "cacheTTL": "2s"},
                "x509": {"clientCAFile": str(self.cluster.ca_file)},
            },
            "authorization": {"mode": "Webhook", "webhook": cache},
            "containerRuntimeEndpoint": f"unix://{self.dir}/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "evictionHard": {
                "memory.available": "200Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "nodeStatusUpdateFrequency": "2s",
            "syncFrequency": "10s",
            "makeIPTablesUtilChains": False,
            "resolvConf": "",
            "clusterDomain": "cluster.local",
            "clusterDNS": ["10.96.0.10"],
            "shutdownGracePeriod": "0s",
            "registerNode": True,
            "maxPods": 30,
            "podLogsDir": f"{self.dir}/pod-logs",
        }

    def _network(self) -> dict[str, Any]:
        addresses = {
            "type": "host-local",
            "dataDir": f"{self.dir}/addresses",
            "ranges": [[{"subnet": self._pod_subnet}]],
            "routes": [{"dst": SERVICES}],
        }
        bridge = {
            "type": "bridge",
            "bridge": self._bridge,
            "isGateway": True,
            "ipMasq": False,
            "hairpinMode": True,
            "ipam": addresses,
        }
        return {"cniVersion": "1.0.0", "name": "plimsoll", "plugins": [bridge]}

    # ---- joining --------------------------------------------------------------------------------

    def _introduce(self) -> None:
        """Say what only a cloud or a device plugin would: addresses, labels, GPUs."""
        path = f"/api/v1/nodes/{self.name}"

        def registered() -> Any:
            for child in self.processes.values():
                child.must_run()
            return self.cluster.get(path)

        node = eventually(registered, within=Patience.KUBELET_UP, says=f"{self.name} registers")
        taints = [t for t in node["spec"].get("taints", []) if t["key"] != UNINITIALIZED]
        self._patch(path, {"metadata": {"labels": self.labels}, "spec": {"taints": taints}})
        addresses = [
            {"type": "InternalIP", "address": self.address},
            {"type": "Hostname", "address": self.name},
        ]
        capacity = {fleet.NVIDIA_GPU: str(self.gpus)}
        status = {"addresses": addresses} | ({"capacity": capacity} if self.gpus else {})
        self._patch(f"{path}/status", {"status": status})
        self.cluster.wait_for_node(self.name, within=Patience.KUBELET_UP)
        if self.gpus:
            eventually(
                lambda: (
                    self.cluster.get(path)["status"]["allocatable"][fleet.NVIDIA_GPU]
                    == str(self.gpus)
                ),
                within=Patience.NODE_READY,
                says=f"{self.name} offers its GPUs",
            )

    def _patch(self, path: str, change: Mapping[str, Any]) -> None:
        status, answer = self.cluster.request("PATCH", path, change)
        if status != http.client.OK:
            raise RuntimeError(f"PATCH {path}: {status} {answer}")

    def _until_answered(self, name: str, question: Sequence[str], within: float) -> None:
        def answers() -> bool:
            self.processes[name].must_run()
            return self._ctr(*question, check=False).returncode == 0

        eventually(answers, within=within, says=f"{name} answers")

    def _ctr(self, *args: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """containerd's own client, in the kubelet's namespace."""
        socket = self.dir / "containerd.sock"
        return self.cluster.run(
            self.parts.bin / "ctr", "-a", socket, "-n", "k8s.io", *args, check=check
        )


def cgroup_hierarchies() -> Iterator[Path]:
    """The one of version 2, or each of version 1."""
    if (CGROUPS / "cgroup.controllers").is_file():
        yield CGROUPS
        return
    for path in sorted(CGROUPS.iterdir()):
        if not path.is_symlink() and (path / "cgroup.procs").is_file():
            yield path


def make_cgroup(name: str) -> None:
    """The node's own root in every hierarchy, so that two nodes on a machine do not meet."""
    for hierarchy in cgroup_hierarchies():
        (hierarchy / name).mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):  # version 1 starts them empty
            if (hierarchy / name / file).is_file() and (hierarchy / file).is_file():
                (hierarchy / name / file).write_text((hierarchy / file).read_text())


def remove_cgroup(name: str) -> None:
    """Kill all that runs in it and take it away."""
    for hierarchy in cgroup_hierarchies():
        eventually(
            lambda root=hierarchy / name: emptied(root),  # type: ignore[misc]
            within=Patience.CGROUP_EMPTY,
            says=f"{hierarchy / name} is gone",
        )


def sweep_cgroups() -> None:
    """Remove those whose control plane is gone: their makers were killed."""
    for hierarchy in cgroup_hierarchies():
        for left in hierarchy.glob(f"{FOLDER_PREFIX}*"):
            folder = Path(tempfile.gettempdir()) / left.name.partition(".")[0]
            if not folder.exists():
                emptied(left)


def emptied(root: Path) -> bool:
    """One try: kill what is there, remove what is empty; whether all is gone."""
    if not root.is_dir():
        return True
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    for folder in sorted(folders, reverse=True):
        with suppress(OSError):
            for pid in (folder / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        with suppress(OSError):
            folder.rmdir()
    return not root.is_dir()


def processes_naming(text: str) -> Iterator[int]:
    """Other processes in this namespace whose command line has `text`."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (
                text.encode() in (folder / "cmdline").read_bytes()
                and int(folder.name) != os.getpid()
            ):
                yield int(folder.name)


def mounts_under(folder: Path) -> list[str]:
    """Innermost first."""
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return sorted((point for point in points if point.startswith(f"{folder}/")), reverse=True)


def quietly(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=False)
