"""What does one question to `plimsoll kv` ask, on the command line or on a line of a batch?

A line has the field names of vLLM's own flags in Python's spelling, as recorded rows of its planning code
have them; fields that say what came out are passed over. Every field but the model may be left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from plimsoll.catalog.gpus import find_gpu, gpu_types, nearest
from plimsoll.cli.exits import BadInputError
from plimsoll.engines.base import Release
from plimsoll.engines.vllm import defaults
from plimsoll.engines.vllm.ask import KvAsk
from plimsoll.engines.vllm.kv_dtypes import KNOWN
from plimsoll.facts.gpu import GpuFacts
from plimsoll.units import parse_bytes

DEFAULT_GPU: Final = "h100-sxm"
"""The card that is meant when nobody names one."""


MOST: Final = 2**62
"""No number of bytes or tokens is larger."""


class Card(NamedTuple):
    """As much of a card as the layout depends on."""

    name: str
    """As asked, or the product's name."""
    capability: tuple[int, int]
    """Its compute capability."""
    total_bytes: int | None = None
    """What it holds; None where the row names only a capability."""


class Query(NamedTuple):
    """One question, everything settled but the model."""

    ask: KvAsk
    """What the layout depends on; max_model_len is 0 where the model's own length is meant."""
    card: Card
    max_num_seqs: int
    drafts_itself: bool
    """Whether the checkpoint's own layers of multi-token prediction are loaded to speculate."""
    kv_memory_bytes: tuple[int, ...]
    """How much memory the pool may have on one card, one answer each."""


def query(said: Mapping[str, Any], otherwise: Mapping[str, Any]) -> Query:
    """From a row's fields, with `otherwise` for what it leaves out. Raises BadInputError."""
    fields = {**otherwise, **{name: value for name, value in said.items() if value is not None}}
    card = _card(said, fields)
    release = _release(fields)
    usual = defaults.settings(card.total_bytes or 0, card.name, release)
    kv_dtype = str(fields.get("kv_cache_dtype", "auto"))
    if kv_dtype not in KNOWN:
        raise BadInputError(f"kv_cache_dtype: {kv_dtype!r} is not one of {', '.join(KNOWN)}")
    pp, rank = _whole(fields, "pp", 1), fields.get("pp_rank")
    if rank is not None and not 0 <= (rank := _whole(fields, "pp_rank", 0, least=0)) < pp:
        raise BadInputError(f"pp_rank: {rank} is not one of the stages 0 to {pp - 1}")
    tp, dcp = _whole(fields, "tp", 1), _whole(fields, "dcp", 1)
    if tp % dcp:
        raise BadInputError(
            f"dcp: {dcp} does not divide tp, which is {tp}; vLLM wants that it does"
        )
    return Query(
        ask=KvAsk(
            max_model_len=_whole(fields, "max_model_len", 0, least=0),
            max_num_batched_tokens=_whole(
                fields, "max_num_batched_tokens", usual.max_num_batched_tokens
            ),
            release=release,
            capability=card.capability,
            tp=_whole(fields, "tp", 1),
            pp=pp,
            # a row of one stage is that stage's; of a model in one piece there is only one
            pp_rank=rank if pp > 1 else None,
            dcp=_whole(fields, "dcp", 1),
            kv_dtype=kv_dtype,
            block_tokens=_whole(fields, "block_size_flag", 0, least=0) or None,
            has_async_scheduling=_flag(
                fields, "async_scheduling", otherwise=not release.is_before("0.14")
            ),
            has_prefix_caching=_flag(fields, "enable_prefix_caching", otherwise=None),
            has_hybrid_manager=bool(_flag(fields, "hybrid_kv_cache_manager", otherwise=True)),
            skip_layers=_words(fields, "kv_cache_dtype_skip_layers"),
            drafts=_whole(fields, "num_speculative_tokens", 0, least=0),
            has_flashinfer=bool(_flag(fields, "flashinfer", otherwise=False)),
            is_text_only=bool(_flag(fields, "language_model_only", otherwise=True)),
        ),
        card=card,
        max_num_seqs=_whole(fields, "max_num_seqs", usual.max_num_seqs),
        drafts_itself=fields.get("speculative_method") == "mtp",
        kv_memory_bytes=_memories(fields),
    )


