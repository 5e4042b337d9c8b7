"""How many numbers came back exact, and is a cache of fewer bits as good as 16 bit for that?

Judged is the difference to a baseline that was asked the very same: a small model misses some numbers at 16 bit
too, and that is not the cache's fault. Passed means shown: the upper bound of what is lost, not the best guess, lies
within the tolerance.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from plimsoll.diagnose.retrieval import Needle, needles
from plimsoll.facts.retrieval import (
    Answers,
    LengthTally,
    RetrievalReport,
    RetrievalVerdict,
    Sheet,
)

TOLERANCE: Final = 0.05
"""Part of all numbers that fewer bits may lose. One in twenty is what people who ask long documents begin to
notice; less would take thousands of trials to show (2.7 / tolerance of them without one loss)."""
LONGEST_TOLERANCE_FACTOR: Final = 1.5
"""At the longest length alone, with half of the trials, so many times the tolerance: a loss that is only there
must not hide behind short contexts."""
LEAST_BASELINE: Final = 0.5
"""Part of the numbers that 16 bit must find, in all and at the longest length: where it finds fewer, most trials
are misses on both sides and tell nothing of the cache."""
LEAST_ALONE: Final = 0.9
"""Part of the numbers that a server without a baseline must give back."""
Z: Final = 1.6448536
"""95 %, one-sided."""
_NUMBER: Final = re.compile(r"\d+(?:,\d{3})*")


class Mark(NamedTuple):
    """One answer."""

    length_tokens: int
    """Of its context."""
    depth: float
    """Where the number stood."""
    is_exact: bool
    """Whether the number came back whole."""
    digits_right: int
    """Digits that stood in their place."""


def marks_of(sheet: Sheet, answers: Sequence[Sequence[str]]) -> tuple[Mark, ...]:
    """Each answer marked, in the sheet's order."""
    return tuple(_marks(sheet, answers))


def _marks(sheet: Sheet, answers: Sequence[Sequence[str]]) -> Iterator[Mark]:
    for at, context in enumerate(sheet.contexts):
        for needle, answer in zip(needles(sheet, at), answers[at], strict=True):
            said = number_in(answer)
            right = sum(a == b for a, b in zip(needle.number, said, strict=False))
            yield Mark(context.length_tokens, needle.depth, said == needle.number, right)


def number_in(answer: str) -> str:
    """The first number of an answer, without commas between thousands; empty where there is none."""
    found = _NUMBER.search(answer)
    return found[0].replace(",", "") if found else ""


def is_right(needle: Needle, answer: str) -> bool:
    """Whether the answer gives the number whole."""
    return number_in(answer) == needle.number


# ---- the bound -----------------------------------------------------------------------------------


def loss_at_most(trials: int, lost: int, won: int) -> float:
    """Upper bound (one-sided, 95 %) of P(lost) - P(won) in paired trials.

    Tango's score interval (Statistics in Medicine 17, 891-908, 1998), which holds its level for few trials
    and for none lost; there it is z^2 / (trials + z^2). Without trials it is 1.
    """
    if trials == 0:
        return 1.0
    low, high = (lost - won) / trials, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _score(trials, lost, won, middle) > -Z:
            low = middle
        else:
            high = middle
    return high


def _score(trials: int, lost: int, won: int, loss: float) -> float:
    """How far the trials are from a loss of so much, in standard deviations under it."""
    a = 2 * trials
    b = (2 * trials - lost + won) * loss - lost - won
    c = -won * loss * (1 - loss)
    rare = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    variance = trials * (2 * rare + loss * (1 - loss))
    gap = lost - won - trials * loss
    if variance > 0:
        return gap / math.sqrt(variance)
    return math.copysign(math.inf, gap) if gap else 0.0


def trials_needed(tolerance: float) -> int:
    """Trials without one loss that show a loss below the tolerance."""
    return math.ceil(Z * Z * (1 - tolerance) / tolerance)


# ---- the verdict ---------------------------------------------------------------------------------


class Judged(NamedTuple):
    """What is said of some trials."""

    verdict: RetrievalVerdict
    sentence: str


def judge(
    asked: Answers,
    baseline: Answers | None = None,
    *,
    tolerance: float = TOLERANCE,
    least_alone: float = LEAST_ALONE,
    skipped_tokens: Sequence[int] = (),
) -> RetrievalReport:
    """The report on a server's answers, against a baseline's to the same sheet where there are any.

    Raises ValueError when the baseline was asked something else.
    """
    if baseline is not None and (baseline.sheet, baseline.is_chat) != (asked.sheet, asked.is_chat):
        raise ValueError("the baseline was asked something else; give both runs the same options")
    sheet = asked.sheet
    marks = marks_of(sheet, asked.answers)
    before = marks_of(sheet, baseline.answers) if baseline is not None else None
    judged = _alone(marks, least_alone) if before is None else _paired(marks, before, tolerance)
    if skipped_tokens:
        judged = _cut_short(judged, skipped_tokens, sheet.longest_tokens)
    pairs = list(zip(marks, before, strict=True)) if before is not None else None
    lost = None if pairs is None else sum(b.is_exact and not m.is_exact for m, b in pairs)
    won = None if pairs is None else sum(m.is_exact and not b.is_exact for m, b in pairs)
    bound = None
    if lost is not None and won is not None:
        bound = round(loss_at_most(len(marks), lost, won), 4)
    return RetrievalReport(
        verdict=judged.verdict,
        sentence=judged.sentence,
        longest_tokens=sheet.longest_tokens,
        trials=len(marks),
        exact=_exact(marks),
        digits_right=_digits(sheet, marks),
        baseline_exact=None if before is None else _exact(before),
        baseline_digits_right=None if before is None else _digits(sheet, before),
        lost=lost,
        won=won,
        loss_at_most=bound,
        tolerance=tolerance if before is not None else 1 - least_alone,
        by_length=_by_length(marks, before),
        skipped_tokens=tuple(skipped_tokens),
        model=asked.model,
        seed=sheet.seed,
    )


