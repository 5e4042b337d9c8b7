"""What does an engine's command line say, in every spelling that its parser takes?

    reading = read_words(EngineName.VLLM, ["Qwen/Qwen3-8B", "--max_model_len=8k", "-tp", "2"])
    reading.value("--max-model-len")  # "8k"

Words are read as the engine's own parser reads them (vLLM 0.33.0 utils/argparse_utils.py, llama.cpp
common/arg.cpp), and what the parser would refuse is told beside what it was meant to say.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from plimsoll.engines.base import EngineName, FlagRow
from plimsoll.engines.options import OFF, ROWS, Option, meaning, options_of
from plimsoll.engines.shell import UNKNOWN

_NEGATIVE: Final = re.compile(r"-\.?\d")
_INVERSES: Final = (("--no-", "--"), ("--disable-", "--enable-"), ("--enable-", "--disable-"))
_ON: Final = frozenset({"1", "true", "on", "enabled", "yes"})
_LEVELS: Final = frozenset({"on", "off", "auto", "0", "1", "true", "false", "enabled", "disabled"})
_LLAMA_ENV: Final = "LLAMA_ARG_"


class Trouble(StrEnum):
    """What the parser would make of a word."""

    UNKNOWN_FLAG = "UnknownFlag"
    """No option of the newest parser, nor of an older one that we read."""
    ENDED = "EndedFlag"
    """An option of an older parser only."""
    SHORTENED = "ShortenedFlag"
    """The start of an option's name: it works until a release has another that begins so."""
    AMBIGUOUS = "AmbiguousFlag"
    """The start of several: the engine ends."""
    VALUE_OF_SWITCH = "ValueOfSwitch"
    """A switch with a value: the engine ends."""
    NO_VALUE = "NoValue"
    """An option without its value: the engine ends."""
    GLUED = "GluedValue"
    """--flag=value, which llama.cpp's parser does not take: the engine ends."""
    UNREAD = "NotKnownBeforeItRuns"
    """A value that only the running container knows."""
    STRAY = "StrayWord"
    """A word that belongs to no option: the engine ends."""


class Said(NamedTuple):
    """One option as the line says it."""

    flag: str
    """Its full name, whatever was written: --max-model-len."""
    value: str | None
    """Its value; None for a switch."""
    written: str
    """As it stands: --max_model_len=8k, LLAMA_ARG_CTX_SIZE=4096."""
    is_off: bool = False
    """Whether it is a switch that is turned off."""
    is_env: bool = False
    """Whether a variable says it."""


class Doubt(NamedTuple):
    """A word that deserves a sentence."""

    trouble: Trouble
    """What is wrong."""
    written: str
    """The word."""
    detail: str = ""
    """The option that was meant, the options it could be, or the last release that has it."""


class Reading(NamedTuple):
    """A whole command line."""

    engine: EngineName
    """Whose."""
    said: tuple[Said, ...] = ()
    """Its options in their order, those of variables first."""
    positional: tuple[str, ...] = ()
    """Words that belong to no option."""
    doubts: tuple[Doubt, ...] = ()
    """What the parser would stumble over."""

    def last(self, flag: str) -> Said | None:
        """The word that counts: the last one."""
        return next((each for each in reversed(self.said) if each.flag == flag), None)

    def value(self, flag: str) -> str | None:
        """The value that counts; None where the option is not there or has none."""
        found = self.last(flag)
        return None if found is None else found.value

    def switch(self, flag: str) -> bool | None:
        """Whether a switch is on; None where nobody speaks of it."""
        found = self.last(flag)
        return None if found is None else not found.is_off

    def repeated(self) -> tuple[tuple[Said, Said], ...]:
        """Options that are said twice with different values: the first and the one that counts."""
        first = {each.flag: each for each in reversed(self.said) if not each.is_env}
        pairs = ((first[flag], self.last(flag)) for flag in first)
        return tuple(
            (one, other)
            for one, other in pairs
            if other is not None
            and (one.value, one.is_off) != (other.value, other.is_off)
            and not (_is_path(one.written) or _is_path(other.written))
        )


class Default(NamedTuple):
    """What a release chooses where nobody wrote it."""

    value: str
    """The value, as a person reads it."""
    note: str = ""
    """Why it is worth a word; empty where it is not."""


def _is_path(written: str) -> bool:
    """Whether a word sets a key inside the JSON of an option."""
    return "." in written.partition("=")[0].partition(" ")[0]


def read_words(
    engine: EngineName, words: Sequence[str], env: Mapping[str, str] | None = None
) -> Reading:
    """The command line of an engine, without the program's name; `env` as the engine sees it."""
    said: list[Said] = []
    rest: list[str] = []
    doubts: list[Doubt] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not _is_flag(word):
            rest.append(word)
            continue
        key, path, glued = _split(engine, word)
        option = _option(engine, key, word, doubts)
        if option is None:
            follows = glued is None and at < len(words) and not _is_flag(words[at])
            value = words[at] if follows else glued
            at += follows
            said.append(Said(key, value, word if not follows else f"{word} {value}"))
            continue
        values, at = _values(option, words, at, glued, is_path=bool(path))
        at_most = 1 if option.takes != "many" else len(values)
        value = " ".join(values[:at_most]) if values else None
        doubts += _doubts(engine, option, word, value, glued, is_path=bool(path))
        whole = (
            word
            if glued is not None or not values or option.takes == "glued"
            else f"{word} {' '.join(values)}"
        )
        is_off, value = meaning(option, value)
        shown = f"{path}={value}" if path else value
        said.append(Said(option.name, shown, whole, is_off))
    allowed = 1 if engine is EngineName.VLLM else 0  # the model
    doubts += [Doubt(Trouble.STRAY, word) for word in rest[allowed:]]
    from_env = _of_env(engine, env or {}, {each.flag for each in said})
    doubts += [
        Doubt(Trouble.UNREAD, each.written)
        for each in from_env
        if each.value and UNKNOWN in each.value
    ]
    return Reading(engine, (*from_env, *said), tuple(rest), tuple(doubts))


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NEGATIVE.match(word) and word != "--"


