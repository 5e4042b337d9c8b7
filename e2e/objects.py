"""The small object that many stories use: an 8B model on single H100 cards."""

from __future__ import annotations

from typing import Any

from controlplane.cluster import Manifest
from world import World

EIGHT_B = "meta-llama/Meta-Llama-3-8B-Instruct"


def small(world: World, name: str = "small", workers: int = 2, **spec: Any) -> Manifest:
    """An 8B model on single H100 cards: many workers fit one node."""
    return {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": name, "namespace": world.namespace},
        "spec": {
            "replicas": workers,
            "model": {
                "name": "llama-3-8b",
                "id": EIGHT_B,
                "uri": "pvc://models/Meta-Llama-3-8B-Instruct",
            },
            "pools": [
                {
                    "name": "h100",
                    "engine": "vllm",
                    "gpu": {"product": "NVIDIA-H100-80GB-HBM3", "perWorker": 1},
                }
            ],
            "engines": {"vllm": {"image": "vllm/vllm-openai:v0.22.1"}},
            "limits": {"maxModelLen": 8192},
            **spec,
        },
    }
