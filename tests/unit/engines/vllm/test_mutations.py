"""Is the pool vLLM's own, or refused, when one field of a config is changed?"""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import kv_rows
from plimsoll.engines.vllm import pool
from plimsoll.engines.vllm.ask import KvAsk
from plimsoll.engines.vllm.pool import Fits, Pool
from plimsoll.facts.hf_config import model_facts
from plimsoll.facts.model import ModelFacts, Weights

_SAID: dict[str, Any] = json.loads((kv_rows.DATA / "vllm_mutations.json").read_text("utf-8"))


def _changed(config: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    *above, name = change["field"].split(".")
    config = deepcopy(config)
    inside = config
    for part in above:
        inside = inside.setdefault(part, {})
    if change.get("removed"):
        inside.pop(name, None)
    elif "to" in change:
        inside[name] = _list(inside[name], change["to"])
    else:
        inside[name] = change["value"]
    return config


def _list(old: list[Any], to: dict[str, Any]) -> list[Any]:
    if "all" in to:
        return [to["all"]] * len(old)
    kept = old[: len(old) - int(to.get("drop_last", 0))]
    return [to.get("set", {}).get(str(at), value) for at, value in enumerate(kept)]


def _ours(config: dict[str, Any], model: str, length: int) -> dict[str, Any] | None:
    """The figures of the pool; None where we refuse."""
    facts = model_facts(
        config, id=model, weights=Weights(total_bytes=0), provenance=kv_rows.BY_HAND
    )
    if not isinstance(facts, ModelFacts):
        return None
    ask = KvAsk(max_model_len=length, max_num_batched_tokens=_SAID["max_num_batched_tokens"])
    found = pool.pool_of(facts, ask._replace(is_text_only=True))
    if not isinstance(found, Pool):
        return None
    answer = pool.whole(found, _SAID["available_bytes"])
    (stage,) = found.stages
    figures: dict[str, Any] = {
        "pool": stage.block_bytes,
        "blocks": stage.blocks(length),
        "block_size": found.block_tokens,
    }
    if isinstance(answer, Fits):
        figures |= {"num_blocks": answer.blocks, "concurrency": answer.concurrency}
    return figures


def test_a_changed_config_gets_the_engines_figures_or_none() -> None:
    answered = 0
    for change in _SAID["changes"]:
        model, engine = change["model"], change["engine"]
        if isinstance(engine, str) and engine != "same":
            continue
        expected = dict(_SAID["base"][model])
        if "max_model_len" in change:
            expected |= _SAID["derived"][model]
        expected |= {} if engine == "same" else engine
        config = json.loads((kv_rows.DATA / f"hf_configs/{model}.json").read_text("utf-8"))
        ours = _ours(_changed(config, change), model, expected["max_model_len"])
        if ours is not None:
            answered += 1
            assert {name: expected[name] for name in ours} == ours, change
    assert answered > 700
