"""How is a keeper's page read: from a gate, or from a file that somebody saved?"""

from __future__ import annotations

import math
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from plimsoll.gate.figures import LABELS, PREFIX, Page, Sample
from plimsoll.telemetry.source import Reason, ScrapeError

PATH: Final = "/metrics"
_ALWAYS: Final = "plimsoll_gate_answers"
"""On every keeper's page, and on nobody else's."""


def read_gate_page(text: str) -> Page:
    """The keeper's samples; what others put on the page is left out. Raises ScrapeError when it is no such page,
    or is cut off."""
    if not text.endswith("\n"):
        raise ScrapeError(Reason.MALFORMED, "it does not end with a line's end: it is cut off")
    kept = "".join(line for line in text.splitlines(keepends=True) if line.startswith(PREFIX))
    try:
        samples = tuple(
            Sample(sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(kept)
            for sample in family.samples
        )
        for sample in samples:
            float(sample.labels.get("le", 0))
    except (ValueError, KeyError, IndexError) as error:
        raise ScrapeError(Reason.MALFORMED, f"no page of metrics: {error}") from error
    for sample in samples:
        lacks = LABELS.get(sample.name, frozenset()) - sample.labels.keys()
        if lacks or not math.isfinite(sample.value):
            what = f"no label {min(lacks)}" if lacks else f"the value {sample.value}"
            raise ScrapeError(
                Reason.MALFORMED, f"{sample.name} has {what}: a keeper of another version?"
            )
    if not any(sample.name == _ALWAYS for sample in samples):
        raise ScrapeError(
            Reason.ABSENT, f"it has no {_ALWAYS}: a keeper's page is at port 8406, {PATH}"
        )
    return samples
