"""What goes wrong in a soak: each kind of fault, how it is brought about and how it ends.

A fault that lasts gives its end back; the others are over at once. Chance comes in as an argument, so that
the same seed gives the same faults.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from random import Random
from typing import Any, Final, NamedTuple

from controlplane.cluster import Manifest
from soak_checks import OBJECTS, Cause
from soak_ground import LEAKY, LIES, OTHER, POOLS, STEADY, STRANGER, Ground
from world import WORKERS_OF

CRD: Final = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/inferencedeployments.plimsoll.dev"
)
DEPLOYMENTS: Final = ("deployments", "apps/v1")
BUDGETS: Final = ("poddisruptionbudgets", "policy/v1")
NODES: Final = ("h100-0", "h100-1", "h100-2", "a6000-0", "a6000-1")
USERS: Final = (STEADY, OTHER, LEAKY)
REPLICAS: Final = (2, 3, 4)
LENGTHS: Final = (4096, 8192)


class Fault(StrEnum):
    """Kinds, in the words of the report; docs/faults.md has a row for each."""

    API_SERVER_RESTARTED = "API server killed and started again"
    LONG_OUTAGE = "API server away for 5 minutes"
    WIRE_REFUSES = "nobody listens at the API server's address"
    WIRE_DROPS = "every third request dropped"
    WIRE_SLOW = "each request kept back"
    WIRE_BUSY = "429 with Retry-After to everything"
    WIRE_FAILS = "500 to everything"
    WIRE_EXPIRED = "410 to everything"
    CONFLICTS = "409 to the next writes"
    INVALID = "422 to the next writes"
    WATCH_EXPIRED = "watches end with a 410"
    WATCH_FAILED = "watches end with an ERROR event of 500"
    WATCH_SILENT = "watches stay open and say nothing"
    OPERATOR_KILLED = "operator killed (SIGKILL)"
    OPERATOR_FROZEN = "operator frozen (SIGSTOP), another takes over, it goes on"
    KUBELET_SILENT = "a kubelet answers 503"
    KUBELETS_LIE = "kubelets' figures zero, negative, no number, huge, old or missing"
    NODE_GONE = "node deleted and back"
    WORKER_KILLED = "worker deleted"
    SPEC_EDITED = "the user changes the spec"
    SCALED = "the user scales"
    LABEL_ADDED = "the user adds label and annotation"
    BUDGET_DELETED = "PodDisruptionBudget deleted"
    CHILD_EDITED = "a stranger changes or deletes a child"
    CRD_UPGRADED = "CRD replaced by a later one"


class Trouble(NamedTuple):
    """A fault that lasts."""

    seconds: float
    end: Callable[[], object]
    detail: str = ""


Injected = Trouble | str
"""Or what it was about, when it is over at once."""


def _user_object(chance: Random) -> str:
    return chance.choice(USERS)


# ---- the way to the API server ------------------------------------------------------------------


def api_server_killed(ground: Ground, chance: Random, seconds: float = 0.0) -> Injected:
    ground.did(Cause.API_SERVER_KILLED)
    ground.has_api = False
    ground.cluster.stop_part("kube-apiserver")

    def back() -> None:
        ground.cluster.revive("kube-apiserver")
        ground.has_api = True
        ground.did(Cause.API_SERVER_KILLED)  # lines of its log may be missing up to here

    return Trouble(seconds or chance.uniform(0.5, 4.0), back)


def long_outage(ground: Ground, chance: Random) -> Injected:
    return api_server_killed(ground, chance, 300.0)


def _wire(begin: Callable[[Ground, Random], str]) -> Callable[[Ground, Random], Injected]:
    def inject(ground: Ground, chance: Random) -> Injected:
        detail = begin(ground, chance)
        return Trouble(chance.uniform(2.0, 7.0), ground.wire.recover, detail)

    return inject


def _refuses(ground: Ground, chance: Random, status: int | None = None) -> str:
    ground.wire.refuse(status)
    return ""


def _slow(ground: Ground, chance: Random) -> str:
    seconds = chance.choice((0.3, 1.0, 3.0))
    ground.wire.slow_down(seconds)
    return f"by {seconds} s"


def _drops(ground: Ground, chance: Random) -> str:
    ground.wire.drop_every(3)
    return ""


def scripted(status: int) -> Callable[[Ground, Random], Injected]:
    """The next writes get this answer. Something must be written for it: a child is missing."""

    def inject(ground: Ground, chance: Random) -> Injected:
        times = chance.randint(1, 4)
        ground.wire.answer("", status, times=times)
        return f"{times} of them, {budget_deleted(ground, chance)}"

    return inject


# ---- watches ------------------------------------------------------------------------------------


def watches_end(code: int, reason: str) -> Callable[[Ground, Random], Injected]:
    def inject(ground: Ground, chance: Random) -> Injected:
        plural = chance.choice(("", OBJECTS, "pods", "nodes", "deployments"))
        status = {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason}
        ground.wire.say({"type": "ERROR", "object": status}, plural, ends=True)
        return plural or "all"

    return inject


def watches_are_silent(ground: Ground, chance: Random) -> Injected:
    plural = chance.choice(("", OBJECTS, "pods"))
    return f"{ground.wire.hush(plural)} of {plural or 'all'}"


# ---- the operator -------------------------------------------------------------------------------


def operator_killed(ground: Ground, chance: Random) -> Injected:
    runner = ground.leader()
    if runner is None:
        raise LookupError("none runs")
    runner.operator.kill()
    return ""


def operator_frozen(ground: Ground, chance: Random) -> Injected:
    runner = ground.freeze()
    if runner is None:
        raise LookupError("there is none to freeze")
    return Trouble(chance.choice((2.0, 15.0)), lambda: ground.thaw(runner))


# ---- figures ------------------------------------------------------------------------------------


def kubelet_silent(ground: Ground, chance: Random) -> Injected:
    node = chance.choice(NODES)
    ground.kubelets.fail(node, status=503)
    return Trouble(chance.uniform(5.0, 10.0), lambda: ground.kubelets.recover(node), node)


def kubelets_lie(ground: Ground, chance: Random) -> Injected:
    ground.kubelets.lie = chance.choice(sorted(LIES))

    def end() -> None:
        ground.kubelets.lie = ""

    return Trouble(chance.uniform(4.0, 8.0), end, str(ground.kubelets.lie))


# ---- the cluster and its people -----------------------------------------------------------------


def node_gone(ground: Ground, chance: Random) -> Injected:
    name = chance.choice(NODES)
    path = f"/api/v1/nodes/{name}"
    node: Manifest = ground.cluster.get(path)
    ground.did(Cause.NODE_GONE)
    ground.ask("DELETE", path)

    def back() -> None:
        ground.did(Cause.NODE_GONE)
        kept = {key: node["metadata"][key] for key in ("name", "labels", "annotations")}
        code, answer = ground.cluster.request(
            "POST", "/api/v1/nodes", node | {"metadata": kept, "spec": {}}
        )
        if code not in (201, 409):  # it may be back, and the answer was lost
            raise ConnectionError(f"node {name}: {code} {answer}")

    # pods of a node that is gone are collected after 40 to 60 s
    return Trouble(chance.choice((5.0, 10.0, 75.0)), back, name)


def worker_killed(ground: Ground, chance: Random) -> Injected:
    pods = sorted(p["metadata"]["name"] for p in ground.world.pods() if _is_worker(p))
    pod: str = chance.choice(pods)
    ground.did(Cause.WORKER_KILLED, pod=pod)
    ground.ask("DELETE", ground.path("pods", pod))
    return pod


def _is_worker(pod: Mapping[str, Any]) -> bool:
    return pod["metadata"].get("labels", {}).get(WORKERS_OF) in USERS


def spec_edited(ground: Ground, chance: Random) -> Injected:
    name = _user_object(chance)
    before = ground.left[name]["spec"]["limits"]["maxModelLen"]
    after = next(length for length in LENGTHS if length != before)
    ground.user_changes(name, {"spec": {"limits": {"maxModelLen": after}}}, Cause.EDITED)
    return f"{name}: maxModelLen {after}"


def scaled(ground: Ground, chance: Random) -> Injected:
    name = _user_object(chance)
    before = ground.left[name]["spec"]["replicas"]
    after = chance.choice([count for count in REPLICAS if count != before])
    causes = (Cause.SCALED_DOWN,) if after < before else ()
    ground.user_changes(name, {"spec": {"replicas": after}}, *causes)
    return f"{name}: {before} to {after}"


def label_added(ground: Ground, chance: Random) -> Injected:
    name = _user_object(chance)
    stamp = str(chance.randint(0, 999))
    metadata = {"labels": {"team": f"t{stamp}"}, "annotations": {"example.com/note": stamp}}
    ground.user_changes(name, {"metadata": metadata})
    return name


def budget_deleted(ground: Ground, chance: Random) -> Injected:
    pool = POOLS[_user_object(chance)]
    ground.ask("DELETE", ground.path(BUDGETS[0], pool, group=BUDGETS[1]))
    return pool


def child_edited(ground: Ground, chance: Random) -> Injected:
    name = _user_object(chance)
    pool = POOLS[name]
    path = ground.path(DEPLOYMENTS[0], pool, group=DEPLOYMENTS[1])
    what = chance.choice(("argument", "variable", "replicas", "Service deleted", "pool deleted"))
    ground.did(Cause.CHILD_CHANGED, name)
    if what == "Service deleted":
        ground.ask("DELETE", ground.path("services", name))
    elif what == "pool deleted":
        ground.ask("DELETE", path, {"propagationPolicy": "Background"}, content_type=JSON)
    elif what == "replicas":
        ground.ask("PATCH", path, {"spec": {"replicas": chance.choice((1, 6))}})
    else:
        thing = ground.ask("GET", path)
        container = thing["spec"]["template"]["spec"]["containers"][0]
        if what == "argument":
            container["args"].append(f"--{STRANGER}")
        else:
            container.setdefault("env", []).append({"name": "WHO", "value": STRANGER})
        ground.ask("PUT", path, thing)
    return f"{pool}: {what}"


JSON: Final = "application/json"


def crd_upgraded(ground: Ground, chance: Random) -> Injected:
    """A later one: the same and one more optional field, as an upgrade brings it."""
    crd = copy.deepcopy(ground.ask("GET", CRD))
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    field = f"later{chance.randint(0, 9999)}"
    schema["properties"]["status"]["properties"][field] = {"type": "string", "maxLength": 64}
    ground.ask("PUT", CRD, crd)
    return f"status.{field}"


# ---- the table ----------------------------------------------------------------------------------


class Kind(NamedTuple):
    """How one kind of fault is brought about, and what it must not meet."""

    inject: Callable[[Ground, Random], Injected]
    apart: str = ""
    """Of those with the same word only one at a time."""


FAULTS: Final[Mapping[Fault, Kind]] = {
    Fault.API_SERVER_RESTARTED: Kind(api_server_killed, "api"),
    Fault.LONG_OUTAGE: Kind(long_outage, "api"),
    Fault.WIRE_REFUSES: Kind(_wire(_refuses), "wire"),
    Fault.WIRE_DROPS: Kind(_wire(_drops), "wire"),
    Fault.WIRE_SLOW: Kind(_wire(_slow), "wire"),
    Fault.WIRE_BUSY: Kind(_wire(lambda g, c: _refuses(g, c, 429)), "wire"),
    Fault.WIRE_FAILS: Kind(_wire(lambda g, c: _refuses(g, c, 500)), "wire"),
    Fault.WIRE_EXPIRED: Kind(_wire(lambda g, c: _refuses(g, c, 410)), "wire"),
    Fault.CONFLICTS: Kind(scripted(409)),
    Fault.INVALID: Kind(scripted(422)),
    Fault.WATCH_EXPIRED: Kind(watches_end(410, "Expired")),
    Fault.WATCH_FAILED: Kind(watches_end(500, "InternalError")),
    Fault.WATCH_SILENT: Kind(watches_are_silent),
    Fault.OPERATOR_KILLED: Kind(operator_killed),
    Fault.OPERATOR_FROZEN: Kind(operator_frozen, "frozen"),
    Fault.KUBELET_SILENT: Kind(kubelet_silent, "kubelet"),
    Fault.KUBELETS_LIE: Kind(kubelets_lie, "lie"),
    Fault.NODE_GONE: Kind(node_gone, "node"),
    Fault.WORKER_KILLED: Kind(worker_killed),
    Fault.SPEC_EDITED: Kind(spec_edited),
    Fault.SCALED: Kind(scaled),
    Fault.LABEL_ADDED: Kind(label_added),
    Fault.BUDGET_DELETED: Kind(budget_deleted),
    Fault.CHILD_EDITED: Kind(child_edited),
    Fault.CRD_UPGRADED: Kind(crd_upgraded),
}


class Happened(NamedTuple):
    """One fault of a soak."""

    after_seconds: float
    fault: Fault
    detail: str
    could: bool = True
    """Whether it could be brought about at that moment."""


class Chaos:
    """Brings faults about one after the other, and ends those that last when their time has come."""

    def __init__(self, ground: Ground, seed: int) -> None:
        self.ground = ground
        self.chance = Random(seed)
        self.happened: list[Happened] = []
        self._begun_seconds = time.monotonic()
        self._lasting: dict[str, tuple[float, Trouble]] = {}
        self._deck: list[Fault] = []

    def next(self) -> Fault:
        """Every kind once in an order of chance, then again; the longest only when asked for."""
        if not self._deck:
            self._deck = [fault for fault in Fault if fault is not Fault.LONG_OUTAGE]
            self.chance.shuffle(self._deck)
        return self._deck.pop()

    def bring(self, fault: Fault) -> None:
        """Bring it about, if it can be just now."""
        kind = FAULTS[fault]
        if kind.apart and kind.apart in self._lasting:
            self._end(kind.apart)
        try:
            injected = kind.inject(self.ground, self.chance)
        except (OSError, LookupError) as error:  # the API server is away, say
            self._note(fault, f"{type(error).__name__}: {error}"[:80], could=False)
            return
        if isinstance(injected, Trouble):
            place = kind.apart or f"{fault} {len(self.happened)}"
            self._lasting[place] = (time.monotonic() + injected.seconds, injected)
            detail = f"{injected.detail} for {injected.seconds:.1f} s".strip()
            self._note(fault, detail)
        else:
            self._note(fault, injected)

    def tick(self) -> bool:
        """End what has lasted long enough, and look. Always true."""
        now = time.monotonic()
        for place, (until, _) in tuple(self._lasting.items()):
            if now >= until:
                self._end(place)
        return self.ground.look()

    def end_all(self) -> None:
        """The API server first: the others' ends may need it."""
        for place in sorted(self._lasting, key=lambda place: place != "api"):
            self._end(place)
        self.ground.wire.recover()

    def _end(self, place: str) -> None:
        _, trouble = self._lasting.pop(place)
        try:
            trouble.end()
        except OSError:  # not yet: a node cannot come back to an API server that is away
            self._lasting[place] = (time.monotonic() + 1.0, trouble)

    def _note(self, fault: Fault, detail: str, *, could: bool = True) -> None:
        after = time.monotonic() - self._begun_seconds
        self.happened.append(Happened(after, fault, detail, could))
