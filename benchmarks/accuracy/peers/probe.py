"""Which of gguf-parser-go's figures stands beside a figure of a llama.cpp probe?

A probe reports bytes by device (DEV0, DEV1, the host's in CPU and HOST_PINNED) and part; the peer answers by
device too, host first. The part is read off a check's words, the devices off the reported figure: that of one
card, of the host, of all cards, or of all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.accuracy.peers.gguf_parser import FIELD, PARTS
from benchmarks.accuracy.peers.peer import Quantity, Question

Raw = Mapping[str, Any]

WORDS: Final = (
    (r"compute", Quantity.GGUF_COMPUTE),
    (r"\bkv\b|context|cache|state", Quantity.GGUF_KV),
    (r"weight|model", Quantity.GGUF_WEIGHTS),
    (r"total|all|sum", Quantity.GGUF_TOTAL),
)
"""Words of a check, and the part; the first that is found."""
NAMES: Final = {"weight": "model", "kv": "context", "compute": "compute"}
"""The peer's names of the parts, and llama.cpp's."""
CARD: Final = re.compile(r"DEV(\d+)")


def quantity_of(what: str) -> Quantity | None:
    """What a check of a probe is."""
    return next((part for words, part in WORDS if re.search(words, what, re.IGNORECASE)), None)


def asked_of_probe(quantity: Quantity, raw: Raw, reported: float | None) -> Question | None:
    """None where the reported figure is of no set of devices that the peer tells apart."""
    if quantity not in PARTS or reported is None or not raw.get(FIELD):
        return None
    cards = tuple(range(1, 1 + len(raw["devices_mib"])))
    sets = (*((card,) for card in cards), cards, (0,), (0, *cards))
    found = next((each for each in sets if each and _bytes(raw, quantity, each) == reported), None)
    if found is None:
        return None
    return Question(
        quantity=quantity, model=raw["model"], gguf_parser=tuple(raw[FIELD]), devices=found
    )


def _bytes(raw: Raw, quantity: Quantity, devices: tuple[int, ...]) -> int:
    """What llama.cpp allocated there; 0 is the host."""
    return sum(
        held[NAMES[part]]
        for name, held in raw["bytes"].items()
        for part in PARTS[quantity]
        if (int(card[1]) + 1 if (card := CARD.fullmatch(name)) else 0) in devices
    )
