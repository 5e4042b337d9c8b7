"""Does one operator keep up with thousands of workers?

    python benchmarks/watching.py --workers 2000

Local servers play kubelets (over TLS, 8 workers a node) and engines (vLLM's real page of 50 kB); the real
sources and histories ask and remember. Told are seconds of a round without its jitter, CPU of the asking
side, its memory, and what all histories weigh. The servers run in processes of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import ssl
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "operator"), str(ROOT / "e2e")]

from aiohttp import web  # noqa: E402

from controlplane.pki import Pki  # noqa: E402
from plimsoll.controller.history import Histories  # noqa: E402
from plimsoll.controller.kept import pack  # noqa: E402
from plimsoll.decide import Key  # noqa: E402
from plimsoll.facts.series import EngineSample  # noqa: E402
from plimsoll.facts.watched import EngineReading, MemorySample, WatchedWorker  # noqa: E402
from plimsoll.telemetry.engines import EngineSource  # noqa: E402
from plimsoll.telemetry.fetch import Fetcher  # noqa: E402
from plimsoll.telemetry.kubelet import Credentials, KubeletSource  # noqa: E402
from plimsoll.telemetry.source import Rounds, Seen  # noqa: E402

PAGE = (ROOT / "tests" / "data" / "vllm_metrics.txt").read_bytes()
WORKERS_PER_NODE = 8
OTHER_PODS_PER_NODE = 30
ROUND_SECONDS = 30.0


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def container(name: str, at: str, started: str) -> dict[str, Any]:
    """As long as a kubelet's own."""
    filesystem = {
        "time": at, "availableBytes": 1 << 39, "capacityBytes": 1 << 40, "usedBytes": 1 << 20,
        "inodesFree": 1 << 24, "inodes": 1 << 25, "inodesUsed": 1000,
    }  # fmt: skip
    psi = {"total": 0, "avg10": 0, "avg60": 0, "avg300": 0}
    return {
        "name": name,
        "startTime": started,
        "cpu": {"time": at, "usageNanoCores": 10**9, "usageCoreNanoSeconds": 10**15},
        "memory": {
            "time": at, "usageBytes": 9 << 30, "workingSetBytes": 8 << 30, "rssBytes": 6 << 30,
            "pageFaults": 10**7, "majorPageFaults": 100, "psi": {"full": psi, "some": psi},
        },
        "rootfs": filesystem,
        "logs": filesystem,
        "swap": {"time": at, "swapUsageBytes": 0},
    }  # fmt: skip


def summary(node: str) -> bytes:
    """A node's summary: its workers and 30 other pods."""
    at, started = stamp(time.time() - 5), stamp(time.time() - 86400)
    names = [f"{node}-{n}" for n in range(WORKERS_PER_NODE)]
    names += [f"{node}-other-{n}" for n in range(OTHER_PODS_PER_NODE)]
    pods = [
        {
            "podRef": {"name": name, "namespace": "team", "uid": name},
            "startTime": started,
            "containers": [container("engine", at, started)],
            "network": {"time": at, "interfaces": [{"name": "eth0", "rxBytes": 1, "txBytes": 1}]},
            "volume": [{"name": "home", "time": at, "usedBytes": 1 << 20}],
        }
        for name in names
    ]
    return json.dumps({"node": {"nodeName": node}, "pods": pods}).encode()


def serve(identity: tuple[str, str] | None, told: Connection) -> None:
    """Answer until killed; a summary for whoever asks with a node's name, else the page."""

    async def run() -> None:
        made: dict[str, tuple[float, bytes]] = {}

        async def answer(request: web.BaseRequest) -> web.Response:
            if identity is None:
                return web.Response(body=PAGE)
            node = request.headers["Host"]
            if node not in made or time.time() - made[node][0] > ROUND_SECONDS:
                made[node] = (time.time(), summary(node))
            return web.Response(body=made[node][1])

        tls = None
        if identity is not None:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(*identity)
        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        await web.TCPSite(runner, "0.0.0.0", 0, ssl_context=tls, backlog=1024).start()
        told.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


def started(identity: tuple[str, str] | None) -> tuple[multiprocessing.Process, int]:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(identity, there), daemon=True)
    process.start()
    return process, here.recv()


class Silent:
    """Counts what went wrong."""

    def __init__(self) -> None:
        self.reasons: dict[str, int] = {}

    def scraped(self, source: str, seconds: float) -> None:
        """Nothing to do."""

    def missed(self, source: str, reason: str, count: int = 1) -> None:
        """One more."""
        self.reasons[f"{source}/{reason}"] = self.reasons.get(f"{source}/{reason}", 0) + count


