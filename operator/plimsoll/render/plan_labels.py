"""How does a proxy that is not ours learn what a worker holds? From labels on its pod."""

from __future__ import annotations

from typing import Final

from plimsoll.plan.records import Plan
from plimsoll.render.last_words import pod_template_2
from plimsoll.render.records import Manifest, PoolWorkload

SEQUENCES_LABEL: Final = "plimsoll.dev/max-num-seqs"
"""Sequences that the worker runs at once."""
KV_TOKENS_LABEL: Final = "plimsoll.dev/kv-tokens"
"""Tokens that its KV cache holds."""
LENGTH_LABEL: Final = "plimsoll.dev/max-model-len"
"""Tokens of its longest sequence."""


def plan_labels(plan: Plan) -> dict[str, str]:
    """What a limit in front of one worker needs to know, as label values."""
    return {
        KV_TOKENS_LABEL: str(plan.kv.pool_tokens),
        LENGTH_LABEL: str(plan.max_model_len),
        SEQUENCES_LABEL: str(plan.concurrency.max_num_seqs),
    }


def pod_template_3(workload: PoolWorkload, digest: str) -> Manifest:
    """The pod template, third revision: the second, and the plan's numbers as labels."""
    pods = pod_template_2(workload, digest)
    labels = dict(sorted((pods["metadata"]["labels"] | plan_labels(workload.plan)).items()))
    return pods | {"metadata": pods["metadata"] | {"labels": labels}}
