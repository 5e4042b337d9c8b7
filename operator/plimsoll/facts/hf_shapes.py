"""What can one layer with plain keys and values keep, and which layers does a config name?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from plimsoll.facts.hf_fields import MOST_LAYERS, Fields, NotUnderstoodError
from plimsoll.facts.model import KvGroup, KvKind

Layer = tuple[KvGroup, ...]
"""What one layer keeps: one group, two (an index beside a latent, a state beside attention) or none."""
Layout = Callable[[Fields], list[Layer]]

FULL_NAMES: Final = ("full_attention", "attention")
SLIDING_NAME: Final = "sliding_attention"
CHUNKED_NAME: Final = "chunked_attention"


def heads_of(f: Fields, *, own_width: bool = True) -> tuple[int, int]:
    """KV heads and the width of one: head_dim, or the stream's width over the query heads.

    `own_width` False: the engine's class does not read head_dim.
    """
    queries = f.whole("num_attention_heads")
    heads = f.count("num_key_value_heads") or queries
    if queries % heads:
        raise NotUnderstoodError(
            f"num_key_value_heads is {heads}, which does not divide the {queries} query heads."
        )
    return heads, width_of(f, queries, own_width=own_width)


def width_of(f: Fields, queries: int, *, own_width: bool = True) -> int:
    """Width of one head."""
    if own_width and (given := f.count("head_dim")):
        return given
    width = f.whole("hidden_size") // queries
    if not own_width:
        f.skip("head_dim")
    if width == 0:
        raise NotUnderstoodError(
            f"hidden_size is {f.value('hidden_size')} for {queries} heads, less than one value each."
        )
    return width


def plain(heads: int, key: int, value: int | None = None, *, window: int | None = None) -> KvGroup:
    """Keys and values of one layer, of every token or of a window."""
    return KvGroup(
        kind=KvKind.FULL if window is None else KvKind.SLIDING,
        layers=1,
        kv_heads=heads,
        key_dim=key,
        value_dim=key if value is None else value,
        window_tokens=window,
    )


def layer_names(f: Fields, *known: str, layers: int) -> list[str] | None:
    """layer_types, one name per layer; None when there is no list. Refuses a name not in `known`."""
    names = f.listed("layer_types")
    if names is None:
        return None
    if strange := sorted({str(name) for name in names} - set(known)):
        raise NotUnderstoodError(f"layer_types names {', '.join(strange)}, which we do not count.")
    if len(names) != layers:
        raise NotUnderstoodError(
            f"layer_types names {len(names)} layers but num_hidden_layers is {layers}."
        )
    return [str(name) for name in names]


def window_everywhere(f: Fields, names: Sequence[str] | None) -> int | None:
    """The window that layers without one of their own take: only when no layer is said to be full.

    vllm/engine/arg_utils.py; a window of 0 is one that is switched off (vllm/config/model.py).
    """
    window = f.count("sliding_window") or None
    return window if names is None or set(names) == {SLIDING_NAME} else None


def by_name(
    f: Fields, names: Sequence[str], heads: int, width: int, *, beyond: int = 0
) -> list[Layer]:
    full = plain(heads, width)
    f.skip("sliding_window")
    if SLIDING_NAME not in names:
        return [(full,)] * len(names)
    sliding = plain(heads, width, window=f.whole("sliding_window") + beyond)
    return [(sliding if name == SLIDING_NAME else full,) for name in names]


def layers_by(f: Fields, name: str) -> int:
    found = f.whole(name)
    f.skip("num_hidden_layers")
    if found > MOST_LAYERS:
        raise NotUnderstoodError(f"{name} is {found}, which no model has.")
    return found
