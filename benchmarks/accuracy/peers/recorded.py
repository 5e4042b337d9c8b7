"""What did a peer that cannot be a dependency answer when it was last run?

tests/data/peers/NAME.json: about, version, command, date, and one entry a question. A question is known by
the digest of what the peer looks at, so another model or card under the same row id is not mistaken.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).resolve().parents[3] / "tests" / "data" / "peers"
NOT_RECORDED: Final = "not recorded for this case; `make accuracy-record` asks it"


def key_of(asked: Mapping[str, Any]) -> str:
    """Sixteen hex digits of the question in its one spelling."""
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def answer(name: str, asked: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The entry of this question; None if it was never asked."""
    found: Mapping[str, Any] | None = read(name).get("answers", {}).get(key_of(asked))
    return found


@cache
def read(name: str) -> Mapping[str, Any]:
    """The whole record; empty when there is none."""
    path = FOLDER / f"{name}.json"
    if not path.is_file():
        return {}
    read: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return read
