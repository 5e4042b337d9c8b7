"""How many bytes has the tower for images in front of a language model?

From vision_config, for the towers that we know; one that we do not know is left out, and the headers tell.
Matrices of the tower are split over ranks like the language model's, and never quantised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from plimsoll.facts.hf_fields import Fields
from plimsoll.facts.hf_parts import Role, Tally

Config = Mapping[str, Any]


class Seen(NamedTuple):
    """A tower and where it leads."""

    vision: Fields
    """Its own config."""
    width: int
    """Width of the language model's stream."""
    tally: Tally


def count(config: Config, tally: Tally) -> None:
    """Add the tower of this config to the tally, when it has one."""
    names = config.get("architectures") or ("",)
    architecture = str(names[0])
    tower = _TOWERS.get(architecture)
    given = config.get("vision_config")
    given = given if isinstance(given, Mapping) else {}
    if tower is None or not (given or architecture in _CLASS_VALUES):
        return
    given = {**_CLASS_VALUES.get(architecture, {}), **given}
    kind = str(given.get("model_type") or _TYPES.get(architecture, ""))
    text = config.get("text_config")
    width = (text if isinstance(text, Mapping) else config).get("hidden_size", 0)
    tower(Seen(Fields(given, model_type=kind), int(width), tally))


def _block(
    tally: Tally, width: int, inner: int, *, biased: bool = True, gated: bool = False
) -> None:
    """One layer of a tower: attention, feed-forward, two norms."""
    norm = 2 * width if biased else width
    tally.values(Role.SHARDED, 4 * width * width + (3 if gated else 2) * width * inner)
    tally.values(Role.REPLICATED, 2 * norm)
    if biased:
        tally.values(Role.SHARDED, 3 * width + inner)
        tally.values(Role.REPLICATED, 2 * width)


def _siglip(seen: Seen) -> None:
    """Gemma 3."""
    own, inner = seen.vision.whole("hidden_size"), seen.vision.whole("intermediate_size")
    patch = seen.vision.whole("patch_size")
    positions = (seen.vision.whole("image_size") // patch) ** 2
    seen.tally.values(Role.REPLICATED, own * (3 * patch * patch + 1) + positions * own)
    for _ in range(seen.vision.whole("num_hidden_layers")):
        _block(seen.tally, own, inner)
    seen.tally.values(Role.REPLICATED, 2 * own + own * seen.width + own)


def _qwen3(seen: Seen) -> None:
    """Qwen3-VL and Qwen3.5: blocks, one merger, and one more for each layer that feeds deeper in."""
    own, inner = seen.vision.whole("hidden_size"), seen.vision.whole("intermediate_size")
    patch = seen.vision.whole("patch_size") ** 2 * 3 * seen.vision.whole("temporal_patch_size")
    seen.tally.values(
        Role.REPLICATED, own * (patch + 1) + seen.vision.whole("num_position_embeddings") * own
    )
    for _ in range(seen.vision.whole("depth")):
        _block(seen.tally, own, inner)
    merged = own * seen.vision.whole("spatial_merge_size") ** 2
    out = seen.vision.whole("out_hidden_size")
    deeper = len(seen.vision.listed("deepstack_visual_indexes") or ())
    for nth in range(1 + deeper):
        seen.tally.values(Role.SHARDED, merged * merged + merged + out * merged)
        seen.tally.values(Role.REPLICATED, out + 2 * (merged if nth else own))


def _qwen25(seen: Seen) -> None:
    """Qwen2.5-VL: gated blocks with biases, norms without."""
    own, inner = seen.vision.whole("hidden_size"), seen.vision.whole("intermediate_size")
    patch = seen.vision.whole("patch_size") ** 2 * 3 * seen.vision.whole("temporal_patch_size")
    seen.tally.values(Role.REPLICATED, own * patch)
    for _ in range(seen.vision.whole("depth")):
        _block(seen.tally, own, inner, biased=False, gated=True)
        seen.tally.values(Role.SHARDED, 3 * own + 2 * inner)
        seen.tally.values(Role.REPLICATED, 2 * own)
    merged = own * seen.vision.whole("spatial_merge_size") ** 2
    out = seen.vision.whole("out_hidden_size")
    seen.tally.values(Role.SHARDED, merged * merged + merged + out * merged)
    seen.tally.values(Role.REPLICATED, out + own)


def _llama4(seen: Seen) -> None:
    """Llama 4: blocks, an adapter that gathers four patches, a projection."""
    own, inner = seen.vision.whole("hidden_size"), seen.vision.whole("intermediate_size")
    patch = seen.vision.whole("patch_size")
    positions = (seen.vision.whole("image_size") // patch) ** 2 + 1
    seen.tally.values(Role.SHARDED, own * 3 * patch * patch)
    seen.tally.values(Role.REPLICATED, own + positions * own + 4 * own)
    for _ in range(seen.vision.whole("num_hidden_layers")):
        _block(seen.tally, own, inner)
    middle, out = (
        seen.vision.whole("projector_input_dim"),
        seen.vision.whole("projector_output_dim"),
    )
    seen.tally.values(Role.SHARDED, middle * inner + out * middle)
    seen.tally.values(Role.SHARDED, seen.width * seen.vision.whole("vision_output_dim"))


def _gemma4(seen: Seen) -> None:
    """Gemma 4: whole on every rank."""
    own, inner = seen.vision.whole("hidden_size"), seen.vision.whole("intermediate_size")
    patch = 3 * seen.vision.whole("patch_size") ** 2
    seen.tally.values(
        Role.REPLICATED, 2 * seen.vision.whole("position_embedding_size") * own + own * patch
    )
    head = seen.vision.whole("head_dim")
    layer = 4 * own * own + 3 * own * inner + 2 * head + 4 * own
    seen.tally.values(
        Role.REPLICATED, seen.vision.whole("num_hidden_layers") * layer + own * seen.width
    )


_TOWERS: Final[Mapping[str, Callable[[Seen], None]]] = {
    "Gemma3ForConditionalGeneration": _siglip,
    "Gemma4ForConditionalGeneration": _gemma4,
    "Llama4ForConditionalGeneration": _llama4,
    "Qwen2_5_VLForConditionalGeneration": _qwen25,
    "Qwen3VLForConditionalGeneration": _qwen3,
    "Qwen3VLMoeForConditionalGeneration": _qwen3,
    "Qwen3_5ForConditionalGeneration": _qwen3,
    "Qwen3_5MoeForConditionalGeneration": _qwen3,
}
_TYPES: Final = {
    "Gemma3ForConditionalGeneration": "siglip_vision_model",
}
"""The class behind a vision_config that names none."""
_CLASS_VALUES: Final[Mapping[str, Config]] = {
    "Llama4ForConditionalGeneration": {
        "hidden_size": 768,
        "intermediate_size": 5632,
        "num_hidden_layers": 34,
        "image_size": 448,
        "patch_size": 14,
        "projector_input_dim": 4096,
        "projector_output_dim": 4096,
        "vision_output_dim": 7680,
    }
}
"""transformers 5.24.0 Llama4VisionConfig; files leave them out."""
