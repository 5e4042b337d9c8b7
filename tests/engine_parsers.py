"""How do the engines' own parsers read a command line? Stand-ins that judge what we render.

Both know every flag of one release, from tests/data (see its README). Values stay text: what is asked is whose
word counts, not whether it is a good one. Where the engine would end with an error, `Ended` is raised.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

DATA = Path(__file__).parent / "data"
Read = dict[str, Any]


class Ended(Exception):  # noqa: N818 - it is an outcome, seldom a mistake
    """The engine ends before it serves anything."""


# ---- vLLM: argparse behind a rewriting of words ----------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Ended(message)

    def print_help(self, file: Any = None) -> None:
        """Nobody reads it here."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise Ended(message or f"status {status}")


class _Pair(argparse.Action):
    """A switch that some of its spellings turn off."""

    def __init__(self, off: Sequence[str] = (), **known: Any) -> None:
        super().__init__(nargs=0, **known)
        self.off = frozenset(off)

    def __call__(self, _: Any, namespace: Any, __: Any, option_string: Any = None) -> None:
        setattr(namespace, self.dest, option_string not in self.off)


@cache
def vllm_actions() -> tuple[dict[str, Any], ...]:
    """Every argument of `vllm serve`, 0.33.0."""
    return tuple(json.loads((DATA / "vllm_parser.json").read_text())["actions"])


@cache
def _vllm_parser() -> _Parser:
    parser = _Parser(prog="vllm serve")
    for row in vllm_actions():
        flags, nargs = row["flags"], row.get("nargs")
        if row["is"] == "help":
            continue
        if not flags:
            parser.add_argument(row["dest"], nargs=nargs)
        elif row["is"] == "switch":
            parser.add_argument(*flags, dest=row["dest"], action="store_true")
        elif row["is"] == "pair":
            parser.add_argument(*flags, dest=row["dest"], action=_Pair, off=row["off"])
        elif row["is"] == "append":
            parser.add_argument(*flags, dest=row["dest"], action="append")
        else:
            parser.add_argument(*flags, dest=row["dest"], nargs=nargs)
    return parser


def vllm_reads(words: Sequence[str]) -> Read:
    """What `vllm serve` makes of the words after it."""
    if any("\0" in word for word in words):
        raise Ended("no argument of a program has a NUL")
    return vars(_vllm_parser().parse_args(_dotted(_dashed(_model_first(words)))))


def _model_first(words: Sequence[str]) -> list[str]:
    """--model anywhere is the model, in place of what stands first."""
    for place, word in enumerate(words):
        if word == "--model" and place + 1 < len(words):
            return [words[place + 1], *words[:place], *words[place + 2 :]]
        if word.startswith("--model="):
            return [word.removeprefix("--model="), *words[:place], *words[place + 1 :]]
    return list(words)


def _dashed(words: Sequence[str]) -> list[str]:
    """Underscores in names are dashes; -O3 is --optimization-level 3."""
    made: list[str] = []
    for place, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            head, dot, key = name[2:].partition(".")
            made.append("--" + head.replace("_", "-") + dot + key + equals + value)
        elif word.startswith("-O") and word != "-O":
            made += ["--optimization-level", word[3:] if word[2] == "=" else word[2:]]
        elif word == "-O" and tuple(words[place + 1 : place + 2]) in {(n,) for n in "0123"}:
            made.append("--optimization-level")
        else:
            made.append(word)
    return made


def _dotted(words: Sequence[str]) -> list[str]:
    """--flag.key value sets a key inside the flag's JSON, and takes the next word whatever it is."""
    kept: list[str] = []
    found: dict[str, dict[str, Any]] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if not word.startswith("-") or "." not in name:
            kept.append(word)
            continue
        if not equals:
            try:
                value = next(rest)
            except StopIteration:
                raise Ended(f"nothing after {word}") from None
        flag, *keys = name.removesuffix("+").split(".")
        inner = found.setdefault(flag, {})
        inner[".".join(keys)] = value
    for flag, inner in found.items():
        kept += [flag, json.dumps(inner)]
    return kept


# ---- llama-server: a loop over exact names ----------------------------------------------------------


@cache
def llama_flags() -> tuple[dict[str, Any], ...]:
    """Every argument of llama-server b11669."""
    return tuple(json.loads((DATA / "llama_server_flags.json").read_text())["flags"])


@cache
def _llama_by_name() -> dict[str, int]:
    return {name: place for place, row in enumerate(llama_flags()) for name in row["flags"]}


def llama_reads(words: Sequence[str], env: Mapping[str, str] | None = None) -> Read:
    """What llama-server makes of its arguments: by the first name of each flag, what counts in the end."""
    if any("\0" in word for word in words):
        raise Ended("no argument of a program has a NUL")
    found: Read = {}
    for row in llama_flags():
        first = row["flags"][0]
        for name in row.get("env", ()):
            if env and name in env:
                found[first] = (env[name],)
            off = name.replace("LLAMA_ARG_", "LLAMA_ARG_NO_", 1)
            if env and off in env and not row["values"]:
                found[first] = "off"
    rest = iter(words)
    for word in rest:
        spelled = word.replace("_", "-") if word.startswith("--") else word
        place = _llama_by_name().get(spelled)
        if place is None:
            raise Ended(f"invalid argument: {word}")
        row = llama_flags()[place]
        try:
            values = tuple(next(rest) for _ in range(row["values"]))
        except RuntimeError:  # StopIteration inside the generator
            raise Ended(f"expected value for argument {word}") from None
        is_off = re.match(r"--?no-", spelled) and len(row["flags"]) > 1
        found[row["flags"][0]] = values or ("off" if is_off else "on")
    return found