def host(node: int) -> str:
    """All of 127.0.0.0/8 is this machine: a node has an address of its own, as in a cluster."""
    return f"127.1.{node // 250}.{node % 250 + 1}"


async def measure(count: int, ca: str, kubelet_port: int, engine_port: int) -> dict[str, Any]:
    workers = [
        WatchedWorker(
            "team", "chat", "h100", f"w-{n}", "", "engine", "vllm",
            kubelet=f"{host(n // WORKERS_PER_NODE)}:{kubelet_port}",
            address=f"127.{2 + n // 62500}.{n // 250 % 250}.{n % 250 + 1}:{engine_port}",
        )
        for n in range(count)
    ]  # fmt: skip
    workers = [
        w._replace(pod_uid=f"{w.kubelet}-{n % WORKERS_PER_NODE}", pod=f"w-{n}")
        for n, w in enumerate(workers)
    ]
    tally, fetcher = Silent(), Fetcher(connections=68)

    def rounds(in_flight: int) -> Rounds:
        return Rounds(
            in_flight=in_flight, round_seconds=ROUND_SECONDS, clock=time.monotonic,
            chance=lambda: 0.0, spread=0.0,
        )  # fmt: skip

    async def credentials() -> Credentials:
        return Credentials(token="t", ca_file=ca, is_insecure=True)

    kubelets = KubeletSource(
        fetcher, credentials, rounds=rounds(4), tally=tally,
        clock=time.monotonic, wall_clock=time.time,
    )  # fmt: skip
    engines = EngineSource(
        fetcher, rounds=rounds(64), tally=tally, clock=time.monotonic, wall_clock=time.time
    )
    histories = Histories()
    histories.watch(Key(namespace="team", name="chat"), workers)
    figures: dict[str, Any] = {"workers": count}
    for name in ("first", "next"):
        began, cpu = time.monotonic(), time.process_time()
        parts: Sequence[Seen] = await asyncio.gather(kubelets.read(workers), engines.read(workers))
        for part in parts:
            histories.take(*part)
        histories.close_bins(time.time())
        histories.now(time.time())
        figures[f"{name}RoundSeconds"] = round(time.monotonic() - began, 2)
        figures[f"{name}RoundCpuSeconds"] = round(time.process_time() - cpu, 2)
    figures["memorySamples"], figures["engineSamples"] = len(parts[0].memory), len(parts[1].engines)
    figures["failures"] = tally.reasons
    await fetcher.close()
    return figures


def days(count: int, hours: int = 72) -> dict[str, Any]:
    """Three days of everybody: what they weigh, and how long the end of a bin and a write take."""
    key, before = Key(namespace="team", name="chat"), peak_mib()
    histories = Histories()
    histories.watch(
        key,
        [
            WatchedWorker("team", "chat", "h100", f"w-{n}", f"u-{n}", "engine", "vllm")
            for n in range(count)
        ],
    )
    now = time.time() // 600 * 600 - hours * 3600
    worst = 0.0
    for step in range(hours * 6):
        for sample in range(5):
            at = now + step * 600 + sample * 100 + 50
            histories.take(
                [
                    MemorySample(f"u-{n}", "engine", now, at, (6 << 30) + n * step)
                    for n in range(count)
                ],
                [
                    EngineReading(f"u-{n}", EngineSample(at, running=3.0, generated_tokens=at))
                    for n in range(count)
                ],
            )
        began = time.monotonic()
        histories.close_bins(now + step * 600 + 660)
        worst = max(worst, time.monotonic() - began)
    held = peak_mib() - before
    began = time.monotonic()
    packed = pack(histories.lives(key), bin_seconds=600.0)
    return {
        "days": hours / 24,
        "workersForDays": count,
        "historiesMiB": round(held, 1),
        "packPeakMiB": round(peak_mib() - before - held, 1),
        "endOfBinSeconds": round(worst, 3),
        "packSeconds": round(time.monotonic() - began, 2),
        "packedKiB": round(len(packed) / 1024),
    }


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2000)
    parser.add_argument("--days", type=int, default=0, help="three days of so many workers too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pki = Pki(Path(folder) / "pki")
        server = pki.server("kubelet", "/CN=kubelet", ("IP:127.0.0.1",))
        kubelets, kubelet_port = started((str(server.certificate), str(server.key)))
        engines, engine_port = started(None)
        ca = str(pki.ca.certificate)
        figures = asyncio.run(measure(arguments.workers, ca, kubelet_port, engine_port))
        for process in (kubelets, engines):
            process.terminate()
            process.join()
    figures["peakMiB"] = round(peak_mib())
    if arguments.days:
        figures |= days(arguments.days)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
