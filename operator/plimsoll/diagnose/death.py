"""Why did a worker die, as far as its pod's status tells?

From what the kubelet says (exit code, reason) and from the engine's last words. Nothing here decides what
to do; that stands in api/deaths_moves.py, and what is not known here moves nothing there.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from plimsoll.diagnose.death_texts import (
    CHILD_KILLED,
    FILES,
    FLAGS,
    OUT_OF_CARD_MEMORY,
    PHASES,
    REFUSALS,
    ROOT_CAUSE_CUT_OFF,
    SHORTAGE,
    DeathKind,
    Text,
)
from plimsoll.facts.record import Record
from plimsoll.facts.worker import ContainerEnd
from plimsoll.units import GIB, KIB, MIB, gib

UNREADY_SECONDS: Final = 10.0
"""It was killed for not answering when it stopped being Ready so long before its end. Readiness is lost after
15 s of silence, liveness after two minutes (render/pod.py); a crash is seen within a second or two."""
STARTUP_SECONDS: Final = 600.0
"""The least that a startup probe waits (render/lifecycle.py); what ends earlier was not ended by it."""
KILLED, TERMINATED, USAGE = 137, 143, 2
"""Exit codes: 128 + SIGKILL, 128 + SIGTERM, and argparse's."""
CANNOT_RUN: Final = frozenset({126, 127, 128})
"""Exit codes of a container whose program is not there or cannot be executed."""
_LONGEST_QUOTE: Final = 160
_UNITS: Final = {"KIB": KIB, "MIB": MIB, "GIB": GIB, "KB": KIB, "MB": MIB, "GB": GIB}
_ROUNDED_BYTES: Final = GIB // 200
"""Amounts are printed with two digits of a GiB."""


class Death(Record):
    """Why it died."""

    kind: DeathKind
    """The fact."""
    sentence: str
    """What was seen, for the person on call."""
    numbers: dict[str, int] = {}  # noqa: RUF012 - a Record is frozen
    """What the last words gave in numbers: bytes, tokens, the exit code."""


class Books(NamedTuple):
    """What a plan gave to each part of one card, in bytes; a phase can be told from them."""

    weights: int
    activation: int
    pool: int


def classify(end: ContainerEnd, books: Books | None = None) -> Death:
    """The kind of death, a sentence and the numbers in it. Unknown is an answer.

    `books` are those of the plan that it ran: where a card ran out of memory and the text does not say in
    which phase, what torch had allocated by then tells.
    """
    return (
        _first_of(_BEFORE_THE_CARD, end)
        or _of_card(end, books)
        or _first_of(_AFTER_THE_CARD, end)
        or _unknown(end)
    )


def _first_of(rules: "tuple[Rule, ...]", end: ContainerEnd) -> Death | None:
    found = (death for rule in rules if (death := rule(end)) is not None)
    return next(found, None)


def _of_pod(end: ContainerEnd) -> Death | None:
    if not end.pod_reason:
        return None
    if end.pod_reason == "Evicted":
        return Death(
            kind=DeathKind.EVICTED,
            sentence=f"The kubelet evicted it: {_quoted(end.pod_message) or 'its node was short of something'}.",
        )
    words = f": {_quoted(end.pod_message)}" if end.pod_message else ""
    return Death(
        kind=DeathKind.STOPPED,
        sentence=f"Its node ended it ({end.pod_reason}{words}).",
    )


def _of_image(end: ContainerEnd) -> Death | None:
    is_stuck = end.exit_code is None and end.reason != ""
    cannot_run = end.exit_code in CANNOT_RUN and end.reason in _NO_PROCESS
    if not is_stuck and not cannot_run:
        return None
    words = f": {_quoted(end.message)}" if end.message else ""
    return Death(
        kind=DeathKind.IMAGE_UNUSABLE,
        sentence=f"The container cannot be started ({end.reason}{words}).",
        numbers={} if end.exit_code is None else {"exitCode": end.exit_code},
    )


_NO_PROCESS: Final = frozenset({"StartError", "ContainerCannotRun"})
"""The runtime's words where no process came to be (containerd, runc)."""


def _of_refusal(end: ContainerEnd) -> Death | None:
    """The engine looked at the card and would not start."""
    found = _first(REFUSALS, end.message)
    if found is None:
        return None
    text, match = found
    numbers = _numbers(match)
    return Death(kind=text.kind, sentence=_refused(text.kind, numbers), numbers=numbers)


def _of_host(end: ContainerEnd) -> Death | None:
    """The kernel killed it, or a child of it, for the container's memory limit."""
    by_limit = end.reason == "OOMKilled"
    child = CHILD_KILLED.search(end.message) is not None
    if not by_limit and not child:
        return None
    how = (
        "The kernel killed it at its memory limit (OOMKilled)"
        if by_limit
        else "One of the engine's processes was killed with SIGKILL, as the kernel does at the memory limit"
    )
    # a worker that ran for long and cannot be placed counts as one that served: that asks for more proof
    before = end.was_ready is False or "initialization failed" in end.message
    when = "before it was ever Ready" if before else "while it served"
    return Death(
        kind=DeathKind.HOST_OOM_BEFORE_READY if before else DeathKind.HOST_OOM_SERVING,
        sentence=f"{how}, {when}. This is host memory, not the card's.",
        numbers=_exit(end),
    )


