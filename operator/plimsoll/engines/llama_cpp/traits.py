"""In what does the graph of each architecture differ from Llama's?

Most of a graph follows from which tensors a block has. What does not is here, read from
src/models/<architecture>.cpp of b11434.
"""

from enum import StrEnum
from typing import Final, NamedTuple


class Rope(StrEnum):
    """Which attention blocks rotate queries and keys."""

    ALL = "all"
    NONE = "none"
    SLIDING = "sliding"
    """Only those with a window; all in a model without windows."""
    THREE_OF_FOUR = "three of four"
    """All but every fourth."""


class Router(StrEnum):
    """How experts are chosen and weighed."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"
    CHOSEN = "chosen"
    """The softmax runs over those that were chosen (gpt-oss)."""


class LastRows(StrEnum):
    """Where the graph drops the tokens whose logits nobody wants."""

    LAST_BLOCK = "last block"
    BEFORE_NORM = "before the output norm"
    AFTER_NORM = "after the output norm"


class Traits(NamedTuple):
    """How one architecture's graph differs."""

    scaled_embedding: bool = False
    """The embedding is multiplied by a number."""
    scaled_rows: bool = False
    """Each embedded token is multiplied by a number of its own (text among images)."""
    scaled_query: bool = False
    """Queries are scaled by an operation of their own."""
    rope: Rope = Rope.ALL
    layer_norm: bool = False
    """Norms subtract the mean first, which llama.cpp does not do in place."""
    expanded_norm: bool = False
    """A block's first norm is put into the graph before what reads it."""
    factors_without_window: bool = False
    """Factors of the rotation stand beside blocks without a window alone."""
    output_apart: bool = False
    """A tied output projection is stored again even where the embedding lies."""
    scaled_unrotated: bool = False
    """Queries that are not rotated are scaled by their position (Llama 4)."""
    normed_after_rope: bool = False
    """The norm of queries and keys follows the rotation."""
    is_parallel: bool = False
    """Attention and feed-forward read the same norm, and their results are added."""
    residual_first: bool = False
    """Both sums begin with the residual stream."""
    residual_first_after: bool = False
    """The sum after the feed-forward part does."""
    last_rows: LastRows = LastRows.LAST_BLOCK
    router: Router = Router.SOFTMAX
    normed_experts: bool = True
    """The chosen experts' weights are divided by their sum."""
    weighed_first: bool = False
    """Experts read the token times their weight (Llama 4)."""
    positions: int = 1
    """Positions of one token (4 with sections)."""


_LATE: Final = LastRows.AFTER_NORM
_GEMMA: Final = Traits(scaled_rows=True, scaled_query=True)
_QWEN_LINEAR: Final = Traits(last_rows=_LATE, expanded_norm=True, positions=4)
_PLAIN_EXPERTS: Final = Traits(normed_experts=False)
_SIGMOID: Final = Traits(router=Router.SIGMOID)

TRAITS: Final[dict[str, Traits]] = {
    "llama": Traits(),
    "mistral3": Traits(),
    "qwen2": Traits(),
    "qwen2vl": Traits(positions=4),
    "qwen2moe": _PLAIN_EXPERTS,
    "qwen3": Traits(),
    "qwen3moe": Traits(),
    "qwen3vl": Traits(positions=4),
    "qwen3vlmoe": Traits(positions=4),
    "qwen3next": Traits(last_rows=_LATE, expanded_norm=True),
    "qwen35": _QWEN_LINEAR,
    "qwen35moe": _QWEN_LINEAR,
    "phi3": Traits(scaled_query=True, residual_first_after=True),
    "phimoe": Traits(scaled_query=True, residual_first_after=True),
    "gemma": Traits(scaled_embedding=True, scaled_query=True),
    "gemma2": Traits(scaled_embedding=True, scaled_query=True),
    "gemma3": _GEMMA,
    "gemma4": Traits(
        scaled_rows=True, last_rows=_LATE, factors_without_window=True, output_apart=True
    ),
    "granite": Traits(scaled_embedding=True),
    "granitemoe": Traits(scaled_embedding=True),
    "granitehybrid": Traits(scaled_embedding=True, rope=Rope.NONE),
    "glm4": Traits(),
    "glm4moe": _SIGMOID,
    "minimax-m2": _SIGMOID,
    "seed_oss": Traits(),
    "deepseek": _PLAIN_EXPERTS,
    "deepseek2": _PLAIN_EXPERTS,
    "gpt-oss": Traits(last_rows=LastRows.BEFORE_NORM, router=Router.CHOSEN, normed_experts=False),
    "command-r": Traits(is_parallel=True, layer_norm=True),
    "cohere2": Traits(is_parallel=True, layer_norm=True, rope=Rope.SLIDING),
    "olmo2": Traits(),
    "olmoe": _PLAIN_EXPERTS,
    "exaone4": Traits(rope=Rope.SLIDING),
    "smollm3": Traits(rope=Rope.THREE_OF_FOUR),
    "ernie4_5": Traits(),
    "ernie4_5-moe": Traits(),
    "hunyuan-dense": Traits(normed_after_rope=True),
    "hunyuan-moe": Traits(normed_after_rope=True),
    "bailingmoe2": _SIGMOID,
    "dots1": _SIGMOID,
    "llama4": Traits(
        rope=Rope.SLIDING,
        scaled_unrotated=True,
        router=Router.SIGMOID,
        normed_experts=False,
        weighed_first=True,
    ),
    "internlm2": Traits(),
    "starcoder2": Traits(layer_norm=True),
    "arcee": Traits(),
    "mamba": Traits(),
    "mamba2": Traits(),
    "jamba": Traits(rope=Rope.NONE, residual_first=True, normed_experts=False),
    "falcon-h1": Traits(),
    "nemotron_h": Traits(rope=Rope.NONE, router=Router.SIGMOID, last_rows=_LATE),
    "nemotron_h_moe": Traits(rope=Rope.NONE, router=Router.SIGMOID, last_rows=_LATE),
    "lfm2": Traits(residual_first=True, router=Router.SIGMOID),
    "lfm2moe": Traits(residual_first=True, router=Router.SIGMOID),
}
"""Architecture as general.architecture names it."""
