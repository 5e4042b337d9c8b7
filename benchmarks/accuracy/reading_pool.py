"""How large a KV pool would we plan for a start-up that somebody reported?

The report's total, share and weights; our own activation, collectives and graphs. What the report leaves out
is taken on the safe side: of every release, model and setting that it may have been, the smallest pool.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from benchmarks.accuracy.named import bits_of, every_model, model_of

from plimsoll.catalog.gpus import find_gpu, find_type, gpu_types
from plimsoll.engines.base import Release
from plimsoll.engines.vllm import activation, defaults, memory
from plimsoll.facts.gpu import GpuFacts, GpuVendor
from plimsoll.facts.model import ModelFacts, Quantization
from plimsoll.facts.source import Confidence, FactSource, Provenance
from plimsoll.units import GIB

Reading = Mapping[str, Any]

ALIKE: Final = 1.3
"""An unnamed model of so many weight bytes may have this times more or fewer parameters than they say."""
PRINTS_GRAPHS: Final = (Release.of("0.20"), Release.of("0.33"))
"""Between these a start-up prints its estimate of graphs and takes it from the share by default."""
OTHER_SETTINGS: Final = 1.5
"""A printed peak this many times ours says that the start-up ran with more rows or tokens than default."""
BEFORE: Final = Release.of("0.11")
"""Stands for a release before that, where the report does not say which."""


class Way(NamedTuple):
    """One way that a start-up may have been, as far as the report goes."""

    model: ModelFacts
    release: Release
    settings: defaults.Settings
    with_graphs: bool
    """Whether the share pays for graphs."""


def requested_bytes(reading: Reading) -> float | None:
    """What the share comes to: the printed budget, or total x utilization."""
    if budget := reading["reported"].get("budget_gib"):
        return float(budget) * GIB
    total, share = reading.get("gpu_memory_gib_total"), reading.get("gpu_memory_utilization")
    return None if total is None or share is None else float(total) * share * GIB


def planned(reading: Reading) -> tuple[int, str] | str:
    """Bytes of the pool on one card and what had to be assumed; or why there is no plan.

    Below zero when we would refuse.
    """
    requested, weights = requested_bytes(reading), reading["reported"].get("weights_gib")
    found = model_of(reading.get("model"))
    if requested is None:
        return "total or share of the card is not stated"
    if (card := card_of(reading)) is not None and card.unified_memory:
        return (
            "card and host share one memory: whatever other processes take while the profile runs is "
            "booked too, -0.05 to 8.29 GiB in seven runs of one device"
        )
    if weights is None:
        if isinstance(found, str) or not found.weights.total_bytes:
            return "weights are not stated"
        cards = cards_of(reading, found)
        weights = memory.weights_bytes_per_card(found, cards) / GIB
    possible = tuple(ways(reading))
    peak = max(activation_bytes(reading, way) for way in possible)
    printed = reading["reported"].get("activation_peak_gib")
    unstated = {"max_num_seqs", "max_num_batched_tokens"} - {k for k, v in reading.items() if v}
    if printed is not None and unstated and printed * GIB > OTHER_SETTINGS * peak:
        return (
            f"settings are not stated, and the printed peak of {printed} GiB is not that of the "
            f"defaults, {peak / GIB:.2f} GiB"
        )
    pool = min(requested - weights * GIB - _other_bytes(reading, way) for way in possible)
    return int(pool), "" if isinstance(
        found, ModelFacts
    ) else f"{found}: bounds of models of its size"


MOST_RANKS: Final = 8
"""Cards of one node, over which tensor parallelism runs at most."""


def cards_of(reading: Reading, model: ModelFacts | str = "") -> int:
    """Tensor-parallel ranks; left out, as many as the model's bytes need at those stated for one."""
    if stated := reading.get("tp"):
        return int(stated)
    weights = reading["reported"].get("weights_gib")
    if isinstance(model, str) or not weights or not model.weights.total_bytes:
        return 1
    times = max(1.0, model.weights.total_bytes / (float(weights) * GIB))
    return min(MOST_RANKS, 1 << round(math.log2(times)))