def _of_card(end: ContainerEnd, books: Books | None) -> Death | None:
    """The card had no more memory to give."""
    if OUT_OF_CARD_MEMORY.search(end.message) is None:
        return None
    numbers = shortage(end.message)
    kind = _phase(end, numbers, books)
    tried, free = numbers.get("triedBytes"), numbers.get("freeBytes")
    wanted = "" if tried is None else f": {_size(tried)} more were wanted"
    wanted += "" if tried is None or free is None else f" and {_size(free)} were free"
    return Death(
        kind=kind,
        sentence=f"The card ran out of memory {_WHEN[kind]}{wanted}.",
        numbers=numbers | _exit(end),
    )


def _phase(end: ContainerEnd, numbers: dict[str, int], books: Books | None) -> DeathKind:
    if end.was_ready:
        return DeathKind.CUDA_OOM_SERVING
    found = _first(PHASES, end.message)
    if found is not None:
        return found[0].kind
    if end.was_ready is None:
        return DeathKind.UNKNOWN
    allocated = numbers.get("allocatedBytes")
    if books is None or allocated is None:
        return DeathKind.CUDA_OOM_AT_START
    return phase_by_bytes(allocated, books)


def phase_by_bytes(allocated_bytes: int, books: Books) -> DeathKind:
    """In which phase a start was when torch had allocated so much.

    The cache is one allocation after the profile run, and by far the larger part where it matters: with
    half of it there, it was there. Below nine tenths of the weights they were still coming.
    """
    if books.pool > books.activation and allocated_bytes > books.weights + books.pool // 2:
        return DeathKind.CUDA_OOM_AT_CAPTURE
    if allocated_bytes < books.weights * 9 // 10:
        return DeathKind.CUDA_OOM_AT_LOAD
    return DeathKind.CUDA_OOM_AT_START


_WHEN: Final = {
    DeathKind.CUDA_OOM_SERVING: "while it served",
    DeathKind.CUDA_OOM_AT_LOAD: "while the model was loaded",
    DeathKind.CUDA_OOM_IN_PROFILE: "in the run that measures the largest step",
    DeathKind.CUDA_OOM_AT_CAPTURE: "after the KV cache was taken, in capture or warm-up",
    DeathKind.CUDA_OOM_AT_START: "before it was Ready, in a phase that its last words do not name",
    DeathKind.UNKNOWN: "at a time that cannot be told",
}


def shortage(message: str) -> dict[str, int]:
    """How many bytes were wanted, free and allocated, as far as the last of such lines says."""
    found: dict[str, int] = {}
    for pattern in SHORTAGE:
        for match in pattern.finditer(message):
            for name, amount in match.groupdict().items():
                if amount is not None:
                    found[f"{name}Bytes"] = _bytes(amount)
    return found


def _of_flag(end: ContainerEnd) -> Death | None:
    found = _first(FLAGS, end.message)
    if found is None or end.exit_code in (0, None) or end.was_ready:
        return None
    argument = _quoted(found[1]["argument"])
    return Death(
        kind=DeathKind.BAD_FLAG,
        sentence=f"The engine does not take an argument: {argument}.",
        numbers=_exit(end),
    )


def _of_files(end: ContainerEnd) -> Death | None:
    found = _first(FILES, end.message)
    if found is None or end.exit_code in (0, None) or end.was_ready:
        return None
    named = found[1].groupdict().get("argument")
    what = _quoted(named) if named else _quoted(_line_of(end.message, found[1].start()))
    return Death(
        kind=DeathKind.MODEL_UNREADABLE,
        sentence=f"The engine cannot read the model: {what}.",
        numbers=_exit(end),
    )


def _of_probe(end: ContainerEnd) -> Death | None:
    """Signals that nobody explains: the kubelet's probes leave no other trace in a status."""
    if end.exit_code not in (KILLED, TERMINATED, 0):
        return None
    if end.unready_seconds is not None and end.unready_seconds >= UNREADY_SECONDS:
        return Death(
            kind=DeathKind.LIVENESS_KILL,
            sentence=f"It had answered no probe for {end.unready_seconds:.0f} s when the kubelet restarted "
            f"it (exit code {end.exit_code}).",
            numbers=_exit(end),
        )
    lived = end.lived_seconds
    if end.was_ready is False and lived is not None and lived >= STARTUP_SECONDS:
        return Death(
            kind=DeathKind.START_TIMED_OUT,
            sentence=f"It was not Ready after {lived / 60:.0f} minutes and the kubelet restarted it "
            f"(exit code {end.exit_code}).",
            numbers=_exit(end),
        )
    return None


