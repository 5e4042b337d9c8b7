"""Where the API server is, and as whom we speak to it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cluster.access import Access, access_of, sign_in
from plimsoll.cluster.errors import Unauthorized

TOKEN = "let-me-in-please"


def write(folder: Path, server: str = "http://127.0.0.1:8080", **user: str) -> str:
    """A kubeconfig."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return str(path)


def read(kubeconfig: str | None) -> Access:
    """Sign in."""

    async def run() -> Access:
        return await access_of(await sign_in(kubeconfig))

    return asyncio.run(run())


def test_a_plain_server_and_a_token_are_read(tmp_path: Path) -> None:
    access = read(write(tmp_path, token=TOKEN))
    assert ("http://127.0.0.1:8080", "Bearer", TOKEN) == (
        access.server,
        access.scheme,
        access.token,
    )


def test_a_token_is_not_printed(tmp_path: Path) -> None:
    assert TOKEN not in repr(read(write(tmp_path, token=TOKEN)))


def test_the_environment_names_a_kubeconfig_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", write(tmp_path, server="http://other:1"))
    access = read(None)
    assert ("http://other:1", None) == (access.server, access.token)


@pytest.mark.parametrize("text", [None, "{}", "current-context: none"])
def test_without_credentials_it_says_how_to_give_some(tmp_path: Path, text: Any) -> None:
    path = tmp_path / "broken"
    if text is not None:
        path.write_text(text)
    with pytest.raises(Unauthorized, match="name a kubeconfig with --kubeconfig"):
        read(str(path))
