"""Which models and contexts did llama.cpp b11669 reserve its buffers for?"""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from gguf_writer import gguf
from plimsoll.engines.llama_cpp.context import ServerContext, server_context
from plimsoll.engines.llama_cpp.placement import Placement, place
from plimsoll.facts.gguf import gguf_facts, read_gguf
from plimsoll.facts.model import GgufFacts

DATA: Final = Path(__file__).parent / "data"
MODELS: Final[dict[str, dict[str, Any]]] = {
    model["name"]: model
    for model in json.loads((DATA / "llamacpp_architectures.json").read_text())["models"]
}


def _tensor(words: str, before: str = "") -> tuple[str, list[int], str]:
    name, shape, kind = words.split()
    return before + name, [int(size) for size in shape.split("x")], kind


def facts(name: str) -> GgufFacts:
    """The facts of a model's header, read from its file as any other."""
    model = MODELS[name]
    tensors = [_tensor(words) for words in model["outside"]]
    for group in model["blocks"]:
        tensors += [
            _tensor(words, f"blk.{index}.") for index in group["at"] for words in group["tensors"]
        ]
    found = gguf_facts(read_gguf(BytesIO(gguf(model["metadata"], tensors))), id=f"{name}.gguf")
    assert isinstance(found, GgufFacts), found.message
    return found


def context_of(flags: dict[str, Any]) -> ServerContext:
    return server_context(
        ctx_size=flags["ctx"],
        slots=flags["np"],
        cache_type=flags.get("ctk", "f16"),
        unified=bool(flags.get("uni")),
        ubatch_tokens=flags["ub"],
        flash=bool(flags.get("fa")),
        full_windows=bool(flags.get("swafull")),
        kv_on_host=bool(flags.get("nkvo")),
        op_offload=bool(flags.get("op", 1)),
    )


def placement_of(gguf: GgufFacts, flags: dict[str, Any]) -> Placement:
    cards = len(flags["dev"].split(",")) if "dev" in flags else 0
    return place(
        gguf,
        gpu_layers=flags.get("ngl", 0),
        shares=(1,) * cards,
        host_experts=flags.get("ncmoe", 0),
    )


def reserved(case: dict[str, Any], where: int) -> list[int]:
    """Weights, KV and compute in one place; HOST is -1."""
    found = case["bytes"]
    if where >= 0:
        return list(found[f"DEV{where}"])
    return [
        sum(found.get(name, (0, 0, 0))[index] for name in ("HOST_PINNED", "CPU"))
        for index in range(3)
    ]
