"""What a soak stands on: users' objects, an operator that is restarted as a kubelet would, and eyes.

Everything that is done on purpose goes through here and is written down as a deed; everything that is
seen is kept for `soak_checks`.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
import zlib
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from controlplane import fleet
from controlplane.cluster import CONTENT_TYPES, KWOK, ControlPlane, Manifest
from installation import Installation, Operator
from objects import small
from patience import NOT_YET
from soak_checks import (
    OBJECTS,
    Cause,
    Deed,
    Departure,
    History,
    Quiet,
    Sight,
    Write,
    difference,
)
from stand_ins.chaos_proxy import ChaosProxy, Mutation
from stand_ins.engines import age_seconds
from stand_ins.kubelet import FakeKubelets
from world import WORKERS_OF, World

STEADY, OTHER, LEAKY, REFUSED = "steady", "other", "leaky", "plant-assistant"
PLANNED: Final = (STEADY, OTHER)
"""Objects that must be well, with nothing written, when it is quiet."""
POOLS: Final = {STEADY: "steady-h100", OTHER: "other-a6000", LEAKY: "leaky-h100"}
WORKERS: Final = {STEADY: 3, OTHER: 2, LEAKY: 3}
BUDGET: Final = 3
GIB: Final = 1 << 30
HOUR_SECONDS: Final = 20.0
LEAK_PER_HOUR: Final = 4 * GIB
RESYNC_SECONDS: Final = 5.0
WATCH_CHECK_SECONDS: Final = 5.0
LEASE_SECONDS: Final = 8.0
SETTINGS: Final[Mapping[str, str]] = {
    "PLIMSOLL_HOUR_SECONDS": str(HOUR_SECONDS),
    "PLIMSOLL_WATCH_SECONDS": "0.5",
    "PLIMSOLL_STALE_SECONDS": "4",
    "PLIMSOLL_FLOOR_BIN_SECONDS": str(HOUR_SECONDS / 6),
    "PLIMSOLL_FLOOR_FLUSH_SECONDS": "5",
    "PLIMSOLL_SETTLE_SECONDS": "5",
    "PLIMSOLL_RESYNC_SECONDS": str(RESYNC_SECONDS),
    "PLIMSOLL_WATCH_CHECK_SECONDS": str(WATCH_CHECK_SECONDS),
    "PLIMSOLL_LEASE_SECONDS": str(LEASE_SECONDS),
    "PLIMSOLL_RENEW_DEADLINE_SECONDS": "5",
    "PLIMSOLL_RETRY_SECONDS": "1",
}
FLOORS: Final = "-memory-floors"
"""ConfigMaps that are written by the clock: data, and no sign of unrest."""
LOOK_SECONDS: Final = 0.5
PROBE_SECONDS: Final = 2.0
PROBES: Final = 3
STARTS_SECONDS: Final = 60.0
"""So long nobody asks whether a young operator is alive: the chart's startup probe."""
MOST_OPERATORS: Final = 2


class LyingKubelets(FakeKubelets):
    """Kubelets whose figures may be anything: zero, below zero, no number, too many, or old. Without an API
    server they know nothing."""

    lie: str = ""

    def _look(self, path: str, address: str, token: str) -> web.Response:
        try:
            return super()._look(path, address, token)
        except (OSError, LookupError):
            return web.Response(status=http.client.SERVICE_UNAVAILABLE)

    def _summary(self, node: str) -> dict[str, Any]:
        told = super()._summary(node)
        if self.lie:
            for pod in told["pods"]:
                for container in pod["containers"]:
                    container["memory"] |= LIES[self.lie]
        return told


LIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "zero": {"rssBytes": 0},
    "below zero": {"rssBytes": -GIB},
    "no number": {"rssBytes": "NaN"},
    "more than there is": {"rssBytes": 1 << 62},
    "an hour old": {"time": "2026-01-01T00:00:00Z"},
    "missing": {"rssBytes": None},
}


@dataclass
class Runner:
    """One operator's process and what its probes said."""

    operator: Operator
    begun_seconds: float = field(default_factory=time.monotonic)
    is_frozen: bool = False
    probed_seconds: float = 0.0
    failed_probes: int = 0

    @property
    def is_running(self) -> bool:
        return self.operator.process.is_running


