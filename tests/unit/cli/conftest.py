"""A plan and a refusal by hand: these tests judge how results are shown, not what they are."""

from __future__ import annotations

import pytest

from plimsoll.cli.answers import Answer
from plimsoll.engines.base import ByteOwner, EngineName, Flag, LedgerLine
from plimsoll.facts.source import Confidence, FactSource, Provenance
from plimsoll.plan.records import (
    Concurrency,
    Guarantee,
    KvBudget,
    Offer,
    Plan,
    Reason,
    Refusal,
)
from plimsoll.units import GIB, MIB

CARD_MIB = 24564
LINES = (
    (ByteOwner.DRIVER, 430, Confidence.TABLE, "what the driver keeps on this card"),
    (ByteOwner.CONTEXT, 520, Confidence.TABLE, "one process of vLLM 0.22"),
    (ByteOwner.WEIGHTS, 15317, Confidence.EXACT, "8,030,261,248 weights of 2 bytes"),
    (ByteOwner.ACTIVATION, 1200, Confidence.BOUND, "2,048 tokens in one step"),
    (ByteOwner.GRAPHS, 180, Confidence.TABLE, "captured for up to 8 sequences"),
    (
        ByteOwner.KV_CACHE,
        6000,
        Confidence.EXACT,
        "3,000 blocks of 16 tokens, 131,072 bytes each token, in 32 layers of 8 heads",
    ),
    (ByteOwner.HEADROOM, 917, Confidence.EXACT, "what is left"),
)


@pytest.fixture
def plan() -> Plan:
    return Plan(
        engine=EngineName.VLLM,
        release="0.22.1",
        gpu_product="NVIDIA-GeForce-RTX-4090",
        cards=1,
        card_bytes=CARD_MIB * MIB,
        ledger=tuple(
            LedgerLine(owner=owner, bytes=mib * MIB, confidence=confidence, source=source)
            for owner, mib, confidence, source in LINES
        ),
        kv=KvBudget(
            bytes_per_token_per_card=131072,
            bytes_per_token_per_replica=131072,
            pool_bytes_per_card=6000 * MIB,
            pool_tokens=48000,
            block_tokens=16,
            dtype="auto",
        ),
        concurrency=Concurrency(
            max_num_seqs=5,
            worst_case=5,
            expected=20,
            guarantee=Guarantee.WORST_CASE,
            safe_mean_tokens=9600,
        ),
        max_model_len=8192,
        gpu_memory_utilization=0.95,
        host_memory_bytes=8 * GIB,
        flags=(
            Flag(name="--max-model-len", value="8192", reason="limits.maxModelLen"),
            Flag(
                name="--gpu-memory-utilization", value="0.95", reason="pinned here", override=True
            ),
            Flag(name="--no-async-scheduling", reason="two steps in flight need twice the memory"),
        ),
        explanation=(
            "The KV cache of 48,000 tokens holds 5 sequences of 8,192 tokens; a sixth would need "
            "1.0 GiB more than the card has."
        ),
        notes=("The release is read from the image's tag.",),
        provenance=(
            Provenance(source=FactSource.CATALOGUE, confidence=Confidence.TABLE, detail="rtx-4090"),
        ),
    )


@pytest.fixture
def refusal() -> Refusal:
    return Refusal(
        reason=Reason.KV_BUDGET_EXCEEDED,
        message=(
            "20 sequences of 8,192 tokens need 20.0 GiB of KV cache, and 5.9 GiB are left beside "
            "15.0 GiB of weights."
        ),
        offers=(
            Offer(change="limits.concurrency", value="5", sentence="5 sequences of 8,192 tokens"),
            Offer(change="limits.maxModelLen", value="2400", sentence="20 sequences of 2,400"),
        ),
    )


@pytest.fixture
def answers(plan: Plan, refusal: Refusal) -> tuple[Answer, Answer]:
    return (
        Answer(
            deployment="inference/plant",
            pool="rtx4090",
            model="meta-llama/Meta-Llama-3-8B-Instruct",
            gpu="NVIDIA-GeForce-RTX-4090",
            request=None,
            outcome=plan,
        ),
        Answer(
            deployment="inference/plant",
            pool="twenty",
            model="meta-llama/Meta-Llama-3-8B-Instruct",
            gpu="NVIDIA-GeForce-RTX-4090",
            request=None,
            outcome=refusal,
        ),
    )
