"""Would the user's own arguments or environment change what the plan pins, or bring code of their own?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from plimsoll.engines.base import EngineName
from plimsoll.engines.foreign import FOREIGN, FOREIGN_BY_NAME, PARSERS_BY_NAME
from plimsoll.engines.llama_cpp import flags as llama_cpp
from plimsoll.engines.shadow import LLAMA_CPP_HABITS, VLLM_HABITS, is_variable, shadowed
from plimsoll.engines.vllm import flags as vllm

_OF_ENGINE: Final = {
    EngineName.VLLM: (vllm.ROWS, VLLM_HABITS),
    EngineName.LLAMA_CPP: (llama_cpp.ROWS, LLAMA_CPP_HABITS),
}
_EXPANDED: Final = "$("
"""The kubelet puts a variable's value in place of $(NAME) in an argument, after everybody looked at it
(kubernetes/third_party/forked/golang/expansion)."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
END_OF_FLAGS: Final = "--"
"""After it argparse takes every word for a value, ours too."""


def shadowed_flags(
    engine: EngineName, *, extra_args: Sequence[str], env_names: Sequence[str]
) -> tuple[str, ...]:
    """Full names of the pinned flags that these would change, in any spelling; () when none."""
    rows, habits = _OF_ENGINE[engine]
    pinned = {row.name for row in rows}
    return shadowed(extra_args, env_names, rows=rows, pinned=pinned, habits=habits)


def foreign_code(
    engine: EngineName,
    *,
    extra_args: Sequence[str],
    env_names: Sequence[str],
    lists_images: bool = False,
) -> tuple[str, ...]:
    """Flags by their full names, and variables as written, that bring code from outside the image; () when
    none. With `lists_images` also those that may lead the image's own code to such files."""
    own, habits = _OF_ENGINE[engine]
    rows = (*FOREIGN[engine], *(FOREIGN_BY_NAME if lists_images else ()))
    names = {row.name for row in rows}
    known = (*rows, *PARSERS_BY_NAME, *own)
    flags = shadowed(extra_args, (), rows=known, pinned=names, habits=habits)
    patterns = [pattern for row in rows for pattern in row.env]
    variables = (name for name in env_names if any(is_variable(p, name) for p in patterns))
    return (*flags, *dict.fromkeys(variables))


def unreadable_words(extra_args: Sequence[str]) -> tuple[str, ...]:
    """Arguments whose meaning nobody can know before the engine starts; () when none.

    A word that is, or whose flag's name has, a variable's value may become any flag; as a value behind `=`
    it stays one. `--` ends the flags, and control characters are in no flag's name.
    """
    return tuple(entry for entry in extra_args if _is_open(entry.strip()) or _CONTROL.search(entry))


def _is_open(word: str) -> bool:
    if word == END_OF_FLAGS or word.startswith(_EXPANDED):
        return True
    return word.startswith("-") and _EXPANDED in word.partition("=")[0]
