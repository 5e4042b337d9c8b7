"""Does every byte of the card have an owner?"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.engines.base import ByteOwner, LedgerLine
from plimsoll.facts.source import Confidence


def close(lines: Sequence[LedgerLine], *, card_bytes: int, why: str) -> tuple[LedgerLine, ...]:
    """The lines and the headroom that is left: together exactly the card.

    Raises ValueError when the lines are more than the card: a caller that gets here has not checked.
    """
    left = card_bytes - sum(line.bytes for line in lines)
    if left < 0:
        raise ValueError(f"the ledger is {-left} B larger than the card's {card_bytes} B")
    headroom = LedgerLine(
        owner=ByteOwner.HEADROOM, bytes=left, confidence=Confidence.EXACT, source=why
    )
    order = list(ByteOwner)
    return (*sorted(lines, key=lambda line: order.index(line.owner)), headroom)
