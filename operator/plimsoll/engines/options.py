"""Which options does an engine's parser have, by each of their spellings, and what does a switch mean?"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from plimsoll.engines.base import EngineName
from plimsoll.engines.llama_cpp import flags as llama_cpp
from plimsoll.engines.vllm import flags as vllm

_FILES: Final = {
    EngineName.VLLM: Path(__file__).with_name("vllm") / "data" / "options.json",
    EngineName.LLAMA_CPP: Path(__file__).with_name("llama_cpp") / "data" / "options.json",
}
ROWS: Final = {EngineName.VLLM: vllm.ROWS, EngineName.LLAMA_CPP: llama_cpp.ROWS}
"""The flags of each engine that a plan pins or stumbles over."""
_PAIRED: Final = ("--enable-", "--disable-")
"""Switches with an opposite, which vLLM's parser also takes with --no- before their first name."""
_SHORT_NOES: Final = frozenset({"-nkvo", "-nr", "-nocb"})
OFF: Final = frozenset({"0", "false", "off", "disabled", "no"})


class Option(NamedTuple):
    """One option of a parser."""

    name: str
    """Its full name."""
    takes: str
    """switch, value, many, maybe (a value or none), level (on, off, auto or none), glued (-O3)."""
    spelling: str
    """As it was written."""
    ended: str = ""
    """The newest release that we know to have it, where the newest of all does not."""


def meaning(option: Option, value: str | None) -> tuple[bool, str | None]:
    """Whether a switch is off, and the value that is left to say."""
    if option.takes not in ("switch", "level"):
        return False, value
    is_inverse = option.takes == "switch" and _is_inverse(option)
    if value is None:
        return is_inverse, None
    if option.takes == "level":
        return value.lower() in OFF, value
    return (value.lower() in OFF) is not is_inverse, None


def _is_inverse(option: Option) -> bool:
    """Whether the spelling turns the option round: --no-enforce-eager, -nkvo, --disable-prefix-caching."""
    return _turns(option.spelling) is not _turns(option.name)


def _turns(spelling: str) -> bool:
    """Whether a spelling says no, however often."""
    name, says_no = spelling.lstrip("-"), spelling in _SHORT_NOES
    while name.startswith(("no-", "disable-")):
        name, says_no = name.partition("-")[2], not says_no
    return says_no


@cache
def options_of(engine: EngineName) -> Mapping[str, Option]:
    """Every spelling of a parser; the table's name of an option counts where the table has it."""
    data: dict[str, Any] = json.loads(_FILES[engine].read_text(encoding="utf-8"))
    tabled = {spelling: row.name for row in ROWS[engine] for spelling in (row.name, *row.aliases)}
    found: dict[str, Option] = {}
    for takes in ("switch", "value", "many", "maybe", "level"):
        for line in data[takes]:
            spellings = line.split()
            name = next((tabled[each] for each in spellings if each in tabled), spellings[0])
            hidden = [f"--no-{spellings[0][2:]}"] if spellings[0].startswith(_PAIRED) else []
            found |= {each: Option(name, takes, each) for each in (*spellings, *hidden)}
    for takes, ended in data["ended"].items():
        for flag, newest in ended.items():
            found.setdefault(flag, Option(tabled.get(flag, flag), takes, flag, newest))
    for spelling, name in tabled.items():
        like = found.get(name)
        if like is None:  # of the table alone: an option that takes a value
            found[name] = Option(name, "value", name)
        found.setdefault(spelling, (like or found[name])._replace(spelling=spelling))
    return found
