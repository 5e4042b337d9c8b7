"""An engine in a real container that really dies, in the way that its environment says.

It is a stand-in: it generates nothing. The kernel kills it for memory that it really takes, the kubelet for a
probe that it really does not answer, and its last words are where a container leaves them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from controlplane.cache import cache_dir, key_of, made_once
from controlplane.fetch import run
from controlplane.images import write_image

SOURCE: Final = Path(__file__).resolve().parent / "dying_engine" / "main.go"
IMAGE: Final = "localhost/dying-engine:1"


def image() -> Path:
    """The image as a file; built when the cache lacks it. Needs no network."""
    return made_once("node", f"dying-{key_of(SOURCE.read_bytes())}", _into) / "image.tar"


def how(dies: str, *, eat_mib: int = 0) -> list[dict[str, Any]]:
    """The environment that makes it die so."""
    return [{"name": "DIE", "value": dies}, {"name": "EAT_MIB", "value": str(eat_mib)}]


def _into(folder: Path) -> None:
    root = folder / "root"
    for needed in ("usr/bin", "tmp", "models", "home", "etc"):
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
