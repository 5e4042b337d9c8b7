"""What does a GGUF file say about a model, as llama.cpp loads it?

Which blocks keep what follows gguf_layouts.py; the tensors are listed as they are. What is not understood
is refused by name.
"""

from __future__ import annotations

import re
from collections import Counter
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
from plimsoll.facts.gguf_layouts import (
    LAYOUTS,
    RECURRENT_BLOCKS,
    SHARED_KV,
    STRANGE,
    STRANGE_WITHOUT_RECURRENCE,
    Layout,
    Recurs,
)
from plimsoll.facts.model import (
    GgufBlocks,
    GgufFacts,
    GgufTensorFacts,
    KvGroup,
    KvKind,
    RecurrentKind,
    RecurrentState,
    UnknownLayout,
)
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
        self._refuse_the_unknown()
        self.layout: Layout = LAYOUTS[self.architecture]
        self.drafts = self.optional("nextn_predict_layers")

    def facts(self, name: str) -> GgufFacts:
        inside, outside = _sorted_out(self.header.tensors, self.blocks)
        embedding = outside.get("token_embd.weight")
        if embedding is None or not embedding.shape:
            raise _NotUnderstoodError("it has no tensor token_embd.weight; it is no whole model.")
        is_tied = "output.weight" not in outside
        output = sum(t.bytes for n, t in outside.items() if _is_output(n))
        rest = sum(t.bytes for n, t in outside.items() if not _is_output(n))
        recurrent, windowed = self._recurrent(), self._windowed()
        return GgufFacts(
            id=name,
            architecture=self.architecture,
            quantization=self._quantization(),
            block_bytes=tuple(sum(t.bytes for t in block) for block in inside),
            output_bytes=output + (embedding.bytes if is_tied else 0),
            embedding_bytes=rest,
            tied_output=is_tied,
            largest_ffn_tensor_bytes=_largest(inside, "ffn_"),
            largest_attention_tensor_bytes=_largest(inside, "attn_"),
            embedding_length=self.number("embedding_length"),
            feed_forward_length=self.largest("feed_forward_length"),
            head_count=self.largest("attention.head_count"),
            vocab_size=embedding.shape[-1],
            context_length=self.number("context_length"),
            expert_count=self.optional("expert_count"),
            expert_used_count=self.largest("expert_used_count"),
            expert_feed_forward_length=self.largest("expert_feed_forward_length"),
            kv_groups=(*self._attention(recurrent, windowed), *self._states(recurrent, inside)),
            sliding_blocks=tuple(index for index, slides in enumerate(windowed) if slides),
            draft_blocks=self.drafts,
            blocks=_alike(inside),
            outside=tuple(outside.values()),
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

    def per_block(self, key: str) -> tuple[int, ...] | None:
        """A number for each block; one number stands for all. None when the file has no such key."""
        found = self.value(key)
        if found is None:
            return None
        if not isinstance(found, tuple):
            return (self.optional(key),) * self.blocks
        if len(found) != self.blocks:
            raise _NotUnderstoodError(
                f"{self.architecture}.{key} has {len(found)} items for {self.blocks} blocks."
            )
        return tuple(int(item) for item in found)

    def largest(self, key: str) -> int:
        return max(self.per_block(key) or (0,))

    # --- layout ---

    def _refuse_the_unknown(self) -> None:
        prefix = f"{self.architecture}."
        keys = sorted(k.removeprefix(prefix) for k in self.header.metadata if k.startswith(prefix))
        layout = LAYOUTS.get(self.architecture)
        strange = dict(STRANGE)
        if layout is None or layout.recurs is Recurs.NONE:
            strange |= STRANGE_WITHOUT_RECURRENCE
        if layout is None or not layout.shares_kv:
            strange[SHARED_KV] = "layers that share the KV of others"
        for start, meaning in strange.items():
            for found in keys:
                if found.startswith(start) and self.value(found):
                    raise _NotUnderstoodError(
                        f"{self.architecture} with {found} has {meaning}, which we do not count."
                    )
        if layout is None:
            raise _NotUnderstoodError(
                f"the architecture {self.architecture} is not in our table of llama.cpp layouts."
            )

    def _recurrent(self) -> tuple[bool, ...]:
        run = self.blocks - self.drafts
        heads, recurs = self._kv_heads(), self.layout.recurs
        match recurs:
            case Recurs.ALL | Recurs.BESIDE_ATTENTION:
                found = [True] * self.blocks
            case Recurs.WITHOUT_KV_HEADS:
                found = [count == 0 for count in heads]
            case Recurs.WITHOUT_KV_HEADS_AND_FEED_FORWARD:
                widths = self.per_block("feed_forward_length") or (0,) * self.blocks
                found = [
                    count == 0 and width == 0 for count, width in zip(heads, widths, strict=True)
                ]
            case Recurs.INTERVAL:
                listed = self.per_block(RECURRENT_BLOCKS)
                interval = self.optional("full_attention_interval") or self.layout.full_interval
                found = (
                    [bool(flag) for flag in listed]
                    if listed is not None
                    else [(index + 1) % interval != 0 for index in range(self.blocks)]
                )
            case Recurs.NONE:
                found = [False] * self.blocks
        return tuple(flag and index < run for index, flag in enumerate(found))

    def _windowed(self) -> tuple[bool, ...]:
        """set_swa_pattern: of each period all but the last; drafts have no window."""
        run = self.blocks - self.drafts
        period, layout = self.layout.period, self.layout
        if not self._window():
            return (False,) * self.blocks
        key = "attention.sliding_window_pattern"
        found = self.value(key)
        if isinstance(found, tuple):
            return tuple(bool(flag) for flag in self.per_block(key) or ())
        if layout.must_list:
            raise _NotUnderstoodError(
                f"{self.architecture}.{key} must list which blocks have a window, and does not."
            )
        if isinstance(found, int) and not isinstance(found, bool):
            period = found
        last = 0 if layout.dense_first else period - 1
        return tuple(
            index < run and (period == 0 or index % period != last) for index in range(self.blocks)
        )

    def _window(self) -> int:
        """Tokens of the window; 0 for a model without one."""
        layout = self.layout
        if not (layout.period or layout.must_list):
            return 0
        if layout.windows_from_blocks and self.blocks - self.drafts != layout.windows_from_blocks:
            return 0
        given = self.value("attention.sliding_window")
        if layout.fixed_window:
            return 0 if given == 0 else layout.window_tokens
        return self.optional("attention.sliding_window") or layout.window_tokens

    def _kv_heads(self) -> tuple[int, ...]:
        found = self.per_block("attention.head_count_kv")
        if found is None:  # llama.cpp takes as many as there are query heads
            found = self.per_block("attention.head_count")
        return (0,) * self.blocks if found is None else found

    def _owners(self) -> int:
        """Blocks from the first that may have a cache of their own."""
        run = self.blocks - self.drafts
        return min(run, self.blocks - self.optional(SHARED_KV))

    def _attention(
        self, recurrent: Sequence[bool], windowed: Sequence[bool]
    ) -> tuple[KvGroup, ...]:
        heads = self._kv_heads()
        beside = self.layout.recurs is Recurs.BESIDE_ATTENTION
        found: dict[tuple[KvKind, int, int, int], list[int]] = {}
        for index in range(self._owners()):
            if heads[index] == 0 or (recurrent[index] and not beside):
                continue
            layout = self._layout(windowed[index], heads[index])
            found.setdefault(layout, []).append(index)
        return tuple(
            KvGroup(
                kind=kind,
                layers=len(at),
                kv_heads=kv_heads,
                key_dim=key_dim,
                value_dim=value_dim,
                window_tokens=self._window() if kind in _WINDOWED else None,
                at=tuple(at),
            )
            for (kind, kv_heads, key_dim, value_dim), at in found.items()
        )

    def _layout(self, is_windowed: bool, kv_heads: int) -> tuple[KvKind, int, int, int]:
        if self.value("attention.kv_lora_rank") and self.value("attention.key_length_mla"):
            latent = self.number("attention.kv_lora_rank") + self.number("rope.dimension_count")
            return KvKind.MLA, 1, latent, 0
        ends = "_swa" if is_windowed else ""
        heads = self.largest("attention.head_count")
        default = self.number("embedding_length") // max(heads, 1)
        key = self.optional(f"attention.key_length{ends}") or self.optional("attention.key_length")
        value = self.optional(f"attention.value_length{ends}") or self.optional(
            "attention.value_length"
        )
        windowed = KvKind.CHUNKED if self.layout.chunked else KvKind.SLIDING
        kind = windowed if is_windowed else KvKind.FULL
        return kind, kv_heads, key or default, value or default

    def _states(
        self, recurrent: Sequence[bool], inside: Sequence[Sequence[GgufTensorFacts]]
    ) -> tuple[KvGroup, ...]:
        at = tuple(index for index, flag in enumerate(recurrent) if flag)
        if not at:
            return ()
        return (
            KvGroup(
                kind=KvKind.RECURRENT,
                layers=len(at),
                kv_heads=0,
                key_dim=0,
                value_dim=0,
                state=self._state({tensor.name for tensor in inside[at[0]]}),
                at=at,
            ),
        )

    def _state(self, names: set[str]) -> RecurrentState:
        if "shortconv.conv.weight" in names:
            return RecurrentState(
                kind=RecurrentKind.SHORT_CONVOLUTION,
                conv_kernel=self.number("shortconv.l_cache"),
                inner_channels=self.number("embedding_length"),
            )
        inner, rank = self.number("ssm.inner_size"), self.optional("ssm.time_step_rank")
        is_first = self.architecture in _MAMBA1
        kind = RecurrentKind.MAMBA1 if is_first else RecurrentKind.MAMBA2
        if self.layout.recurs is Recurs.INTERVAL:
            kind = RecurrentKind.GATED_DELTA
        return RecurrentState(
            kind=kind,
            conv_kernel=self.number("ssm.conv_kernel"),
            inner_channels=inner,
            heads=rank,
            head_dim=0 if is_first or not rank else inner // rank,
            key_heads=self.optional("ssm.group_count"),
            state_dim=self.number("ssm.state_size"),
        )

    # --- tensors ---

    def _quantization(self) -> str:
        number = self.header.metadata.get("general.file_type")
        if isinstance(number, int) and number in FILE_TYPES:
            return FILE_TYPES[number]
        weights: Counter[str] = Counter()
        for tensor in self.header.tensors:
            weights[tensor.type] += tensor.bytes
        return weights.most_common(1)[0][0]


_WINDOWED: Final = frozenset({KvKind.SLIDING, KvKind.CHUNKED})
_MAMBA1: Final = frozenset({"mamba", "jamba"})
"""Architectures whose recurrence is Mamba's first: time_step_rank is a rank there, not a number of heads."""
_OUTPUT_NORMS: Final = frozenset({"token_embd_norm.weight"})
"""Output norms with a name that does not begin with output (LFM2)."""
_BLOCK: Final = re.compile(r"^blk\.(\d+)\.")

Inside = tuple[tuple[GgufTensorFacts, ...], ...]


def _is_output(name: str) -> bool:
    return name.startswith("output") or name in _OUTPUT_NORMS


def _sorted_out(
    tensors: Iterable[GgufTensor], blocks: int
) -> tuple[Inside, dict[str, GgufTensorFacts]]:
    """The tensors of each block without its number, and those outside blocks by name."""
    inside: dict[int, list[GgufTensorFacts]] = {}
    outside: dict[str, GgufTensorFacts] = {}
    for tensor in tensors:
        match = _BLOCK.match(tensor.name)
        name = tensor.name[match.end() :] if match else tensor.name
        found = GgufTensorFacts(name=name, shape=tensor.shape, type=tensor.type, bytes=tensor.bytes)
        if match:
            inside.setdefault(int(match[1]), []).append(found)
        else:
            outside[name] = found
    if strange := sorted(set(inside) ^ set(range(blocks))):
        raise _NotUnderstoodError(
            f"block_count is {blocks}, but the tensor list says otherwise at block {strange[0]}; "
            "of a split model all parts are needed."
        )
    return tuple(tuple(inside[index]) for index in range(blocks)), outside


def _largest(inside: Inside, start: str) -> int:
    return max(
        (tensor.bytes for block in inside for tensor in block if tensor.name.startswith(start)),
        default=0,
    )


def _alike(inside: Inside) -> tuple[GgufBlocks, ...]:
    """Blocks of the same tensors together."""
    found: dict[tuple[GgufTensorFacts, ...], list[int]] = {}
    for index, block in enumerate(inside):
        found.setdefault(tuple(sorted(block, key=lambda t: t.name)), []).append(index)
    return tuple(GgufBlocks(at=tuple(at), tensors=tensors) for tensors, at in found.items())
