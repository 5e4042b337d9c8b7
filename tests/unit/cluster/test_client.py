"""The client against an API server in a box."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kubernetes.aio.client.configuration import Configuration

from api_box import StandIn, connected
from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import (
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    NotLeading,
    Unauthorized,
    Unavailable,
)
from plimsoll.cluster.kinds import DEPLOYMENT, INFERENCE_DEPLOYMENT, NODE, POD, SERVICE, child_kind

Work = Callable[[Client, StandIn], Awaitable[Any]]


def with_box(work: Work) -> Any:
    """Run the work with a box and a client of it."""

    async def run() -> Any:
        box = StandIn()
        async with connected(box) as client:
            return await work(client, box)

    return asyncio.run(run())


def status(code: int, reason: str = "", message: str = "") -> tuple[int, dict[str, str], Any]:
    """An answer to come."""
    return code, {}, {"kind": "Status", "code": code, "reason": reason, "message": message}


def service(name: str = "a", **metadata: Any) -> dict[str, Any]:
    """A Service."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "team"} | metadata,
        "spec": {"ports": [{"port": 1}]},
    }


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, Invalid),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Expired),
        (422, Invalid),
        (500, Unavailable),
        (503, Unavailable),
        (504, Unavailable),
    ],
)
def test_a_refusal_is_an_error_of_its_own_with_the_servers_words(
    code: int, kind: type[ApiError], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def known(_: str | None) -> Any:
        return client_configuration[0]

    client_configuration: list[Any] = []

    async def work(client: Client, box: StandIn) -> ApiError:
        client_configuration.append(client._configuration)
        box.answers = [status(code, "Because", "spec.replicas: wrong")] * 2
        with pytest.raises(kind) as caught:
            await client.get(SERVICE, "team", "a")
        return caught.value

    monkeypatch.setattr("plimsoll.cluster.client.sign_in", known)
    error = with_box(work)
    assert (code, "Because", "spec.replicas: wrong") == (error.status, error.reason, error.message)


def test_credentials_are_read_again_when_the_server_no_longer_knows_us(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str | None] = []

    async def work(client: Client, box: StandIn) -> Any:
        async def sign_in(kubeconfig: str | None) -> Any:
            read.append(kubeconfig)
            return client._configuration

        monkeypatch.setattr("plimsoll.cluster.client.sign_in", sign_in)
        box.put(SERVICE, service())
        box.answers = [status(401)]
        return await client.get(SERVICE, "team", "a")

    assert "a" == with_box(work)["metadata"]["name"]
    assert [None] == read


def test_a_busy_server_is_asked_again_after_as_long_as_it_says_within_reason() -> None:
    paused: list[float] = []

    async def work(client: Client, box: StandIn) -> Any:
        async def pause(seconds: float) -> None:
            paused.append(seconds)

        client._pause = pause
        box.put(SERVICE, service())
        busy = status(429)[2]
        box.answers = [(429, {"Retry-After": "3"}, busy), (429, {"Retry-After": "3600"}, busy)]
        return await client.get(SERVICE, "team", "a")

    assert "a" == with_box(work)["metadata"]["name"]
    assert [3.0, 10.0] == paused


def test_a_server_that_stays_busy_is_unavailable_and_says_for_how_long() -> None:
    async def work(client: Client, box: StandIn) -> float:
        box.answers = [(429, {"Retry-After": "7"}, status(429)[2])] * 3
        with pytest.raises(Unavailable) as caught:
            await client.get(SERVICE, "team", "a")
        return caught.value.retry_after_seconds

    assert 7.0 == with_box(work)


def test_no_server_is_unavailable() -> None:
    async def work(client: Client, box: StandIn) -> None:
        client._configuration.host = "http://127.0.0.1:1"
        with pytest.raises(Unavailable, match="get services: no answer"):
            await client.get(SERVICE, "team", "a")

    with_box(work)


def test_an_answer_that_is_not_json_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(client: Client, box: StandIn) -> None:
        async def send(*_: Any) -> Any:
            return 200, {}, b"<html>"

        monkeypatch.setattr(client, "_send", send)
        with pytest.raises(Unavailable, match="not JSON"):
            await client.get(SERVICE, "team", "a")

    with_box(work)


def test_nothing_is_sent_without_the_lease_but_reading_goes_on() -> None:
    async def work(client: Client, box: StandIn) -> list[tuple[str, str]]:
        box.put(SERVICE, service())
        client.may_write = lambda: False
        with pytest.raises(NotLeading):
            await client.apply(SERVICE, service(), force=True)
        with pytest.raises(NotLeading):
            await client.delete(SERVICE, "team", "a", uid="u")
        await client.get(SERVICE, "team", "a")
        return box.writes

    assert [] == with_box(work)


def test_a_list_goes_on_page_by_page_and_says_of_what_kind_its_items_are() -> None:
    page = {"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": "a"}}]}
    first = {**page, "metadata": {"resourceVersion": "5", "continue": "more"}}

    async def work(client: Client, box: StandIn) -> Any:
        box.answers = [(200, {}, first), (200, {}, page)]
        listing = await client.list_all(POD, labels="a=b")
        return listing, len(box.requests)

    listing, requests = with_box(work)
    assert 2 == requests
    assert "5" == listing.resource_version
    assert [("v1", "Pod", "a")] * 2 == [
        (i["apiVersion"], i["kind"], i["metadata"]["name"]) for i in listing.items
    ]


