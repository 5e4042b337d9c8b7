"""How are the tensors of one model counted while its layers are gone through?

Shape reads the fields of a config, Tally keeps the bytes by how ranks share them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from plimsoll.facts.hf_fields import Fields, NotUnderstoodError
from plimsoll.facts.model import Weights
from plimsoll.facts.stored import Stored

Config = Mapping[str, Any]


class Role(StrEnum):
    """How ranks share a tensor."""

    SHARDED = "Sharded"
    REPLICATED = "Replicated"
    KEYS = "Keys"
    """Key and value projections: copied where ranks outnumber heads."""
    VOCABULARY = "Vocabulary"
    EXPERTS = "Experts"


class Shape(NamedTuple):
    """The language model's fields, with its class's values behind them."""

    architecture: str
    config: Config
    text: Fields

    @classmethod
    def of(cls, config: Config) -> Shape:
        """Of a whole config.json."""
        inner = config.get("text_config")
        text = inner if isinstance(inner, Mapping) else config
        names = config.get("architectures")
        known = isinstance(names, Sequence) and not isinstance(names, str) and names
        return cls(
            architecture=str(names[0]) if known else "",  # type: ignore[index]
            config=config,
            text=Fields(text, model_type=_model_type(config, text)),
        )

    def value(self, name: str) -> Any:
        """As given, else as the class has it, else None."""
        return self.text.value(name)

    def number(self, *names: str) -> int:
        """The first of the fields that is given, 0 where none is. Raises NotUnderstoodError."""
        return next((found for name in names if (found := self.text.count(name))), 0)

    def whole(self, *names: str) -> int:
        """The same, but it must be there. Raises NotUnderstoodError."""
        if found := self.number(*names):
            return found
        raise NotUnderstoodError(f"{' or '.join(names)} is not given.")

    def flag(self, *names: str, default: bool = False) -> bool:
        """The first of the fields that says yes or no."""
        found = (self.text.value(name) for name in names)
        return next((value for value in found if isinstance(value, bool)), default)

    def kind(self, layer: int) -> str:
        """What the config calls the layer: full_attention, sliding_attention, linear_attention."""
        if types := self.value("layer_types"):
            return str(types[layer])
        if types := self.value("layers_block_type"):
            return {"attention": "full_attention"}.get(str(types[layer]), "linear_attention")
        if period := self.number("attn_layer_period"):
            is_full = layer % period == self.number("attn_layer_offset")
            return "full_attention" if is_full else "linear_attention"
        if step := self.number("full_attention_interval"):
            return "linear_attention" if (layer + 1) % step else "full_attention"
        return "full_attention"

    @property
    def layers(self) -> int:
        """Hidden layers."""
        return self.whole("num_hidden_layers")

    def looks(self, layer: int) -> str:
        """What tells one layer from another in the config, but for which ones have experts."""
        pattern = self.text.text("hybrid_override_pattern")
        indexed = self.value("indexer_types")
        own = indexed[layer] if indexed else ""
        return pattern[layer : layer + 1] or f"{self.kind(layer)} {own}"

    def is_tied(self, *, default: bool) -> bool:
        """Whether the output projection is the embedding; the language model's own word comes first."""
        for part in (self.text.given, self.config):
            if isinstance(given := part.get("tie_word_embeddings"), bool):
                return given
        found = self.value("tie_word_embeddings")
        return found if isinstance(found, bool) else default

    @property
    def quantization(self) -> Config | None:
        """quantization_config, where there is one."""
        found = self.config.get("quantization_config") or self.value("quantization_config")
        return found if isinstance(found, Mapping) else None

    @property
    def dtype(self) -> str:
        """The dtype that the engine computes in; float32 files run in 16 bit."""
        for part in (self.config, self.text.given):
            for name in ("dtype", "torch_dtype"):
                if isinstance(found := part.get(name), str):
                    short = found.removeprefix("torch.")
                    return "bfloat16" if short == "float32" else short
        return "bfloat16"


def _model_type(config: Config, text: Config) -> str:
    """The class behind: the file's own model_type (text_config's where that names one)."""
    return str(text.get("model_type") or config.get("model_type") or "")


class Tally:
    """Bytes by how ranks share them."""

    def __init__(self, stored: Stored) -> None:
        """Nothing is counted yet."""
        self.stored = stored
        self.bytes: Counter[Role] = Counter()
        self.largest_layer_bytes = 0

    def values(self, role: Role, count: int, *, each: int | None = None) -> None:
        """Values that are never quantised, of `each` bytes where not in the model's dtype."""
        self._add(role, count * (self.stored.plain_bytes if each is None else each))

    def matrix(
        self,
        role: Role,
        rows: int,
        columns: int,
        module: str,
        *,
        times: int = 1,
        bias: Role | None = None,
    ) -> None:
        """`times` matrices of one module; `bias` says how ranks share theirs, None for none."""
        size = self.stored.matrix(module, rows, columns, is_expert=role is Role.EXPERTS)
        self._add(role, times * size)
        if bias is not None:
            self.values(bias, times * rows)

    def _add(self, role: Role, size: int) -> None:
        self.bytes[role] += size

    def add_layer(self, layer: Tally) -> None:
        """One more layer like this one."""
        self.bytes.update(layer.bytes)
        self.largest_layer_bytes = max(self.largest_layer_bytes, layer.bytes.total())

    def weights(self) -> Weights:
        """What was counted."""
        return Weights(
            total_bytes=self.bytes.total(),
            replicated_bytes=self.bytes[Role.REPLICATED],
            largest_layer_bytes=self.largest_layer_bytes,
            vocabulary_bytes=self.bytes[Role.VOCABULARY],
            expert_bytes=self.bytes[Role.EXPERTS],
            kv_projection_bytes=self.bytes[Role.KEYS],
        )


def every_layer(shape: Shape, layer: int) -> bool:
    """All layers but the first ones that the config names dense."""
    return layer >= shape.number("first_k_dense_replace")


class Family(NamedTuple):
    """What the layers of one family are made of."""

    mixer: Callable[[At], None]
    """Counts the attention or recurrence of a layer."""
    feed_forward: Callable[[At], None]
    """Counts its feed-forward part."""
    is_sparse: Callable[[Shape, int], bool] = every_layer
    """Whether a layer has experts, where the model has some."""
    wide_full: bool = False
    """Whether full layers have heads of their own number and width (Gemma 4)."""
    tied: bool = True
    """Whether the embedding projects the output too, where neither file nor class says."""
    norms: int = 2
    """Norms of the residual stream in one layer."""
    head_norms: str = ""
    """Norms of queries and keys: `head` for one width of a head, `all` for one per head."""
    biased: bool = False
    """Whether projections have biases where the config does not say."""
    output_biased: bool = False
    """Whether the output projection has one too."""
    gated: bool = False
    """Whether attention's output is gated where the config does not say."""
    sinks: bool = False
    """Whether each query head has a learnt sink."""
    router_bytes: int | None = None
    """Bytes of a router's weight; None for the model's dtype."""
    corrected: bool = False
    """Whether the router has a correction bias."""
    expert_biased: bool = False
    """Whether experts and router have biases."""
    shared: int = 0
    """Shared experts as wide as a routed one, where the config does not say."""
    shared_gate: bool = False
    """Whether what is shared is gated."""


class At(NamedTuple):
    """Where the count stands."""

    shape: Shape
    family: Family
    tally: Tally
    layer: int
