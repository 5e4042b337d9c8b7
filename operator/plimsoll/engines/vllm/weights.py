"""How many bytes of weights does the fullest rank of a vLLM worker hold?

Column and row parallel tensors are split evenly; norms, routers, latent down-projections and indexers lie
whole on every rank; key and value projections are copied where ranks outnumber KV heads; the vocabulary is
padded to a multiple of 64 rows and cut; experts are cut by tensor parallelism or spread whole under expert
parallelism (vLLM 0.33.0 model_executor/layers/linear.py, vocab_parallel_embedding.py, fused_moe/layer.py).
"""

from typing import Final

from plimsoll.engines.vllm.split import partition
from plimsoll.facts.model import KvKind, ModelFacts
from plimsoll.units import ceil_div, round_up

VOCABULARY_ROWS: Final = 64
"""DEFAULT_VOCAB_PADDING_SIZE (model_executor/layers/vocab_parallel_embedding.py)."""

_HEADS: Final = (KvKind.FULL, KvKind.SLIDING, KvKind.CHUNKED)
"""Kinds whose keys and values have a projection per KV head."""


MXFP4_TILES: Final = (((9, 0), 64, 1), ((0, 0), 128, 256))
"""From which compute capability on: multiples to which an MXFP4 expert's width on one rank, and its input,
are filled up. Follows from what vLLM 0.33.0 builds for gpt-oss on H100, B200, A100 and RTX 4090
(tests/data/vllm_kv.json); an image with FlashInfer may take other kernels on B200."""


def weights_bytes_of_rank(
    model: ModelFacts,
    *,
    cards: int,
    stages: int = 1,
    expert_parallel: bool = False,
    capability: tuple[int, int] | None = None,
) -> int:
    """The fullest of `cards` tensor-parallel ranks in `stages` pipeline stages, in bytes.

    Exact where the parts were counted from tensors (Weights.vocabulary_bytes and its kin are not 0);
    without them everything but `replicated_bytes` counts as split evenly. `capability` decides how
    MXFP4 experts are filled up; None takes the most.
    """
    weights = model.weights
    vocabulary = vocabulary_bytes_of_rank(model, cards)
    experts = _expert_bytes(model, cards, capability, expert_parallel=expert_parallel)
    keys = _key_value_bytes(model, cards)
    sharded = weights.total_bytes - (
        weights.replicated_bytes
        + weights.vocabulary_bytes
        + weights.expert_bytes
        + weights.kv_projection_bytes
    )
    blocks = ceil_div(sharded, cards) + experts + keys + weights.replicated_bytes
    if stages == 1:
        return blocks + vocabulary
    counts = layers_of_stages(model.layers, stages)
    # the first stage embeds and the last projects; with tied embeddings both hold the one table
    end = vocabulary if model.tied_embeddings else ceil_div(vocabulary, 2)
    return max(
        ceil_div(blocks * max(counts[0], counts[-1]), model.layers) + end,
        ceil_div(blocks * max(counts), model.layers),
    )


def vocabulary_bytes_of_rank(model: ModelFacts, cards: int) -> int:
    """Embedding and output projection on one rank, with the rows that fill up the last shard."""
    rows = round_up(model.vocab_size, VOCABULARY_ROWS)
    return ceil_div(model.weights.vocabulary_bytes, model.vocab_size) * ceil_div(rows, cards)


def _expert_bytes(
    model: ModelFacts, cards: int, capability: tuple[int, int] | None, *, expert_parallel: bool
) -> int:
    """Routed experts on one rank: a part of each, or under expert parallelism some of them whole."""
    stored = model.weights.expert_bytes
    parts, held = (1, ceil_div(model.experts, cards)) if expert_parallel else (cards, model.experts)
    if not stored or not model.experts:
        return ceil_div(stored, cards)
    plain = ceil_div(stored // model.experts * held, parts)
    quantization = model.quantization
    if quantization is None or quantization.method != "mxfp4" or not model.expert_width:
        return plain
    tile = next(row[1:] for row in MXFP4_TILES if (capability or (0, 0)) >= row[0])
    part = ceil_div(model.expert_width, parts)
    width, depth = round_up(part, tile[0]), round_up(model.hidden_size, tile[1])
    # half a byte a value and a byte for each 32, in three matrices; biases in 16 bit
    filled = 3 * 17 * width * depth // 32 + 2 * (2 * width + depth)
    unfilled = 3 * 17 * model.expert_width * model.hidden_size // 32
    unfilled += 2 * (2 * model.expert_width + model.hidden_size)
    layers = round(stored / model.experts / unfilled)
    return layers * held * filled


def _key_value_bytes(model: ModelFacts, cards: int) -> int:
    """Key and value projections: cut while there are heads, then a head on each rank."""
    groups = [group for group in model.kv_groups if group.kind in _HEADS and group.kv_heads]
    sizes = [g.layers * g.kv_heads * (g.key_dim + g.value_dim) for g in groups]
    if not groups:
        return ceil_div(model.weights.kv_projection_bytes, cards)
    return sum(
        ceil_div(model.weights.kv_projection_bytes * size, sum(sizes) * min(cards, group.kv_heads))
        for group, size in zip(groups, sizes, strict=True)
    )


def layers_of_stages(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each pipeline stage: what remains goes one each to the stages before the last, backwards.

    vLLM 0.33.0 distributed/utils.py, get_pp_indices.
    """
    return tuple(len(stage) for stage in partition(layers, stages))
