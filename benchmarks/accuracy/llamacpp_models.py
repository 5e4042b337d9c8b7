"""What GGUF files do the oracle's rows of models describe?

A row gives shapes and the bytes of each block, but no list of tensors. The list follows from the
architecture; the element types are those of llama.cpp's own mixes that give the very bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Final

from plimsoll.engines.llama_cpp import nominal
from plimsoll.engines.llama_cpp.mixes import TYPES, finely_mixed, mixed, size_of
from plimsoll.facts.model import (
    GgufBlocks,
    GgufFacts,
    GgufTensorFacts,
    KvGroup,
    KvKind,
    RecurrentKind,
    RecurrentState,
)
from plimsoll.facts.source import Confidence, FactSource, Provenance

MAMBA1: Final = frozenset({"mamba", "jamba"})
HEAD_DIM: Final = 64
"""Width of a head of Mamba 2 in all public models but a few."""


def models(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, GgufFacts]:
    """The facts of every model of an oracle's file, by its name there."""
    return {name: model_of(name, row) for name, row in rows.items()}


def model_of(name: str, row: Mapping[str, Any]) -> GgufFacts:
    """The facts of one row."""
    others: Mapping[str, int] = row["other_tensor_bytes"]
    embedding = others["token_embd.weight"]
    is_tied = bool(row["tied_output"])
    output = sum(size for key, size in others.items() if key.startswith("output"))
    bare = GgufFacts(
        id=name,
        architecture=row["arch"],
        quantization="Q8_0",
        block_bytes=tuple(row["layer_bytes"]),
        output_bytes=output + (embedding if is_tied else 0),
        embedding_bytes=sum(others.values()) - output,
        tied_output=is_tied,
        embedding_length=row["embedding_length"],
        feed_forward_length=row["feed_forward_length"],
        head_count=row["head_count"],
        vocab_size=row["vocab_size"],
        context_length=row["context_length"],
        expert_count=row["expert_count"],
        expert_used_count=row["expert_used_count"],
        expert_feed_forward_length=row["expert_feed_forward_length"],
        kv_groups=_groups(row),
        sliding_blocks=tuple(row.get("swa_layers", ())),
        outside=tuple(_outside(row)),
        provenance=Provenance(
            source=FactSource.FILES, confidence=Confidence.EXACT, detail=str(row.get("kind", ""))
        ),
    )
    return bare.model_copy(update={"blocks": _blocks(bare, row)})


def _groups(row: Mapping[str, Any]) -> tuple[KvGroup, ...]:
    recurrent = tuple(row.get("recurrent_layers", ()))
    windowed = tuple(row.get("swa_layers", ()))
    rest = [i for i in range(row["block_count"]) if i not in recurrent and i not in windowed]
    found = []
    for at, kind in ((tuple(rest), KvKind.FULL), (windowed, KvKind.SLIDING)):
        if not at:
            continue
        if "mla" in row:
            latent = row["mla"]["kv_lora_rank"] + row["mla"]["rope_dimension_count"]
            found.append(
                KvGroup(
                    kind=KvKind.MLA, layers=len(at), kv_heads=1, key_dim=latent, value_dim=0, at=at
                )
            )
            continue
        found.append(
            KvGroup(
                kind=kind,
                layers=len(at),
                kv_heads=row["head_count_kv"],
                key_dim=row["key_length"],
                value_dim=row["value_length"],
                window_tokens=row["sliding_window"] if kind is KvKind.SLIDING else None,
                at=at,
            )
        )
    if recurrent:
        found.append(
            KvGroup(
                kind=KvKind.RECURRENT,
                layers=len(recurrent),
                kv_heads=0,
                key_dim=0,
                value_dim=0,
                state=_state(row),
                at=recurrent,
            )
        )
    return tuple(found)


def _state(row: Mapping[str, Any]) -> RecurrentState:
    ssm, name = row["ssm"], row["arch"]
    inner, width = ssm["inner_size"], ssm["state_size"]
    if name in MAMBA1:
        kind, head_dim, heads = RecurrentKind.MAMBA1, 0, ssm.get("time_step_rank", 0)
    elif name in nominal.GATED_QUERIES:
        kind, head_dim = RecurrentKind.GATED_DELTA, width
        heads = ssm.get("time_step_rank", inner // width)
    else:
        kind, heads = RecurrentKind.MAMBA2, ssm.get("time_step_rank", inner // HEAD_DIM)
        head_dim = inner // heads
    return RecurrentState(
        kind=kind,
        conv_kernel=ssm["conv_kernel"],
        inner_channels=inner,
        heads=heads,
        head_dim=head_dim,
        key_heads=ssm.get("group_count", 0),
        state_dim=width,
    )


def _outside(row: Mapping[str, Any]) -> Iterator[GgufTensorFacts]:
    width, vocabulary = row["embedding_length"], row["vocab_size"]
    for name, size in row["other_tensor_bytes"].items():
        shape = (
            (width, vocabulary) if name in {"token_embd.weight", "output.weight"} else (size // 4,)
        )
        kind = _type_of(shape, size) if len(shape) > 1 else "F32"
        yield GgufTensorFacts(name=name, shape=shape, type=kind, bytes=size)


def _type_of(shape: tuple[int, ...], size: int) -> str:
    return next((kind for kind in TYPES if size_of(shape, kind) == size), "Q8_0")


# --- blocks ---


def _blocks(bare: GgufFacts, row: Mapping[str, Any]) -> tuple[GgufBlocks, ...]:
    experts = row.get("layer_expert_bytes") or [0] * row["block_count"]
    attention = {i: g for g in bare.kv_groups if g.state is None for i in g.at}
    recurrence = {i: g for g in bare.kv_groups if g.state is not None for i in g.at}
    alike: dict[tuple[int, int, KvGroup | None, KvGroup | None], list[int]] = {}
    for index, size in enumerate(row["layer_bytes"]):
        key = (size, experts[index], attention.get(index), recurrence.get(index))
        alike.setdefault(key, []).append(index)
    made = []
    for (size, expert_size, attended, recurs), at in alike.items():
        found = _solved(bare, attended, recurs, size=size, expert_size=expert_size)
        if found is None:
            return ()
        made.append(GgufBlocks(at=tuple(at), tensors=found))
    return tuple(made)


def _solved(
    bare: GgufFacts,
    attention: KvGroup | None,
    recurrence: KvGroup | None,
    *,
    size: int,
    expert_size: int,
) -> tuple[GgufTensorFacts, ...] | None:
    """Tensors of a block that have these bytes; None when no mix gives them."""
    for solve in (mixed, finely_mixed):
        for widths in _widths(bare):
            shapes = nominal.shapes(
                bare, attention, recurrence, has_experts=expert_size > 0, widths=widths
            )
            inside = {name: s for name, s in shapes.items() if "exps" in name}
            beside = {name: s for name, s in shapes.items() if "exps" not in name}
            first = solve(inside, expert_size) if inside else ()
            second = solve(beside, size - expert_size)
            if first is not None and second is not None:
                return (*first, *second)
    return None


def _widths(bare: GgufFacts) -> Iterable[nominal.Widths]:
    one = bare.expert_feed_forward_length
    shared = [one * times for times in (1, 2, 4, 8)] if one else [0]
    shared += [bare.feed_forward_length] if one else []
    ranks = (0, 1536, 768, 2048) if bare.architecture == "deepseek2" else (0,)
    for rank, width in product(ranks, shared):
        yield nominal.Widths(shared_expert=width, query_rank=rank)
