"""What did an inspection of a model's files find, in so few bytes that a container can say it at its end?

A pod without a token and without a network has one way to tell something: its termination message, of which
the kubelet keeps 4096 bytes (k8s.io/kubernetes pkg/kubelet/container/helpers.go, MaxContainerTerminationMessageLength).
"""

import base64
import json
import zlib
from typing import Final, Self

from pydantic import ValidationError, model_validator

from plimsoll.facts.model import GgufFacts, ModelFacts
from plimsoll.facts.record import Record

MESSAGE_LIMIT_BYTES: Final = 4096
"""Of one container; all containers of a pod together have 12 KiB."""
LONGEST_INFLATED_BYTES: Final = 2**20
_PACKED: Final = "zlib:"


class InspectionReport(Record):
    """What the files of one source said: facts, or why there are none."""

    model: ModelFacts | None = None
    """As vLLM loads it."""
    gguf: GgufFacts | None = None
    """As llama.cpp loads it."""
    refused: str = ""
    """Which file says what, and the way out; empty when there are facts."""
    fingerprint: str = ""
    """Digest of the files' names, sizes and times; empty without facts."""

    @model_validator(mode="after")
    def _one_finding(self) -> Self:
        given = sum((self.model is not None, self.gguf is not None, bool(self.refused)))
        if given != 1:
            raise ValueError("a report has facts of one source, or says why there are none")
        return self

    def to_message(self) -> str:
        """As text of at most 4096 bytes: plain JSON, or packed where that is longer.

        Raises ValueError when it is too long even so.
        """
        text = json.dumps(
            self.model_dump(mode="json", by_alias=True, exclude_defaults=True),
            separators=(",", ":"),
            ensure_ascii=False,
        )
        if len(text.encode()) <= MESSAGE_LIMIT_BYTES:
            return text
        packed = _PACKED + base64.b85encode(zlib.compress(text.encode(), 9)).decode()
        if len(packed) > MESSAGE_LIMIT_BYTES:
            raise ValueError(
                f"the facts have {len(packed)} bytes when packed, more than the {MESSAGE_LIMIT_BYTES} of "
                "a termination message; give them in a ConfigMap, as `plimsoll facts --config-map` "
                "prints it"
            )
        return packed


def refusal_report(sentence: str) -> InspectionReport:
    """A report of a refusal, the sentence cut to what a termination message holds."""
    longest = MESSAGE_LIMIT_BYTES // 4  # a character has at most four bytes
    shown = sentence if len(sentence) <= longest else f"{sentence[: longest - 3]}..."
    return InspectionReport(refused=shown or "nothing was said")


def read_report(message: str) -> InspectionReport | None:
    """The report in a termination message; None when it is something else, or cut off."""
    try:
        if message.startswith(_PACKED):
            packed = base64.b85decode(message.removeprefix(_PACKED).strip())
            inflated = zlib.decompressobj().decompress(packed, LONGEST_INFLATED_BYTES)
            message = inflated.decode()
        return InspectionReport.model_validate(json.loads(message))
    except (ValueError, ValidationError, zlib.error):
        return None