def _alone(marks: Sequence[Mark], least: float) -> Judged:
    rate = _exact(marks) / len(marks)
    counts = f"{_exact(marks)} of {len(marks)} numbers came back exact ({rate:.0%})"
    if rate >= least:
        return Judged(RetrievalVerdict.PASSED, f"{counts}, at least {least:.0%} as wanted.")
    return Judged(
        RetrievalVerdict.FAILED,
        f"{counts}, fewer than {least:.0%}; without a baseline at 16 bit nobody can tell whether model or "
        "cache is at fault.",
    )


def _paired(marks: Sequence[Mark], before: Sequence[Mark], tolerance: float) -> Judged:
    longest = max(mark.length_tokens for mark in marks)
    pairs = list(zip(marks, before, strict=True))
    at_longest = [pair for pair in pairs if pair[0].length_tokens == longest]
    groups = [(pairs, tolerance, "")]
    if len(at_longest) < len(pairs):
        where = f" at {longest:,} tokens"
        groups.append((at_longest, tolerance * LONGEST_TOLERANCE_FACTOR, where))
    for group, _, where in groups:
        found = sum(b.is_exact for _, b in group)
        if found < LEAST_BASELINE * len(group):
            return Judged(
                RetrievalVerdict.INCONCLUSIVE,
                f"at 16 bit the model gives back only {found} of {len(group)} numbers{where}, too few to judge "
                f"the cache by ({LEAST_BASELINE:.0%} are needed); ask shorter contexts.",
            )
    said = [_difference(group, allowed, where) for group, allowed, where in groups]
    worst = next(
        (
            judged
            for verdict in (RetrievalVerdict.FAILED, RetrievalVerdict.INCONCLUSIVE)
            for judged in said
            if judged.verdict is verdict
        ),
        None,
    )
    return worst or said[0]


def _difference(group: Sequence[tuple[Mark, Mark]], tolerance: float, where: str) -> Judged:
    count = len(group)
    lost = sum(b.is_exact and not m.is_exact for m, b in group)
    won = sum(m.is_exact and not b.is_exact for m, b in group)
    exact, before = sum(m.is_exact for m, _ in group), sum(b.is_exact for _, b in group)
    most = loss_at_most(count, lost, won)
    counts = f"{exact} of {count} numbers{where} came back exact, {before} at 16 bit ({lost} lost, {won} won)"
    if most <= tolerance:
        return Judged(
            RetrievalVerdict.PASSED,
            f"{counts}: the loss is below {most:.1%} with 95 % confidence, {tolerance:.0%} are tolerated.",
        )
    if (lost - won) / count > tolerance:
        return Judged(
            RetrievalVerdict.FAILED,
            f"{counts}: a loss of {(lost - won) / count:.1%} (up to {most:.1%} with 95 % confidence), "
            f"{tolerance:.0%} are tolerated.",
        )
    return Judged(
        RetrievalVerdict.INCONCLUSIVE,
        f"{counts}: the loss may be up to {most:.1%}, {tolerance:.0%} are tolerated; ask more "
        f"(at least {trials_needed(tolerance)} trials{where} are needed, more where some are lost).",
    )


def _cut_short(judged: Judged, skipped: Sequence[int], longest: int) -> Judged:
    """What cannot be asked is not shown."""
    names = ", ".join(f"{length:,}" for length in sorted(skipped))
    words = f"contexts of {names} tokens do not fit in the server's; asked were up to {longest:,}"
    if judged.verdict is RetrievalVerdict.PASSED:
        return Judged(RetrievalVerdict.INCONCLUSIVE, f"{words}. {judged.sentence}")
    return Judged(judged.verdict, f"{judged.sentence} Note that {words}.")


def _by_length(marks: Sequence[Mark], before: Sequence[Mark] | None) -> tuple[LengthTally, ...]:
    return tuple(
        LengthTally(
            length_tokens=length,
            trials=len(group),
            exact=_exact(group),
            baseline_exact=None
            if before is None
            else _exact([mark for mark in before if mark.length_tokens == length]),
        )
        for length in sorted({mark.length_tokens for mark in marks})
        if (group := [mark for mark in marks if mark.length_tokens == length])
    )


def _exact(marks: Sequence[Mark]) -> int:
    return sum(mark.is_exact for mark in marks)


def _digits(sheet: Sheet, marks: Sequence[Mark]) -> float:
    return round(sum(mark.digits_right for mark in marks) / (len(marks) * sheet.digits), 4)
