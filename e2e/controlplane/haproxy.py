"""Fetches HAProxy from Debian's archive, once per release, installing nothing.

    python e2e/controlplane/haproxy.py                    prints which releases lie where
    python e2e/controlplane/haproxy.py --or-say-why       a machine that cannot is told so, and is no failure

Two of them: bookworm's 2.6, the oldest that the gate is rendered for, and unstable's, the current one.
Each is unpacked with all its libraries, its own libc too, and started through its own loader, so that
neither this machine's release nor what is installed on it matters.
"""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from controlplane.cache import cache_dir, key_of, made_once
from controlplane.fetch import debian_root, tell

PACKAGE: Final = "haproxy"
OLDEST_SUITE: Final = "bookworm"
CURRENT_SUITE: Final = "sid"
SUITES: Final = (OLDEST_SUITE, CURRENT_SUITE)
ROOM: Final = "haproxy"
REVISION: Final = "1"  # raise it to fetch and make everything anew
LOADER: Final = "lib64/ld-linux-x86-64.so.2"
LIBRARIES: Final = ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")
STARTER: Final = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
exec "$here/root/{loader}" --library-path "{libraries}" "$here/root/usr/sbin/haproxy" "$@"
"""


def haproxy(suite: str = OLDEST_SUITE) -> Path:
    """A program that is that suite's HAProxy; fetched when the cache lacks it."""
    return made_once(ROOM, _key(suite), lambda folder: _into(folder, suite)) / PACKAGE


def is_fetched(suite: str = OLDEST_SUITE) -> bool:
    """Whether `haproxy` needs no network."""
    return (cache_dir() / ROOM / _key(suite)).is_dir()


def gate_possible() -> str | None:
    """Why no story can start a gate here; None when both releases lie there."""
    if all(map(is_fetched, SUITES)):
        return None
    return "a gate needs `python e2e/controlplane/haproxy.py` before"


def _key(suite: str) -> str:
    return f"{suite}-{key_of(REVISION, STARTER, suite)}"


def _into(folder: Path, suite: str) -> None:
    """The package, its libraries, and what starts it with them."""
    debian_root(PACKAGE, suite, folder)
    libraries = ":".join(f"$here/root/{place}" for place in LIBRARIES)
    starter = folder / PACKAGE
    starter.write_text(STARTER.format(loader=LOADER, libraries=libraries))
    starter.chmod(starter.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def main(arguments: list[str]) -> int:
    """Fetch; with --or-say-why a machine without apt, archive or network is told what is left out."""
    for suite in SUITES:
        try:
            print(suite, haproxy(suite))
        except (OSError, LookupError, RuntimeError) as error:
            if "--or-say-why" not in arguments:
                raise
            tell(f"no HAProxy of Debian {suite}, so the gate's stories are left out: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
