"""Which numbers are hidden where in which text, and how are they asked for?

A context is a register: sentences of filling, and between them one sentence for each depth that gives a locker's
number. All lockers of a context have names of the same kind, so that to be nearly right is to be wrong. The
words follow from the sheet's seed alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from plimsoll.facts.retrieval import HayContext, Sheet

_FIRST_NAMES_WORDS: Final = (
    "amber birch cobalt copper coral crimson ebony emerald golden granite hazel indigo ivory "
    "jade linen maple marble ochre olive onyx pearl quartz ruby russet saffron scarlet silver "
    "slate teal umber velvet violet"
)
_LAST_NAMES_WORDS: Final = (
    "badger beaver condor crane dolphin falcon ferret finch gazelle heron ibis jackal kestrel "
    "lark lynx marten merlin ocelot osprey otter panther pelican puffin raven robin salmon "
    "stork swift tapir viper walrus wombat"
)
_WHO_WORDS: Final = (
    "the clerk; a carpenter; the night watch; an old sailor; the baker; a young teacher; the "
    "gardener; a passing doctor; the ferryman; a retired judge; the librarian; an apprentice"
)
_DID_WORDS: Final = (
    "walked slowly past; painted a picture of; asked a friend about; waited quietly near; "
    "wrote a long letter about; told a story of; swept the floor beside; closed the shutters "
    "of; dreamed about; took a photograph of"
)
_WHAT_WORDS: Final = (
    "the harbour; the empty market; a stone bridge; the village school; the old mill; a row "
    "of poplars; the railway station; the north tower; a field of barley; the public garden; "
    "the lighthouse; the theatre"
)
_WHEN_WORDS: Final = (
    "before breakfast; in heavy rain; on the first day of spring; while the bells rang; late "
    "in the evening; during the long drought; after the concert; in the middle of winter; as "
    "the fog lifted; just before sunset"
)
_THEN_WORDS: Final = (
    "and nobody thought much of it; and the neighbours nodded; but it was soon forgotten; and "
    "the dog came along; although the road was muddy; and so the day went by; but the tea was "
    "cold by then; and everyone agreed that it was fine; though the wind was rising; and that "
    "was all"
)
FIRST_NAMES: Final = tuple(_FIRST_NAMES_WORDS.split())
LAST_NAMES: Final = tuple(_LAST_NAMES_WORDS.split())
_WHO: Final = tuple(_WHO_WORDS.split("; "))
_DID: Final = tuple(_DID_WORDS.split("; "))
_WHAT: Final = tuple(_WHAT_WORDS.split("; "))
_WHEN: Final = tuple(_WHEN_WORDS.split("; "))
_THEN: Final = tuple(_THEN_WORDS.split("; "))
_INTRODUCTION: Final = (
    "This is the register of a small town. Here and there it gives the number of a locker. "
    "Each locker has its own number.\n\n"
)
_CHAT_QUESTION: Final = (
    "\n\nWhat is the number of the {name} locker, according to the register? "
    "Answer with the number and nothing else."
)
_TEXT_QUESTION: Final = "\n\nTo repeat one of these numbers: The number of the {name} locker is"


class Needle(NamedTuple):
    """One number that is hidden."""

    name: str
    """Of the locker."""
    number: str
    """Its digits; the first is never 0."""
    depth: float
    """Where it stands: 0 is the beginning of the filling, 1 its end."""


class Dice:
    """Chance that is the same everywhere, by seed: SHA-256 of the seed and a count."""

    def __init__(self, *seed: object) -> None:
        self._seed = "\0".join(str(part) for part in seed)
        self._rolled = 0

    def below(self, sides: int) -> int:
        """A number from 0 to sides - 1."""
        self._rolled += 1
        digest = hashlib.sha256(f"{self._seed}\0{self._rolled}".encode()).digest()
        return int.from_bytes(digest[:8]) % sides

    def one_of(self, things: Sequence[str]) -> str:
        """One of them."""
        return things[self.below(len(things))]


def needles(sheet: Sheet, at: int) -> tuple[Needle, ...]:
    """The numbers in the context at that place of the sheet, in the order of its depths."""
    dice = Dice(sheet.form, sheet.seed, at, "needles")
    found: list[Needle] = []
    firsts: list[str] = []
    least = 10 ** (sheet.digits - 1)
    for depth in sheet.depths:
        firsts = firsts or list(FIRST_NAMES)
        first = firsts.pop(dice.below(len(firsts)))
        taken = {needle.name for needle in found}
        lasts = [last for last in LAST_NAMES if f"{first} {last}" not in taken]
        name = f"{first} {dice.one_of(lasts)}"
        found.append(Needle(name, str(least + dice.below(9 * least)), depth))
    return tuple(found)


def register(sheet: Sheet, at: int) -> str:
    """The text of the context at that place, without a question."""
    count = sheet.contexts[at].sentences
    dice = Dice(sheet.form, sheet.seed, at, "filling")
    hidden: dict[int, list[str]] = {}
    for needle in needles(sheet, at):
        place = round(needle.depth * count)
        said = f"The number of the {needle.name} locker is {needle.number}."
        hidden.setdefault(place, []).append(said)
    lines: list[str] = []
    for place in range(count + 1):
        lines += hidden.get(place, ())
        if place < count:
            lines.append(_sentence(dice))
    return _INTRODUCTION + " ".join(lines)


def prompt(text: str, name: str, *, is_chat: bool) -> str:
    """The text with the question for one locker's number; all questions of a text begin alike."""
    question = _CHAT_QUESTION if is_chat else _TEXT_QUESTION
    return text + question.format(name=name)


def _sentence(dice: Dice) -> str:
    who = dice.one_of(_WHO)
    return (
        f"{who[0].upper()}{who[1:]} {dice.one_of(_DID)} {dice.one_of(_WHAT)} "
        f"{dice.one_of(_WHEN)}, {dice.one_of(_THEN)}."
    )


# ---- which contexts ------------------------------------------------------------------------------


def default_lengths(longest_tokens: int) -> tuple[int, ...]:
    """A quarter, a half and the whole of the longest."""
    found = {max(1, longest_tokens // 4), max(1, longest_tokens // 2), longest_tokens}
    return tuple(sorted(found))


def default_depths(count: int) -> tuple[float, ...]:
    """So many depths from the beginning to the end, evenly."""
    if count == 1:
        return (0.5,)
    return tuple(round(step / (count - 1), 4) for step in range(count))


def contexts_of(lengths: Sequence[int], *, contexts: int) -> tuple[int, ...]:
    """The length of each of so many contexts, or of one for each length where that is more.

    Half of them have the longest length, where a cache is tried hardest; the others share the rest.
    """
    ordered = sorted(set(lengths))
    longest, others = ordered[-1], ordered[:-1]
    count = max(contexts, len(ordered))
    most = count - max(len(others), count // 2) if others else count
    shared = [others[at % len(others)] for at in range(count - most)] if others else []
    return (*sorted(shared), *([longest] * most))


def sheet_of(
    lengths: Sequence[int],
    sentences: Sequence[int],
    *,
    depths: Sequence[float],
    seed: int,
    digits: int,
) -> Sheet:
    """The sheet whose contexts have these lengths and so many sentences."""
    return Sheet(
        seed=seed,
        digits=digits,
        depths=tuple(depths),
        contexts=tuple(
            HayContext(length_tokens=length, sentences=count)
            for length, count in zip(lengths, sentences, strict=True)
        ),
    )