def capability_of(reading: Reading) -> tuple[int, int] | None:
    """Of the card by its name; None where it does not say."""
    gpu = card_of(reading)
    return None if gpu is None else gpu.capability


def total_bytes_of(reading: Reading) -> int:
    """The card's memory as stated, else as the named type has it; 0 where neither says."""
    if stated := reading.get("gpu_memory_gib_total"):
        return int(float(stated) * GIB)
    gpu = card_of(reading)
    return 0 if gpu is None else gpu.total_bytes


def card_of(reading: Reading) -> GpuFacts | None:
    """The type that the report's words begin with: an H100 80GB is an H100, whichever its board."""
    words = str(reading.get("gpu") or "").partition("(")[0].split()
    for end in range(len(words), 0, -1):
        found = find_type(" ".join(words[:end]))
        gpu = find_gpu(found.key) if found is not None else None
        if gpu is not None:
            return gpu
        if family := _family(words[end - 1].lower()):
            return min(family, key=lambda each: each.total_bytes)
    return None


def _family(word: str) -> list[GpuFacts]:
    """Types whose key begins with this word, when they are of one capability."""
    if not re.fullmatch(r"[a-z]+\d+\w*", word):
        return []
    keys = [kind.key for kind in gpu_types() if kind.key.partition("-")[0] == word]
    found = [gpu for key in keys if (gpu := find_gpu(key)) is not None]
    return found if len({gpu.capability for gpu in found}) == 1 else []


def releases_of(reading: Reading) -> tuple[Release, ...]:
    """The stated release, or those that the printed figures point to."""
    if stated := reading.get("engine_version"):
        return (Release.of(str(stated)),)
    said = reading["reported"]
    if said.get("cuda_graph_estimated_gib") is not None or said.get("effective_utilization"):
        return PRINTS_GRAPHS
    if said.get("activation_peak_gib") is not None and said.get("non_torch_gib") is not None:
        # it prints its parts, and no estimate among them
        return (BEFORE,)
    return (BEFORE, *PRINTS_GRAPHS)


def ways(reading: Reading) -> Iterator[Way]:
    """Every way that the start-up may have been: models, releases, settings."""
    found, capability = model_of(reading.get("model")), capability_of(reading)
    weights = float(reading["reported"].get("weights_gib") or 0) * GIB
    models = (found,) if isinstance(found, ModelFacts) else _alike(reading, weights)
    for model in models:
        for release in releases_of(reading):
            for settings in _settings(reading, model, release, capability):
                yield Way(
                    model=_as_named(reading, model, stands_in=isinstance(found, str)),
                    release=release,
                    settings=settings,
                    with_graphs=not release.is_before(PRINTS_GRAPHS[0].text),
                )


def _settings(
    reading: Reading,
    model: ModelFacts,
    release: Release,
    capability: tuple[int, int] | None,
) -> Iterator[defaults.Settings]:
    """Stated settings, else the defaults of each engine that may have run."""
    # left out, a length may have been any: an unchunked step is longest at the limit of chunking
    length = int(
        reading.get("max_model_len")
        or min(model.max_position_embeddings, defaults.UNCHUNKED_TOKENS)
    )
    total = total_bytes_of(reading)
    is_stated = reading.get("engine_version") is not None
    chosen = []
    if is_stated and defaults.is_before_v1(release, capability):
        chosen.append(defaults.settings_before_v1(length))
    else:
        chosen.append(defaults.settings(total, str(reading.get("gpu") or ""), release))
        if not is_stated and release is BEFORE:
            chosen.append(defaults.settings_before_v1(length))
    for settings in chosen:
        yield defaults.Settings(
            max_num_seqs=reading.get("max_num_seqs") or settings.max_num_seqs,
            max_num_batched_tokens=reading.get("max_num_batched_tokens")
            or settings.max_num_batched_tokens,
        )


