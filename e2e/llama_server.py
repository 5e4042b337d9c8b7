"""How is Debian's llama-server run as a plain process, with the real model, without a node?

Its image brings its own libc, so the image's own loader starts it, in the folder where it finds its backends.
"""

from __future__ import annotations

import http.client
import socket
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from controlplane.fetch import NodeParts
from controlplane.processes import Child
from patience import Patience, eventually

LIBRARIES: Final = "usr/lib/x86_64-linux-gnu"
BACKENDS: Final = f"{LIBRARIES}/ggml/backends0"
FOLDERS: Final = ("", "/blas", "/lapack", "/llama")
THREADS: Final = "1"
"""They spin while they wait for each other: where cores are shared, one is faster than two."""


def unpacked(parts: NodeParts, folder: Path) -> Path:
    """The image's files below a folder."""
    root = folder / "llama"
    with tempfile.TemporaryDirectory(dir=folder) as held:
        with tarfile.open(parts.llama_image) as image:
            image.extract("layer.tar", held, filter="data")
        with tarfile.open(Path(held) / "layer.tar") as layer:
            layer.extractall(root, filter="tar")
    return root


@contextmanager
def llama_server(root: Path, model: Path, *words: str, log: Path) -> Iterator[str]:
    """A llama-server that serves on the loopback; its address. `words` are further arguments."""
    port = _free_port()
    path = ":".join(f"{root}/{LIBRARIES}{folder}" for folder in FOLDERS)
    server = Child(
        log.stem,
        (
            *(root / "lib64/ld-linux-x86-64.so.2", "--library-path", path),
            *(root / "usr/bin/llama-server", "--model", model, "--host", "127.0.0.1"),
            *("--port", str(port), "--threads", THREADS, "--parallel", "1", "--no-warmup"),
            *words,
        ),
        log=log,
        cwd=root / BACKENDS,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(
            lambda: _is_ready(server, url),
            within=Patience.REAL_POD_READY,
            says="llama-server has loaded the model",
        )
        yield url
    finally:
        server.kill()


def _is_ready(server: Child, url: str) -> bool:
    server.must_run()
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=Patience.STAND_IN_ANSWER) as answer:
            return bool(answer.status == http.client.OK)
    except (urllib.error.URLError, OSError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
