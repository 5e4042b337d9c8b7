"""Small worlds that tests start from: the cards, models and traffic of the scenes."""

from __future__ import annotations

from typing import Any

from plimsoll.catalog.gpus import find_gpu
from plimsoll.catalog.models import find_gguf, find_model
from plimsoll.engines.base import EngineName
from plimsoll.facts.gpu import GpuFacts
from plimsoll.facts.model import GgufFacts, ModelFacts
from plimsoll.plan.records import Guarantee, Lane, PlanRequest, TokenQuantiles

SEVENTY_B = "meta-llama/Llama-3.3-70B-Instruct"
EIGHT_B = "meta-llama/Meta-Llama-3-8B-Instruct"


def card(name: str) -> GpuFacts:
    """A card of the catalogue."""
    found = find_gpu(name)
    assert found is not None, name
    return found


def model(model_id: str) -> ModelFacts:
    """A model of the catalogue."""
    found = find_model(model_id)
    assert isinstance(found, ModelFacts), found
    return found


def gguf(model_id: str, quantization: str) -> GgufFacts:
    """A GGUF file of the catalogue."""
    found = find_gguf(model_id, quantization)
    assert found is not None, (model_id, quantization)
    return found


def one_lane(
    prompt: tuple[int, int] = (1800, 11000), output: tuple[int, int] = (350, 1500)
) -> Lane:
    """All traffic as one lane, given (p50, p99) of prompts and answers."""
    return Lane(
        name="all",
        prompt_tokens=TokenQuantiles(p50=prompt[0], p99=prompt[1]),
        output_tokens=TokenQuantiles(p50=output[0], p99=output[1]),
    )


def seventy_b_on_four_a6000(**changes: Any) -> PlanRequest:
    """The mixed fleet's question: 70B in bf16 over four 48 GB cards, chat traffic."""
    request = PlanRequest(
        engine=EngineName.VLLM,
        release="0.22.1",
        gpu=card("rtx-a6000"),
        cards=4,
        model=model(SEVENTY_B),
        lanes=(one_lane(),),
        guarantee=Guarantee.EXPECTED,
    )
    return request._replace(**changes)


def eight_b_on_a_4090(**changes: Any) -> PlanRequest:
    """The plant's question: 8B in bf16 on one 24 GB card at 8192 tokens, every request whole."""
    request = PlanRequest(
        engine=EngineName.VLLM,
        release="0.22.1",
        gpu=card("rtx-4090"),
        cards=1,
        model=model(EIGHT_B),
        max_model_len=8192,
    )
    return request._replace(**changes)
