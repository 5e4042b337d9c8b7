"""How does a folder become a container image without a container engine?

One layer, in the form of `docker save`, which `ctr images import` reads. Equal folders give equal
bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

BLOCK_BYTES: Final = 1 << 20


def write_image(
    out: Path,
    name: str,
    root: Path,
    *,
    entrypoint: Sequence[str],
    env: Mapping[str, str] | None = None,
    without: Collection[str] = (),
) -> Path:
    """Write `name` (with its tag) to `out`, from all of `root` but the folders in `without`."""
    with tempfile.TemporaryFile(dir=out.parent) as layer:
        with tarfile.open(fileobj=layer, mode="w") as tar:
            for entry in sorted(root.iterdir()):
                if entry.name not in without:
                    tar.add(entry, arcname=entry.name, filter=_without_owner)
        layer.seek(0)
        digest = hashlib.sha256()
        while block := layer.read(BLOCK_BYTES):
            digest.update(block)
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {
                    "Entrypoint": list(entrypoint),
                    "Env": [f"{key}={value}" for key, value in (env or {}).items()],
                },
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest.hexdigest()}"]},
            }
        ).encode()
        config_name = f"{hashlib.sha256(config).hexdigest()}.json"
        manifest = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
        with tarfile.open(out, "w") as image:
            _put(image, config_name, config)
            member = tarfile.TarInfo("layer.tar")
            member.size = layer.seek(0, io.SEEK_END)
            layer.seek(0)
            image.addfile(member, layer)
            _put(image, "manifest.json", json.dumps(manifest).encode())
    return out


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = "root"
    return entry


def _put(image: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    image.addfile(member, io.BytesIO(data))
