"""Whom the settings make us ask, and as whom."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from page_box import Counts
from plimsoll.cluster.access import Access
from plimsoll.controller.settings import Settings
from plimsoll.controller.sources import (
    Together,
    credentials_of,
    fetcher_of,
    source_of,
    token_reader,
)
from plimsoll.telemetry.prometheus import PrometheusSource

ACCESS = Access(server="https://10.96.0.1", ca_path="/ca.crt", scheme="Bearer", token="t")


def settings(**more: Any) -> Settings:
    return Settings(identity="me", **more)


def source(**more: Any) -> object:
    async def access() -> Access:
        return ACCESS

    async def make() -> object:
        fetcher = fetcher_of(settings(**more))
        made = source_of(
            settings(**more), fetcher, access,
            tally=Counts(), clock=lambda: 0.0, wall_clock=lambda: 0.0, chance=lambda: 0.0,
        )  # fmt: skip
        await fetcher.close()
        return made

    return asyncio.run(make())


def test_kubelets_and_engines_are_asked_unless_prometheus_is_named() -> None:
    assert isinstance(source(), Together)
    assert isinstance(source(prometheus_url="http://prometheus:9090"), PrometheusSource)


def test_kubelets_are_known_by_the_clusters_authority_unless_another_is_named() -> None:
    plain = credentials_of(ACCESS, settings())
    assert ("t", "/ca.crt", False) == (plain.token, plain.ca_file, plain.is_insecure)
    other = credentials_of(ACCESS, settings(kubelet_ca_file="/k.crt", kubelet_insecure_tls=True))
    assert ("/k.crt", True) == (other.ca_file, other.is_insecure)


def test_a_cluster_whose_api_certificate_is_taken_unseen_has_kubelets_checked_all_the_same() -> (
    None
):
    assert not credentials_of(ACCESS.model_copy(update={"insecure": True}), settings()).is_insecure


def test_a_password_is_no_token() -> None:
    basic = ACCESS.model_copy(update={"scheme": "Basic"})
    assert credentials_of(basic, settings()).token is None


def test_a_token_file_is_read_anew_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    read = token_reader(str(file))
    assert read() is None
    file.write_text("one\n")
    assert "one" == read()
    file.write_text("two\n")
    assert "two" == read()
    assert token_reader(None)() is None


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"prometheus_?[uU]rl"):
        settings(prometheus_url="prometheus:9090")