class Ground:
    """A cluster with users' objects, an operator behind a wire, and what is known of them."""

    def __init__(self, installed: Installation, wire: ChaosProxy, kubelets: LyingKubelets) -> None:
        self.installed, self.wire, self.kubelets = installed, wire, kubelets
        self.cluster: ControlPlane = installed.cluster
        self.world = World(installed, "soak")
        self.kubeconfig: Path = wire.kubeconfig(installed.kubeconfig)
        self.runners: list[Runner] = []
        self.exits: Counter[str] = Counter()
        self.deeds: list[Deed] = []
        self.sights: list[Sight] = []
        self.quiets: list[Quiet] = []
        self.left: dict[str, Manifest] = {}
        self.pods: dict[str, tuple[str, float]] = {}
        """By name of each worker that was ever seen: its InferenceDeployment, and when it was seen last."""
        self.looks = 0
        self.has_api = True
        self._looked_seconds = 0.0

    # ---- the beginning --------------------------------------------------------------------------

    @staticmethod
    def fleet() -> tuple[Manifest, ...]:
        """Enough cards that a node may go."""
        return (
            *(fleet.h100_x8(f"h100-{number}") for number in range(3)),
            *(fleet.a6000_x4(f"a6000-{number}") for number in range(2)),
        )

    def populate(self) -> None:
        """Users' objects: two that are well, one whose workers leak, one that is refused."""
        self.start_operator()
        recycling = {
            "cooldown": "1s",
            "drainTimeout": "3s",
            "surge": "Never",
            "maxPerDay": BUDGET,
        }
        other = small(self.world, name=OTHER, workers=WORKERS[OTHER], recycling={"mode": "Observe"})
        other["spec"]["pools"][0] |= {
            "name": "a6000",
            "gpu": {"product": fleet.A6000.product, "perWorker": 1},
        }
        steady = small(self.world, name=STEADY, workers=WORKERS[STEADY], recycling=recycling)
        leaky = small(self.world, name=LEAKY, workers=WORKERS[LEAKY], recycling=recycling)
        for raw in (steady, other, leaky, self.world.example("edge-assistant")):
            name = raw["metadata"]["name"]
            path = self.path(OBJECTS, group="plimsoll.dev/v1alpha1")
            code, made = self.cluster.request("POST", path, raw)
            if code != 201:
                raise RuntimeError(f"{name}: {code} {made}")
            self.left[name] = users_part(made)

    @staticmethod
    def leaks(pod: Mapping[str, Any]) -> int | None:
        """What a worker holds: about half of the leaky ones gain a lot, all others nothing."""
        metadata = pod["metadata"]
        is_leaky = metadata["labels"].get(WORKERS_OF) == LEAKY
        if not is_leaky or zlib.crc32(metadata["uid"].encode()) % 2:
            return 4 * GIB
        return 4 * GIB + int(LEAK_PER_HOUR * age_seconds(pod) / HOUR_SECONDS)

    # ---- doing ----------------------------------------------------------------------------------

    def path(self, plural: str, name: str = "", *, group: str = "") -> str:
        root = f"/apis/{group}" if group else "/api/v1"
        tail = f"/{name}" if name else ""
        return f"{root}/namespaces/{self.world.namespace}/{plural}{tail}"

    def did(self, cause: Cause, deployment: str = "", pod: str = "") -> None:
        self.deeds.append(Deed(time.time(), cause, deployment, pod))

    def ask(
        self, method: str, path: str, body: Any = None, *, content_type: str | None = None
    ) -> Any:
        """As admin; ConnectionError where the API server did not do it."""
        code, answer = self.cluster.request(method, path, body, content_type=content_type)
        if not 200 <= code < 300:
            raise ConnectionError(f"{method} {path}: {code} {answer}")
        return answer

    def user_changes(self, name: str, patch: Mapping[str, Any], *causes: Cause) -> None:
        """The user changes an object of theirs."""
        for cause in causes:
            self.did(cause, name)
        path = self.path(OBJECTS, name, group="plimsoll.dev/v1alpha1")
        self.left[name] = users_part(
            self.ask("PATCH", path, patch, content_type=CONTENT_TYPES["PATCH"])
        )

    def start_operator(self) -> None:
        """One more process, as a kubelet starts it: nobody waits."""
        self.runners.append(Runner(Operator(self.cluster, self.kubeconfig, SETTINGS)))

    def leader(self) -> Runner | None:
        """One that runs and is not frozen, the oldest."""
        alive = [each for each in self.runners if each.is_running and not each.is_frozen]
        return alive[0] if alive else None

    def freeze(self) -> Runner | None:
        """SIGSTOP to the operator that runs; another one is started, as on another node."""
        runner = self.leader()
        if runner is None or len(self.runners) >= MOST_OPERATORS:
            return None
        os.kill(runner.operator.process.pid, signal.SIGSTOP)
        runner.is_frozen = True
        self.start_operator()
        return runner

    def thaw(self, runner: Runner) -> None:
        with suppress(ProcessLookupError):
            os.kill(runner.operator.process.pid, signal.SIGCONT)
        runner.is_frozen, runner.failed_probes = False, 0

    def scale_back(self) -> None:
        """Where two run, as one was frozen for too short to lose the Lease, the younger is told to stop."""
        alive = [each for each in self.runners if each.is_running and not each.is_frozen]
        for runner in alive[1:]:
            runner.operator.stop()
            self.exits["told to stop, for two ran"] += 1
            self.runners.remove(runner)

    def stop(self) -> None:
        for runner in self.runners:
            if runner.is_frozen:
                self.thaw(runner)
            runner.operator.kill()

    # ---- seeing ---------------------------------------------------------------------------------

    def look(self) -> bool:
        """Restart who ended, and see what is there; not more often than twice a second. Always true."""
        now = time.monotonic()
        if now - self._looked_seconds < LOOK_SECONDS:
            return True
        self._looked_seconds = now
        self._supervise(now)
        if self.has_api:
            with suppress(*NOT_YET):
                self._see()
        return True

    def _supervise(self, now: float) -> None:
        for runner in tuple(self.runners):
            if not runner.is_running:
                self.exits[f"exit {runner.operator.process.returncode}"] += 1
                self.runners.remove(runner)
                continue
            is_young = now - runner.begun_seconds < STARTS_SECONDS
            if runner.is_frozen or is_young or now - runner.probed_seconds < PROBE_SECONDS:
                continue
            runner.probed_seconds = now
            runner.failed_probes = 0 if _is_alive(runner.operator) else runner.failed_probes + 1
            if runner.failed_probes >= PROBES:
                self.exits["killed by its liveness probe"] += 1
                runner.operator.kill()
                self.runners.remove(runner)
        if not [each for each in self.runners if not each.is_frozen]:
            self.start_operator()

    def _see(self) -> None:
        now = time.time()
        for name in self.left:
            seen = users_part(self.world.object(name))
            if seen != self.left[name]:
                self.sights.append(Sight(now, name, self.left[name], seen))
        for pod in self.world.pods():
            metadata = pod["metadata"]
            owner = metadata.get("labels", {}).get(WORKERS_OF, "")
            if owner in WORKERS:
                self.pods[metadata["name"]] = (owner, now)
        self.looks += 1

    def what_is_wrong(self) -> str:
        """Empty when every object is answered, its workers run and its children are as planned."""
        leader = self.leader()
        if leader is None:
            return "no operator runs"
        try:
            if leader.operator.get("/readyz")[0] != http.client.OK:
                return "the operator is not ready"
            for name in (*PLANNED, LEAKY, REFUSED):
                if wrong := self._wrong_with(name):
                    return f"{name}: {wrong}"
        except (*NOT_YET, http.client.HTTPException) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def _wrong_with(self, name: str) -> str:
        thing = self.world.object(name)
        status = thing.get("status", {})
        if status.get("observedGeneration") != thing["metadata"]["generation"]:
            return "its status speaks of an older generation"
        if name == REFUSED:
            return "" if self.world.condition(name, "Planned")["status"] == "False" else "planned"
        wanted = thing["spec"]["replicas"]
        pool = self.world.deployments()[POOLS[name]]
        if pool["spec"]["replicas"] != wanted:
            return f"{POOLS[name]} has {pool['spec']['replicas']} replicas, not {wanted}"
        made = {key: pool["status"].get(key) for key in ("replicas", "updatedReplicas")}
        if pool["status"].get("observedGeneration") != pool["metadata"]["generation"] or (
            set(made.values()) != {wanted}
        ):
            return f"its controllers have not made {wanted} workers of {POOLS[name]} yet: {made}"
        container = pool["spec"]["template"]["spec"]["containers"][0]
        if STRANGER in json.dumps(container):
            return f"{POOLS[name]} keeps what a stranger put there"
        self.world.get(f":services/{name}")
        self.world.get(f"policy/v1:poddisruptionbudgets/{POOLS[name]}")
        if name != LEAKY and (
            self.world.condition(name, "Ready")["status"] != "True"
            or status.get("readyReplicas") != wanted
        ):
            return f"not all of {wanted} workers are ready: {status.get('readyReplicas')}"
        return ""

    def written_since(self, at_seconds: float) -> tuple[str, ...]:
        """What the operator sent since then about objects that should be quiet, and what it changed; figures
        that are told anew by the clock are left out."""
        found = []
        before: dict[str, Any] = {}
        for each in self.wire.mutations:
            if FLOORS in each.path or is_about(each, LEAKY):
                continue
            body = read(each.body)
            told = gist(body) if each.path.endswith("/status") else None
            is_old_news = told is not None and before.get(each.path) == told
            if each.at_seconds >= at_seconds and not is_old_news:
                changed = difference(before.get(each.path), told) if told else ""
                after = each.at_seconds - at_seconds
                found.append(f"{after:.1f} s later {each.method} {each.path} {changed}".strip())
            if told is not None:
                before[each.path] = told
        return tuple(found)

    def history(self) -> History:
        """All of it, for the checks."""
        return History(
            deeds=tuple(self.deeds),
            writes=tuple(
                Write(each.at_seconds, each.method, each.path, read(each.body))
                for each in self.wire.mutations
            ),
            departures=self.departures(),
            sights=tuple(self.sights),
            quiets=tuple(self.quiets),
            # nothing of `steady` leaks, so nobody of it may be recycled; `other` only observes
            budgets={STEADY: 0, LEAKY: BUDGET, OTHER: 0},
        )

    def departures(self) -> tuple[Departure, ...]:
        """Workers that went, each with who asked first, as the audit log has it."""
        first: dict[str, Departure] = {}
        for request in self.installed.log.requests():
            use = request.use
            is_eviction = (use.resource, use.verb) == ("pods/eviction", "create")
            if not is_eviction and (use.resource, use.verb) != ("pods", "delete"):
                continue
            if use.namespace != self.world.namespace or not 200 <= request.code < 300:
                continue
            if request.user == KWOK:  # a kubelet's last word, after somebody else's first
                continue
            owner = owner_of_worker(use.name)
            if owner and use.name not in first:
                first[use.name] = Departure(
                    request.at_seconds, use.name, owner, request.user, is_eviction
                )
        alive = {pod["metadata"]["name"] for pod in self.world.pods()}
        for name, (owner, seen_seconds) in self.pods.items():
            if name not in first and name not in alive:
                first[name] = Departure(seen_seconds, name, owner, "")
        return tuple(sorted(first.values()))


