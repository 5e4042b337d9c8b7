"""Who must be visited after this event?

A handler says who, and goes home. It neither decides nor writes; the loop looks again from scratch, so
a lost event costs a little time and nothing else. Event handlers are the ones for which kopf leaves
no finalizer and no annotation in anybody's object.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

import kopf

from plimsoll.cluster.access import Access
from plimsoll.cluster.fleet import Fleet
from plimsoll.cluster.kinds import (
    CHILDREN,
    GPU_NODE,
    INFERENCE_DEPLOYMENT,
    NODE,
    POD,
    RESOURCE_SLICE,
    Kind,
)
from plimsoll.controller.queue import WorkQueue
from plimsoll.decide import Key, Manifest
from plimsoll.render.labels import DEPLOYMENT_LABEL, label_value

# A child's event is often the echo of our own write, and pods come in flocks: one visit for all. The
# first after a quiet time is answered soon, those that follow once a second.
AFTER_CHILD_SECONDS: Final = 0.1
BETWEEN_VISITS_SECONDS: Final = 1.0
# A node tells its labels one by one when it joins.
AFTER_NODE_SECONDS: Final = 1.0
GONE: Final = "DELETED"


class Doorbell:
    """Takes events, wakes keys. What it knows is what the watches delivered."""

    def __init__(self, queue: WorkQueue, fleet: Fleet, *, clock: Callable[[], float]) -> None:
        self._queue = queue
        self._fleet = fleet
        self._clock = clock
        self._visited_seconds: dict[Key, float] = {}
        self.known: set[Key] = set()
        """All live objects, from lists and watches."""
        self.seen: dict[Key, str] = {}
        """The resourceVersion that the watch delivered last; what only a list said is not here."""
        self._unplanned: set[Key] = set()
        """Those that say of themselves that they have no plan."""
        self._by_label: dict[tuple[str, str], Key] = {}
        self._held: dict[Key, set[str]] = defaultdict(set)
        self._known_versions: dict[Key, frozenset[str]] = {}

    def deployment_seen(self, thing: Manifest, *, is_gone: bool) -> None:
        """An InferenceDeployment came, changed or went.

        The version that the last visit looked at, and the echo of its write to the status, wake nobody.
        While it is being visited we cannot know yet which these will be, so its events wait until `visited`.
        """
        key = key_of(thing)
        if is_gone:
            self.forget(key)
            self._queue.put(key, is_urgent=True)
            return
        version = str(thing["metadata"].get("resourceVersion", ""))
        self.learn(key)
        self.seen[key] = version
        (self._unplanned.add if is_unplanned(thing) else self._unplanned.discard)(key)
        if self._queue.is_running(key):
            self._held[key].add(version)
        elif version not in self._known_versions.get(key, ()):
            self._queue.put(key, is_urgent=True)

    def visited(self, key: Key, versions: frozenset[str]) -> None:
        """A visit is over; it looked at one of these versions of the object and wrote the other."""
        if key in self.known:
            self._visited_seconds[key] = self._clock()
            self._known_versions[key] = versions
        if self._held.pop(key, set()) - versions:
            self._queue.put(key, is_urgent=True)

    def learn(self, key: Key) -> None:
        """There is such an object."""
        self.known.add(key)
        self._by_label[key.namespace, label_value(key.name)] = key

    def forget(self, key: Key) -> None:
        """There is no such object any more."""
        self.known.discard(key)
        self.seen.pop(key, None)
        self._unplanned.discard(key)
        self._known_versions.pop(key, None)
        self._held.pop(key, None)
        self._visited_seconds.pop(key, None)
        self._by_label.pop((key.namespace, label_value(key.name)), None)

    def child_seen(self, thing: Manifest) -> None:
        """Something with our label came, changed or went."""
        metadata = thing["metadata"]
        label = (metadata.get("labels") or {}).get(DEPLOYMENT_LABEL)
        if not label:
            return
        namespace = metadata.get("namespace", "")
        key = self._by_label.get((namespace, label), Key(namespace=namespace, name=label))
        since_seconds = self._clock() - self._visited_seconds.get(key, -BETWEEN_VISITS_SECONDS)
        after_seconds = max(AFTER_CHILD_SECONDS, BETWEEN_VISITS_SECONDS - since_seconds)
        self._queue.put(key, after_seconds=after_seconds)

    def node_seen(self, thing: Manifest, *, is_gone: bool) -> None:
        """A node came, changed or went; a heartbeat wakes nobody."""
        if self._fleet.node_seen(thing, is_gone=is_gone):
            self.wake_everyone(after_seconds=AFTER_NODE_SECONDS)

    def gpu_node_seen(self, thing: Manifest, *, is_gone: bool) -> None:
        """The same for what the agent says of a node's cards."""
        if self._fleet.gpu_node_seen(thing, is_gone=is_gone):
            self.wake_everyone(after_seconds=AFTER_NODE_SECONDS)

    def slice_seen(self, thing: Manifest, *, is_gone: bool) -> None:
        """The same for what a DRA driver says of them."""
        if self._fleet.slice_seen(thing, is_gone=is_gone):
            self.wake_everyone(after_seconds=AFTER_NODE_SECONDS)

    def wake_everyone(self, *, after_seconds: float) -> None:
        """Visit all that we know of; first those without a plan, who may have waited for these cards."""
        for key in self.known:
            is_urgent = key in self._unplanned
            self._queue.put(key, after_seconds=after_seconds, is_urgent=is_urgent)


