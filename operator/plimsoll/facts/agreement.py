"""Do config.json and the tensors speak of the same model?

Shapes in the headers are held against the config, field by field, before anybody plans by either. What the
files do not show (packed weights have other shapes) is not judged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from plimsoll.facts.gguf_header import GgufHeader
from plimsoll.facts.model import KvKind, ModelFacts
from plimsoll.facts.safetensors import Header

Config = Mapping[str, Any]
"""A config.json, read."""

WAY_OUT: Final = "one of the two is of another model: fetch config.json and the weights again, from the same place."


class _Tensor(NamedTuple):
    """One tensor and where it stands."""

    file: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


class _Case(NamedTuple):
    """What is held against what."""

    config: Config
    facts: ModelFacts
    tensors: list[_Tensor]


def disagreements(
    config: Config, facts: ModelFacts, headers: Mapping[str, Header]
) -> tuple[str, ...]:
    """Sentences about what config.json says and the files (by name) deny; empty when they agree.

    Each names the field, both values, the file and the tensor.
    """
    tensors = [tensor for file, header in headers.items() for tensor in _tensors(file, header)]
    return tuple(
        said
        for check in (_layers, _embedding, _heads, _widths, _experts, _dtype)
        for said in check(_Case(config, facts, tensors))
    )


def gguf_disagreements(header: GgufHeader) -> tuple[str, ...]:
    """The same for a GGUF file, whose metadata and tensor list can differ too."""
    found: list[str] = []
    prefix = header.architecture
    width = header.metadata.get(f"{prefix}.embedding_length")
    blocks = header.metadata.get(f"{prefix}.block_count")
    numbers = {int(m[1]) for t in header.tensors if (m := _BLOCK.match(t.name))}
    if isinstance(blocks, int) and numbers and len(numbers) != blocks:
        found.append(
            f"{prefix}.block_count is {blocks}, the tensors are of {len(numbers)} blocks: the file is "
            "not whole, or its metadata was edited; convert or fetch it again."
        )
    embedding = next((t for t in header.tensors if t.name == "token_embd.weight"), None)
    if embedding is None or len(embedding.shape) != 2:
        return tuple(found)
    if isinstance(width, int) and embedding.shape[0] != width:
        found.append(
            f"{prefix}.embedding_length is {width}, token_embd.weight is {embedding.shape[0]} wide: the "
            "metadata is of another model; convert or fetch the file again."
        )
    vocabulary = header.metadata.get(f"{prefix}.vocab_size")
    if isinstance(vocabulary, int) and embedding.shape[1] != vocabulary:
        found.append(
            f"{prefix}.vocab_size is {vocabulary}, token_embd.weight has {embedding.shape[1]} rows: the "
            "metadata is of another model; convert or fetch the file again."
        )
    return tuple(found)


_BLOCK: Final = re.compile(r"blk\.(\d+)\.")
_ELSEWHERE: Final = re.compile(
    r"vision|visual|audio|vit\b|image|speech|encoder|mtp\.|mm_|multi_modal|projector|talker|code_predictor"
)
"""Parts of a checkpoint that are not the language model, as vLLM 0.33.0's models name them."""
_LAYER: Final = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
_EXPERT: Final = re.compile(r"\.experts\.(\d+)\.")
_EMBEDDING: Final = re.compile(r"(?:embed_tokens|wte|word_embeddings|tok_embeddings)\.weight$")
_WHOLE_VALUES: Final = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "F8_E5M2": 1}
"""Dtypes whose shapes are the model's own, with bytes of a value; integers hold packed weights."""
_NARROW: Final = re.compile(r"^(?:F[468](?:_|$)|U|I)")
_DTYPE_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2, "half": 2, "float": 4}


def _tensors(file: str, header: Header) -> Iterator[_Tensor]:
    for name, entry in header.items():
        match entry.get("shape"), entry.get("data_offsets"):
            case [*shape], [int(begin), int(end)]:
                dtype = str(entry.get("dtype"))
                yield _Tensor(file, name, dtype, tuple(shape), end - begin)