def test_a_page_that_came_too_late_starts_the_list_over_once() -> None:
    page = {"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": "a"}}]}
    first = {**page, "metadata": {"continue": "more"}}

    async def work(client: Client, box: StandIn) -> int:
        box.answers = [(200, {}, first), status(410, "Expired"), (200, {}, page)]
        return len((await client.list_all(POD)).items)

    assert 1 == with_box(work)


def test_what_is_reduced_to_nothing_is_left_out() -> None:
    async def work(client: Client, box: StandIn) -> Any:
        box.put(SERVICE, service("a"))
        box.put(SERVICE, service("b"))
        return await client.list_all(
            SERVICE, reduce=lambda i: i if i["metadata"]["name"] == "b" else None
        )

    assert ["b"] == [i["metadata"]["name"] for i in with_box(work).items]


def test_each_answer_is_told_with_its_verb_and_kind() -> None:
    told: list[tuple[str, str, int]] = []

    async def work(client: Client, box: StandIn) -> None:
        client.on_call = lambda verb, kind, status: told.append((verb, kind.kind, status))
        await client.apply(SERVICE, service(), force=False)
        await client.get(SERVICE, "team", "a")
        with pytest.raises(NotFound):
            await client.get(SERVICE, "team", "b")

    with_box(work)
    assert [("patch", "Service", 201), ("get", "Service", 200), ("get", "Service", 404)] == told


def test_a_namesake_is_not_deleted() -> None:
    async def work(client: Client, box: StandIn) -> None:
        thing = box.put(SERVICE, service())
        with pytest.raises(Conflict):
            await client.delete(SERVICE, "team", "a", uid="another")
        await client.delete(SERVICE, "team", "a", uid=thing["metadata"]["uid"])
        assert {} == box.objects

    with_box(work)


def test_addresses_are_those_of_the_api_server() -> None:
    assert "/apis/apps/v1/namespaces/a/deployments/b" == DEPLOYMENT.path("a", "b")
    assert "/api/v1/nodes" == NODE.path()
    assert "/api/v1/nodes/n" == NODE.path("ignored", "n")
    assert "/api/v1/pods" == POD.path()
    assert (
        "/apis/plimsoll.dev/v1alpha1/namespaces/a/inferencedeployments/b/status"
        == INFERENCE_DEPLOYMENT.path("a", "b", "status")
    )


def test_a_child_of_a_kind_without_a_grant_is_a_mistake_of_ours() -> None:
    with pytest.raises(LookupError, match="Secret of v1 is not among"):
        child_kind({"apiVersion": "v1", "kind": "Secret"})


def _asked_of_a_server_that_hangs_up_once(verb: str) -> tuple[str, list[str]]:
    """What came of the call, an answer or the error's name, and the requests that arrived."""
    arrived: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.append((await reader.readuntil(b"\r\n\r\n")).decode().split()[0])
        if len(arrived) > 1:
            answer = b'{"metadata": {"name": "a"}}'
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + answer)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def run() -> str:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = Client(configuration)
        try:
            if verb == "get":
                return str((await client.get(SERVICE, "team", "a"))["metadata"]["name"])
            await client.create(SERVICE, "team", service())
            return "made"
        except Unavailable as error:
            return type(error).__name__
        finally:
            await client.close()
            server.close()
            await server.wait_closed()

    return asyncio.run(run()), arrived


def test_a_read_whose_connection_was_given_up_is_asked_again() -> None:
    assert ("a", ["GET", "GET"]) == _asked_of_a_server_that_hangs_up_once("get")


def test_a_write_is_never_sent_twice() -> None:
    assert ("Unavailable", ["POST"]) == _asked_of_a_server_that_hangs_up_once("create")
