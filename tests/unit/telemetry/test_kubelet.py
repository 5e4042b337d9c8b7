"""What kubelets say of memory, and what is made of silence, lies and nonsense."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from page_box import Counts, PageBox, page_box
from plimsoll.facts.watched import MemorySample, WatchedWorker
from plimsoll.telemetry.fetch import Fetcher
from plimsoll.telemetry.kubelet import Credentials, KubeletSource, read_summary
from plimsoll.telemetry.source import Freshness, Reason, Rounds, ScrapeError, Seen

NOW = 1_796_040_000.0
STARTED = NOW - 3600
GIB = 1 << 30
WANTED = ("uid-1", "engine")


def stamp(seconds: float) -> str:
    """As a kubelet writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def summary(*, at: float = NOW - 10, started: float = STARTED, **container: Any) -> bytes:
    """One pod with one container."""
    memory = {"time": stamp(at), "rssBytes": 3 * GIB, "workingSetBytes": 40 * GIB}
    engine = {"name": "engine", "startTime": stamp(started), "memory": memory} | container
    pod = {"podRef": {"name": "w", "namespace": "team", "uid": "uid-1"}, "containers": [engine]}
    return json.dumps({"node": {"nodeName": "n"}, "pods": [pod]}).encode()


def read(body: bytes, worker: WatchedWorker) -> tuple[tuple[MemorySample, ...], Counter[Reason]]:
    return read_summary(body, {WANTED: worker}, NOW, Freshness())


def test_anonymous_memory_counts_and_page_cache_does_not(worker: WatchedWorker) -> None:
    found, flaws = read(summary(), worker)
    assert (MemorySample(*WANTED, STARTED, NOW - 10, 3 * GIB),) == found
    assert not flaws


def test_swap_counts_where_it_is_reported(worker: WatchedWorker) -> None:
    (sample,), _ = read(summary(swap={"time": stamp(NOW), "swapUsageBytes": GIB}), worker)
    assert 4 * GIB == sample.resident_bytes
    (sample,), _ = read(summary(swap={"time": stamp(NOW)}), worker)
    assert 3 * GIB == sample.resident_bytes


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (summary(memory={"time": stamp(NOW)}), Reason.ABSENT),
        (summary(memory={"time": stamp(NOW), "rssBytes": 0}), Reason.ABSENT),
        (summary(memory={"time": stamp(NOW), "rssBytes": -1}), Reason.ABSENT),
        (summary(memory={"time": stamp(NOW), "rssBytes": float("nan")}), Reason.ABSENT),
        (summary(memory={"time": stamp(NOW), "rssBytes": True}), Reason.ABSENT),
        (summary(memory={"rssBytes": GIB}), Reason.ABSENT),
        (summary(memory={"time": "yesterday", "rssBytes": GIB}), Reason.ABSENT),
        (summary(memory=None), Reason.ABSENT),
        (summary(startTime=None), Reason.ABSENT),
        (summary(name="sidecar"), Reason.ABSENT),
        (summary(at=NOW - 121), Reason.STALE),
        (summary(at=NOW + 61), Reason.CLOCK_SKEW),
    ],
)
def test_what_makes_no_sense_is_left_out(
    body: bytes, reason: Reason, worker: WatchedWorker
) -> None:
    found, flaws = read(body, worker)
    assert ((), {reason: 1}) == (found, flaws)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        summary()[:-20],
        b'{"pods": null}',
        b'{"pods": 7}',
        b"\xff" * 9,
    ],
)
def test_what_is_no_summary_is_refused(body: bytes, worker: WatchedWorker) -> None:
    with pytest.raises(ScrapeError) as refused:
        read(body, worker)
    assert Reason.MALFORMED == refused.value.reason


class House:
    """A source with its kubelet."""

    def __init__(self, box: PageBox, fetcher: Fetcher, worker: WatchedWorker, who: Credentials):
        self.box, self.counts, self.now = box, Counts(), 0.0
        self.worker = worker._replace(kubelet=box.address)

        async def credentials() -> Credentials:
            return who

        async def no_pause(_: float) -> None:
            return None

        self.source = KubeletSource(
            fetcher,
            credentials,
            rounds=Rounds(
                in_flight=4, round_seconds=30.0, clock=lambda: self.now,
                chance=lambda: 0.5, pause=no_pause,
            ),
            tally=self.counts,
            clock=lambda: self.now,
            wall_clock=lambda: NOW,
        )  # fmt: skip

    async def look(self) -> Seen:
        return await self.source.read([self.worker])


