"""Is a GPUNode read as the agent meant it?"""

from __future__ import annotations

from plimsoll.api.gpunode import Card, GPUNode, GPUNodeStatus, Sharing, read_gpunode_status
from plimsoll.facts.gpu import Fp8

RAW = {
    "apiVersion": "plimsoll.dev/v1alpha1",
    "kind": "GPUNode",
    "metadata": {"name": "node-1.rack-2.example", "uid": "1"},
    "status": {
        "heartbeat": "2026-01-01T00:00:00Z",
        "driver": "580.95.05",
        "cards": [
            {
                "uuid": "GPU-1",
                "product": "NVIDIA-RTX-A6000",
                "totalBytes": 51527024640,
                "reservedBytes": 548405248,
                "computeCapability": "8.6",
                "fp8": "WeightOnly",
                "bf16": True,
                "sharing": "time-slicing",
            }
        ],
    },
}


def test_a_card_is_read() -> None:
    (card,) = GPUNode.model_validate(RAW).status.cards
    expected = Card(
        uuid="GPU-1",
        product="NVIDIA-RTX-A6000",
        total_bytes=51527024640,
        reserved_bytes=548405248,
        compute_capability="8.6",
        fp8=Fp8.WEIGHT_ONLY,
        bf16=True,
        sharing=Sharing.TIME_SLICING,
    )
    assert expected == card


def test_memory_that_nobody_told_is_unknown_and_not_zero() -> None:
    card = Card(uuid="GPU-1", product="NVIDIA-GB10")
    assert (card.total_bytes, card.reserved_bytes) == (None, None)


def test_a_newer_agent_may_say_more() -> None:
    assert GPUNodeStatus(driver="1") == read_gpunode_status({"driver": "1", "mood": "fine"})


def test_what_cannot_be_read_is_as_good_as_nothing() -> None:
    assert GPUNodeStatus() == read_gpunode_status({"cards": [{"uuid": 1}]})
    assert GPUNodeStatus() == read_gpunode_status(None)
