"""Would the user's own arguments or environment change what the plan pins?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plimsoll.engines.base import EngineName
from plimsoll.engines.llama_cpp import flags as llama_cpp
from plimsoll.engines.shadow import LLAMA_CPP_HABITS, VLLM_HABITS, shadowed
from plimsoll.engines.vllm import flags as vllm

_OF_ENGINE: Final = {
    EngineName.VLLM: (vllm.ROWS, VLLM_HABITS),
    EngineName.LLAMA_CPP: (llama_cpp.ROWS, LLAMA_CPP_HABITS),
}


def shadowed_flags(
    engine: EngineName, *, extra_args: Sequence[str], env_names: Sequence[str]
) -> tuple[str, ...]:
    """Full names of the pinned flags that these would change, in any spelling; () when none."""
    rows, habits = _OF_ENGINE[engine]
    pinned = {row.name for row in rows}
    return shadowed(extra_args, env_names, rows=rows, pinned=pinned, habits=habits)
