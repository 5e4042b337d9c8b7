"""What is kept of retrieval probes, and which of them answers which question?"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError

from plimsoll.facts.record import Record
from plimsoll.facts.retrieval import RetrievalReport, RetrievalVerdict

RECORD_KEY: Final = "retrieval.json"
"""Of the ConfigMap."""
MOST_RECORDS: Final = 16
"""In one ConfigMap; the oldest go first."""
PROBE_ANNOTATION: Final = "plimsoll.dev/probe"
"""Any value; a changed one asks for another probe."""
VERDICTS: Final = frozenset(verdict.value for verdict in RetrievalVerdict)


class Probed(Record):
    """What a probe speaks of; for anything else it says nothing."""

    source: str
    """Address of the model's files, as spec.model.uri or spec.model.gguf.uri has it."""
    engine: str
    """vllm or llamaCpp."""
    release: str
    """The engine's release."""
    dtype: str
    """KV cache dtype that was compared with 16 bit."""
    again: str = ""
    """Value of the annotation plimsoll.dev/probe."""

    @property
    def digest(self) -> str:
        """Sixteen hex digits."""
        text = "\0".join((self.source, self.engine, self.release, self.dtype, self.again))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class ProbeRecord(Record):
    """One probe that has ended."""

    probed: Probed
    """What was probed."""
    at: str
    """When, RFC 3339 in UTC."""
    report: RetrievalReport
    """What came of it."""


class ProbeRecords(Record):
    """What a ConfigMap holds."""

    records: Annotated[tuple[ProbeRecord, ...], Field(max_length=MOST_RECORDS)] = ()
    """Newest first."""


def record_data(records: Sequence[ProbeRecord]) -> dict[str, str]:
    """Data of the ConfigMap with these records, newest first."""
    whole = ProbeRecords(records=tuple(records)[:MOST_RECORDS])
    plain = whole.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {RECORD_KEY: json.dumps(plain, separators=(",", ":"), ensure_ascii=False)}


def records_in(config_map: Mapping[str, Any] | None) -> tuple[ProbeRecord, ...]:
    """The records in a ConfigMap; none where it holds nothing that we understand."""
    text = ((config_map or {}).get("data") or {}).get(RECORD_KEY)
    if not isinstance(text, str):
        return ()
    try:
        return ProbeRecords.model_validate_json(text).records
    except ValidationError:
        return ()


def with_record(records: Sequence[ProbeRecord], new: ProbeRecord) -> tuple[ProbeRecord, ...]:
    """The records with a new one in front, in the place of what was said of the same before."""
    others = (each for each in records if each.probed != new.probed)
    return (new, *others)[:MOST_RECORDS]


def answer_to(
    records: Sequence[ProbeRecord], probed: Probed, *, length_tokens: int
) -> ProbeRecord | None:
    """The record that answers for contexts up to that length; None when nobody asked so long ones.

    What failed or told nothing with shorter contexts is an answer too: longer ones are harder.
    """
    for record in records:
        if record.probed != probed:
            continue
        is_passed = record.report.verdict is RetrievalVerdict.PASSED
        if not is_passed or record.report.longest_tokens >= length_tokens:
            return record
    return None