@pytest.fixture
def asking(authorities: Any, worker: WatchedWorker) -> Callable[..., Any]:
    """Run a test's work in a house whose kubelet has a certificate of the cluster's authority."""
    ours, theirs = authorities

    def run(
        work: Callable[[House], Awaitable[Any]],
        *,
        trusts: str = "cluster",
        insecure: bool = False,
        timeout_seconds: float = 10.0,
        token: str | None = "secret",
    ) -> Any:
        async def all_of_it() -> Any:
            ca = ours.ca_file if trusts == "cluster" else theirs.ca_file
            who = Credentials(token=token, ca_file=ca, is_insecure=insecure)
            fetcher = Fetcher(timeout_seconds=timeout_seconds)
            try:
                async with page_box(ours.serving()) as box:
                    return await work(House(box, fetcher, worker, who))
            finally:
                await fetcher.close()

        return asyncio.run(all_of_it())

    return run


def test_a_kubelet_is_asked_with_our_token(asking: Any) -> None:
    async def work(house: House) -> tuple[Seen, list[str], list[str]]:
        house.box.answers["/stats/summary"] = summary()
        seen = await house.look()
        asked = house.box.asked
        return seen, [r.headers["Authorization"] for r in asked], [r.path for r in asked]

    seen, headers, paths = asking(work)
    assert 3 * GIB == seen.memory[0].resident_bytes
    assert ["Bearer secret"] == headers
    assert ["/stats/summary"] == paths


def test_a_certificate_of_another_authority_gets_no_token(asking: Any) -> None:
    async def work(house: House) -> Any:
        house.box.answers["/stats/summary"] = summary()
        return await house.look(), house.counts.reasons, len(house.box.asked)

    assert (Seen(), [Reason.TLS], 0) == asking(work, trusts="another")


def test_a_certificate_is_taken_unseen_only_when_one_says_so(asking: Any) -> None:
    async def work(house: House) -> int:
        house.box.answers["/stats/summary"] = summary()
        return len((await house.look()).memory)

    assert 1 == asking(work, trusts="another", insecure=True)


async def cut_off(request: web.BaseRequest) -> web.StreamResponse:
    """Promises more than it gives."""
    response = web.StreamResponse(headers={"Content-Length": "100000"})
    await response.prepare(request)
    await response.write(summary())
    assert request.transport is not None
    request.transport.close()
    return response


async def elsewhere(_: web.BaseRequest) -> web.StreamResponse:
    """Would like to have our token sent on."""
    return web.Response(status=302, headers={"Location": "https://127.0.0.1:1/"})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (401, Reason.UNAUTHORIZED),
        (403, Reason.FORBIDDEN),
        (404, Reason.ABSENT),
        (500, Reason.STATUS),
        (elsewhere, Reason.STATUS),
        (None, Reason.TIMEOUT),
        (cut_off, Reason.MALFORMED),
        (summary()[:-9], Reason.MALFORMED),
        (b" " * (9 << 20), Reason.TOO_LARGE),
    ],
)
def test_whatever_goes_wrong_has_its_reason_and_no_figure(
    asking: Any, answer: Any, reason: Reason
) -> None:
    async def work(house: House) -> Any:
        house.box.answers["/stats/summary"] = answer
        return await house.look(), house.counts.reasons

    patience = 0.2 if reason is Reason.TIMEOUT else 10.0
    assert (Seen(), [reason]) == asking(work, timeout_seconds=patience)


def test_a_kubelet_that_does_not_answer_is_left_alone_for_a_while(asking: Any) -> None:
    async def work(house: House) -> list[int]:
        house.box.answers["/stats/summary"] = 503
        asked = []
        for _ in range(12):
            await house.look()
            house.now += 30
            asked.append(len(house.box.asked))
        return asked

    assert [1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5] == asking(work)


def test_without_credentials_nobody_is_asked(worker: WatchedWorker) -> None:
    counts = Counts()

    async def credentials() -> Credentials:
        raise ScrapeError(Reason.UNAUTHORIZED, "no token")

    async def run(who: Callable[[], Awaitable[Credentials]]) -> Seen:
        fetcher = Fetcher()
        rounds = Rounds(
            in_flight=1, round_seconds=30.0, clock=lambda: 0.0, chance=lambda: 0.0, spread=0.0
        )
        source = KubeletSource(
            fetcher, who, rounds=rounds, tally=counts, clock=lambda: 0.0, wall_clock=lambda: NOW
        )
        seen = await source.read([worker._replace(kubelet="127.0.0.1:1")])
        await fetcher.close()
        return seen

    async def lost_file() -> Credentials:
        return Credentials(ca_file="/nowhere/ca.crt")

    assert Seen() == asyncio.run(run(credentials))
    assert Seen() == asyncio.run(run(lost_file))
    assert [Reason.UNAUTHORIZED, Reason.TLS] == counts.reasons
