"""Where do built and fetched things lie, and how are they made once, whole, by one process only?

Everything lies in `$PLIMSOLL_CACHE` (default `~/.cache/plimsoll`), each thing in a folder whose name
is the digest of its recipe: a changed recipe makes a new folder and leaves the old one alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_dir() -> Path:
    """The folder that outlives checkouts."""
    return Path(os.environ.get("PLIMSOLL_CACHE") or Path.home() / ".cache" / "plimsoll")


def key_of(*recipe: str | bytes) -> str:
    """Sixteen hex digits that change with any part of the recipe."""
    digest = hashlib.sha256()
    for part in recipe:
        digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\0")
    return digest.hexdigest()[:16]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file; a second process waits here."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def made_once(room: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder `room/key`, filled by `make` when it is not there yet.

    `make` fills a folder beside it that is renamed at the end, so a folder that exists is whole.
    """
    home = cache_dir() / room
    done = home / key
    if done.is_dir():
        return done
    with locked(home / ".lock"):
        if not done.is_dir():  # another process may have been faster
            for left in home.glob(".draft-*"):  # by a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=home))
            try:
                make(draft)
                draft.chmod(0o755)
                draft.rename(done)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return done
