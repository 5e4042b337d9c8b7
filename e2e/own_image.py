"""How does our own program get into a pod on the real node?

An image of this Python, of the packages that Plimsoll depends on, and of Plimsoll as it stands here, without
a container engine. Places, environment and command are the Containerfile's; the libraries below are this
machine's. What rarely changes is put together once.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from controlplane.cache import key_of, made_once
from controlplane.images import write_image
from installation import REPOSITORY

IMAGE_PATH: Final = "localhost/plimsoll"
IMAGE_TAG: Final = "here"
ROOM: Final = "own-image"
LIBRARY: Final = Path(f"python{sys.version_info.major}.{sys.version_info.minor}")
STANDARD: Final = Path(sys.base_prefix) / "lib" / LIBRARY
NOT_NEEDED: Final = (
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "lib2to3",
    "ensurepip",
    "config-*",
)
CONTAINERFILE: Final = REPOSITORY / "Containerfile"
LOCK: Final = REPOSITORY / "requirements.runtime.lock"
PREFIX: Final = Path("usr/local")
"""Of Python, in the Containerfile's base."""
_REQUIREMENT: Final = re.compile(r"^[A-Za-z0-9._-]+")


def own_image(out: Path) -> Path:
    """Write the image `localhost/plimsoll:here` as a file; needs a gigabyte beside it for a moment."""
    recipe = LOCK.read_bytes(), CONTAINERFILE.read_bytes(), Path(__file__).read_bytes()
    base = made_once(ROOM, key_of(sys.version, *recipe), _base)
    root = out.with_suffix(".root")
    subprocess.run(["cp", "-a", "--reflink=auto", str(base), str(root)], check=True)
    try:
        env, entrypoint = environment(), entry()
        ours = REPOSITORY / "operator" / "plimsoll"
        shutil.copytree(ours, root / env["PYTHONPATH"].lstrip("/") / "plimsoll")
        return write_image(out, f"{IMAGE_PATH}:{IMAGE_TAG}", root, entrypoint=entrypoint, env=env)
    finally:
        shutil.rmtree(root)


def instructions(text: str) -> list[tuple[str, str]]:
    """Each instruction of a Containerfile and what follows it, on one line."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split()[0], line.partition(" ")[2]) for line in joined.splitlines() if line]


def environment() -> dict[str, str]:
    """What the last stage of the Containerfile sets."""
    found: dict[str, str] = {}
    for word, rest in instructions(CONTAINERFILE.read_text(encoding="utf-8")):
        if word == "FROM":
            found = {}
        if word == "ENV":
            found |= dict(pair.split("=", 1) for pair in rest.split())
    return found


def entry() -> tuple[str, ...]:
    """Its command."""
    for word, rest in instructions(CONTAINERFILE.read_text(encoding="utf-8")):
        if word == "ENTRYPOINT":
            return tuple(json.loads(rest))
    raise LookupError("the Containerfile has no ENTRYPOINT")


def _base(folder: Path) -> None:
    """Python, packages, and the shared libraries that both ask for."""
    library = folder / PREFIX / "lib" / LIBRARY
    packages = folder / environment()["PYTHONPATH"].lstrip("/")
    ignored = shutil.ignore_patterns(*NOT_NEEDED, "site-packages", "*.a")
    shutil.copytree(STANDARD, library, ignore=ignored, symlinks=True)
    packages.mkdir(parents=True)
    for source in _sources():
        if source.is_dir():
            shutil.copytree(source, packages / source.name)
        else:
            shutil.copy(source, packages)
    binary = folder / entry()[0].lstrip("/")
    binary.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(sys.base_prefix) / "bin" / LIBRARY, binary)
    for shared in sorted(_shared(folder)):
        place = folder / shared.relative_to("/")
        if shared.is_relative_to(sys.base_prefix):
            place = folder / "lib" / shared.name  # where every loader looks
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(shared, place)


def _sources() -> Iterator[Path]:
    """Top-level modules and packages of everything that Plimsoll needs when it runs."""
    names, wanted = {"plimsoll"}, ["plimsoll"]
    while wanted:
        for each in distribution(wanted.pop()).requires or ():
            requirement, _, marker = each.partition(";")
            match = _REQUIREMENT.match(requirement)
            name = "" if match is None else re.sub(r"[-_.]+", "-", match[0]).lower()
            if name and "extra" not in marker and name not in names and _is_installed(name):
                names.add(name)
                wanted.append(name)
    found = {
        Path(str(distribution(name).locate_file(path.parts[0])))
        for name in names - {"plimsoll"}
        for path in distribution(name).files or ()
        if path.parts[0] not in ("..", "__pycache__")
    }
    yield from sorted(each for each in found if each.exists() and each.suffix != ".pth")


def _is_installed(name: str) -> bool:
    """Whether a requirement is of this platform."""
    try:
        distribution(name)
    except ModuleNotFoundError:
        return False
    return True


def _shared(folder: Path) -> set[Path]:
    """What the loader would bring for every binary in the folder."""
    binaries = [path for path in folder.rglob("*.so*") if path.is_file()]
    binaries += [folder / entry()[0].lstrip("/")]
    told = subprocess.run(
        ["ldd", *map(str, binaries)],
        capture_output=True,
        text=True,
        check=False,
        env={"LD_LIBRARY_PATH": str(Path(sys.base_prefix) / "lib"), "PATH": "/usr/bin:/bin"},
    )
    words = (word for line in told.stdout.splitlines() for word in line.split())
    paths = {Path(word) for word in words if word.startswith("/") and not word.endswith(":")}
    return {path for path in paths if path.exists() and not path.is_relative_to(folder)}
