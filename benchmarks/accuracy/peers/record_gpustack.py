"""Runs inside GPUStack's own environment (record.py makes it): questions on standard input, answers out.

One JSON object {key: question} in, one {key: answer} out. The weights are a folder with one empty file of
that length, so its own code measures them.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any


def main() -> int:
    questions: dict[str, dict[str, Any]] = json.load(sys.stdin)
    spoken = sys.stdout
    sys.stdout = sys.stderr  # its own remarks are no answers
    answers = {key: {"claim_bytes": claim(asked)} for key, asked in questions.items()}
    json.dump(answers, spoken)
    return 0


def claim(asked: dict[str, Any]) -> int:
    estimate = importlib.import_module("gpustack.policies.utils").estimate_model_vram
    models = importlib.import_module("gpustack.schemas.models")
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "model.safetensors").open("wb") as weights:
            weights.truncate(asked["weights_bytes"])
        model = models.Model(
            name="model",
            source=models.SourceEnum.LOCAL_PATH,
            local_path=folder,
            categories=[models.CategoryEnum.LLM],
        )
        return int(asyncio.run(estimate(model)))


if __name__ == "__main__":
    sys.exit(main())
