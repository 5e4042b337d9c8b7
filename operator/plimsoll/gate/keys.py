"""Which API keys does the gate know, and how does it come to know them while it runs?

A Secret holds one key per entry, by name. HAProxy is given their digests only: whoever reads its map or
its memory dump of the map learns no key. A key that was added or taken out counts at once.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Final

SHORTEST_KEY: Final = 16
"""Characters. A digest without salt can be searched: short keys would be found."""

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,253}")


class KeysError(ValueError):
    """Keys that cannot be used, with the entry's name and the way out; never with a key."""


def hashed(entries: Mapping[str, str]) -> dict[str, str]:
    """By digest (SHA-256, hex): the key's name. Raises KeysError."""
    digests: dict[str, str] = {}
    for name, text in sorted(entries.items()):
        key = text.strip()
        if not _NAME.fullmatch(name):
            raise KeysError(f"{name!r} is no name of a key; write letters, digits and . _ -")
        if len(key) < SHORTEST_KEY:
            raise KeysError(
                f"key {name} has {len(key)} characters; write at least {SHORTEST_KEY}, e.g. from "
                "`openssl rand -hex 24`"
            )
        digest = hashlib.sha256(key.encode()).hexdigest()
        if digest in digests:
            raise KeysError(f"{name} and {digests[digest]} are the same key; give each its own")
        digests[digest] = name
    return digests


def map_text(digests: Mapping[str, str]) -> str:
    """The map file that HAProxy reads when it starts."""
    return "".join(f"{digest} {name}\n" for digest, name in sorted(digests.items()))


def read_map(answer: str) -> dict[str, str]:
    """What `show map` says: lines of an address, a digest and a name."""
    rows = (line.split(" ", 2) for line in answer.splitlines() if line.startswith("0x"))
    return {row[1]: row[2].strip() for row in rows if len(row) == 3}


def key_commands(path: str, wanted: Mapping[str, str], known: Mapping[str, str]) -> Iterator[str]:
    """What makes the map that runs into the wanted one; keys that go, go first."""
    for digest, name in sorted(known.items()):
        if digest not in wanted:
            yield f"del map {path} {digest}"
        elif wanted[digest] != name:
            yield f"set map {path} {digest} {wanted[digest]}"
    for digest, name in sorted(wanted.items()):
        if digest not in known:
            yield f"add map {path} {digest} {name}"
