"""An API server in a box: enough of it for wiring, no judge of content.

It keeps objects, counts requests, gives each write a new resourceVersion, streams watches, and records
what an apply set in managedFields as the real one does for simple lists. What the real one makes of our
objects is for e2e to say.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

from aiohttp import web
from kubernetes.aio.client.configuration import Configuration

from plimsoll.cluster.client import Client
from plimsoll.cluster.kinds import (
    CHILDREN,
    CONFIG_MAP,
    EVENT,
    GPU_NODE,
    INFERENCE_DEPLOYMENT,
    JOB,
    LEASE,
    NODE,
    POD,
    RESOURCE_SLICE,
    Kind,
)

PATIENCE_SECONDS = 30.0
LOOK_SECONDS = 0.01

Manifest = dict[str, Any]
KINDS = (
    *CHILDREN,
    CONFIG_MAP,
    EVENT,
    GPU_NODE,
    INFERENCE_DEPLOYMENT,
    JOB,
    LEASE,
    NODE,
    POD,
    RESOURCE_SLICE,
    # what kopf wants to know of, although it is told not to look at any
    Kind(
        api_version="apiextensions.k8s.io/v1",
        kind="CustomResourceDefinition",
        plural="customresourcedefinitions",
        namespaced=False,
    ),
    Kind(api_version="v1", kind="Namespace", plural="namespaces", namespaced=False),
)
Place = tuple[str, str, str]  # plural, namespace, name


class StandIn:
    """The box."""

    def __init__(self) -> None:
        self.objects: dict[Place, Manifest] = {}
        self.requests: list[tuple[str, str]] = []
        """Method and path of each request but watches."""
        self.answers: list[tuple[int, dict[str, str], Manifest]] = []
        """Answers to give next instead of the right ones."""
        self.budget_says: tuple[int, str] | None = None
        """Status and message for evictions that no budget allows."""
        self.pages: dict[str, tuple[int, str]] = {}
        """By path: status and text of what comes through the proxy."""
        self.missing: set[str] = set()
        """Kinds, by plural, that are not installed."""
        self.url = ""
        self._version = 100
        self.watches_begun: list[str] = []
        """Kind, by its plural, of each watch that was asked for."""
        self._watchers: list[tuple[str, asyncio.Queue[Manifest]]] = []

    @property
    def writes(self) -> list[tuple[str, str]]:
        """Requests that were not reads, without those about the Lease."""
        return [(m, p) for m, p in self.requests if m != "GET" and "/leases" not in p]

    def put(self, kind: Kind, manifest: Mapping[str, Any]) -> Manifest:
        """Store an object as somebody else would, and tell the watches."""
        thing = deepcopy(dict(manifest))
        thing |= {"apiVersion": kind.api_version, "kind": kind.kind}
        metadata = thing.setdefault("metadata", {})
        place = (kind.plural, metadata.get("namespace", ""), metadata["name"])
        before = self.objects.get(place)
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        metadata.setdefault("uid", before["metadata"]["uid"] if before else f"uid-{self._version}")
        metadata.setdefault("creationTimestamp", "2026-11-29T12:00:00Z")
        if before is not None and before.get("spec") != thing.get("spec"):
            metadata["generation"] = before["metadata"].get("generation", 1) + 1
        metadata.setdefault("generation", 1)
        self.objects[place] = thing
        self._tell("MODIFIED" if before else "ADDED", kind.plural, thing)
        return thing

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        """Delete an object, and tell the watches."""
        thing = self.objects.pop((kind.plural, namespace, name))
        self._tell("DELETED", kind.plural, thing)

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest:
        """An object as it is."""
        return self.objects[kind.plural, namespace, name]

    def say(self, plural: str, event: Manifest) -> None:
        """Send an event of our own making to the watches of a kind."""
        for watched, events in self._watchers:
            if watched == plural:
                events.put_nowait(event)

    def watched(self) -> set[str]:
        """Kinds that are being watched."""
        return {plural for plural, _ in self._watchers}

    def _tell(self, what: str, plural: str, thing: Manifest) -> None:
        self.say(plural, {"type": what, "object": deepcopy(thing)})

    # ---- answering ---------------------------------------------------------------------------------

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        if request.query.get("watch") in ("true", "1"):
            return await self._watch(request)
        self.requests.append((request.method, request.path))
        if self.answers:
            status, headers, body = self.answers.pop(0)
            return web.json_response(body, status=status, headers=headers)
        if (page := self.pages.get(request.path)) is not None:
            return web.Response(status=page[0], text=page[1])
        if (listing := _discovery(request.path)) is not None:
            return web.json_response(listing)
        for kind in KINDS:
            place = _place(kind, request.path)
            if place is not None and kind.plural not in self.missing:
                return await self._about(kind, *place, request)
        return _status(404, "NotFound", f"no such path: {request.path}")

    async def _about(  # noqa: PLR0912 - one case a verb
        self, kind: Kind, namespace: str, name: str, sub: str, request: web.Request
    ) -> web.Response:
        body: Any = json.loads(await request.read() or b"null")
        place = (kind.plural, namespace, name)
        match request.method:
            case "GET" if not name:
                return web.json_response(self._list(kind, namespace, request))
            case "POST" if sub == "eviction":
                return self._evict(kind, place, body)
            case "POST":
                metadata = body["metadata"]
                metadata.setdefault("name", f"{metadata.get('generateName')}{self._version}")
                if (kind.plural, namespace, metadata["name"]) in self.objects:
                    return _status(409, "AlreadyExists", f"{metadata['name']} already exists")
                return web.json_response(self.put(kind, body), status=201)
            case "PATCH" if request.content_type == "application/apply-patch+yaml" and not sub:
                return self._apply(kind, place, body, request)
        if place not in self.objects:
            return _status(404, "NotFound", f"{kind.plural} {name} not found")
        thing = deepcopy(self.objects[place])
        match request.method:
            case "GET":
                return web.json_response(thing)
            case "PUT":
                if body["metadata"].get("resourceVersion") != thing["metadata"]["resourceVersion"]:
                    return _status(409, "Conflict", "the object has been modified")
                return web.json_response(self.put(kind, body))
            case "PATCH" if sub == "status":
                if (
                    body["metadata"].get("uid", thing["metadata"]["uid"])
                    != thing["metadata"]["uid"]
                ):
                    return _status(409, "Conflict", "Precondition failed: UID in precondition")
                return web.json_response(self.put(kind, thing | {"status": body["status"]}))
            case "PATCH":
                patched = _json_patched(thing, body)
                if patched is None:
                    return _status(422, "Invalid", "the server rejected our request: testing value")
                return web.json_response(self.put(kind, patched))
            case "DELETE":
                if body["preconditions"]["uid"] != thing["metadata"]["uid"]:
                    return _status(409, "Conflict", "the UID in the precondition does not match")
                self.remove(kind, namespace, name)
                return _status(200, "", "")
        return _status(405, "MethodNotAllowed", request.method)

    def _evict(self, kind: Kind, place: Place, body: Manifest) -> web.Response:
        """A pod that is evicted is on its way out, as one with a grace period is."""
        if place not in self.objects:
            return _status(404, "NotFound", f"{place[2]} not found")
        thing = deepcopy(self.objects[place])
        if body["deleteOptions"]["preconditions"]["uid"] != thing["metadata"]["uid"]:
            return _status(409, "Conflict", "the UID in the precondition does not match")
        if self.budget_says is not None:
            code, message = self.budget_says
            return _status(code, "TooManyRequests" if code == 429 else "InternalError", message)
        thing["metadata"]["deletionTimestamp"] = "2026-11-29T12:30:00Z"
        self.put(kind, thing)
        return _status(201, "", "")

    def _list(self, kind: Kind, namespace: str, request: web.Request) -> Manifest:
        wanted = request.query.get("labelSelector", "")
        fields = dict(
            part.split("=", 1)
            for part in request.query.get("fieldSelector", "").split(",")
            if part.startswith("metadata.name=")
        )
        items = [
            {k: v for k, v in thing.items() if k not in ("apiVersion", "kind")}
            for (plural, where, name), thing in sorted(self.objects.items())
            if plural == kind.plural
            and (not namespace or where == namespace)
            and _has(thing, wanted)
            and name == fields.get("metadata.name", name)
        ]
        return {
            "apiVersion": kind.api_version,
            "kind": kind.kind + "List",
            "metadata": {"resourceVersion": str(self._version)},
            "items": items,
        }

    def _apply(
        self, kind: Kind, place: Place, body: Manifest, request: web.Request
    ) -> web.Response:
        before = self.objects.get(place)
        forced = request.query["force"] == "true"
        if before is not None and not forced and before.get("spec") != body.get("spec"):
            return _status(409, "Conflict", "Apply failed with 1 conflict: .spec")
        thing = _merged(before or {}, body)
        thing["metadata"]["managedFields"] = [
            {
                "manager": request.query["fieldManager"],
                "operation": "Apply",
                "fieldsV1": _fields({k: v for k, v in body.items() if k not in _NOT_OWNED}),
            }
        ]
        return web.json_response(self.put(kind, thing), status=200 if before else 201)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        plural = request.path.rstrip("/").rpartition("/")[2]
        response = web.StreamResponse()
        await response.prepare(request)
        events: asyncio.Queue[Manifest] = asyncio.Queue()
        watcher = (plural, events)
        self._watchers.append(watcher)
        self.watches_begun.append(plural)
        try:
            while True:
                event = await events.get()
                await response.write(json.dumps(event).encode() + b"\n")
        finally:
            self._watchers.remove(watcher)


_NOT_OWNED = ("apiVersion", "kind", "metadata")


async def _for_the_last_time(_: web.Request, response: web.StreamResponse) -> None:
    """Say that the connection ends here, so that nobody keeps it: aiohttp's headers stand when this is asked."""
    response.headers["Connection"] = "close"
    response.force_close()


