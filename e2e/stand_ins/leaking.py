"""An engine in a real container that really leaks, as much and as slowly as a story says.

It is a stand-in: it generates nothing. What it holds is real memory of a real process, and what it tells of
its work on /metrics, in vLLM's names, it has measured itself.
"""

from __future__ import annotations

import http.client
import os
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from controlplane.cache import cache_dir, key_of, made_once
from controlplane.cluster import Manifest
from controlplane.fetch import run
from controlplane.images import write_image
from patience import Patience, stretched

SOURCE: Final = Path(__file__).resolve().parent / "leaking_engine" / "main.go"
IMAGE: Final = "localhost/leaking-engine:1"
PORT: Final = 8000


def image() -> Path:
    """The image as a file; built when the cache lacks it. Needs no network."""
    return made_once("node", f"leaking-{key_of(SOURCE.read_bytes())}", _into) / "image.tar"


def behave(pod: Manifest, *, leak_bytes: int, ttft_seconds: float) -> None:
    """From now on it leaks so much with each request, and its first token takes so long."""
    question = urlencode({"leakBytes": leak_bytes, "ttftSeconds": ttft_seconds})
    status = ask(str(pod["status"]["podIP"]), "POST", f"/behave?{question}")
    if status != http.client.OK:
        raise RuntimeError(f"{pod['metadata']['name']} answered {status} to {question}")


def complete(address: str) -> int:
    """One request as a client makes it; the status of its answer."""
    return ask(address, "POST", "/v1/completions", '{"prompt": "Hello", "max_tokens": 20}')


def ask(address: str, method: str, path: str, body: str | None = None) -> int:
    """The status of one whole answer. Raises OSError or HTTPException where there is none."""
    connection = http.client.HTTPConnection(
        address, PORT, timeout=stretched(Patience.STAND_IN_ANSWER)
    )
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def _into(folder: Path) -> None:
    root = folder / "root"
    for needed in ("usr/bin", "tmp", "models", "home"):
        (root / needed).mkdir(parents=True)
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GO111MODULE": "off",
        "GOCACHE": str(cache_dir() / "go-build"),
    }
    flags = ("-trimpath", "-ldflags", "-s -w")
    run("go", "build", *flags, "-o", root / "usr" / "bin" / "vllm", SOURCE, env=environment)
    write_image(
        folder / "image.tar", IMAGE, root, entrypoint=["/usr/bin/vllm"], env={"PATH": "/usr/bin"}
    )
