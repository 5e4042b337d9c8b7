"""How is a card drawn: which letter and colour has each owner, and how many cells of a bar?"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from plimsoll.engines.base import ByteOwner


class Look(NamedTuple):
    """How one owner of bytes is shown; the letter tells owners apart where colour cannot."""

    letter: str
    """One letter, its own among all owners."""
    fill: str
    """Colour of the area, #rrggbb."""
    ink: str
    """Colour of text on it, with a contrast of at least 4.5 to 1."""
    words: str
    """What the owner is, for people."""


LOOKS: Final = {
    ByteOwner.DRIVER: Look("D", "#4b5563", "#ffffff", "Driver"),
    ByteOwner.OTHERS: Look("O", "#854d0e", "#ffffff", "Other processes"),
    ByteOwner.CONTEXT: Look("C", "#7e22ce", "#ffffff", "Context"),
    ByteOwner.WEIGHTS: Look("W", "#1d4ed8", "#ffffff", "Weights"),
    ByteOwner.ACTIVATION: Look("A", "#c2410c", "#ffffff", "Activation peak"),
    ByteOwner.COLLECTIVES: Look("L", "#a3e635", "#111827", "Collectives"),
    ByteOwner.GRAPHS: Look("G", "#facc15", "#111827", "CUDA graphs"),
    ByteOwner.KV_CACHE: Look("K", "#15803d", "#ffffff", "KV cache"),
    ByteOwner.HEADROOM: Look("H", "#e5e7eb", "#111827", "Headroom"),
}


def cells(sizes: Sequence[int], width: int) -> tuple[int, ...]:
    """How many of `width` cells each size gets: in proportion, whole, in all exactly `width`.

    A size above zero gets at least one cell, so that no owner is lost; the largest ones pay for it.
    Raises ValueError when there are more sizes above zero than cells.
    """
    total = sum(sizes)
    shown = sum(size > 0 for size in sizes)
    if shown > width:
        raise ValueError(f"{shown} parts do not fit in a bar of {width} cells")
    if total <= 0:
        return tuple(0 for _ in sizes)
    given = [max(size * width // total, 1 if size > 0 else 0) for size in sizes]
    by_remainder = sorted(
        range(len(sizes)), key=lambda at: (-(sizes[at] * width % total), -sizes[at], at)
    )
    for at in by_remainder[: max(0, width - sum(given))]:
        given[at] += 1
    while sum(given) > width:
        given[max(range(len(given)), key=lambda at: (given[at], -at))] -= 1
    return tuple(given)


def ticks(card_bytes: int, unit: int) -> tuple[int, ...]:
    """Marks of a scale below the bar, in whole units: at most nine, from zero, a round step apart."""
    whole = card_bytes // unit
    step = next(s for s in (1, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 64, 128, 256) if whole // s <= 8)
    return tuple(range(0, whole + 1, step))