def _language(tensors: list[_Tensor]) -> list[_Tensor]:
    return [t for t in tensors if not _ELSEWHERE.search(t.name)]


def _layers(case: _Case) -> Iterator[str]:
    config, facts, tensors = case.config, case.facts, case.tensors
    numbers = {int(m[1]) for t in _language(tensors) if (m := _LAYER.search(t.name))}
    if not numbers:
        return
    held = max(numbers) + 1
    drafts = max((_count(part, key) for part, key in _draft_keys(config)), default=0)
    if missing := sorted(set(range(facts.layers)) - numbers):
        shown = ", ".join(map(str, missing[:3])) + (" ..." if len(missing) > 3 else "")
        yield (
            f"config.json says num_hidden_layers {facts.layers}, the files hold {len(numbers)} layers "
            f"(not {shown}): a file is missing, or {WAY_OUT}"
        )
    elif held > facts.layers + drafts:
        said = f" and {drafts} draft layers" if drafts else ""
        yield (
            f"config.json says num_hidden_layers {facts.layers}{said}, the files hold {held} layers: "
            f"{WAY_OUT}"
        )


def _parts(config: Config) -> list[Config]:
    """The language model's own part first, then what it is nested in."""
    inner = (config.get(name) for name in ("text_config", "llm_config", "thinker_config"))
    nested = [part for found in inner if isinstance(found, Mapping) for part in _parts(found)]
    return [*nested, config]


def _draft_keys(config: Config) -> Iterator[tuple[Config, str]]:
    for part in _parts(config):
        for key in part:
            if "nextn" in key or "mtp" in key:
                yield part, key


def _count(part: Config, key: str) -> int:
    found = part.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def _embedding(case: _Case) -> Iterator[str]:
    """vLLM asserts that the rows are vocab_size (0.33.0 layers/vocab_parallel_embedding.py)."""
    facts, tensors = case.facts, case.tensors
    for tensor in _language(tensors):
        if not _EMBEDDING.search(tensor.name) or tensor.dtype not in _WHOLE_VALUES:
            continue
        if len(tensor.shape) != 2:
            continue
        said = (
            ("vocab_size", facts.vocab_size, tensor.shape[0], "rows"),
            ("hidden_size", facts.hidden_size, tensor.shape[1], "columns"),
        )
        for field, expected, actual, what in said:
            if expected != actual:
                yield (
                    f"config.json says {field} {expected}, {tensor.file} has {actual} {what} in "
                    f"{tensor.name}: {WAY_OUT}"
                )
        return


def _heads(case: _Case) -> Iterator[str]:
    facts, tensors = case.facts, case.tensors
    plain = [g for g in facts.kv_groups if g.kind in _HEADED]
    latent = [g for g in facts.kv_groups if g.kind is KvKind.MLA]
    heads = f"num_key_value_heads {'/'.join(_several(g.kv_heads for g in plain))} of head_dim "
    rows = (
        (
            r"\.k_proj\.weight$",
            {g.kv_heads * g.key_dim for g in plain},
            heads + "/".join(_several(g.key_dim for g in plain)),
        ),
        (
            r"\.v_proj\.weight$",
            {g.kv_heads * g.value_dim for g in plain},
            heads + "/".join(_several(g.value_dim for g in plain)),
        ),
        (
            r"\.kv_a_proj_with_mqa\.weight$",
            {g.key_dim for g in latent},
            "kv_lora_rank and qk_rope_head_dim, together "
            + "/".join(_several(g.key_dim for g in latent)),
        ),
    )
    recurrent = any(g.kind is KvKind.RECURRENT for g in facts.kv_groups)
    for ending, expected, field in rows:
        if not expected or recurrent:  # a delta net's projections have the same names
            continue
        for tensor in _matrices(tensors, ending):
            if tensor.shape[0] not in expected:
                yield _rows_differ(tensor, field, expected)
                break
    if plain and not recurrent:
        widths = {g.key_dim for g in plain}
        expected = {n * facts.attention_heads * width for width in widths for n in (1, 2)}
        found = _matrices(tensors, r"self_attn\.q_proj\.weight$")  # twice as wide where gated
        if found and not any(t.shape[0] in expected for t in found):
            field = f"num_attention_heads {facts.attention_heads} of head_dim "
            yield _rows_differ(found[0], field + "/".join(_several(widths)), min(expected))


