"""What does a GGUF file say about a model, as llama.cpp loads it?

Layouts follow ggml-org/llama.cpp src/models (build 11434): which blocks have a sliding window is fixed
per architecture unless the file says otherwise. What is not understood is refused by name.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from plimsoll.facts.gguf_header import (
    FILE_TYPES,
    GgufError,
    GgufHeader,
    GgufTensor,
    MetadataValue,
    joined,
    read_gguf,
)
from plimsoll.facts.model import GgufFacts, KvGroup, KvKind, UnknownLayout
from plimsoll.facts.source import Confidence, FactSource, Provenance

__all__ = ["GgufError", "GgufHeader", "gguf_facts", "joined", "read_gguf"]

WAY_OUT: Final = "Use another model file, or give the layout yourself in model.facts."


class _NotUnderstoodError(ValueError):
    """Says in one sentence what is missing or strange; never leaves this module."""


def gguf_facts(header: GgufHeader, *, id: str) -> GgufFacts | UnknownLayout:  # noqa: A002
    """The facts of a file (or of all parts of a split one, `joined`), or what is not understood."""
    try:
        return _Model(header).facts(id)
    except _NotUnderstoodError as reason:
        message = f"{id}: {reason} {WAY_OUT}"
        return UnknownLayout(architecture=header.architecture, message=message)


class _Model:
    """A header with its architecture's prefix in mind."""

    def __init__(self, header: GgufHeader) -> None:
        self.header = header
        self.architecture = header.architecture
        self.blocks = self.number("block_count")
        if self.blocks > len(header.tensors):
            raise _NotUnderstoodError(
                f"block_count is {self.blocks}, more than the {len(header.tensors)} tensors; of a split "
                "model all parts are needed."
            )
        self.heads = self.largest("attention.head_count")

    def facts(self, name: str) -> GgufFacts:
        self._refuse_the_unknown()
        kinds = self._kinds()
        block_bytes, outside = _sorted_out(self.header.tensors, self.blocks)
        embedding = outside.get("token_embd.weight")
        if embedding is None or not embedding.shape:
            raise _NotUnderstoodError("it has no tensor token_embd.weight; it is no whole model.")
        is_tied = "output.weight" not in outside
        output = sum(t.bytes for n, t in outside.items() if n.startswith("output"))
        rest = sum(t.bytes for n, t in outside.items() if not n.startswith("output"))
        return GgufFacts(
            id=name,
            architecture=self.architecture,
            quantization=self._quantization(),
            block_bytes=block_bytes,
            output_bytes=output + (embedding.bytes if is_tied else 0),
            embedding_bytes=rest,
            tied_output=is_tied,
            largest_ffn_tensor_bytes=self._largest_tensor(".ffn_"),
            largest_attention_tensor_bytes=self._largest_tensor(".attn_"),
            embedding_length=self.number("embedding_length"),
            feed_forward_length=self.largest("feed_forward_length"),
            head_count=self.heads,
            vocab_size=embedding.shape[-1],
            context_length=self.number("context_length"),
            expert_count=self.optional("expert_count"),
            expert_used_count=self.optional("expert_used_count"),
            expert_feed_forward_length=self.largest("expert_feed_forward_length", optional=True),
            kv_groups=self._groups(kinds),
            sliding_blocks=tuple(i for i, kind in enumerate(kinds) if kind is KvKind.SLIDING),
            provenance=Provenance(
                source=FactSource.FILES, confidence=Confidence.EXACT, detail="GGUF header"
            ),
        )

    # --- keys of the architecture ---

    def value(self, key: str) -> MetadataValue:
        return self.header.metadata.get(f"{self.architecture}.{key}")

    def number(self, key: str) -> int:
        found = self.value(key)
        if isinstance(found, bool) or not isinstance(found, int) or found < 1:
            seen = "is not given" if found is None else f"is {found!r}"
            raise _NotUnderstoodError(
                f"{self.architecture}.{key} {seen}; it must be a whole number above zero."
            )
        return found

    def optional(self, key: str) -> int:
        return self.number(key) if self.value(key) else 0

    def per_block(self, key: str) -> tuple[int, ...]:
        """A number for each block; one number stands for all."""
        found = self.value(key)
        if not isinstance(found, tuple):
            return (self.number(key),) * self.blocks
        if len(found) != self.blocks:
            raise _NotUnderstoodError(
                f"{self.architecture}.{key} has {len(found)} items for {self.blocks} blocks."
            )
        return tuple(int(item) for item in found)

    def largest(self, key: str, *, optional: bool = False) -> int:
        if self.value(key) is None and optional:
            return 0
        return max(self.per_block(key))

    # --- layout ---

    def _refuse_the_unknown(self) -> None:
        prefix = f"{self.architecture}."
        keys = sorted(k.removeprefix(prefix) for k in self.header.metadata if k.startswith(prefix))
        for start, meaning in _STRANGE.items():
            if found := next((key for key in keys if key.startswith(start)), None):
                if not self.value(found):
                    continue
                raise _NotUnderstoodError(
                    f"{self.architecture} with {found} has {meaning}, which we do not count."
                )
        if self.architecture not in _WINDOWS:
            raise _NotUnderstoodError(
                f"the architecture {self.architecture} is not in our table of llama.cpp layouts."
            )

    def _kinds(self) -> tuple[KvKind | None, ...]:
        """Kind of each block; None for a block that keeps nothing (no KV heads, or only for drafts)."""
        kept = self.blocks - self.optional("nextn_predict_layers")
        if self.value("attention.kv_lora_rank") and self.value("attention.key_length_mla"):
            kinds = [KvKind.MLA] * self.blocks
        else:
            period = _WINDOWS[self.architecture]
            is_sliding = self._sliding(period) if period else [False] * self.blocks
            kinds = [KvKind.SLIDING if slides else KvKind.FULL for slides in is_sliding]
        heads = self.per_block("attention.head_count_kv") if self._has_kv_heads() else None
        return tuple(
            kind if index < kept and (heads is None or heads[index]) else None
            for index, kind in enumerate(kinds)
        )

    def _has_kv_heads(self) -> bool:
        return self.value("attention.head_count_kv") is not None

    def _sliding(self, period: int) -> list[bool]:
        """llama_hparams::set_swa_pattern: of each period all but the last; 0 all, 1 none."""
        if not self._window():
            return [False] * self.blocks
        found = self.value("attention.sliding_window_pattern")
        if isinstance(found, tuple):
            flags = self.per_block("attention.sliding_window_pattern")
            return [bool(flag) for flag in flags]
        if isinstance(found, int):
            period = found
        if period == 0:
            return [True] * self.blocks
        return [index % period < period - 1 for index in range(self.blocks)]

    def _groups(self, kinds: Sequence[KvKind | None]) -> tuple[KvGroup, ...]:
        has_heads = self._has_kv_heads()
        heads = self.per_block("attention.head_count_kv") if has_heads else None
        layouts = Counter(
            self._layout(kind, heads[index] if heads else self.heads)
            for index, kind in enumerate(kinds)
            if kind is not None
        )
        return tuple(
            KvGroup(
                kind=kind,
                layers=layers,
                kv_heads=kv_heads,
                key_dim=key_dim,
                value_dim=value_dim,
                window_tokens=self._window() if kind is KvKind.SLIDING else None,
            )
            for (kind, kv_heads, key_dim, value_dim), layers in layouts.items()
        )

    def _layout(self, kind: KvKind, kv_heads: int) -> tuple[KvKind, int, int, int]:
        if kind is KvKind.MLA:
            latent = self.number("attention.kv_lora_rank") + self.number("rope.dimension_count")
            return kind, 1, latent, 0
        ends = "_swa" if kind is KvKind.SLIDING else ""
        default = self.number("embedding_length") // self.heads
        key = self.optional(f"attention.key_length{ends}") or self.optional("attention.key_length")
        value = self.optional(f"attention.value_length{ends}") or self.optional(
            "attention.value_length"
        )
        return kind, kv_heads, key or default, value or default

    def _window(self) -> int:
        given = self.optional("attention.sliding_window")
        return given or _DEFAULT_WINDOW_TOKENS.get(self.architecture, 0)

    # --- tensors ---

    def _largest_tensor(self, part: str) -> int:
        return max((t.bytes for t in self.header.tensors if part in t.name), default=0)

    def _quantization(self) -> str:
        number = self.header.metadata.get("general.file_type")
        if isinstance(number, int) and number in FILE_TYPES:
            return FILE_TYPES[number]
        weights: Counter[str] = Counter()
        for tensor in self.header.tensors:
            weights[tensor.type] += tensor.bytes
        return weights.most_common(1)[0][0]


