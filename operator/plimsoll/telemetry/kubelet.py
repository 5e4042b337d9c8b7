"""How much memory do workers hold, by what their nodes' kubelets say?

`/stats/summary` straight from the kubelet, for which `get nodes/stats` is enough; through the API server
it would take nodes/proxy, which opens far more. Anonymous memory is `memory.rssBytes`, with its own time
stamp; swap stands beside it where the kubelet reports it (k8s.io/kubelet pkg/apis/stats/v1alpha1). The
whole summary is asked for: its short form (only_cpu_and_memory) has no swap.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from plimsoll.facts.watched import MemorySample, WatchedWorker
from plimsoll.telemetry.fetch import Fetcher
from plimsoll.telemetry.source import (
    Freshness,
    NoHistory,
    Reason,
    Rounds,
    ScrapeError,
    Seen,
    Tally,
)

log = logging.getLogger(__name__)

SOURCE: Final = "kubelet"
IN_FLIGHT: Final = 4
PATH: Final = "/stats/summary"
WAYS_OUT: Final = {
    Reason.TLS: "let kubelets serve certificates of the cluster's authority (serverTLSBootstrap), name "
    "theirs with PLIMSOLL_KUBELET_CA_FILE, or set PLIMSOLL_KUBELET_INSECURE_TLS=true",
    Reason.UNAUTHORIZED: "the kubelet needs webhook authentication (authentication.webhook.enabled)",
    Reason.FORBIDDEN: "bind the chart's ClusterRole, which grants get nodes/stats",
    Reason.TIMEOUT: "allow the operator to reach port 10250 of the nodes, or configure Prometheus",
    Reason.UNREACHABLE: "allow the operator to reach port 10250 of the nodes, or configure Prometheus",
}


class Credentials(NamedTuple):
    """As whom we ask kubelets, and by which authority we know them."""

    token: str | None = None
    ca_file: str | None = None
    """None trusts the system's authorities."""
    certificate_file: str | None = None
    private_key_file: str | None = None
    is_insecure: bool = False
    """Take the kubelet's certificate unseen: whoever answers on that address then gets our token."""


class KubeletSource(NoHistory):
    """The kubelets of the nodes that hold watched workers."""

    def __init__(
        self,
        fetcher: Fetcher,
        credentials: Callable[[], Awaitable[Credentials]],
        *,
        rounds: Rounds,
        tally: Tally,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        freshness: Freshness = Freshness(),  # noqa: B008 - a frozen record
    ) -> None:
        self._fetcher = fetcher
        self._credentials = credentials
        self._rounds = rounds
        self._tally = tally
        self._clock = clock
        self._wall_clock = wall_clock
        self._freshness = freshness
        self._tls: tuple[object, ssl.SSLContext] | None = None

    async def read(self, workers: Sequence[WatchedWorker]) -> Seen:
        """One summary from each kubelet, four at a time."""
        wanted: dict[str, dict[tuple[str, str], WatchedWorker]] = defaultdict(dict)
        for worker in workers:
            if worker.kubelet:
                wanted[worker.kubelet][worker.pod_uid, worker.container] = worker
        if not wanted:
            return Seen()
        try:
            credentials = await self._credentials()
            tls = self._context(credentials)
        except (ScrapeError, OSError) as error:
            reason = error.reason if isinstance(error, ScrapeError) else Reason.TLS
            self._tally.missed(SOURCE, reason, len(wanted))
            log.warning("no credentials for kubelets", extra={"error": str(error)})
            return Seen()
        headers = {"Authorization": f"Bearer {credentials.token}"} if credentials.token else {}
        found: list[MemorySample] = []

        async def ask(kubelet: str) -> bool:
            started = self._clock()
            try:
                body = await self._fetcher.get(f"https://{kubelet}{PATH}", headers=headers, tls=tls)
                samples, flaws = read_summary(
                    body, wanted[kubelet], self._wall_clock(), self._freshness
                )
            except ScrapeError as error:
                self._tally.missed(SOURCE, error.reason)
                if not self._rounds.failures(kubelet):
                    node = next(iter(wanted[kubelet].values())).node
                    _tell(node, kubelet, error)
                return False
            self._tally.scraped(SOURCE, self._clock() - started)
            for reason, count in flaws.items():
                self._tally.missed(SOURCE, reason, count)
            found.extend(samples)
            return True

        await self._rounds.ask(wanted, ask)
        return Seen(memory=tuple(found))

    def _context(self, credentials: Credentials) -> ssl.SSLContext:
        """Made anew only when the files or the will have changed; making one takes milliseconds."""
        files = (
            credentials.ca_file, credentials.certificate_file, credentials.private_key_file,
        )  # fmt: skip
        made_from = (
            credentials.is_insecure,
            *((file, Path(file).stat().st_mtime_ns) for file in files if file is not None),
        )
        if self._tls is None or self._tls[0] != made_from:
            self._tls = (made_from, tls_context(credentials))
        return self._tls[1]


