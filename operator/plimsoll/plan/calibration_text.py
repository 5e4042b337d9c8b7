"""How is a calibration written down, and what of a text is believed?

JSON with a schema's number, the same in the ConfigMap and in a file. Reading never raises: an entry that cannot
be read, or lies outside its bounds, is left out with a warning, and the others count.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from plimsoll.plan.calibration import CalibrationKey, Measurement, problem_of

SCHEMA: Final = 1
"""Raised when an older Plimsoll would misunderstand a text; what it cannot understand it neither uses nor
overwrites."""
MOST_ENTRIES: Final = 512
"""At about 400 bytes each these are 200 kB; a ConfigMap may hold 1 MiB. The oldest go first."""
LONGEST_WORD: Final = 200
MOST_TEXT_BYTES: Final = 900_000

_WORDS: Final = ("engine", "release", "gpu", "architecture", "shape", "flags", "extras")
_NUMBERS: Final = ("cards", "measuredBytes", "boundBytes", "plans")


class Calibration(NamedTuple):
    """What a text says, as far as it is believed."""

    measured: tuple[Measurement, ...] = ()
    warnings: tuple[str, ...] = ()
    """What was left out, and why."""
    is_foreign: bool = False
    """Whether it is no calibration of ours, or one of a newer Plimsoll: then it is not written over."""


def text_of(measured: Sequence[Measurement]) -> str:
    """The text; equal measurements give equal texts."""
    newest = sorted(measured, key=lambda one: (one.until, one.key), reverse=True)[:MOST_ENTRIES]
    entries = [_entry(one) for one in sorted(newest, key=lambda one: one.key)]
    return json.dumps({"schema": SCHEMA, "entries": entries}, indent=1) + "\n"


def calibration_of(text: str) -> Calibration:
    """What a text says."""
    if len(text) > MOST_TEXT_BYTES:
        return Calibration(
            warnings=(f"{len(text):,} characters are no calibration of ours",), is_foreign=True
        )
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Calibration(warnings=(f"it is no JSON: {error}",), is_foreign=True)
    schema = raw.get("schema") if isinstance(raw, dict) else None
    entries = raw.get("entries") if isinstance(raw, dict) else None
    if schema != SCHEMA or not isinstance(entries, list):
        return Calibration(
            warnings=(f"schema is {schema!r}, and {SCHEMA} is what this Plimsoll reads",),
            is_foreign=True,
        )
    measured: dict[CalibrationKey, Measurement] = {}
    warnings: list[str] = []
    for place, entry in enumerate(entries[:MOST_ENTRIES]):
        found = _measurement(entry)
        if isinstance(found, str):
            warnings.append(f"entries[{place}] is ignored: {found}")
        elif found.key in measured:
            warnings.append(f"entries[{place}] is ignored: an entry before it has the same key")
        else:
            measured[found.key] = found
    if len(entries) > MOST_ENTRIES:
        warnings.append(f"{len(entries) - MOST_ENTRIES} entries beyond {MOST_ENTRIES} are ignored")
    return Calibration(tuple(measured[key] for key in sorted(measured)), tuple(warnings))


def _entry(one: Measurement) -> dict[str, Any]:
    return {
        **one.key._asdict(),
        "measuredBytes": one.measured_bytes,
        "boundBytes": one.bound_bytes,
        "plans": one.plans,
        "since": one.since,
        "until": one.until,
    }


def _measurement(entry: Any) -> Measurement | str:
    """The entry, or why it is none."""
    if not isinstance(entry, dict):
        return "it is no object"
    for name in _WORDS:
        word = entry.get(name, "" if name == "extras" else None)
        if not isinstance(word, str) or len(word) > LONGEST_WORD:
            return f"{name} {word!r:.60} is no text of at most {LONGEST_WORD} characters"
    for name in _NUMBERS:
        number = entry.get(name)
        if not isinstance(number, int) or isinstance(number, bool):
            return f"{name} {number!r:.60} is no whole number"
    days = [str(entry.get(name) or "")[:LONGEST_WORD] for name in ("since", "until")]
    found = Measurement(
        key=CalibrationKey(**{name: entry.get(name, "") for name in _WORDS}, cards=entry["cards"]),
        measured_bytes=entry["measuredBytes"],
        bound_bytes=entry["boundBytes"],
        plans=entry["plans"],
        since=days[0],
        until=days[1],
    )
    return problem_of(found) or found
