"""How many bytes of weights do safetensors files hold, and how would tensor parallelism split them?

Only headers are read: 8 bytes of length, then JSON (huggingface/safetensors README, "Format").
"""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, BinaryIO, Final

from plimsoll.facts.hf_parts import Role
from plimsoll.facts.model import Weights

HEADER_LIMIT_BYTES: Final = 100_000_000
"""huggingface/safetensors safetensors/src/tensor.rs MAX_HEADER_SIZE."""

Header = Mapping[str, Mapping[str, Any]]
"""Tensor name to dtype, shape and data_offsets; the key __metadata__ is not among them."""


class SafetensorsError(ValueError):
    """The stream is no whole safetensors header; the sentence says what is wrong with it."""


def read_header(stream: BinaryIO) -> Header:
    """The tensors of one file. Raises SafetensorsError that names the file and what is wrong."""
    name = str(getattr(stream, "name", "the safetensors stream"))
    start = stream.read(8)
    if len(start) < 8:
        raise SafetensorsError(f"{name}: the file ends after {len(start)} bytes; it was cut off.")
    if start.startswith(b"version "):
        raise SafetensorsError(
            f"{name}: it is a Git LFS pointer and not the file; fetch it with `git lfs pull`."
        )
    (length,) = struct.unpack("<Q", start)
    if length > HEADER_LIMIT_BYTES:
        raise SafetensorsError(
            f"{name}: its header would have {length} bytes, more than the {HEADER_LIMIT_BYTES} that "
            "the format allows; it is no safetensors file."
        )
    text = stream.read(length)
    if len(text) < length:
        raise SafetensorsError(
            f"{name}: the file ends inside its header, {len(text)} of {length} bytes; it was cut off."
        )
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SafetensorsError(f"{name}: its header is not JSON ({error}).") from None
    if not isinstance(found, dict):
        raise SafetensorsError(
            f"{name}: its header is a JSON {type(found).__name__}, not an object."
        )
    found.pop("__metadata__", None)
    for tensor, entry in found.items():
        _size_bytes(tensor, entry, name)
    return found


def weights(headers: Iterable[Header], *, layers: int | None = None) -> Weights:
    """Bytes of all files' tensors together, by how ranks share them, and the largest layer.

    Layers of multi-token prediction stand apart in `draft_bytes`: those named so, and those from
    `layers` (num_hidden_layers) on. Tensors that no engine loads are left out. Raises SafetensorsError
    when a tensor's byte range is missing.
    """
    shared: Counter[Role] = Counter()
    blocks: Counter[str] = Counter()
    drafts = 0
    for header in headers:
        for tensor, entry in header.items():
            size = _size_bytes(tensor, entry, "the header")
            if _UNUSED.search(tensor):
                continue
            if _is_draft(tensor, layers):
                drafts += size
                continue
            shared[role_of(tensor)] += size
            if match := _LAYER.search(tensor):
                blocks[match[0]] += size
    return Weights(
        total_bytes=shared.total(),
        replicated_bytes=shared[Role.REPLICATED],
        largest_layer_bytes=max(blocks.values(), default=0),
        vocabulary_bytes=shared[Role.VOCABULARY],
        expert_bytes=shared[Role.EXPERTS],
        kv_projection_bytes=shared[Role.KEYS],
        draft_bytes=drafts,
    )


def role_of(tensor: str) -> Role:
    """How ranks share a tensor of this name (vLLM 0.33.0 vllm/model_executor/models)."""
    return next((role for pattern, role in _ROLES if pattern.search(tensor)), Role.SHARDED)


def _is_draft(tensor: str, layers: int | None) -> bool:
    if _DRAFT.search(tensor):
        return True
    match = _LANGUAGE_LAYER.search(tensor)
    return layers is not None and match is not None and int(match[1]) >= layers


def check_index(index: Mapping[str, Any], present: Collection[str]) -> tuple[str, ...]:
    """Files that model.safetensors.index.json names and that are not among `present`, in order."""
    named = index.get("weight_map")
    if not isinstance(named, Mapping):
        raise SafetensorsError(
            "the index has no weight_map; it is no model.safetensors.index.json."
        )
    return tuple(sorted({str(file) for file in named.values()} - set(present)))


_REPLICATED: Final = re.compile(
    r"norm\d*(?:\.|_|$)"
    r"|mlp\.gate\.|\.router\.|block_sparse_moe\.gate\.|mlp\.shared_expert_gate\."
    r"|(?:q_a_proj|kv_a_proj_with_mqa|kv_a_proj|fused_qkv_a_proj)(?:\.|$)"
    r"|e_score_correction_bias|\.indexer\."
)
"""Names of tensors that vLLM 0.33.0 gives to every rank: norms, routers, MLA down-projections,
indexers (vllm/model_executor/models, ReplicatedLinear)."""
_ROLES: Final = (
    (
        re.compile(r"(?:^|\.)(?:embed_tokens|lm_head|wte|word_embeddings|embed_in|embed_out)\."),
        Role.VOCABULARY,
    ),
    (re.compile(r"backbone\.embeddings?\.|model\.embedding\."), Role.VOCABULARY),
    (_REPLICATED, Role.REPLICATED),
    (re.compile(r"\.experts\.|\.experts_"), Role.EXPERTS),
    (re.compile(r"(?:self_attn|attn|attention|mixer)\.(?:k_proj|v_proj)\."), Role.KEYS),
    # the bias of a matrix that is cut by columns lies whole on every rank
    (
        re.compile(r"(?:o_proj|down_proj|out_proj|fc2|linear_fc2|attn\.proj)\.bias$"),
        Role.REPLICATED,
    ),
)
"""Names and what ranks do with them; the first that is found answers, and the rest is cut."""
_UNUSED: Final = re.compile(r"rotary_emb\.inv_freq$|\.attn\.(?:masked_)?bias$")
"""Tensors of old files that engines compute themselves."""
_DRAFT: Final = re.compile(r"(?:^|\.)mtp(?:_\w+)?\.|\.nextn")
"""Layers of multi-token prediction by their own name; others stand behind the last layer."""
_LAYER: Final = re.compile(r"^.*?\blayers\.\d+\.")
_LANGUAGE_LAYER: Final = re.compile(r"(?:^|language_model\.|^model\.)(?:model\.)?layers\.(\d+)\.")


def _size_bytes(tensor: str, entry: Any, name: str) -> int:
    offsets = entry.get("data_offsets") if isinstance(entry, Mapping) else None
    match offsets:
        case [int(begin), int(end)] if 0 <= begin <= end:
            return end - begin
    raise SafetensorsError(
        f"{name}: tensor {tensor} has data_offsets {offsets!r}, not two offsets."
    )