_BLOCK: Final = re.compile(r"^blk\.(\d+)\.")


def _sorted_out(
    tensors: Iterable[GgufTensor], blocks: int
) -> tuple[tuple[int, ...], dict[str, GgufTensor]]:
    """Bytes of each block, and the tensors outside blocks by name."""
    inside: defaultdict[int, int] = defaultdict(int)
    outside: dict[str, GgufTensor] = {}
    for tensor in tensors:
        if match := _BLOCK.match(tensor.name):
            inside[int(match[1])] += tensor.bytes
        else:
            outside[tensor.name] = tensor
    if strange := sorted(set(inside) ^ set(range(blocks))):
        raise _NotUnderstoodError(
            f"block_count is {blocks}, but the tensor list says otherwise at block {strange[0]}; "
            "of a split model all parts are needed."
        )
    return tuple(inside[index] for index in range(blocks)), outside


_WINDOWS: Final[dict[str, int]] = {
    "llama": 0,
    "mistral3": 0,
    "qwen2": 0,
    "qwen2moe": 0,
    "qwen3": 0,
    "qwen3moe": 0,
    "phi3": 0,  # phi3.cpp switches the window off (llama.cpp PR 13676)
    "gemma": 0,
    "granite": 0,
    "granitemoe": 0,
    "glm4": 0,
    "glm4moe": 0,
    "minimax-m2": 0,
    "seed_oss": 0,
    "deepseek2": 0,
    "gemma2": 2,
    "gemma3": 6,
    "gpt-oss": 2,
    "gemma4": 6,
}
"""Architecture: 0 for no windows, else the period of which all blocks but the last slide
(set_swa_pattern in src/models/<architecture>.cpp)."""

_DEFAULT_WINDOW_TOKENS: Final = {"gemma2": 4096}
"""src/models/gemma2.cpp; the others must name their window."""

_STRANGE: Final = {
    "ssm.": "recurrent layers",
    "shortconv.": "recurrent layers",
    "wkv.": "recurrent layers",
    "kda.": "recurrent layers",
    "full_attention_interval": "recurrent layers",
    "attention.indexer.": "sparse attention with an index",
    "attention.shared_kv_layers": "layers that share the KV of others",
    "altup.": "layers that share the KV of others",
    "decoder_block_count": "an encoder",
    "pooling_type": "a pooled output: it embeds, and does not generate",
}
"""Keys that change what a block keeps, and what they announce."""
