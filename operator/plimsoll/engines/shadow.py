"""Would an argument or an environment variable change a flag that the plan pins?

Parsers are lenient, so the check reads words as the engine's own parser would, and rather refuses a
spelling too many: a flag that changes the plan behind its back is worse than an extra question.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from plimsoll.engines.base import FlagRow, Release


class ParserHabits(NamedTuple):
    """How an engine's parser reads a word."""

    takes_prefixes: bool
    """Whether the start of a long flag's name stands for the flag (Python's argparse)."""
    dotted: bool
    """Whether `--flag.key value` sets a key inside the flag's JSON."""
    glues_letters: bool
    """Whether a flag of one letter takes its value without a space: -O3."""
    negations: tuple[str, ...] = ()
    """Prefixes that turn a switch round: --no-."""
    env_negations: tuple[tuple[str, str], ...] = ()
    """Prefix of a variable and the prefix that turns it round."""


VLLM_HABITS: Final = ParserHabits(
    takes_prefixes=True, dotted=True, glues_letters=True, negations=("--no-",)
)
"""vLLM's FlexibleArgumentParser: argparse's prefixes, `=`, underscores, JSON by dots, -O3."""
LLAMA_CPP_HABITS: Final = ParserHabits(
    takes_prefixes=False,
    dotted=False,
    glues_letters=False,
    negations=("--no-",),
    env_negations=(("LLAMA_ARG_", "LLAMA_ARG_NO_"),),
)
"""llama.cpp's common_params_parse: exact names, underscores in long ones (b11669: --ctx_size is taken,
--ctx-size=512, -c512 and --ctx-si end with exit 1)."""


def shadowed(
    extra_args: Sequence[str],
    env_names: Sequence[str],
    *,
    rows: Sequence[FlagRow],
    pinned: Collection[str],
    habits: ParserHabits,
    release: Release | None = None,
) -> tuple[str, ...]:
    """Names of the pinned flags that these arguments or variables would change, in the table's order.

    A word is read whether or not the parser takes it: `--ctx-size=512` ends llama-server, and is
    refused here with the flag's name instead. Rows that the release has no more are left out; rows
    that it has not yet are kept, for a table may learn late of a flag.
    """
    if not extra_args and not env_names:
        return ()
    known = {spelling for row in rows for spelling in _spellings(row)}
    words = tuple(_words(extra_args))
    return tuple(
        row.name
        for row in rows
        if _is_guarded(row, pinned)
        and not _is_gone(row, release)
        and (
            any(_says(row, word, known, habits) for word in words)
            or any(
                is_variable(known, name) for known in _env_names(row, habits) for name in env_names
            )
        )
    )


def _is_gone(row: FlagRow, release: Release | None) -> bool:
    return row.until is not None and release is not None and not release.is_before(row.until)


def _is_guarded(row: FlagRow, pinned: Collection[str]) -> bool:
    return any(spelling in pinned for spelling in _spellings(row))


def _spellings(row: FlagRow) -> tuple[str, ...]:
    return (row.name, *row.aliases)


def _words(extra_args: Sequence[str]) -> Iterator[str]:
    """The flags among the arguments. One entry may hold a whole line: "--ctx-size 512"."""
    for entry in extra_args:
        for word in entry.split():
            if word.startswith("-") and len(word) > 1 and not word[1:2].isdigit():
                yield word


def _says(row: FlagRow, word: str, known: Collection[str], habits: ParserHabits) -> bool:
    flag = word.partition("=")[0]
    if habits.dotted:
        flag = flag.partition(".")[0]
    if flag.startswith("--"):
        flag = "--" + flag[2:].replace("_", "-")
    own = _spellings(row)
    if flag in own:
        return True
    if flag in known:  # another flag of the table, whole: never the start of this one
        return False
    if habits.glues_letters and flag[:2] in own:
        return True
    asked = {flag} | {"--" + flag[len(no) :] for no in habits.negations if flag.startswith(no)}
    return any(
        name == word
        or (habits.takes_prefixes and len(word.strip("-")) > 0 and name.startswith(word))
        for name in own
        for word in asked
    )


def is_variable(known: str, name: str) -> bool:
    """Whether the variable is the known one, or begins as LMCACHE_* does."""
    return name.startswith(known[:-1]) if known.endswith("*") else name == known


def _env_names(row: FlagRow, habits: ParserHabits) -> set[str]:
    names = set(row.env)
    for name in row.env:
        for prefix, negated in habits.env_negations:
            if name.startswith(prefix):
                names.add(negated + name[len(prefix) :])
    return names
