"""What does vLLM's KV pool come to for one model and question, as data and as text?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from plimsoll.catalog.engines import VLLM_RELEASES, known_release
from plimsoll.cli.kv_query import Query
from plimsoll.engines.vllm import pool
from plimsoll.engines.vllm.drafts import own_drafts
from plimsoll.engines.vllm.pool import EngineRefuses, Fits, Pool, TooLong
from plimsoll.facts.model import ModelFacts
from plimsoll.units import gib


class Answer(NamedTuple):
    """One question answered."""

    data: dict[str, Any]
    """As JSON has it."""
    is_refused: bool
    """Whether the engine would not start at all, whatever the memory."""


def answer(model: ModelFacts, query: Query) -> Answer:
    """The engine's own figures, or why it would not start."""
    ask = query.ask
    if not ask.max_model_len:
        ask = ask._replace(max_model_len=model.max_position_embeddings)
    about = {
        "model": model.id,
        "architecture": model.architecture,
        "engine": "vllm",
        "release": ask.release.text,
        "gpu": query.card.name,
        "computeCapability": ".".join(map(str, query.card.capability)),
        "maxModelLen": ask.max_model_len,
    }
    if query.drafts_itself:
        ask = ask._replace(draft_groups=own_drafts(model))
        if not ask.draft_groups:
            why = "the checkpoint has no layers of multi-token prediction to speculate with"
            return Answer({**about, "refused": f"vLLM would not start: {why}."}, True)
    found = pool.pool_of(model, ask)
    if isinstance(found, EngineRefuses):
        return Answer({**about, "refused": f"vLLM would not start: {found.message}."}, True)
    stage = found.fullest
    blocks = stage.blocks(ask.max_model_len)
    data = {
        **about,
        "kvDtype": found.kv_dtype,
        "kernels": [kernel.name for kernel in found.kernels],
        "blockTokens": found.block_tokens,
        "inFlightTokens": ask.in_flight_tokens,
        "poolBytesPerBlock": stage.block_bytes,
        "blocksPerFullRequest": blocks,
        "bytesPerFullRequest": stage.block_bytes * blocks,
        "groups": [_group(group, ask.max_model_len) for group in stage.groups],
        "capacity": [_capacity(found, query, available) for available in query.kv_memory_bytes],
        "notes": list(_notes(found, model, query)),
    }
    return Answer(data, False)


def _group(group: pool.PoolGroup, length: int) -> dict[str, Any]:
    return {
        "kinds": [kind.value for kind in group.kinds],
        "layers": group.layers,
        "blockTokens": group.block_tokens,
        "pageBytesAllLayers": group.page_bytes,
        "blocksPerFullRequest": group.blocks(length),
    }


def _capacity(found: Pool, query: Query, available: int) -> dict[str, Any]:
    said: dict[str, Any] = {"availableBytes": available}
    match pool.whole(found, available):
        case Fits(blocks=blocks, concurrency=concurrency, tokens=tokens):
            said |= {"numBlocks": blocks, "maxConcurrency": concurrency, "tokens": tokens}
            if found.has_states and query.max_num_seqs > blocks:
                said["maxNumSeqsAtMost"] = blocks
        case TooLong() as short:
            said["refused"] = _too_long(found, short)
            # vLLM names no length where not even one token fits
            said["estimatedMaxModelLen"] = short.estimated_max_model_len or None
    return said


def _too_long(found: Pool, short: TooLong) -> str:
    length = found.ask.max_model_len
    return (
        f"one sequence of {length:,} tokens needs {gib(short.needed_bytes)}; "
        f"{gib(max(0, short.there_bytes))} are there beside the null block"
    )


def _notes(found: Pool, model: ModelFacts, query: Query) -> Iterator[str]:
    release = found.ask.release
    if (row := known_release(VLLM_RELEASES, release.text, release.numbers)).note:
        yield row.note
    if query.card.capability[0] == 10 and not found.ask.has_flashinfer:
        yield (
            "laid out for an image without FlashInfer; with it (--flashinfer) this card takes other "
            "kernels, and blocks may differ"
        )
    if model.prefix_lm and found.ask.is_text_only:
        yield "laid out for text alone (--language-model-only); --multimodal for one that takes images"
    if found.has_states:
        yield (
            f"each sequence holds recurrent states, so vLLM does not start with max_num_seqs above the "
            f"pool's blocks; {query.max_num_seqs:,} was asked for"
        )


def as_text(data: dict[str, Any]) -> str:
    """For people: one figure a line, then the groups and what each memory holds."""
    return "\n".join(_lines(data)) + "\n"


def _lines(data: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{data['model']} ({data['architecture']}) on vLLM {data['release']}, {data['gpu']} "
        f"(compute capability {data['computeCapability']})"
    )
    if "refused" in data:
        yield f"refused: {data['refused']}"
        return
    length = data["maxModelLen"]
    kernels = ", ".join(data["kernels"]) or "none"
    yield ""
    yield f"  KV dtype, kernels       {data['kvDtype']}, {kernels}"
    yield f"  pool bytes per block    {data['poolBytesPerBlock']:,} B"
    yield f"  blocks per request      {data['blocksPerFullRequest']:,} of {length:,} tokens"
    yield (
        f"  bytes per request       {data['bytesPerFullRequest']:,} B "
        f"({gib(data['bytesPerFullRequest'])})"
    )
    yield ""
    yield "  group  layers  block tokens      page bytes  blocks per request  kinds"
    for number, group in enumerate(data["groups"]):
        yield (
            f"  {number:>5}  {group['layers']:>6}  {group['blockTokens']:>12,}  "
            f"{group['pageBytesAllLayers']:>14,}  {group['blocksPerFullRequest']:>18,}  "
            f"{', '.join(group['kinds'])}"
        )
    if data["capacity"]:
        yield ""
        yield "       KV memory      blocks  concurrency        tokens"
    for held in data["capacity"]:
        memory = f"  {gib(held['availableBytes']):>14}"
        if "refused" in held:
            longest = held["estimatedMaxModelLen"]
            fitting = f"at most {longest:,} tokens fit" if longest else "not one token fits"
            yield f"{memory}  refused: {held['refused']}; {fitting}"
            continue
        most = held.get("maxNumSeqsAtMost")
        clamp = f"  max_num_seqs at most {most:,}" if most is not None else ""
        yield (
            f"{memory}  {held['numBlocks']:>10,}  {held['maxConcurrency']:>10.2f}x  "
            f"{held['tokens']:>12,}{clamp}"
        )
    for note in data["notes"]:
        yield ""
        yield f"  note: {note}"