def tls_context(credentials: Credentials) -> ssl.SSLContext:
    """How a kubelet is known. Raises OSError (ssl.SSLError is one) when a file cannot be read."""
    context = ssl.create_default_context(cafile=credentials.ca_file)
    if credentials.is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if credentials.certificate_file is not None:
        context.load_cert_chain(credentials.certificate_file, credentials.private_key_file)
    return context


def read_summary(
    body: bytes,
    wanted: Mapping[tuple[str, str], WatchedWorker],
    now_seconds: float,
    freshness: Freshness,
) -> tuple[tuple[MemorySample, ...], Counter[Reason]]:
    """The memory of the wanted (pod uid, container), and why others of them have none.

    Raises ScrapeError when the whole answer cannot be understood.
    """
    try:
        summary = json.loads(body)
        pods = summary["pods"]
        pairs = [
            ((pod["podRef"]["uid"], container["name"]), container)
            for pod in pods
            for container in pod.get("containers") or ()
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ScrapeError(Reason.MALFORMED, f"no summary: {error}") from error
    found: list[MemorySample] = []
    flaws: Counter[Reason] = Counter()
    seen: set[tuple[str, str]] = set()
    for key, container in pairs:
        if key not in wanted:
            continue
        seen.add(key)
        sample = _sample(key, container)
        flaw = Reason.ABSENT if sample is None else freshness.flaw(sample.at_seconds, now_seconds)
        if sample is None or flaw is not None:
            flaws[flaw or Reason.ABSENT] += 1
        else:
            found.append(sample)
    if missing := len(wanted) - len(seen):
        flaws[Reason.ABSENT] += missing
    return tuple(found), flaws


def _sample(key: tuple[str, str], container: Mapping[str, Any]) -> MemorySample | None:
    """None where a figure or a time is missing or makes no sense; a live engine never holds 0 bytes."""
    memory = container.get("memory")
    if not isinstance(memory, dict):
        return None
    anonymous, at = _bytes(memory.get("rssBytes")), _seconds(memory.get("time"))
    started = _seconds(container.get("startTime"))
    if not anonymous or at is None or started is None:
        return None
    swap = container.get("swap")
    swapped = _bytes(swap.get("swapUsageBytes")) if isinstance(swap, dict) else None
    return MemorySample(*key, started, at, anonymous + (swapped or 0))


def _bytes(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 60 else None


def _seconds(value: object) -> float | None:
    """RFC 3339 with its zone."""
    try:
        stamp = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return stamp.timestamp() if stamp is not None and stamp.tzinfo is not None else None


def _tell(node: str, kubelet: str, error: ScrapeError) -> None:
    """Once when it begins; the counter says the rest."""
    extra = {"node": node, "kubelet": kubelet, "reason": error.reason, "error": error.message}
    way_out = WAYS_OUT.get(error.reason)
    log.warning("kubelet tells nothing", extra=extra | ({"way_out": way_out} if way_out else {}))
