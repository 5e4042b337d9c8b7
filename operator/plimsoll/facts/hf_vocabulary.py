"""Which fields of a config may be passed over, and which must not be?

A layout asks for the fields that it understands. Of those that nobody asked for, the ones in a
table change nothing about what a layer keeps; one that sounds as if it might (a word of _MATTERS in
its name or value) is refused by name, because a cache that is counted without it may be wrong; any
other is reported as unread.

The table, data/hf_harmless.txt, holds fields of the configuration classes of transformers 5.20.2 and
of published files, less those by which some layout tells what a layer keeps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from plimsoll.facts.hf_fields import Fields, NotUnderstoodError

_HARMLESS_SHAPES: Final = re.compile(
    r"_.*|(rope|rotary|vision|vit|image|images|img|video|audio|speech|mm|router|moe_router|projector|multimodal"
    r"|initializer|init|mup|summary|time_step|mask|mtp|bos|eos|pad|boi|eoi|boa|eoa|forced|freeze|unfreeze|tune"
    r"|aligner|gen_aligner|gen_head|gen_vision|sub_sample|tokenizer|emb|embd|resid|embedding|quant)_.*"
    r"|.*(_dropout|_dropout_prob|_pdrop|_bias|_eps|_act|_token_id|_token_ids|_token_index|_placeholder"
    r"|_std|_coef|_loss|_seed)"
)
"""Shapes of names that change nothing about what a layer keeps."""

_STRONG: Final = re.compile(r"kv|cache|window|sliding|recurr|compress")
"""Words that no shape of a name makes harmless."""

_MATTERS: Final = re.compile(
    r"att|head|kv|key|value|cache|window|swa|sliding|chunk|layer|block|pattern|mamba|ssm|conv|state|linear"
    r"|recur|rank|lora|latent|index|sparse|compress|shar|cross|mem|mixer|mixing|retention|rwkv|gla\b|delta"
    r"|hybrid|local|global|context|loop|repeat|depth|stack|cycle|sink|span|stride|dilat|topk|select|evict|prun"
    r"|causal|direction|encoder|decoder|group|expand|inner|hidden|width|dim\b|_dim|heads|scan|memo"
    r"|per_token|tokens_per|capacity|segment|hash|bucket|landmark|anchor|prefix|ratio"
    r"|mla|gqa|mqa|mha|nsa|dsa|csa|hca|moba|yoco|rnn|lstm|hyena|titan|perceiv|bidir|quadratic"
)
"""Words by which a field may say what a layer keeps."""


def unread(fields: Fields) -> tuple[str, ...]:
    """Names of the fields that nobody asked for and that we do not know, all of them harmless by sound.

    Raises NotUnderstoodError for the first that may change the cache.
    """
    passed_over = []
    for name, value in fields.rest():
        if name in _harmless() or _is_harmless_shape(name) or _is_off(value):
            continue
        if _may_matter(name, value):
            raise NotUnderstoodError(
                f"{fields.where}{name} = {_short(value)} is a field that we do not know here and that may "
                "change what a layer keeps."
            )
        passed_over.append(f"{fields.where}{name}")
    return tuple(passed_over)


def _is_harmless_shape(name: str) -> bool:
    return bool(_HARMLESS_SHAPES.fullmatch(name)) and not _STRONG.search(name)


def _is_off(value: Any) -> bool:
    """Null, false, zero and empty values switch a thing off."""
    return value is None or value is False or value in (0, "", "none") or value in ([], {}, ())


def _may_matter(name: str, value: Any) -> bool:
    """Whether a name, or a word inside its value, speaks of what a layer keeps."""
    if _MATTERS.search(name.lower()):
        return True
    if isinstance(value, str):
        return bool(_MATTERS.search(value.lower()))
    if isinstance(value, Mapping):
        return any(_may_matter(str(key), inner) for key, inner in value.items())
    if isinstance(value, Sequence):
        return len(value) > _FEW or any(_may_matter("", inner) for inner in value)
    return False


@cache
def _harmless() -> frozenset[str]:
    lines = _TABLE.read_text(encoding="utf-8").splitlines()
    return frozenset(name for line in lines if not line.startswith("#") for name in line.split())


_TABLE: Final = Path(__file__).with_name("data") / "hf_harmless.txt"
_FEW: Final = 8
"""A list longer than this may have an entry for each layer."""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_LONGEST: Final = 60