STRANGER: Final = "a-stranger-was-here"


def owner_of_worker(pod: str) -> str:
    """The InferenceDeployment of a worker, by the worker's name."""
    return next((name for name, pool in POOLS.items() if pod.startswith(f"{pool}-")), "")


def users_part(thing: Mapping[str, Any]) -> Manifest:
    """What of an object is the user's."""
    metadata = thing["metadata"]
    return {
        "spec": thing["spec"],
        **{key: metadata.get(key) for key in ("labels", "annotations", "finalizers")},
    }


def gist(body: Any) -> Any:
    """A status without what is told anew by the clock: figures of workers' memory, every ten minutes of an
    hour that is shorter here. Verdicts and holds stay in."""
    status = dict(body.get("status", {}))
    status.pop("diagnosedAt", None)
    status["workers"] = [
        {key: each.get(key) for key in ("uid", "verdict", "hold")}
        for each in status.get("workers") or ()
    ]
    if "recycling" in status:
        status["recycling"] = {k: v for k, v in status["recycling"].items() if k != "hold"}
    status["conditions"] = {
        each["type"]: {
            "is": each.get("status"),
            "for": each.get("reason"),
            "since": each.get("lastTransitionTime"),
        }
        for each in status.get("conditions") or ()
    }
    return status


def is_about(mutation: Mutation, name: str) -> bool:
    """Whether it is about this object, one of its children or workers, or an event of it."""
    last = mutation.path.split("/")
    if any(part == name or part.startswith(f"{name}-") for part in last):
        return True
    body = read(mutation.body)
    about = body.get("involvedObject", body.get("regarding", {})) if isinstance(body, dict) else {}
    return bool(isinstance(about, dict) and about.get("name") == name)


def read(body: bytes) -> Any:
    """The operator sends JSON and nothing else."""
    try:
        return json.loads(body)
    except ValueError:
        return None


def _is_alive(operator: Operator) -> bool:
    try:
        return operator.get("/healthz")[0] == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