def fields_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The command line as a row."""
    given = {
        "gpu": arguments.gpu,
        "vllm": arguments.release,
        "tp": arguments.tp,
        "pp": arguments.pp,
        "pp_rank": arguments.pp_rank,
        "dcp": arguments.dcp,
        "kv_cache_dtype": arguments.kv_dtype,
        "block_size_flag": arguments.block_size,
        "max_model_len": arguments.max_model_len,
        "max_num_batched_tokens": arguments.max_num_batched_tokens,
        "max_num_seqs": arguments.max_num_seqs,
        "async_scheduling": False if arguments.no_async_scheduling else None,
        "enable_prefix_caching": False if arguments.no_prefix_caching else None,
        "hybrid_kv_cache_manager": False if arguments.no_hybrid_manager else None,
        "num_speculative_tokens": arguments.num_speculative_tokens,
        "speculative_method": arguments.speculative_method,
        "kv_cache_dtype_skip_layers": arguments.kv_cache_dtype_skip_layers,
        "flashinfer": arguments.flashinfer or None,
        "language_model_only": False if arguments.multimodal else None,
        "kv_memory": arguments.kv_memory.split(",") if arguments.kv_memory else None,
    }
    return {name: value for name, value in given.items() if value is not None}


# --- the card and the release -----------------------------------------------------------------------


def _card(said: Mapping[str, Any], fields: Mapping[str, Any]) -> Card:
    """The row's own capability, else the card it names, else the command line's."""
    name = str(said.get("gpu") or said.get("device") or fields.get("gpu") or DEFAULT_GPU)
    found = find_gpu(name)
    stated = fields.get("compute_capability")
    if stated is not None:
        return Card(name, _capability(stated), found.total_bytes if found else None)
    if found is None and (family := _family(name)) is not None:
        return family
    if found is None:
        near = nearest(name)
        hint = f"; near it are {', '.join(near)}" if near else ""
        raise BadInputError(
            f"gpu: {name!r} is not in the catalogue{hint}; or give compute_capability, e.g. 9.0"
        )
    return Card(name, _known_capability(found, name), found.total_bytes)


def _family(name: str) -> Card | None:
    """Cards of one generation whose names begin alike, h100 for h100-sxm and h100-pcie; the smallest."""
    known = [find_gpu(each.key) for each in gpu_types() if each.key.startswith(f"{name.lower()}-")]
    cards = [card for card in known if card is not None and card.capability is not None]
    capabilities = {card.capability for card in cards}
    if len(capabilities) != 1:
        return None
    (capability,) = capabilities
    assert capability is not None
    return Card(name, capability, min(card.total_bytes for card in cards))


def _known_capability(found: GpuFacts, name: str) -> tuple[int, int]:
    if found.capability is None:
        raise BadInputError(
            f"gpu: the compute capability of {name!r} is not known; it decides the attention kernel"
        )
    return found.capability


def _capability(value: Any) -> tuple[int, int]:
    major, _, minor = str(value).partition(".")
    if not (major.isdigit() and (minor or "0").isdigit()):
        raise BadInputError(f"compute_capability: {value!r} is not one; write it as 9.0")
    return int(major), int(minor or 0)


def _release(fields: Mapping[str, Any]) -> Release:
    text = str(fields.get("vllm", "0.33.0"))
    try:
        return Release.of(text)
    except ValueError as error:
        raise BadInputError(f"release: {error}; write it as 0.33.0") from error


# --- values -----------------------------------------------------------------------------------------


def _whole(fields: Mapping[str, Any], name: str, otherwise: int, *, least: int = 1) -> int:
    value = fields.get(name)
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise BadInputError(f"{name}: {value!r} is not a whole number of at least {least}")
    return value


def _flag(fields: Mapping[str, Any], name: str, *, otherwise: bool | None) -> Any:
    value = fields.get(name)
    if value is None:
        return otherwise
    if not isinstance(value, bool):
        raise BadInputError(f"{name}: {value!r} is neither true nor false")
    return value


def _words(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = fields.get(name) or ()
    words = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(words, list | tuple):
        raise BadInputError(f"{name}: {value!r} is not a list of layer indices or sliding_window")
    strange = [str(word) for word in words if not (str(word).isdigit() or word == "sliding_window")]
    if strange:
        raise BadInputError(
            f"{name}: {', '.join(strange)} is neither a layer's index nor sliding_window"
        )
    return tuple(str(word) for word in words)


def _memories(fields: Mapping[str, Any]) -> tuple[int, ...]:
    """Of kv_memory, or of a recorded row's capacity."""
    listed = fields.get("kv_memory")
    if listed is None:
        listed = [_available(entry) for entry in fields.get("capacity") or ()]
    elif not isinstance(listed, list | tuple):
        listed = [listed]
    return tuple(_bytes(value) for value in listed)


def _available(entry: Any) -> Any:
    if not isinstance(entry, Mapping) or "available_bytes" not in entry:
        raise BadInputError(f"capacity: {entry!r} has no available_bytes")
    return entry["available_bytes"]


def _bytes(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise BadInputError(
            f"kv_memory: {value!r} is not a number of bytes; write 17179869184 or 16Gi"
        )
    try:
        number = parse_bytes(value)
    except ValueError as error:
        raise BadInputError(f"kv_memory: {error}") from error
    if not 0 <= number <= MOST:
        raise BadInputError(f"kv_memory: {value!r} is more than any card has, or less than nothing")
    return number
