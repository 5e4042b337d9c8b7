"""Runs inside aiconfigurator's own environment (record.py makes it): questions on standard input, answers out.

One JSON object {key: question} in, one {key: answer} out. Each answer is what its own classes return, or the
reason it gives for none; `source` says whether its model or its fallback spoke.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

CORE = "aiconfigurator_core.sdk"
GIB = 1 << 30


def main() -> int:
    questions: dict[str, dict[str, Any]] = json.load(sys.stdin)
    spoken = sys.stdout
    sys.stdout = sys.stderr  # its own remarks are no answers
    answers = {key: answered(asked) for key, asked in questions.items()}
    json.dump(answers, spoken)
    return 0


def answered(asked: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(asked["config"]))
        try:
            return ANSWERS[asked["kind"]](asked, folder)
        except Exception as error:  # whatever it raises is its answer
            return {"reason": in_short(error)}


def request(asked: dict[str, Any], folder: str) -> dict[str, Any]:
    try:
        each = native(asked, folder).get_kvcache_bytes_per_sequence(asked["max_model_len"])
        return {"bytes": each, "source": "model"}
    except Exception as error:  # then its own fallback
        each = fallback(asked, folder, error).kv_bytes_per_token()
        if not each:
            return {"reason": in_short(error)}
        return {"bytes": each * asked["max_model_len"], "source": "fallback"}


def tokens(asked: dict[str, Any], folder: str) -> dict[str, Any]:
    memory_bytes = asked["kv_memory_bytes"]
    try:
        held = native(asked, folder).get_kvcache_max_tokens(memory_bytes)
        return {"tokens": held, "source": "model"}
    except Exception as error:  # then its own fallback
        held = fallback(asked, folder, error).get_kvcache_max_tokens(memory_bytes)
        return {"tokens": held, "source": "fallback"}


def pool(asked: dict[str, Any], folder: str) -> dict[str, Any]:
    estimator = importlib.import_module(f"{CORE}.memory").KVCacheEstimator
    data = importlib.import_module(f"{CORE}.perf_database")
    release = data.get_latest_database_version(asked["system"], "vllm")
    if release is None:
        return {"reason": f"it has no vLLM data for {asked['system']}"}
    parts = estimator.from_request(
        folder,
        asked["system"],
        "vllm",
        release,
        max_num_tokens=asked["tokens"],
        max_batch_size=1,
        tp_size=asked["tp"],
        pp_size=asked["pp"],
        moe_tp_size=asked["tp"],
        moe_ep_size=1,
    ).breakdown
    return {
        "other_bytes": round(parts["non_kv_bytes"] - parts["weights_bytes"]),
        "weights_bytes": round(parts["weights_bytes"]),
        "vllm": release,
        "source": "model",
    }


def native(asked: dict[str, Any], folder: str) -> Any:
    """Its own model of this architecture, for vLLM."""
    config = importlib.import_module(f"{CORE}.config_builders").build_model_config(
        tp_size=asked["tp"],
        pp_size=asked["pp"],
        attention_dp_size=1,
        moe_tp_size=asked["tp"],
        moe_ep_size=1,
        kvcache_quant_mode=asked["kv_dtype"],
    )
    return importlib.import_module(f"{CORE}.models").get_model(folder, config, "vllm")


def fallback(asked: dict[str, Any], folder: str, error: Exception) -> Any:
    """Its estimator from config.json, which keeps the weights' type for KV."""
    if asked["kv_dtype"] != "bfloat16":
        raise ValueError("its fallback has no KV data type") from error
    return importlib.import_module(f"{CORE}.memory").NaiveKVCacheEstimator.from_model_path(
        folder, tp_size=asked["tp"], pp_size=asked["pp"], allow_hf_config_download=False
    )


def in_short(error: Exception) -> str:
    """The first sentence of what it says, without the folder that it was given."""
    said = str(error).split("Supported architectures")[0].split("\n")[0].strip()
    return said.replace(tempfile.gettempdir(), "")[:160] or type(error).__name__


ANSWERS = {"request": request, "tokens": tokens, "pool": pool}

if __name__ == "__main__":
    sys.exit(main())
