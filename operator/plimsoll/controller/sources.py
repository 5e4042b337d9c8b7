"""Whom do we ask about workers, under these settings?

Prometheus where one is named; else the kubelets for memory and the engines for the rest.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from plimsoll.cluster.access import Access
from plimsoll.cluster.errors import ApiError
from plimsoll.controller.settings import Settings
from plimsoll.facts.watched import PastLife, WatchedWorker
from plimsoll.telemetry.engines import EngineSource
from plimsoll.telemetry.fetch import Fetcher
from plimsoll.telemetry.kubelet import Credentials, KubeletSource
from plimsoll.telemetry.prometheus import PrometheusSource, Server
from plimsoll.telemetry.source import (
    Freshness,
    Reason,
    Rounds,
    ScrapeError,
    Seen,
    SeriesSource,
    Tally,
)


class Together:
    """Several sources at the same time, each with its own part of the answer."""

    def __init__(self, *sources: SeriesSource) -> None:
        self._sources = sources

    async def read(self, workers: Sequence[WatchedWorker]) -> Seen:
        """What any of them says."""
        parts = await asyncio.gather(*(source.read(workers) for source in self._sources))
        return Seen(
            tuple(sample for part in parts for sample in part.memory),
            tuple(reading for part in parts for reading in part.engines),
        )

    async def history(
        self, workers: Sequence[WatchedWorker], *, since_seconds: float, until_seconds: float
    ) -> tuple[PastLife, ...]:
        """What any of them kept."""
        parts = await asyncio.gather(
            *(
                source.history(workers, since_seconds=since_seconds, until_seconds=until_seconds)
                for source in self._sources
            )
        )
        return tuple(life for part in parts for life in part)


def fetcher_of(settings: Settings) -> Fetcher:
    """The one pool of connections, for as many as may be asked at once."""
    return Fetcher(
        connections=settings.kubelets_at_once + settings.engines_at_once,
        timeout_seconds=settings.scrape_timeout_seconds,
    )


def source_of(
    settings: Settings,
    fetcher: Fetcher,
    access: Callable[[], Awaitable[Access]],
    *,
    tally: Tally,
    clock: Callable[[], float],
    wall_clock: Callable[[], float],
    chance: Callable[[], float],
) -> SeriesSource:
    """The source, ready to be asked. Raises OSError when a named authority's file cannot be read."""
    freshness = Freshness(settings.stale_seconds)

    def rounds(in_flight: int) -> Rounds:
        return Rounds(
            in_flight=in_flight, round_seconds=settings.watch_seconds, clock=clock, chance=chance
        )

    engines = EngineSource(
        fetcher,
        rounds=rounds(settings.engines_at_once),
        tally=tally,
        clock=clock,
        wall_clock=wall_clock,
    )
    if settings.prometheus_url is not None:
        return PrometheusSource(
            fetcher,
            Server(
                settings.prometheus_url,
                token=token_reader(settings.prometheus_token_file),
                tls=_authority(settings.prometheus_ca_file),
            ),
            tally=tally,
            clock=clock,
            wall_clock=wall_clock,
            freshness=freshness,
            engines=engines,
        )

    async def credentials() -> Credentials:
        try:
            ours = await access()
        except ApiError as error:
            raise ScrapeError(Reason.UNAUTHORIZED, error.message) from error
        return credentials_of(ours, settings)

    kubelets = KubeletSource(
        fetcher,
        credentials,
        rounds=rounds(settings.kubelets_at_once),
        tally=tally,
        clock=clock,
        wall_clock=wall_clock,
        freshness=freshness,
    )
    return Together(kubelets, engines)


def credentials_of(access: Access, settings: Settings) -> Credentials:
    """What the API server takes from us, a kubelet takes too: it asks the API server."""
    return Credentials(
        token=access.token if (access.scheme or "").lower() == "bearer" else None,
        ca_file=settings.kubelet_ca_file or access.ca_path,
        certificate_file=access.certificate_path,
        private_key_file=access.private_key_path,
        is_insecure=settings.kubelet_insecure_tls,
    )


def token_reader(file: str | None) -> Callable[[], str | None]:
    """Reads the token anew each time; without a file, or while it cannot be read, there is none."""

    def read() -> str | None:
        try:
            return Path(file).read_text(encoding="utf-8").strip() if file else None
        except OSError:
            return None

    return read


def _authority(file: str | None) -> ssl.SSLContext | bool:
    return ssl.create_default_context(cafile=file) if file else True
