"""How do we speak to the API server?

Plain dicts in and out: the typed models cost milliseconds an object. Every request has a time-out,
every refusal is an error of its own (errors.py), and nothing is written unless `may_write` says so
at that very moment.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from plimsoll.cluster.access import Access, access_of, authorization, sign_in
from plimsoll.cluster.errors import Expired, NotLeading, Unavailable, error_of
from plimsoll.cluster.kinds import POD, Kind

if TYPE_CHECKING:  # an agent needs a client and none of the thinking
    from plimsoll.decide import Manifest

CHILD_MANAGER: Final = "plimsoll"
STATUS_MANAGER: Final = "plimsoll-status"
PAGE_OBJECTS: Final = 500  # kubectl's own chunk size
TRIES_WHEN_BUSY: Final = 3
LONGEST_RETRY_AFTER_SECONDS: Final = 10.0
TIMEOUT: Final = aiohttp.ClientTimeout(total=30.0, sock_connect=5.0, sock_read=20.0)

_JSON: Final = "application/json"
_METADATA_ONLY: Final = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)
_APPLY: Final = "application/apply-patch+yaml"
_JSON_PATCH: Final = "application/json-patch+json"
_METHODS: Final = {
    "get": "GET",
    "list": "GET",
    "create": "POST",
    "evict": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}
_READS: Final = frozenset({"get", "list"})

OnCall = Callable[[str, Kind, int], None]
"""Told verb, kind and HTTP status of each answer (0: none came)."""


class Listing(NamedTuple):
    """All objects of a list, and the version of the list."""

    items: tuple[Manifest, ...]
    resource_version: str


class Client:
    """The verbs that we use, over one pool of connections."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        kubeconfig: str | None = None,
        may_write: Callable[[], bool] = lambda: True,
        on_call: OnCall | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._configuration = configuration
        self._kubeconfig = kubeconfig
        self._rest: Any = RESTClientObject(configuration)
        self.may_write = may_write
        self.on_call = on_call
        self._pause = pause

    @classmethod
    async def connect(cls, kubeconfig: str | None = None) -> Client:
        """Read the credentials; nothing is sent yet."""
        return cls(await sign_in(kubeconfig), kubeconfig=kubeconfig)

    async def access(self) -> Access:
        """Where we speak to and as whom, read anew: for kopf."""
        self._configuration = await sign_in(self._kubeconfig)
        return await access_of(self._configuration)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._rest.close()

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest:
        """One object. Raises NotFound."""
        return _named(kind, await self._call("get", kind, kind.path(namespace, name)))

    async def list_all(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        not_older_than: str | None = None,
        reduce: Callable[[Manifest], Manifest | None] = lambda item: item,
    ) -> Listing:
        """All objects, page by page. `reduce` keeps what is needed of each, or None for nothing.

        `not_older_than` names a resourceVersion that the answer must have reached ("0" for any): then
        the API server answers at once from its cache, in one page. Without it, it first makes sure that
        its cache is up to date, which takes it 0.1 s while others write (measured on 1.37.2).
        A page that came too late (410) starts the list over, once.
        """
        query = {"labelSelector": labels, "fieldSelector": fields}
        query = {name: value for name, value in query.items() if value}
        if not_older_than is None:
            query["limit"] = str(PAGE_OBJECTS)
        else:
            query |= {
                "resourceVersion": not_older_than,
                "resourceVersionMatch": "NotOlderThan",
            }
        accept = _METADATA_ONLY if metadata_only else _JSON
        for is_last_try in (False, True):
            try:
                return await self._pages(kind, namespace, query, accept, reduce)
            except Expired:
                if is_last_try:
                    raise
        raise AssertionError("the loop returns or raises")

    async def _pages(
        self,
        kind: Kind,
        namespace: str | None,
        query: dict[str, str],
        accept: str,
        reduce: Callable[[Manifest], Manifest | None],
    ) -> Listing:
        items: list[Manifest] = []
        token = ""
        while True:
            page = await self._call(
                "list",
                kind,
                kind.path(namespace),
                query=query | ({"continue": token} if token else {}),
                accept=accept,
            )
            kept = (reduce(_named(kind, item)) for item in page.get("items") or ())
            items += (item for item in kept if item is not None)
            metadata = page.get("metadata", {})
            token = metadata.get("continue") or ""
            if not token:
                return Listing(tuple(items), metadata.get("resourceVersion", ""))

    async def ask_pod(self, namespace: str, pod: str, port: int, path: str) -> bytes:
        """What a pod answers at that path, by the API server's proxy. For a person's own rights: the operator has
        none to it."""
        url = POD.path(namespace, f"{pod}:{port}", "proxy") + path
        status, _, answer = await self._send("get", POD, url, None, {"Accept": "*/*"})
        if status != HTTPStatus.OK:
            raise error_of(status, answer)
        return answer

    async def create(self, kind: Kind, namespace: str | None, manifest: Manifest) -> Manifest:
        """A new object. Raises Conflict when the name is taken."""
        return await self._call(
            "create", kind, kind.path(namespace), body=manifest, query=_by(CHILD_MANAGER)
        )

    async def update(self, kind: Kind, namespace: str | None, manifest: Manifest) -> Manifest:
        """The whole object; its resourceVersion is the lock. Raises Conflict."""
        path = kind.path(namespace, manifest["metadata"]["name"])
        return await self._call("update", kind, path, body=manifest, query=_by(CHILD_MANAGER))

    async def apply(self, kind: Kind, manifest: Manifest, *, force: bool) -> Manifest:
        """Server-side apply of our whole intent; creates what is missing.

        Without `force` a field that another manager owns with another value raises Conflict.
        """
        metadata = manifest["metadata"]
        return await self._call(
            "patch",
            kind,
            kind.path(metadata.get("namespace"), metadata["name"]),
            body=manifest,
            query=_by(CHILD_MANAGER) | {"force": str(force).lower()},
            content_type=_APPLY,
        )

    async def apply_status(
        self, kind: Kind, manifest: Manifest, *, manager: str = STATUS_MANAGER
    ) -> Manifest:
        """Server-side apply of the whole status. A uid in the metadata guards against a namesake."""
        metadata = manifest["metadata"]
        return await self._call(
            "patch",
            kind,
            kind.path(metadata.get("namespace"), metadata["name"], "status"),
            body=manifest,
            query=_by(manager) | {"force": "true"},
            content_type=_APPLY,
        )

    async def patch_json(
        self, kind: Kind, namespace: str | None, name: str, operations: list[dict[str, Any]]
    ) -> Manifest:
        """A JSON patch. Raises Invalid when one of its tests does not hold."""
        answer = await self._call(
            "patch",
            kind,
            kind.path(namespace, name),
            body=operations,
            query=_by(CHILD_MANAGER),
            content_type=_JSON_PATCH,
        )
        return _named(kind, answer)

    async def evict(self, namespace: str, pod: str, *, uid: str) -> None:
        """Ask once that this very pod be evicted. Raises Unavailable when a budget does not allow it, and
        Conflict for a namesake."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self._call(
            "evict", POD, POD.path(namespace, pod, "eviction"), body=body, tries_when_busy=1
        )

    async def delete(self, kind: Kind, namespace: str | None, name: str, *, uid: str) -> None:
        """Delete that very object, its own children in the background. Raises Conflict for a namesake."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        await self._call("delete", kind, kind.path(namespace, name), body=body)

    async def _call(
        self,
        verb: str,
        kind: Kind,
        path: str,
        *,
        body: object = None,
        query: dict[str, str] | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        tries_when_busy: int = TRIES_WHEN_BUSY,
    ) -> Manifest:
        url = path + ("?" + urlencode(query) if query else "")
        is_known_again, busy = False, 0
        while True:
            if verb not in _READS and not self.may_write():
                raise NotLeading(
                    f"{verb} {kind.plural}: we do not hold the Lease, nothing was sent"
                )
            status, headers, answer = await self._send(
                verb, kind, url, body, {"Accept": accept, "Content-Type": content_type}
            )
            if status == 401 and not is_known_again:
                is_known_again = True
                self._configuration = await sign_in(self._kubeconfig)
                continue
            wait_seconds = _retry_after_seconds(headers)
            if status == 429 and busy < tries_when_busy - 1:
                busy += 1
                await self._pause(min(wait_seconds or 1.0, LONGEST_RETRY_AFTER_SECONDS))
                continue
            break
        if not 200 <= status < 300:
            raise error_of(status, answer, retry_after_seconds=wait_seconds)
        try:
            parsed = json.loads(answer)
        except ValueError as error:
            raise Unavailable(f"{verb} {kind.plural}: the answer is not JSON: {error}") from error
        if not isinstance(parsed, dict):
            raise Unavailable(f"{verb} {kind.plural}: the answer is not an object")
        return parsed

    async def _send(
        self, verb: str, kind: Kind, url: str, body: object, headers: dict[str, str]
    ) -> tuple[int, Any, bytes]:
        headers = headers | {"User-Agent": "plimsoll"}
        if (header := await authorization(self._configuration)) is not None:
            headers["Authorization"] = header
        try:
            try:
                response, answer = await self._ask(verb, url, body, headers)
            except aiohttp.ServerDisconnectedError:
                # a kept connection that the other side gave up meanwhile; what only reads asks again
                if verb not in _READS:
                    raise
                response, answer = await self._ask(verb, url, body, headers)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._tell(verb, kind, 0)
            told = str(error) or type(error).__name__
            raise Unavailable(f"{verb} {kind.plural}: no answer: {told}") from error
        self._tell(verb, kind, response.status)
        return response.status, response.headers, answer

    async def _ask(
        self, verb: str, url: str, body: object, headers: dict[str, str]
    ) -> tuple[Any, bytes]:
        response = await self._rest.request(
            _METHODS[verb],
            self._configuration.host.rstrip("/") + url,
            headers=headers,
            body=body,
            _request_timeout=TIMEOUT,
        )
        return response, await response.read()

    def _tell(self, verb: str, kind: Kind, status: int) -> None:
        if self.on_call is not None:
            self.on_call(verb, kind, status)


def _by(manager: str) -> dict[str, str]:
    return {"fieldManager": manager}


def _named(kind: Kind, item: Manifest) -> Manifest:
    """Items of a list come without their kind; say it, so that they read like any other object."""
    return {**item, "apiVersion": kind.api_version, "kind": kind.kind}


def _retry_after_seconds(headers: Any) -> float:
    """What Retry-After says, in seconds; 0 where it says nothing that we understand."""
    try:
        return max(0.0, float(headers.get("Retry-After", 0)))
    except (TypeError, ValueError):
        return 0.0
