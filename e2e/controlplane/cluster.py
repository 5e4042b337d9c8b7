"""A whole Kubernetes control plane on loopback, with random ports and a folder that is thrown away.

    with ControlPlane() as cluster:
        cluster.add_nodes(fleet.a6000_x4("big"))
        cluster.kubectl("get", "nodes")

etcd and the API server always run; the others by `parts` (kwok plays the kubelets of fake nodes).
Not there on purpose: kube-proxy (service addresses do not route), DNS, metrics-server.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import random
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import yaml

from controlplane.build import programs
from controlplane.pki import KUBELET_ADDRESSES, Identity, Pki, write_kubeconfig
from controlplane.processes import Child
from patience import Patience, eventually, stretched

HERE: Final = Path(__file__).resolve().parent
CONTROLLERS: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
KWOK: Final = "kwok"
ALL_PARTS: Final = (CONTROLLERS, SCHEDULER, KWOK)
API_ONLY: Final = ()
OUR_NAMESPACE: Final = "plimsoll-system"
PORTS: Final = range(20000, 32000)  # below those that the kernel gives to outgoing connections
PORT_NAMES: Final = ("etcd", "etcd-peer", "api", CONTROLLERS, SCHEDULER, KWOK, "kubelet", "fake")
FOLDER_PREFIX: Final = "plimsoll-"
ALIVE: Final = "alive"  # locked while the process that made the folder lives
FIRST_FAKE_ADDRESS: Final = 11  # 127.0.0.11 and up, one for each fake node
CONTENT_TYPES: Final = {
    "PATCH": "application/merge-patch+json",
    "POST": "application/json",
    "PUT": "application/json",
}

Manifest = dict[str, Any]


class CommandError(RuntimeError):
    """kubectl or helm said no; the message has what it said."""


class ControlPlane:
    """etcd, API server, controller-manager, scheduler and kwok, as children of this process."""

    def __init__(
        self,
        *,
        parts: Collection[str] = ALL_PARTS,
        audited_namespaces: Sequence[str] = (OUR_NAMESPACE,),
        extra_args: Mapping[str, Sequence[str]] | None = None,
        stages: Sequence[Path] = (HERE / "stages.yaml",),
    ) -> None:
        if unknown := set(parts) - set(ALL_PARTS):
            raise ValueError(f"no such parts: {sorted(unknown)}; there are {ALL_PARTS}")
        self.parts = tuple(part for part in ALL_PARTS if part in parts)
        self.processes: dict[str, Child] = {}
        self._audited = tuple(audited_namespaces)
        self._extra_args = dict(extra_args or {})
        self._stages = tuple(stages)
        self._fake_nodes = 0
        self.bin = programs()
        sweep_folders()
        self.dir, self._alive = folder_for_life()
        self.ports = dict(zip(PORT_NAMES, free_ports(len(PORT_NAMES)), strict=True))
        self._contexts: dict[tuple[Identity, bool], ssl.SSLContext] = {}
        self._looks = Looks(self.ports["api"], lambda: self._tls(self._identity("admin")))

    # ---- what callers ask for -------------------------------------------------------------------

    @property
    def api_url(self) -> str:
        return f"https://127.0.0.1:{self.ports['api']}"

    @property
    def admin_kubeconfig(self) -> Path:
        return self.dir / "kubeconfig" / "admin"

    @property
    def ca_file(self) -> Path:
        return self.dir / "pki" / "ca.crt"

    @property
    def audit_log(self) -> Path:
        return self.dir / "log" / "audit.log"

    @property
    def fake_kubelet_port(self) -> int:
        """The port that fake nodes publish as their kubelet's; nobody listens unless you do."""
        return self.ports["fake"]

    @property
    def fake_kubelet_identity(self) -> Identity:
        """A serving certificate for every address that a fake node may have."""
        return self._identity("fake-kubelet")

    @property
    def api_identity(self) -> Identity:
        """The API server's serving certificate, for what stands in front of it."""
        return self._identity("apiserver")

    @property
    def environment(self) -> dict[str, str]:
        """For a child that speaks to this cluster as admin: PATH, KUBECONFIG, private caches."""
        return {
            **os.environ,
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": str(self.admin_kubeconfig),
            "KUBECACHEDIR": str(self.dir / "kubectl-cache"),
            "HELM_CACHE_HOME": str(self.dir / "helm" / "cache"),
            "HELM_CONFIG_HOME": str(self.dir / "helm" / "config"),
            "HELM_DATA_HOME": str(self.dir / "helm" / "data"),
        }

    def run(
        self,
        *command: str | Path,
        input: str | None = None,  # noqa: A002 (subprocess's own word)
        check: bool = True,
        kubeconfig: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """A program in this cluster's environment; a failure is raised with what it said."""
        environment = self.environment
        if kubeconfig is not None:
            environment["KUBECONFIG"] = str(kubeconfig)
        words = [str(word) for word in command]
        done = subprocess.run(
            words,
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=stretched(Patience.KUBECTL_ANSWER),
        )
        if check and done.returncode != 0:
            said = (done.stderr or done.stdout).strip()
            raise CommandError(f"{' '.join(words)} ended with {done.returncode}: {said}")
        return done

    def kubectl(
        self,
        *args: str | Path,
        input: str | None = None,  # noqa: A002 (subprocess's own word)
        check: bool = True,
        kubeconfig: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        return self.run(
            self.bin / "kubectl", *args, input=input, check=check, kubeconfig=kubeconfig
        )

    def kubectl_json(self, *args: str | Path, kubeconfig: Path | None = None) -> Any:
        """What `kubectl ARGS -o json` printed."""
        return json.loads(self.kubectl(*args, "-o", "json", kubeconfig=kubeconfig).stdout)

    def helm(
        self,
        *args: str | Path,
        input: str | None = None,  # noqa: A002 (subprocess's own word)
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        return self.run(self.bin / "helm", *args, input=input, check=check)

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """`kubectl apply --server-side`, in the order given."""
        text = yaml.safe_dump_all([dict(manifest) for manifest in manifests])
        self.kubectl("apply", "--server-side", "-f", "-", input=text)

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str | None = None,
    ) -> tuple[int, Any]:
        """One call to the API server as admin, far cheaper than kubectl: status and answer."""
        if method == "GET":
            return self._looks.get(path)
        port, credentials = self.ports["api"], self._identity("admin")
        return ask(port, method, path, body, tls=self._tls(credentials), content_type=content_type)

    def get(self, path: str) -> Any:
        """The object at `path`; LookupError when there is none, so that waits can use it."""
        status, answer = self.request("GET", path)
        if status != http.client.OK:
            raise LookupError(f"GET {path}: {status} {answer}")
        return answer

    def add_nodes(self, *nodes: Mapping[str, Any], ready: bool = True) -> None:
        """Create Node objects, fake ones each with an address of its own; wait until all are Ready.

        Created, not applied: status in an apply is dropped.
        """
        names = []
        for node in nodes:
            filled = json.loads(json.dumps(node))
            addresses = [
                {"type": "InternalIP", "address": self._next_fake_address()},
                {"type": "Hostname", "address": filled["metadata"]["name"]},
            ]
            filled.setdefault("status", {}).setdefault("addresses", addresses)
            status, answer = self.request("POST", "/api/v1/nodes", filled)
            if status != http.client.CREATED:
                raise RuntimeError(f"node {filled['metadata']['name']}: {status} {answer}")
            names.append(filled["metadata"]["name"])
        if ready:
            for name in names:
                self.wait_for_node(name)

    def wait_for_node(self, name: str, *, within: float = Patience.NODE_READY) -> None:
        eventually(
            lambda: condition(self.get(f"/api/v1/nodes/{name}"), "Ready") == "True",
            within=within,
            says=f"node {name} is Ready",
        )

    def ensure_namespace(self, name: str) -> None:
        """Create it unless it is there, and wait for its default service account."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        status, answer = self.request("POST", "/api/v1/namespaces", body)
        if status not in (http.client.CREATED, http.client.CONFLICT):
            raise RuntimeError(f"namespace {name}: {status} {answer}")
        if CONTROLLERS in self.parts:
            self._wait_for_default_account(name)

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """A kubeconfig with a token of an existing service account: its RBAC, never admin's."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body["spec"] = {"expirationSeconds": 86400}
        status, answer = self.request("POST", path, body)
        if status != http.client.CREATED:
            raise LookupError(f"no token for {namespace}/{name}: {status} {answer}")
        return write_kubeconfig(
            self.dir / "kubeconfig" / f"{namespace}-{name}",
            server=self.api_url,
            user=f"system:serviceaccount:{namespace}:{name}",
            ca=self.ca_file,
            credentials={"token": answer["status"]["token"]},
            namespace=namespace,
        )

    def stop_part(self, name: str) -> None:
        """Kill one process, the API server say; `revive` brings it back with its data."""
        self.processes[name].kill()

    def revive(self, name: str) -> None:
        """Start a stopped process again and wait until it answers."""
        self.processes[name].restart()
        self._wait_for(name)

    def cpu_seconds(self) -> dict[str, float]:
        """What each process has used so far."""
        return {name: child.cpu_seconds() for name, child in self.processes.items()}

    # ---- start and stop -------------------------------------------------------------------------

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
        try:
            self._write_identities()
            self._start("etcd", self._etcd())
            self._start("kube-apiserver", self._api_server())
            self._wait_for("kube-apiserver")
            for part in self.parts:
                self._start(part, getattr(self, f"_{part.replace('-', '_')}")())
            for part in self.parts:
                self._wait_for(part)
            if CONTROLLERS in self.parts:  # pods are refused before
                self._wait_for_default_account("default")
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill everything and remove the folder; `PLIMSOLL_KEEP=1` leaves it to be looked at."""
        self._looks.close()
        for child in reversed(self.processes.values()):
            child.kill()
        self.processes.clear()
        if os.environ.get("PLIMSOLL_KEEP") == "1":
            (self.dir / ALIVE).unlink(missing_ok=True)  # nor is it swept up later
        else:
            shutil.rmtree(self.dir, ignore_errors=True)
        self._alive.close()

    # ---- the processes --------------------------------------------------------------------------

    def _write_identities(self) -> None:
        self.pki = Pki(self.dir / "pki")
        local = ("IP:127.0.0.1", "DNS:localhost")
        service = [f"DNS:kubernetes{tail}" for tail in ("", ".default", ".default.svc")]
        self.pki.server("apiserver", "/CN=kube-apiserver", (*local, "IP:10.96.0.1", *service))
        kubelets = [f"IP:{address}" for address in KUBELET_ADDRESSES]
        self.pki.server("fake-kubelet", "/CN=fake-kubelet", ("DNS:localhost", *kubelets))
        self.pki.client("to-kubelets", "/O=system:masters/CN=kube-apiserver-kubelet-client")
        self.pki.client("front-proxy", "/CN=front-proxy-client", self.pki.front_proxy_ca)
        for user, subject in (
            ("admin", "/O=system:masters/CN=admin"),
            (CONTROLLERS, "/CN=system:kube-controller-manager"),
            (SCHEDULER, "/CN=system:kube-scheduler"),
            (KWOK, "/O=system:masters/CN=kwok"),
        ):
            self.pki.client(user, subject)
            self.client_kubeconfig(user)
        policy = (HERE / "audit-policy.yaml").read_text()
        ours = [f"system:serviceaccounts:{namespace}" for namespace in self._audited]
        (self.dir / "audit-policy.yaml").write_text(policy.replace("OURS", json.dumps(ours)))

    def client_kubeconfig(self, user: str) -> Path:
        """A kubeconfig for a client certificate that the PKI has made."""
        identity = self._identity(user)
        return write_kubeconfig(
            self.dir / "kubeconfig" / user,
            server=self.api_url,
            user=user,
            ca=self.ca_file,
            credentials={
                "client-certificate": str(identity.certificate),
                "client-key": str(identity.key),
            },
        )

    def _start(self, name: str, command: Sequence[str | Path]) -> None:
        words = [self.bin / name, *command, *self._extra_args.get(name, ())]
        self.processes[name] = Child(
            name, words, log=self.dir / "log" / f"{name}.log", cwd=self.dir
        )

    def _etcd(self) -> list[str]:
        client = f"http://127.0.0.1:{self.ports['etcd']}"
        peer = f"http://127.0.0.1:{self.ports['etcd-peer']}"
        return [
            *("--name", "plimsoll", "--data-dir", f"{self.dir}/etcd", "--log-level", "warn"),
            "--unsafe-no-fsync",  # the data is thrown away
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"plimsoll={peer}"),
        ]

    def _api_server(self) -> list[str]:
        return [
            *("--etcd-servers", f"http://127.0.0.1:{self.ports['etcd']}"),
            *("--bind-address", "127.0.0.1", "--secure-port", str(self.ports["api"])),
            # without these two it wants a routed address
            *("--advertise-address", "127.0.0.1", "--endpoint-reconciler-type", "none"),
            *("--service-cluster-ip-range", "10.96.0.0/16", "--allow-privileged=true"),
            *("--authorization-mode", "Node,RBAC"),
            *("--enable-admission-plugins", "NodeRestriction"),
            *("--client-ca-file", "pki/ca.crt"),
            *(
                "--tls-cert-file",
                "pki/apiserver.crt",
                "--tls-private-key-file",
                "pki/apiserver.key",
            ),
            *("--service-account-issuer", "https://kubernetes.default.svc"),
            *("--service-account-key-file", "pki/service-accounts.pub"),
            *("--service-account-signing-key-file", "pki/service-accounts.key"),
            *("--kubelet-client-certificate", "pki/to-kubelets.crt"),
            *("--kubelet-client-key", "pki/to-kubelets.key"),
            *("--kubelet-certificate-authority", "pki/ca.crt"),
            *("--kubelet-preferred-address-types", "InternalIP"),
            *("--requestheader-client-ca-file", "pki/front-proxy-ca.crt"),
            *("--requestheader-allowed-names", "front-proxy-client"),
            *("--requestheader-username-headers", "X-Remote-User"),
            *("--requestheader-group-headers", "X-Remote-Group"),
            *("--requestheader-extra-headers-prefix", "X-Remote-Extra-"),
            *("--proxy-client-cert-file", "pki/front-proxy.crt"),
            *("--proxy-client-key-file", "pki/front-proxy.key"),
            *("--enable-aggregator-routing=true", "--shutdown-delay-duration=0s"),
            *("--audit-policy-file", "audit-policy.yaml", "--audit-log-path", str(self.audit_log)),
            *("--audit-log-maxsize", "2000"),  # MiB: never turned over under a reader
        ]

    def _kube_controller_manager(self) -> list[str]:
        return [
            *self._as_user(CONTROLLERS),
            "--use-service-account-credentials=true",
            *("--kube-api-qps", "200", "--kube-api-burst", "400"),  # or it idles 5 s at start
            *("--service-account-private-key-file", "pki/service-accounts.key"),
            *("--root-ca-file", "pki/ca.crt"),
            *("--cluster-signing-cert-file", "pki/ca.crt"),
            *("--cluster-signing-key-file", "pki/ca.key"),
            *("--cluster-cidr", "10.244.0.0/16", "--allocate-node-cidrs=false"),
        ]

    def _kube_scheduler(self) -> list[str]:
        return self._as_user(SCHEDULER)

    def _as_user(self, name: str) -> list[str]:
        kubeconfig = f"kubeconfig/{name}"
        return [
            *("--kubeconfig", kubeconfig, "--authentication-kubeconfig", kubeconfig),
            *("--authorization-kubeconfig", kubeconfig, "--leader-elect=false"),
            *("--bind-address", "127.0.0.1", "--secure-port", str(self.ports[name])),
        ]

    def _kwok(self) -> list[str]:
        stages = (word for stage in self._stages for word in ("--config", str(stage)))
        return [
            *("--kubeconfig", "kubeconfig/kwok", "--cidr", "10.245.0.0/16"),
            *("--manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake"),
            *("--node-ip", "127.0.0.1", "--node-port", str(self.fake_kubelet_port)),
            *("--server-address", f"127.0.0.1:{self.ports[KWOK]}"),
            *("--tls-cert-file", "pki/fake-kubelet.crt"),
            *("--tls-private-key-file", "pki/fake-kubelet.key"),
            *("--node-lease-duration-seconds", "40", *stages),
        ]

    # ---- waits and small tools ------------------------------------------------------------------

    def _wait_for(self, name: str) -> None:
        is_api = name == "kube-apiserver"
        port = self.ports["api" if is_api else name]
        path = "/readyz" if is_api else "/healthz"
        tls = self._tls(self._identity("admin"), verify=is_api)

        def answers() -> bool:
            for needed in ("etcd", name):
                self.processes[needed].must_run()
            return ask(port, "GET", path, tls=tls)[0] == http.client.OK

        within = Patience.API_READY if is_api else Patience.PART_READY
        with self._log_of(name):
            eventually(answers, within=within, says=f"{name} answers {path}")

    def _wait_for_default_account(self, namespace: str) -> None:
        eventually(
            lambda: self.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"),
            within=Patience.PART_READY,
            says=f"namespace {namespace} has its default service account",
        )

    @contextmanager
    def _log_of(self, name: str) -> Iterator[None]:
        """A wait that fails says what the process said."""
        try:
            yield
        except AssertionError as error:
            error.add_note(f"{name}'s log ends:\n{self.processes[name].tail()}")
            raise

    def _identity(self, name: str) -> Identity:
        return Identity(self.dir / "pki" / f"{name}.crt", self.dir / "pki" / f"{name}.key")

    def _tls(self, identity: Identity, *, verify: bool = True) -> ssl.SSLContext:
        if (made := self._contexts.get((identity, verify))) is not None:
            return made
        context = ssl.create_default_context(cafile=str(self.ca_file))
        context.load_cert_chain(identity.certificate, identity.key)
        if not verify:  # controller-manager and scheduler sign for themselves
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        self._contexts[identity, verify] = context
        return context

    def _next_fake_address(self) -> str:
        address = f"127.0.0.{FIRST_FAKE_ADDRESS + self._fake_nodes}"
        if address not in KUBELET_ADDRESSES:
            raise RuntimeError("more fake nodes than addresses in their certificate")
        self._fake_nodes += 1
        return address


def condition(thing: Mapping[str, Any], kind: str) -> str:
    """The status of one condition, or Missing."""
    conditions = thing.get("status", {}).get("conditions", [])
    return next((str(c["status"]) for c in conditions if c["type"] == kind), "Missing")


class Looks:
    """GET by GET over one kept connection for each thread: stories look thousands of times, and a handshake
    costs both sides ten times what the answer does. Only reading is kept: it can be asked twice."""

    def __init__(self, port: int, tls: Callable[[], ssl.SSLContext]) -> None:
        self._port, self._tls = port, tls
        self._mine = threading.local()
        self._all: list[http.client.HTTPSConnection] = []

    def get(self, path: str) -> tuple[int, Any]:
        """Status and answer. Raises OSError when nobody answers, also on a fresh connection."""
        kept: http.client.HTTPSConnection | None = getattr(self._mine, "connection", None)
        if kept is not None:
            try:
                return exchange(kept, "GET", path)
            except (OSError, http.client.HTTPException):  # ended while nobody looked
                kept.close()
        else:
            kept = self._mine.connection = connect(self._port, self._tls())
            self._all.append(kept)
        try:
            return exchange(kept, "GET", path)
        except (OSError, http.client.HTTPException) as error:
            kept.close()
            if isinstance(error, OSError):
                raise
            raise ConnectionError(f"GET {path}: {error!r}") from error

    def close(self) -> None:
        """All of them; who looks again connects again."""
        for each in self._all:
            each.close()


def connect(port: int, tls: ssl.SSLContext) -> http.client.HTTPSConnection:
    """To a loopback port, on the first request."""
    return http.client.HTTPSConnection(
        "127.0.0.1", port, context=tls, timeout=stretched(Patience.HTTP_ANSWER)
    )


def exchange(
    connection: http.client.HTTPSConnection,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    content_type: str | None = None,
) -> tuple[int, Any]:
    """One request and its answer; JSON is read, other text comes as it is."""
    headers = {"Accept": "application/json"}
    if body is not None:
        headers["Content-Type"] = content_type or CONTENT_TYPES[method]
    payload = None if body is None else json.dumps(body)
    connection.request(method, path, body=payload, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    is_json = answer.headers.get_content_type() == "application/json"
    return answer.status, json.loads(text) if is_json else text


def ask(
    port: int,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    tls: ssl.SSLContext,
    content_type: str | None = None,
) -> tuple[int, Any]:
    """One HTTPS call to a loopback port, on a connection of its own."""
    connection = connect(port, tls)
    try:
        return exchange(connection, method, path, body, content_type)
    except http.client.HTTPException as error:  # the other side went away in mid-sentence
        raise ConnectionError(f"{method} {path}: {error!r}") from error
    finally:
        connection.close()


def folder_for_life() -> tuple[Path, IO[bytes]]:
    """A new folder and the lock that keeps it from being swept up. Others sweep meanwhile, also between the
    making of the lock's file and its locking; that folder is theirs then."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
        with suppress(BlockingIOError):
            return folder, locked_for_life(folder / ALIVE)


def locked_for_life(path: Path) -> IO[bytes]:
    """An open file with a lock that goes with this process, however it goes."""
    file = path.open("wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise
    return file


def sweep_folders() -> None:
    """Remove the folders of processes that were killed."""
    for alive in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*/{ALIVE}"):
        with suppress(OSError), alive.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(alive.parent, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports that nobody listens on now."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found
