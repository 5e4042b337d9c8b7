"""A worker to ask about, and authorities to be known by."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from controlplane.pki import Pki
from plimsoll.facts.watched import WatchedWorker

NOW = 1_796_040_000.0


class Authority(NamedTuple):
    """Who signs a server's certificate, and the server's side of it."""

    ca_file: str
    serving: Callable[[], ssl.SSLContext]


@pytest.fixture(scope="session")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    """The cluster's, and another one; both serve 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates, and is not here")
    return (
        _authority(tmp_path_factory.mktemp("pki")),
        _authority(tmp_path_factory.mktemp("other-pki")),
    )


def _authority(folder: Path) -> Authority:
    pki = Pki(folder / "pki")
    server = pki.server("kubelet", "/CN=kubelet", ("IP:127.0.0.1",))

    def serving() -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(server.certificate, server.key)
        return context

    return Authority(str(pki.ca.certificate), serving)


@pytest.fixture
def worker() -> WatchedWorker:
    """A vLLM worker that has started."""
    return WatchedWorker(
        namespace="team",
        deployment="chat",
        pool="h100",
        pod="chat-h100-1",
        pod_uid="uid-1",
        container="engine",
        engine="vllm",
        node="node-1",
        is_healthy=True,
    )