def _split(engine: EngineName, word: str) -> tuple[str, str, str | None]:
    """Name, dotted path into its JSON, and the value behind `=`."""
    key, equals, value = word.partition("=")
    path = ""
    if key.startswith("--"):
        if engine is EngineName.VLLM:
            key, _, path = key.partition(".")
        key = "--" + key[2:].replace("_", "-")
    return key, path, value if equals else None


def _option(engine: EngineName, key: str, word: str, doubts: list[Doubt]) -> Option | None:
    options = options_of(engine)
    found = options.get(key)
    if found is not None:
        if found.ended:
            doubts.append(Doubt(Trouble.ENDED, word, found.ended))
        return found
    for prefix, instead in _INVERSES:
        if (
            key.startswith(prefix)
            and (other := options.get(instead + key[len(prefix) :])) is not None
        ):
            return other._replace(spelling=key, takes="switch")
    if engine is EngineName.VLLM:
        if re.match(r"-O.", key):
            return options["-O"]._replace(spelling=key, takes="glued")
        near = _beginning(options, key)
        if len({each.name for each in near.values()}) == 1:
            spelled, one = min(near.items())
            doubts.append(Doubt(Trouble.SHORTENED, word, spelled))
            return one
        if near:
            doubts.append(Doubt(Trouble.AMBIGUOUS, word, ", ".join(sorted(near)[:4])))
            return None
    doubts.append(Doubt(Trouble.UNKNOWN_FLAG, word))
    return None


def _beginning(options: Mapping[str, Option], key: str) -> dict[str, Option]:
    """Options of the newest parser whose name begins so; those of older ones where it has none."""
    if len(key) <= len("--"):
        return {}
    near = {name: each for name, each in options.items() if name.startswith(key)}
    return {name: each for name, each in near.items() if not each.ended} or near


def _values(
    option: Option, words: Sequence[str], at: int, glued: str | None, *, is_path: bool
) -> tuple[list[str], int]:
    """The option's values, and the place behind them."""
    if glued is not None:
        return [glued], at
    if option.takes == "glued":
        return [option.spelling[2:]], at
    if option.takes == "switch" or at >= len(words):
        return [], at
    if option.takes == "many" and not is_path:
        end = at
        while end < len(words) and not _is_flag(words[end]):
            end += 1
        return list(words[at:end]), end
    if option.takes == "level" and words[at].lower() not in _LEVELS:
        return [], at
    return ([], at) if _is_flag(words[at]) else ([words[at]], at + 1)


def _doubts(
    engine: EngineName,
    option: Option,
    word: str,
    value: str | None,
    glued: str | None,
    *,
    is_path: bool,
) -> Iterator[Doubt]:
    if option.takes == "switch" and glued is not None:
        yield Doubt(Trouble.VALUE_OF_SWITCH, word, option.name)
    elif option.takes in ("value", "many") and value is None:
        yield Doubt(Trouble.NO_VALUE, word, option.name)
    if engine is EngineName.LLAMA_CPP and glued is not None:
        yield Doubt(Trouble.GLUED, word, option.name)
    if value is not None and UNKNOWN in value and not value.startswith("{") and not is_path:
        yield Doubt(Trouble.UNREAD, word if glued is not None else f"{word} {value}", option.name)


def _of_env(engine: EngineName, env: Mapping[str, str], said: set[str]) -> tuple[Said, ...]:
    """What LLAMA_ARG_* say; an argument wins over its variable (llama.cpp tools/server/README.md)."""
    if engine is not EngineName.LLAMA_CPP:
        return ()
    found = []
    for row in ROWS[engine]:
        if row.name in said:
            continue
        for name in row.env:
            if not name.startswith(_LLAMA_ENV):
                continue
            negated = _LLAMA_ENV + "NO_" + name[len(_LLAMA_ENV) :]
            takes = options_of(engine)[row.name].takes
            if name in env:
                found.append(_env_said(row, name, env[name], takes))
            elif negated in env and takes == "switch":
                found.append(
                    Said(
                        row.name,
                        None,
                        f"{negated}={env[negated]}",
                        not row.name.startswith("--no-"),
                        True,
                    )
                )
    return tuple(found)


def _env_said(row: FlagRow, name: str, value: str, takes: str) -> Said:
    written = f"{name}={value}"
    if takes != "switch":
        return Said(row.name, value, written, takes == "level" and value.lower() in OFF, True)
    is_on = value.lower() in _ON
    return Said(row.name, None, written, is_on is row.name.startswith("--no-"), True)
