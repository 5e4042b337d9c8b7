"""How do we write down bytes, tokens and seconds, and how do we read what people wrote?

GiB is 2**30 and GB is 10**9; a token is not a byte. Nothing else lives so low.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
GB: Final = 10**9

# Kubernetes' suffixes, k8s.io/apimachinery pkg/api/resource (v0.37): binary and decimal SI.
_SUFFIXES: Final = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
}
_QUANTITY: Final = re.compile(r"^(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<suffix>[A-Za-z]{0,2})$")
_DURATION: Final = re.compile(r"^(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?(?:(?P<s>\d+)s)?$")


def parse_bytes(text: str | int) -> int:
    """A Kubernetes quantity as bytes: "200Mi" is 209715200, "80G" is 80000000000.

    Raises ValueError with the value and the suffixes that work.
    """
    if isinstance(text, int):
        return text
    match = _QUANTITY.match(text.strip())
    if match is None or match["suffix"] not in _SUFFIXES:
        ways_out = ", ".join(s for s in _SUFFIXES if s)
        raise ValueError(
            f"{text!r} is not a quantity of bytes; write a number with one of {ways_out}"
        )
    try:
        return int(Decimal(match["number"]) * _SUFFIXES[match["suffix"]])
    except InvalidOperation as error:  # pragma: no cover - the pattern admits only decimals
        raise ValueError(f"{text!r} is not a number") from error


def parse_seconds(text: str) -> int:
    """A duration as Kubernetes people write it: "90s", "5m", "1h30m". Raises ValueError."""
    match = _DURATION.match(text.strip())
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not a duration; write it as 90s, 5m or 1h30m")
    return int(match["h"] or 0) * 3600 + int(match["m"] or 0) * 60 + int(match["s"] or 0)


def quantity(size_bytes: int) -> str:
    """Bytes as the canonical Kubernetes quantity, rounded up to a whole MiB: 1536 MiB is "1536Mi".

    Canonical, so that what the API server stores is what we wrote and no difference shows.
    """
    mebibytes = -(-size_bytes // MIB)
    for suffix, factor in (("Ti", 2**20), ("Gi", 2**10)):
        if mebibytes and mebibytes % factor == 0:
            return f"{mebibytes // factor}{suffix}"
    return f"{mebibytes}Mi"


def gib(size_bytes: int) -> str:
    """For people: "32.9 GiB"; below one GiB "410 MiB"."""
    if abs(size_bytes) < GIB:
        return f"{size_bytes / MIB:,.0f} MiB"
    return f"{size_bytes / GIB:,.1f} GiB"


def round_down(value: int, step: int) -> int:
    """The largest multiple of `step` that is not above `value`."""
    return value // step * step


def round_up(value: int, step: int) -> int:
    """The smallest multiple of `step` that is not below `value`."""
    return -(-value // step) * step


def ceil_div(value: int, divisor: int) -> int:
    """Whole parts of `divisor` that hold `value`."""
    return -(-value // divisor)


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: "1 sequence", "2,000 sequences"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