def _alike(reading: Reading, weights_bytes: float) -> tuple[ModelFacts, ...]:
    """Every model of the catalogue that an unnamed one of so many bytes may be.

    Bits of a weight are those of the name, else from 4 to 16.
    """
    total = weights_bytes * cards_of(reading)
    bits = bits_of(reading.get("model"))
    fewest, most = (total * 8 / (bits or 16) / ALIKE, total * 8 / (bits or 4) * ALIKE)
    found = tuple(m for m in every_model() if fewest <= _parameters(m) <= most)
    return found or every_model()


def _parameters(model: ModelFacts) -> float:
    bits = 16 if model.quantization is None else model.quantization.bits or 16
    return model.weights.total_bytes * 8 / bits


_TOWERS: Final = (
    (re.compile(r"qwen.?3-?omni", re.IGNORECASE), "Qwen3OmniMoeForConditionalGeneration"),
    (re.compile(r"qwen.?3-?vl", re.IGNORECASE), "Qwen3VLForConditionalGeneration"),
    (re.compile(r"qwen.?2(?:\.5)?-?vl", re.IGNORECASE), "Qwen2_5_VLForConditionalGeneration"),
    (re.compile(r"llava", re.IGNORECASE), "LlavaNextForConditionalGeneration"),
)
"""Names that say what stands in front of the language model."""


def _as_named(reading: Reading, model: ModelFacts, *, stands_in: bool) -> ModelFacts:
    """With the tower and the quantisation that the report names: they decide what is encoded and
    unpacked. What stands in for an unnamed model brings no tower of its own."""
    name = str(reading.get("model") or "")
    named = next((tower for words, tower in _TOWERS if words.search(name)), None)
    own = "" if stands_in else model.architecture
    architecture = named or str(reading.get("hf_architecture") or own)
    update: dict[str, Any] = {
        "architecture": architecture,
        "multimodal": "ConditionalGeneration" in architecture,
    }
    method = next((m for m in ("awq", "gptq") if m in name.lower()), None)
    if method is not None:
        update["quantization"] = Quantization(method=method, bits=4)
    return model.model_copy(update=update)


def activation_bytes(reading: Reading, way: Way) -> int:
    """Peak of the profile run."""
    sequences, tokens = way.settings
    length = int(reading.get("max_model_len") or way.model.max_position_embeddings)
    return activation.activation_bytes(
        way.model,
        cards=cards_of(reading, way.model),
        max_num_batched_tokens=tokens,
        max_num_seqs=sequences,
        release=way.release,
        largest_item_tokens=activation.largest_item_tokens(way.release, length),
    )


def collective_bytes(reading: Reading, way: Way) -> int:
    """Growth outside torch, of as many ranks as a node has where the report does not say."""
    return memory.collective_bytes(way.model, int(reading.get("tp") or MOST_RANKS), _card(reading))


def _other_bytes(reading: Reading, way: Way) -> int:
    """Activation, collectives and, where the share pays for them, graphs."""
    sequences, tokens = way.settings
    other = activation_bytes(reading, way) + collective_bytes(reading, way)
    if way.with_graphs:
        other += memory.graph_bytes(
            way.model, max_num_batched_tokens=tokens, max_num_seqs=sequences
        )
    return other


def _card(reading: Reading) -> GpuFacts | None:
    """The product and its maker, as far as collectives go."""
    name = str(reading.get("gpu") or "")
    if not name:
        return None
    is_amd = re.search(r"\bAMD\b|\bMI\d|Radeon", name) is not None
    return GpuFacts(
        product=name,
        vendor=GpuVendor.AMD if is_amd else GpuVendor.NVIDIA,
        total_bytes=0,
        reserved_bytes=0,
        provenance=Provenance(source=FactSource.SPEC, confidence=Confidence.TABLE),
    )