def _of_exit_code(end: ContainerEnd) -> Death | None:
    if end.exit_code == 0:
        return Death(
            kind=DeathKind.ENGINE_DIED_WITH_ZERO,
            sentence="It ended with exit code 0 although nobody asked it to: vLLM's server ends so when "
            "its engine is gone, and then only the log of the last container says why.",
            numbers=_exit(end),
        )
    if end.exit_code == TERMINATED:
        return Death(
            kind=DeathKind.STOPPED, sentence="It was asked to stop (SIGTERM).", numbers=_exit(end)
        )
    if end.exit_code == USAGE and "usage:" in end.message:
        return Death(
            kind=DeathKind.BAD_FLAG,
            sentence="The engine's parser does not take the arguments (exit code 2).",
            numbers=_exit(end),
        )
    return None


Rule = Callable[[ContainerEnd], Death | None]
_BEFORE_THE_CARD: Final[tuple[Rule, ...]] = (_of_pod, _of_image, _of_host, _of_refusal)
_AFTER_THE_CARD: Final[tuple[Rule, ...]] = (_of_flag, _of_files, _of_probe, _of_exit_code)
"""The first that knows answers; between them it is asked whether the card was out of memory."""


def _unknown(end: ContainerEnd) -> Death:
    code = "" if end.exit_code is None else f" with exit code {end.exit_code}"
    by = (
        " (SIGKILL, and not for its memory limit: the node, or a hand)"
        if end.exit_code == KILLED
        else ""
    )
    last = _quoted(end.message.strip().splitlines()[-1]) if end.message.strip() else ""
    words = f" Last words: {last}." if last else ""
    if ROOT_CAUSE_CUT_OFF.search(end.message):
        words += " The cause stands further up in the container's log: `kubectl logs --previous`."
    return Death(kind=DeathKind.UNKNOWN, sentence=f"It ended{code}{by}.{words}", numbers=_exit(end))


def _refused(kind: DeathKind, numbers: dict[str, int]) -> str:
    """One sentence for a refusal, with the numbers that it gave."""
    needed, there = numbers.get("neededBytes"), numbers.get("availableBytes")
    longest, length = numbers.get("estimatedMaxModelLen"), numbers.get("maxModelLen")
    if kind is DeathKind.NO_ROOM_FOR_BLOCKS:
        return "The engine found no memory for one block of KV cache inside its share of the card."
    if kind is DeathKind.LENGTH_TOO_LONG:
        one = "One sequence" if length is None else f"One sequence of {length:,} tokens"
        if needed is not None and there is not None:
            one += f" needs {_size(needed)} of KV cache and the engine found {_size(there)}"
        else:
            one += " does not fit the KV cache that the engine found"
        return f"{one}." if longest is None else f"{one}; it says {longest:,} tokens would fit."
    if kind is DeathKind.TOO_MANY_SEQUENCES:
        return (
            f"max_num_seqs {numbers['maxNumSeqs']:,} is more than the {numbers['blocks']:,} blocks that the "
            "engine found for recurrent states."
        )
    if "freeBytes" in numbers:
        return (
            f"{_size(numbers['freeBytes'])} of the card's {_size(numbers['totalBytes'])} were free at start, "
            f"{_size(numbers['desiredBytes'])} were to be: something else holds the rest."
        )
    return (
        "Less of the card was free at start than the engine's share: something else holds the rest."
    )


def _first(rows: tuple[Text, ...], message: str) -> tuple[Text, re.Match[str]] | None:
    for row in rows:
        if (match := row.pattern.search(message)) is not None:
            return row, match
    return None


def _numbers(match: re.Match[str]) -> dict[str, int]:
    """Named groups as numbers in camelCase; `_gib` becomes bytes, `_fraction` is left to the flags."""
    found: dict[str, int] = {}
    for name, text in match.groupdict().items():
        if text is None or name.endswith("_fraction"):
            continue
        if name.endswith("_gib"):
            found[f"{_camel(name.removesuffix('_gib'))}Bytes"] = round(float(text) * GIB)
        else:
            found[_camel(name)] = int(text)
    return found


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


def _bytes(text: str) -> int:
    amount, unit = text.split()
    return round(float(amount) * _UNITS.get(unit.upper(), 1))


def _exit(end: ContainerEnd) -> dict[str, int]:
    return {} if end.exit_code is None else {"exitCode": end.exit_code}


def _size(amount: int) -> str:
    return gib(amount) if amount >= _ROUNDED_BYTES * 20 or not amount else f"{amount / MIB:.0f} MiB"


def _line_of(message: str, at: int) -> str:
    start = message.rfind("\n", 0, at) + 1
    end = message.find("\n", at)
    return message[start : end if end >= 0 else len(message)]


def _quoted(text: str) -> str:
    """Somebody else's words: on one line, not too many."""
    plain = " ".join(text.split()).rstrip(".")
    return plain if len(plain) <= _LONGEST_QUOTE else f"{plain[: _LONGEST_QUOTE - 3]}..."
