"""What was asked in a retrieval probe, what came back, and what was made of it?

A probe hides numbers at many depths of long contexts and asks for them back: what a cache of fewer bits loses
first. Everything that was asked follows from a `Sheet`, so that two servers are asked the very same.
"""

import json
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, ValidationError

from plimsoll.facts.inspection import MESSAGE_LIMIT_BYTES
from plimsoll.facts.record import Record

FORM: Final = 1
"""Form of the prompts. Answers to prompts of another form are not compared with ours."""
MOST_CONTEXTS: Final = 512
MOST_DEPTHS: Final = 64


class HayContext(Record):
    """One long text."""

    length_tokens: Annotated[int, Field(ge=1)]
    """What it was meant to have, question and answer included."""
    sentences: Annotated[int, Field(ge=1)]
    """Sentences of filling that come to that with the model's own tokens."""


class Sheet(Record):
    """All that is asked; equal sheets are equal prompts."""

    form: int = FORM
    """Form of the prompts."""
    seed: int = 1
    """Chooses words and numbers."""
    digits: Annotated[int, Field(ge=2, le=18)] = 6
    """Of each number."""
    depths: Annotated[tuple[float, ...], Field(min_length=1, max_length=MOST_DEPTHS)]
    """Where in a context numbers stand: 0 is the beginning, 1 the end."""
    contexts: Annotated[tuple[HayContext, ...], Field(min_length=1, max_length=MOST_CONTEXTS)]
    """The texts; each holds one number for each depth."""

    @property
    def trials(self) -> int:
        """Numbers that are asked for."""
        return len(self.contexts) * len(self.depths)

    @property
    def longest_tokens(self) -> int:
        """Length of the longest context."""
        return max(context.length_tokens for context in self.contexts)


class Answers(Record):
    """What one server answered, to be compared with another later."""

    sheet: Sheet
    """What was asked."""
    model: str = ""
    """Under which name the model is served."""
    is_chat: bool = False
    """Whether it was asked as a chat, and not to go on with a text."""
    answers: tuple[tuple[str, ...], ...]
    """For each context, for each depth."""


class RetrievalVerdict(StrEnum):
    """What a probe came to."""

    PASSED = "Passed"
    """Shown to lose no more than is tolerated."""
    FAILED = "Failed"
    """It loses more."""
    INCONCLUSIVE = "Inconclusive"
    """Neither was shown: the model finds too little at 16 bit, or there were too few trials."""


class LengthTally(Record):
    """Trials of one length."""

    length_tokens: int
    """Prompt and answer together."""
    trials: int
    """Numbers that were asked for."""
    exact: int
    """Numbers that came back whole."""
    baseline_exact: int | None = None
    """The same of the baseline; None without one."""


class RetrievalReport(Record):
    """What a probe came to, with its numbers."""

    verdict: RetrievalVerdict
    """Passed, Failed or Inconclusive."""
    sentence: str
    """The same with its numbers, for a person."""
    longest_tokens: int = 0
    """Length of the longest context that was really asked."""
    trials: int = 0
    """Numbers that were asked for."""
    exact: int = 0
    """Numbers that came back whole."""
    digits_right: float = 0.0
    """Part of all digits that stood in their place, 0 to 1."""
    baseline_exact: int | None = None
    """Numbers that the baseline gave back whole; None without a baseline."""
    baseline_digits_right: float | None = None
    """Part of the baseline's digits that stood in their place."""
    lost: int | None = None
    """Numbers that the baseline found and this did not."""
    won: int | None = None
    """Numbers that this found and the baseline did not."""
    loss_at_most: float | None = None
    """Upper bound (one-sided, 95 %) of the part of trials lost by the difference, 0 to 1."""
    tolerance: float = 0.0
    """What was tolerated, 0 to 1."""
    by_length: Annotated[tuple[LengthTally, ...], Field(max_length=16)] = ()
    """The same by length, shortest first."""
    skipped_tokens: Annotated[tuple[int, ...], Field(max_length=16)] = ()
    """Lengths that were asked for and do not fit in the server's context."""
    model: str = ""
    """Under which name the model is served."""
    seed: int = 1
    """Chose words and numbers."""

    def to_message(self) -> str:
        """As one line of JSON that a termination message holds (4096 bytes)."""
        whole = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        text = json.dumps(whole, separators=(",", ":"), ensure_ascii=False)
        if len(text.encode()) <= MESSAGE_LIMIT_BYTES:
            return text
        short = self.model_copy(update={"sentence": self.sentence[:500], "model": self.model[:60]})
        whole = short.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return json.dumps(whole, separators=(",", ":"), ensure_ascii=True)


def read_retrieval(message: str) -> RetrievalReport | None:
    """The report in a text; None when it is something else."""
    try:
        return RetrievalReport.model_validate(json.loads(message))
    except (ValueError, ValidationError):
        return None
