"""What a kubelet tells of its pods' memory, on every fake node, with figures that a story writes.

    with FakeKubelets(cluster) as kubelets:
        kubelets.hold("default", "worker-0", resident_bytes=3 << 30)
        kubelets.fail("a6000", status=503)

One server answers on the address of each fake node. It asks the API server about the token and about
`get nodes/stats`, as a real kubelet does, so that the audit log has the question. Pods are those that
the API server has on that node; a pod without figures holds `DEFAULT_RESIDENT_BYTES`.
"""

from __future__ import annotations

import datetime
import http.client
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from controlplane.cluster import ControlPlane
from controlplane.pki import KUBELET_ADDRESSES
from stand_ins.background import Background
from stand_ins.chaos_proxy import serving

DEFAULT_RESIDENT_BYTES: Final = 1 << 30
LOOPBACK: Final = tuple(address for address in KUBELET_ADDRESSES if address.startswith("127."))
BEARER: Final = "Bearer "
KEPT_SECONDS: Final = 5.0

Figure = int | Callable[[], int]


@dataclass(frozen=True)
class Holding:
    """What one container of a pod holds; a callable is asked at each request."""

    resident_bytes: Figure
    swap_bytes: int = 0


class FakeKubelets(Background):
    """The stats endpoint of all fake nodes of one control plane."""

    def __init__(
        self,
        cluster: ControlPlane,
        *,
        curve: Callable[[Mapping[str, Any]], int | None] = lambda _: None,
        has_fine_stamps: bool = False,
    ) -> None:
        """`curve` says what a pod without figures of its own holds, given the pod. Fine stamps have
        fractions of a second, which a kubelet's have not: for stories whose hours are seconds."""
        super().__init__("kubelets")
        self._cluster = cluster
        self._curve = curve
        self._stamp = fine_stamp if has_fine_stamps else stamp
        self._holdings: dict[tuple[str, str, str], Holding] = {}
        self._failing: dict[str, int] = {}
        self._asked: list[str] = []
        self._refusals: dict[tuple[str, str], tuple[float, int | None]] = {}

    # ---- what stories ask for -------------------------------------------------------------------

    def hold(
        self,
        namespace: str,
        pod: str,
        *,
        resident_bytes: Figure,
        swap_bytes: int = 0,
        container: str = "",
    ) -> None:
        """From now on this container (all of the pod's when empty) holds that much."""
        self._holdings[namespace, pod, container] = Holding(resident_bytes, swap_bytes)

    def fail(self, node: str, *, status: int) -> None:
        """Answer with this status until `recover`."""
        self._failing[node] = status

    def recover(self, node: str) -> None:
        self._failing.pop(node, None)

    @property
    def asked(self) -> tuple[str, ...]:
        """The node of each request that was let in, in order."""
        return tuple(self._asked)

    # ---- the server -----------------------------------------------------------------------------

    async def _start(self) -> None:
        self._server = web.Server(self._answer, handler_cancellation=True)
        self._door = await self._loop.create_server(
            self._server,
            LOOPBACK,
            self._cluster.fake_kubelet_port,
            ssl=serving(self._cluster.fake_kubelet_identity),
        )

    async def _stop(self) -> None:
        self._door.close()
        await self._server.shutdown(timeout=0.1)  # 0 would be without end

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.transport is None:
            return web.Response(status=http.client.BAD_REQUEST)
        address = request.transport.get_extra_info("sockname")[0]
        token = request.headers.get("Authorization", "").removeprefix(BEARER)
        return await self._loop.run_in_executor(None, self._look, request.path, address, token)

    def _look(self, path: str, address: str, token: str) -> web.Response:
        node = self._node_at(address)
        if node is None or path != "/stats/summary":
            return web.Response(status=http.client.NOT_FOUND)
        name = node["metadata"]["name"]
        if refused := self._refusal(name, token):
            return web.Response(status=refused)
        self._asked.append(name)
        if name in self._failing:
            return web.Response(status=self._failing[name])
        return web.json_response(self._summary(name))

    def _node_at(self, address: str) -> Mapping[str, Any] | None:
        nodes: list[Mapping[str, Any]] = self._cluster.get("/api/v1/nodes")["items"]
        entry = {"type": "InternalIP", "address": address}
        return next((n for n in nodes if entry in n["status"].get("addresses", [])), None)

    def _refusal(self, node: str, token: str) -> int | None:
        """401, 403, or None when the token may read this node's stats; kept for a while, as kubelets
        keep their webhooks' answers."""
        kept_seconds, kept = self._refusals.get((node, token), (0.0, None))
        if time.monotonic() - kept_seconds < KEPT_SECONDS:
            return kept
        refused = self._review_all(node, token)
        self._refusals[node, token] = (time.monotonic(), refused)
        return refused

    def _review_all(self, node: str, token: str) -> int | None:
        if not token:
            return http.client.UNAUTHORIZED
        who = self._review("authentication.k8s.io", "tokenreviews", {"token": token})
        if not who.get("authenticated"):
            return http.client.UNAUTHORIZED
        asked = {"verb": "get", "resource": "nodes", "subresource": "stats", "name": node}
        user = {"user": who["user"]["username"], "groups": who["user"]["groups"]}
        question = user | {"resourceAttributes": asked | {"version": "v1"}}
        answer = self._review("authorization.k8s.io", "subjectaccessreviews", question)
        return None if answer["allowed"] else http.client.FORBIDDEN

    def _review(self, group: str, resource: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        body = {
            "apiVersion": f"{group}/v1",
            "kind": "TokenReview" if resource == "tokenreviews" else "SubjectAccessReview",
            "spec": spec,
        }
        status, answer = self._cluster.request("POST", f"/apis/{group}/v1/{resource}", body)
        if status != http.client.CREATED:
            raise ConnectionError(f"{resource}: {status} {answer}")
        reviewed: Mapping[str, Any] = answer["status"]
        return reviewed

    # ---- the figures ----------------------------------------------------------------------------

    def _summary(self, node: str) -> dict[str, Any]:
        now = self._stamp()
        pods = self._cluster.get(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")["items"]
        return {
            "node": {"nodeName": node, "startTime": now, "memory": {"time": now}},
            "pods": [self._pod(pod, now) for pod in pods if pod["status"]["phase"] == "Running"],
        }

    def _pod(self, pod: Mapping[str, Any], now: str) -> dict[str, Any]:
        metadata = pod["metadata"]
        started = pod["status"].get("startTime", now)
        starts = {
            status["name"]: status.get("state", {}).get("running", {}).get("startedAt", started)
            for status in pod["status"].get("containerStatuses", [])
        }
        names = [container["name"] for container in pod["spec"]["containers"]]
        containers = [
            self._container(name, starts.get(name, started), now, holding=self._holding(pod, name))
            for name in names
        ]
        return {
            "podRef": {key: metadata[key] for key in ("name", "namespace", "uid")},
            "startTime": started,
            "containers": containers,
            "memory": {"time": now, "rssBytes": sum(c["memory"]["rssBytes"] for c in containers)},
        }

    def _holding(self, pod: Mapping[str, Any], container: str) -> Holding:
        """The container's own figures, else its pod's, else those of the curve, else the default."""
        place = pod["metadata"]["namespace"], pod["metadata"]["name"]
        for known in ((*place, container), (*place, "")):
            if known in self._holdings:
                return self._holdings[known]
        drawn = self._curve(pod)
        return Holding(DEFAULT_RESIDENT_BYTES if drawn is None else drawn)

    def _container(self, name: str, started: str, now: str, *, holding: Holding) -> dict[str, Any]:
        figure = holding.resident_bytes
        resident = figure() if callable(figure) else figure
        return {
            "name": name,
            "startTime": started,
            "cpu": {"time": now, "usageNanoCores": 0, "usageCoreNanoSeconds": 0},
            "memory": {
                "time": now,
                "usageBytes": resident,
                "workingSetBytes": resident,
                "rssBytes": resident,
            },
            "swap": {"time": now, "swapUsageBytes": holding.swap_bytes},
        }


def fine_stamp() -> str:
    """Now, with milliseconds."""
    now = datetime.datetime.now(datetime.UTC)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stamp() -> str:
    """Now, as a kubelet writes it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
