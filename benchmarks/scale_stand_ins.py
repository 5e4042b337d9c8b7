"""Who plays the kubelets of a thousand nodes and the engines of thousands of workers?

One process of its own: it watches pods, answers `/stats/summary` over TLS on the address of every node, and on
the address of every pod vLLM's own page of metrics with the blocks that the worker's plan promised. All figures
are flat, so that nothing is found to grow. It asks nobody about tokens: what that costs is the kubelet's.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from aiohttp import web

from controlplane.cluster import ControlPlane
from patience import Patience, eventually
from plimsoll.render.plan_labels import KV_TOKENS_LABEL
from stand_ins import engines
from stand_ins.pod_addresses import POD_ADDRESSES

NODE_ADDRESSES: Final = "10.251.0.0/16"
PAGE: Final = (Path(__file__).parents[1] / "tests" / "data" / "vllm_metrics.txt").read_text()
CONFIG: Final = "vllm:cache_config_info"
BLOCK_TOKENS: Final = "--block-size"
RESIDENT_BYTES: Final = 6 << 30
RETRY_SECONDS: Final = 0.2


class Place(NamedTuple):
    """Where the stand-ins listen and whom they watch."""

    api_port: int
    kubelet_port: int
    ca_file: str
    admin: tuple[str, str]
    """Certificate and key."""
    kubelet: tuple[str, str]
    """Certificate and key."""


class Pods:
    """Pods as a watch delivers them, by node and by address."""

    def __init__(self) -> None:
        self._pods: dict[str, Mapping[str, Any]] = {}
        self.by_node: dict[str, dict[str, Mapping[str, Any]]] = {}
        self.by_address: dict[str, Mapping[str, Any]] = {}
        self.started = threading.Event()

    def seen(self, pod: Mapping[str, Any], *, is_gone: bool) -> None:
        """A pod came, changed or went."""
        uid = pod["metadata"]["uid"]
        before = self._pods.pop(uid, None)
        for each in (before, pod) if before is not None else (pod,):
            self.by_node.get(each["status"].get("hostIP", ""), {}).pop(uid, None)
            self.by_address.pop(each["status"].get("podIP", ""), None)
        if is_gone:
            return
        status = pod["status"]
        self._pods[uid] = pod
        if status.get("phase") == "Running":
            self.by_node.setdefault(status["hostIP"], {})[uid] = pod
            self.by_address[status["podIP"]] = pod

    def watch_forever(self, place: Place) -> None:
        """List and watch, again and again."""
        while True:
            with suppress(OSError, http.client.HTTPException, ValueError):
                self._watch(place)
            time.sleep(RETRY_SECONDS)

    def _watch(self, place: Place) -> None:
        tls = ssl.create_default_context(cafile=place.ca_file)
        tls.load_cert_chain(*place.admin)
        line = http.client.HTTPSConnection("127.0.0.1", place.api_port, context=tls)
        line.request("GET", "/api/v1/pods?watch=1&resourceVersion=0")
        answer = line.getresponse()
        self.started.set()
        while text := answer.readline():
            event = json.loads(text)
            if event["type"] == "ERROR":
                return
            self.seen(event["object"], is_gone=event["type"] == "DELETED")


def serve(place: Place, is_up: Any) -> None:
    """Answer until killed."""
    pods = Pods()
    threading.Thread(target=pods.watch_forever, args=(place,), daemon=True).start()

    async def kubelet(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        address = request.transport.get_extra_info("sockname")[0]
        return web.json_response(summary(address, pods.by_node.get(address, {})))

    async def engine(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        pod = pods.by_address.get(request.transport.get_extra_info("sockname")[0])
        if pod is None:
            return web.Response(status=http.client.SERVICE_UNAVAILABLE)
        return web.Response(text=page(pod))

    async def run() -> None:
        loop = asyncio.get_running_loop()
        certificate, key = place.kubelet
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, key)
        await loop.create_server(
            web.Server(kubelet), "0.0.0.0", place.kubelet_port, ssl=tls, backlog=1024
        )
        await loop.create_server(web.Server(engine), "0.0.0.0", engines.PORT, backlog=1024)
        is_up.set()
        await asyncio.Event().wait()

    asyncio.run(run())


@contextmanager
def stand_ins(cluster: ControlPlane) -> Iterator[int]:
    """Kubelets and engines of everything in the cluster; gives the process's id. Needs our own netns."""
    for addresses in (NODE_ADDRESSES, POD_ADDRESSES):
        subprocess.run(["ip", "route", "replace", "local", addresses, "dev", "lo"], check=True)
    admin = cluster.pki.folder / "admin.crt", cluster.pki.folder / "admin.key"
    kubelet = cluster.fake_kubelet_identity
    place = Place(
        api_port=cluster.ports["api"],
        kubelet_port=cluster.fake_kubelet_port,
        ca_file=str(cluster.ca_file),
        admin=(str(admin[0]), str(admin[1])),
        kubelet=(str(kubelet.certificate), str(kubelet.key)),
    )
    spawning = multiprocessing.get_context("spawn")
    is_up = spawning.Event()
    process = spawning.Process(target=serve, args=(place, is_up), daemon=True)
    process.start()
    try:
        eventually(
            is_up.is_set, within=Patience.STAND_IN_ANSWER, says="kubelets and engines answer"
        )
        assert process.pid is not None
        yield process.pid
    finally:
        process.kill()
        process.join()


# ---- what they say ------------------------------------------------------------------------------


def summary(node: str, pods: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A kubelet's summary: the node's own workers, each flat."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "node": {"nodeName": node, "memory": {"time": now}},
        "pods": [_pod(pod, now) for pod in pods.values()],
    }


def _pod(pod: Mapping[str, Any], now: str) -> dict[str, Any]:
    metadata = pod["metadata"]
    return {
        "podRef": {key: metadata[key] for key in ("name", "namespace", "uid")},
        "startTime": pod["status"]["startTime"],
        "containers": [
            {
                "name": each["name"],
                "startTime": each["state"]["running"]["startedAt"],
                "memory": {
                    "time": now,
                    "usageBytes": RESIDENT_BYTES,
                    "workingSetBytes": RESIDENT_BYTES,
                    "rssBytes": RESIDENT_BYTES,
                },
                "swap": {"time": now, "swapUsageBytes": 0},
            }
            for each in pod["status"]["containerStatuses"]
        ],
    }


def page(pod: Mapping[str, Any]) -> str:
    """vLLM's page with the pool that the worker's plan promised."""
    args = pod["spec"]["containers"][0]["args"]
    block_tokens = int(args[args.index(BLOCK_TOKENS) + 1])
    tokens = int(pod["metadata"]["labels"][KV_TOKENS_LABEL])
    labels = (
        f'block_size="{block_tokens}",cache_dtype="auto",engine="0",'
        f'num_gpu_blocks="{-(-tokens // block_tokens)}"'
    )
    return _HEAD + f"{CONFIG}{{{labels}}} 1.0\n" + _TAIL


def _parts() -> tuple[str, str]:
    """The page before and after the line that differs."""
    lines = PAGE.splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if line.startswith(CONFIG + "{"))
    return "".join(lines[:at]), "".join(lines[at + 1 :])


_HEAD, _TAIL = _parts()
