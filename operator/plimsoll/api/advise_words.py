"""What would the engine's own parser stumble over?"""

from collections.abc import Iterator
from typing import Final

from plimsoll.api.advise_records import Finding, Level
from plimsoll.api.advise_subject import Subject
from plimsoll.engines.launch import KSERVE_FLAGS, KSERVE_SERVER
from plimsoll.engines.options import ROWS
from plimsoll.engines.reading import Doubt, Trouble

_ON: Final = frozenset({"true", "1", "on", "yes"})
_SENTENCES: Final = {
    Trouble.SHORTENED: (
        Level.ADVICE,
        "is taken for {detail} only while no other flag begins so; write it in full.",
    ),
    Trouble.AMBIGUOUS: (
        Level.MATTERS,
        "could be {detail}: the engine ends on it; write it in full.",
    ),
    Trouble.VALUE_OF_SWITCH: (
        Level.MATTERS,
        "{written}: a switch takes no value, and the engine ends on it; write {switch}.",
    ),
    Trouble.NO_VALUE: (Level.MATTERS, "has no value: the engine ends on it."),
    Trouble.GLUED: (
        Level.MATTERS,
        "{written}: llama.cpp takes no `=`, and ends on it; write name and value as two words.",
    ),
    Trouble.STRAY: (Level.MATTERS, "belongs to no option: the engine ends on it; take it out."),
    Trouble.UNREAD: (
        Level.UNKNOWN,
        "{written}: the value is known in the running container only; write it down.",
    ),
    Trouble.UNKNOWN_FLAG: (
        Level.UNKNOWN,
        "is not in the parser that we know: what it does to memory is not judged.",
    ),
}
"""How much each trouble matters, and its sentence."""


def word_findings(subject: Subject) -> Iterator[Finding]:
    """Every word that the parser doubts, and every option that is said twice."""
    for doubt in subject.reading.doubts:
        if (
            subject.launch.server == KSERVE_SERVER
            and _name(doubt).replace("_", "-") in KSERVE_FLAGS
        ):
            continue
        found = (
            _ended(subject, doubt) if doubt.trouble is Trouble.ENDED else _finding(subject, doubt)
        )
        if found is not None:
            yield found
    for first, last in subject.reading.repeated():
        if first.flag in KSERVE_FLAGS:
            continue
        yield Finding(
            level=Level.ADVICE,
            about=first.flag,
            message=f"is said twice, {first.written!r} and {last.written!r}; the last one counts.",
        )


def _finding(subject: Subject, doubt: Doubt) -> Finding:
    level, sentence = _SENTENCES[doubt.trouble]
    server = subject.launch.server
    if doubt.trouble is Trouble.UNKNOWN_FLAG and server:
        sentence = (
            f"is not a flag of the engine; {server} may know it, or pass over it without a word."
        )
    message = sentence.format(
        written=doubt.written, detail=doubt.detail, switch=_switch(doubt.written)
    )
    return Finding(level=level, about=_name(doubt), message=message)


def _ended(subject: Subject, doubt: Doubt) -> Finding | None:
    """A flag of older parsers; where the table knows its last release and the image names one, that is told
    by release."""
    row = next((row for row in ROWS[subject.engine] if row.name == _name(doubt)), None)
    if row is not None and row.until is not None and subject.release is not None:
        return None
    message = (
        f"is a flag of {doubt.detail} and ended since: a newer release refuses to start with it."
    )
    return Finding(level=Level.ADVICE, about=_name(doubt), message=message)


def _name(doubt: Doubt) -> str:
    return doubt.written.partition("=")[0].partition(" ")[0] or "args"


def _switch(written: str) -> str:
    name, _, value = written.partition("=")
    return name if value.lower() in _ON else f"--no-{name.lstrip('-')}"