def is_unplanned(thing: Manifest) -> bool:
    """Whether its status says that a pool of it has no plan."""
    conditions = (thing.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Planned" and each["status"] == "False" for each in conditions)


def key_of(thing: Manifest) -> Key:
    """Which InferenceDeployment this is."""
    metadata = thing["metadata"]
    return Key(namespace=metadata["namespace"], name=metadata["name"])


def register(
    registry: kopf.OperatorRegistry,
    bell: Doorbell,
    *,
    access: Callable[[], Awaitable[Access]],
    has_slices: bool = False,
) -> None:
    """Tie the watches of kopf to the doorbell.

    `access` is awaited whenever kopf needs credentials, again when the server no longer takes the old.
    ResourceSlices are watched where the API server has them: kopf would complain of a kind that is not.
    """

    @kopf.on.login(registry=registry)
    async def sign_in(**_: Any) -> kopf.ConnectionInfo:
        return connection_of(await access())

    def on(kind: Kind, tell: Callable[[Manifest, bool], None]) -> None:
        async def event_seen(event: Mapping[str, Any], **_: Any) -> None:
            tell(event["object"], event["type"] == GONE)

        kopf.on.event(*address(kind), registry=registry, id=kind.plural)(event_seen)

    on(INFERENCE_DEPLOYMENT, lambda thing, gone: bell.deployment_seen(thing, is_gone=gone))
    on(NODE, lambda thing, gone: bell.node_seen(thing, is_gone=gone))
    on(GPU_NODE, lambda thing, gone: bell.gpu_node_seen(thing, is_gone=gone))
    if has_slices:
        on(RESOURCE_SLICE, lambda thing, gone: bell.slice_seen(thing, is_gone=gone))
    for kind in (*CHILDREN, POD):
        on(kind, lambda thing, _: bell.child_seen(thing))


class NoDiffs(kopf.DiffBaseStorage):
    """Kopf compares nothing and remembers nothing: we only hear events.

    By default it copies every object of every event for a comparison that no handler of ours asks
    for, and would write what it remembers into an annotation.
    """

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Nothing of an object matters."""
        return cast("kopf.BodyEssence", {})

    def fetch(self, **_: Any) -> None:
        """Nothing was remembered."""

    def store(self, **_: Any) -> None:
        """Nothing is."""


def kopf_settings(*, watch_silence_seconds: float) -> kopf.OperatorSettings:
    """Kopf as a watcher and no more; each value has its reason.

    server_timeout is an int: a float goes out as "300.0" and the API server answers 400. A watch that
    says nothing for longer than bookmarks are apart (60 s) is taken for dead. The kinds are known to be
    served when kopf starts, so it need not list or watch CustomResourceDefinitions.
    """
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = watch_silence_seconds
    settings.watching.chunk_size = 500
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.networking.enforce_retry_after = True
    settings.queueing.worker_limit = 50
    settings.process.ultimate_exiting_timeout = 25
    settings.persistence.diffbase_storage = NoDiffs()
    for kind in (*CHILDREN, POD):
        settings.watching.label_selectors[address(kind)] = DEPLOYMENT_LABEL
    return settings


def address(kind: Kind) -> tuple[str, str] | tuple[str, str, str]:
    """A kind as kopf selects it: group, version, plural, without the group where it is the core."""
    group, _, version = kind.api_version.rpartition("/")
    return (group, version, kind.plural) if group else (version, kind.plural)


def connection_of(access: Access) -> kopf.ConnectionInfo:
    """Our credentials in kopf's form."""
    return kopf.ConnectionInfo(
        server=access.server,
        ca_path=access.ca_path,
        insecure=access.insecure,
        scheme=access.scheme,
        token=access.token,
        certificate_path=access.certificate_path,
        private_key_path=access.private_key_path,
    )