@asynccontextmanager
async def serving(stand_in: StandIn) -> AsyncIterator[StandIn]:
    """The box with an address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", stand_in.answer)
    # No connection outlives its use: kopf waits for all tasks in its loop, also for those of the box.
    app.on_response_prepare.append(_for_the_last_time)
    runner = web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=0.1,
        handler_cancellation=True,
    )
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    stand_in.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield stand_in
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connected(stand_in: StandIn) -> AsyncIterator[Client]:
    """A client of the box, which does not wait when it is told to."""

    async def pause(_: float) -> None:
        await asyncio.sleep(0)

    async with serving(stand_in):
        configuration = Configuration()
        configuration.host = stand_in.url
        client = Client(configuration, pause=pause)
        try:
            yield client
        finally:
            await client.close()


async def until(check: Callable[[], object], *, says: str) -> None:
    """Wait for a state that other tasks bring about; give up after PATIENCE_SECONDS."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not check():
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise AssertionError(f"waited {PATIENCE_SECONDS} s until {says}") from None


def kubeconfig(stand_in: StandIn) -> str:
    """The text of a kubeconfig that leads to the box."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "box", "cluster": {"server": stand_in.url}}],
            "users": [{"name": "me", "user": {"token": "let-me-in-please"}}],
            "contexts": [{"name": "box", "context": {"cluster": "box", "user": "me"}}],
            "current-context": "box",
        }
    )


def _discovery(path: str) -> Manifest | None:
    parts = path.strip("/").split("/")
    versions = sorted({kind.api_version for kind in KINDS})
    if parts == ["api"]:
        return {"versions": ["v1"]}
    if parts == ["apis"]:
        groups = [v.split("/") for v in versions if "/" in v]
        return {
            "groups": [
                {
                    "name": group,
                    "preferredVersion": {"version": version},
                    "versions": [{"groupVersion": f"{group}/{version}", "version": version}],
                }
                for group, version in groups
            ]
        }
    version = "/".join(parts[1:])
    if version not in versions:
        return None
    return {
        "resources": [
            {
                "name": kind.plural,
                "singularName": kind.kind.lower(),
                "kind": kind.kind,
                "namespaced": kind.namespaced,
                "verbs": ["list", "watch", "patch", "get", "create", "delete"],
            }
            for kind in KINDS
            if kind.api_version == version
        ]
    }


def _place(kind: Kind, path: str) -> tuple[str, str, str] | None:
    """Namespace, name and subresource, if the path is about this kind."""
    rest = path.removeprefix(("/apis/" if kind.group else "/api/") + kind.api_version + "/")
    if rest == path:
        return None
    parts = rest.strip("/").split("/")
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    if parts[0] != kind.plural:
        return None
    name, sub = [*parts[1:], "", ""][:2]
    return namespace, name, sub


def _has(thing: Manifest, selector: str) -> bool:
    labels = thing["metadata"].get("labels") or {}
    for part in filter(None, selector.split(",")):
        name, is_equal, value = part.partition("=")
        if name not in labels or (is_equal and labels[name] != value):
            return False
    return True


def _merged(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {key: _merged(old.get(key), value) for key, value in new.items()}
    return deepcopy(new)


def _fields(thing: Any) -> Manifest:
    if isinstance(thing, dict):
        return {f"f:{key}": _fields(value) for key, value in thing.items()}
    if (
        isinstance(thing, list)
        and thing
        and all(isinstance(i, dict) and "name" in i for i in thing)
    ):
        return {"k:" + json.dumps({"name": i["name"]}): _fields(i) for i in thing}
    return {}


def _json_patched(thing: Manifest, operations: list[Manifest]) -> Manifest | None:
    """None when one of the tests does not hold."""
    for operation in operations:
        steps = [step.replace("~1", "/") for step in operation["path"].strip("/").split("/")]
        *path, last = steps
        target: Any = thing
        for part in path:
            target = target[part]
        if operation["op"] in ("add", "replace"):
            target[last] = operation["value"]
        else:
            assert operation["op"] == "test", operation
            if target.get(last) != operation["value"]:
                return None
    return thing


def _status(code: int, reason: str, message: str) -> web.Response:
    return web.json_response(
        {"apiVersion": "v1", "kind": "Status", "code": code, "reason": reason, "message": message},
        status=code,
    )