_HEADED: Final = (KvKind.FULL, KvKind.SLIDING, KvKind.CHUNKED)


def _widths(case: _Case) -> Iterator[str]:
    """The dense feed-forward width; models with experts have several."""
    config, facts, tensors = case.config, case.facts, case.tensors
    said = next((p["intermediate_size"] for p in _parts(config) if "intermediate_size" in p), None)
    if facts.experts or not isinstance(said, int):
        return
    found = _matrices(tensors, r"mlp\.(?:up|gate)_proj\.weight$")
    if found and not any(t.shape[0] == said for t in found):
        yield _rows_differ(found[0], f"intermediate_size {said}", said)


def _experts(case: _Case) -> Iterator[str]:
    facts, tensors = case.facts, case.tensors
    numbers = {int(m[1]) for t in _language(tensors) if (m := _EXPERT.search(t.name))}
    if numbers and max(numbers) + 1 != facts.experts:
        yield (
            f"config.json says {facts.experts} experts, the files hold {max(numbers) + 1}: a file is "
            f"missing, or {WAY_OUT}"
        )


def _dtype(case: _Case) -> Iterator[str]:
    """What most of the weights' bytes are in, against torch_dtype or quantization_config."""
    config, facts, tensors = case.config, case.facts, case.tensors
    by_dtype: Counter[str] = Counter()
    for tensor in _language(tensors):
        by_dtype[tensor.dtype] += tensor.bytes
    if not by_dtype:
        return
    most, size = by_dtype.most_common(1)[0]
    share = f"{size / sum(by_dtype.values()):.0%} of the weights' bytes are {most}"
    quantization = facts.quantization
    if quantization is not None:
        is_narrow = any(_NARROW.match(dtype) for dtype in by_dtype)
        if quantization.bits is not None and quantization.bits < 16 and not is_narrow:
            yield (
                f"config.json says quantization_config {quantization.method} of {quantization.bits} "
                f"bits, {share}: {WAY_OUT}"
            )
        return
    said = next(
        (
            str(part[key]).removeprefix("torch.")
            for part in reversed(_parts(config))
            for key in ("dtype", "torch_dtype")
            if isinstance(part.get(key), str)
        ),
        None,
    )
    if _NARROW.match(most):
        yield (
            f"config.json has no quantization_config, {share}: the config is of another model, or lost "
            "that part; fetch it again, from where the weights are."
        )
    elif said in _DTYPE_BYTES and _DTYPE_BYTES[said] != _WHOLE_VALUES.get(most, 0):
        yield (
            f"config.json says torch_dtype {said}, {share}: write the dtype that the weights have, or "
            "fetch both again, from the same place."
        )


def _matrices(tensors: list[_Tensor], ending: str) -> list[_Tensor]:
    """Unpacked matrices of the language model's layers whose names end so."""
    return [
        tensor
        for tensor in _language(tensors)
        if len(tensor.shape) == 2
        and tensor.dtype in _WHOLE_VALUES
        and re.search(ending, tensor.name)
        and "cross_attn" not in tensor.name
    ]


def _rows_differ(tensor: _Tensor, field: str, expected: Collection[int] | int) -> str:
    several = [expected] if isinstance(expected, int) else expected
    return (
        f"config.json says {field} ({' or '.join(_several(several))} rows), {tensor.file} has "
        f"{tensor.shape[0]} rows in {tensor.name}: {WAY_OUT}"
    )


def _several(numbers: Any) -> list[str]:
    return [str(number) for number in sorted(set(numbers))]
