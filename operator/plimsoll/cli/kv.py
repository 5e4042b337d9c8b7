"""`plimsoll kv`: how does vLLM lay out a model's KV cache, and what does some memory hold?"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from plimsoll.cli import kv_answer
from plimsoll.cli.exits import BadInputError, Exit
from plimsoll.cli.kv_query import DEFAULT_GPU, fields_of, query
from plimsoll.cli.output import Form, add_output, as_text
from plimsoll.facts.model import ModelFacts, UnknownLayout

EPILOG: Final = """\
examples:
  plimsoll kv config.json --max-model-len 32768 --kv-memory 16Gi,40Gi
  plimsoll kv config.json --gpu b200 --kv-dtype fp8 --tp 8 --max-model-len 131072 -o json
  plimsoll kv models/qwen3-next --max-model-len 32768 --max-num-batched-tokens 8192 --max-num-seqs 256
  jq -c '.rows[]' rows.json | plimsoll kv configs/ --batch

CONFIG is a config.json, a folder with one, or a model of the catalogue (meta-llama/Llama-3.3-70B-Instruct).

What comes out, as vLLM itself counts it:
  poolBytesPerBlock     bytes of one block of the pool on one card: all layers of the widest group
  blocksPerFullRequest  blocks that a request of max-model-len tokens draws, summed over the groups
  bytesPerFullRequest   the product of both
  groups                layers that draw blocks together; each group has a block table of its own
  capacity              for each --kv-memory: blocks, the concurrency and the tokens that vLLM logs, or
                        why one request does not fit and the longest that would

--batch reads one question a line (JSON) from standard input and answers each with one line. Fields are
named as vLLM names them: config (a path, or the object itself), vllm, tp, pp, pp_rank, dcp, kv_cache_dtype,
block_size_flag, max_model_len, max_num_batched_tokens, max_num_seqs, async_scheduling,
enable_prefix_caching, hybrid_kv_cache_manager, num_speculative_tokens, speculative_method, flashinfer,
kv_cache_dtype_skip_layers, language_model_only, device or compute_capability, and kv_memory or capacity.
What a line leaves out is taken from the options; what it says beside is passed over. A line that cannot
be read is answered with an error, and the others are answered all the same.

exit codes:
  0  answered, even where some memory is too small
  2  bad input: the message names the field, the value and the way out
  3  refused: the layout is not known, or vLLM would not start so
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plimsoll kv`."""
    parser.add_argument(
        "config",
        metavar="CONFIG",
        nargs="?",
        help="the model's config.json, its folder, or its name in the catalogue; with --batch also the "
        "folder that the lines' paths start from",
    )
    parser.add_argument(
        "--engine", metavar="ENGINE", default="vllm", help="vllm (default, and the only one yet)"
    )
    parser.add_argument("--release", metavar="X.Y.Z", help="vLLM's release (default 0.33.0)")
    parser.add_argument(
        "--gpu",
        metavar="TYPE",
        help=f"card of the catalogue, which decides the attention kernel (default {DEFAULT_GPU})",
    )
    whole = {
        "--tp": "tensor parallelism",
        "--pp": "pipeline stages",
        "--pp-rank": "one stage planned alone, from 0; without it all are planned together, as vLLM does",
        "--dcp": "decode context parallelism",
        "--max-model-len": "tokens of the longest request (default: what the model was made for)",
        "--max-num-batched-tokens": "tokens of one step (default: what vLLM takes on the card)",
        "--max-num-seqs": "sequences at once (default: what vLLM takes on the card)",
        "--block-size": "tokens of a block, where vLLM is told",
        "--num-speculative-tokens": "drafted tokens, which recurrent states hold too",
    }
    for name, words in whole.items():
        parser.add_argument(name, metavar="N", type=int, help=words)
    parser.add_argument(
        "--speculative-method",
        metavar="METHOD",
        help="mtp: the checkpoint's own draft layers keep KV too; others add none to count here",
    )
    parser.add_argument(
        "--kv-dtype", metavar="DTYPE", help="--kv-cache-dtype: auto (default), fp8, ..."
    )
    parser.add_argument(
        "--kv-cache-dtype-skip-layers",
        metavar="LAYERS",
        help="layers that stay unquantised: indices or sliding_window, between commas",
    )
    parser.add_argument("--no-async-scheduling", action="store_true", help="one step at a time")
    parser.add_argument("--no-prefix-caching", action="store_true", help="states are not kept")
    parser.add_argument("--no-hybrid-manager", action="store_true", help="windows are kept whole")
    parser.add_argument(
        "--flashinfer", action="store_true", help="the image has FlashInfer (matters on B200)"
    )
    parser.add_argument(
        "--multimodal", action="store_true", help="images are taken too (matters for Gemma)"
    )
    parser.add_argument(
        "--kv-memory",
        metavar="BYTES[,BYTES]",
        help="memory of the pool on one card: 17179869184 or 16Gi; several between commas",
    )
    parser.add_argument(
        "--batch", action="store_true", help="one question a line (JSON) from standard input"
    )
    add_output(parser, says="table (default), json or yaml")


def run(arguments: argparse.Namespace) -> int:
    """Lay out, print, and say by the exit code whether the engine would start."""
    if arguments.engine != "vllm":
        raise BadInputError(
            f"--engine: {arguments.engine!r} has no paged pool to lay out; only vllm has. What llama.cpp "
            "keeps on a card stands in `plimsoll plan`, and `plimsoll facts FILE.gguf` reads the file"
        )
    if arguments.batch:
        return _batch(arguments)
    if arguments.config is None:
        raise BadInputError("CONFIG: name a config.json, a folder with one, or give --batch")
    asked = query({}, fields_of(arguments))
    model = _model(arguments.config)
    form = Form(arguments.output)
    if isinstance(model, UnknownLayout):
        refused = {"architecture": model.architecture, "refused": model.message}
        _write(refused, form, lambda _: f"refused: {model.message}\n")
        return Exit.REFUSED
    found = kv_answer.answer(model, asked)
    _write(found.data, form, kv_answer.as_text)
    return Exit.REFUSED if found.is_refused else Exit.FITS


def _write(data: dict[str, Any], form: Form, table: Callable[[dict[str, Any]], str]) -> None:
    sys.stdout.write(table(data) if form is Form.TABLE else as_text(data, form))


# --- line by line -----------------------------------------------------------------------------------


def _batch(arguments: argparse.Namespace) -> int:
    """Each line is answered at once; the worst of them is the exit code."""
    gc.enable()  # this may go on for long
    otherwise = fields_of(arguments)
    models = _Models(arguments.config)
    codes = {Exit.FITS}
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if not line.strip():
            continue
        said, code = _answered(line, number, otherwise, models)
        codes.add(code)
        sys.stdout.write(json.dumps(said, ensure_ascii=False) + "\n")
        sys.stdout.flush()
    return Exit.BAD_INPUT if Exit.BAD_INPUT in codes else max(codes)


def _answered(
    line: bytes, number: int, otherwise: Mapping[str, Any], models: _Models
) -> tuple[dict[str, Any], Exit]:
    identity: dict[str, Any] = {}
    try:
        row = _row(line)
        if not isinstance(row, dict):
            raise BadInputError("the line is not a JSON object")
        if "id" in row:
            identity = {"id": row["id"]}
        asked = query(row, otherwise)
        model = models.of(row.get("config"))
    except BadInputError as error:
        return {**identity, "line": number, "error": str(error)}, Exit.BAD_INPUT
    if isinstance(model, UnknownLayout):
        refused = {"architecture": model.architecture, "refused": model.message}
        return {**identity, **refused}, Exit.REFUSED
    found = kv_answer.answer(model, asked)
    return {**identity, **found.data}, Exit.REFUSED if found.is_refused else Exit.FITS


def _row(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"the line is not JSON: {error}") from error


class _Models:
    """Models that lines name, each read once."""

    def __init__(self, base: str | None) -> None:
        """`base` is the folder that paths start from, or the model of lines that name none."""
        self._base = base
        self._read: dict[str, ModelFacts | UnknownLayout] = {}

    def of(self, config: Any) -> ModelFacts | UnknownLayout:
        """The model of a line. Raises BadInputError."""
        if isinstance(config, dict):
            return _facts(config, "config")
        if config is not None and not isinstance(config, str):
            raise BadInputError(f"config: {config!r} is neither a path nor an object")
        name = config or self._base
        if name is None:
            raise BadInputError(
                "config is missing: give a path or the object, or CONFIG before --batch"
            )
        if name not in self._read:
            path = next((p for p in self._paths(name) if p.exists()), None)
            self._read[name] = _model(name if path is None else str(path))
        return self._read[name]

    def _paths(self, name: str) -> Iterator[Path]:
        yield Path(name)
        if self._base is not None:
            yield Path(self._base) / name


def _model(name: str) -> ModelFacts | UnknownLayout:
    """From a config.json, a folder with one, or the catalogue. Raises BadInputError."""
    path = Path(name)
    path = path / "config.json" if path.is_dir() else path
    if path.is_file():
        return _facts(_read(path), path.parent.name if path.name == "config.json" else path.stem)
    from plimsoll.catalog.models import find_model  # noqa: PLC0415 - only where no file is named

    if not name.endswith(".json") and (found := find_model(name)) is not None:
        return found
    raise BadInputError(
        f"config: {name} is neither a config.json, nor a folder with one, nor a model of the catalogue"
    )


def _read(path: Path) -> Any:
    if path.suffix == ".gguf":
        raise BadInputError(f"config: {path} is a GGUF file; `plimsoll facts {path}` reads it")
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise BadInputError(f"config: {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadInputError(f"config: {path} is not JSON: {error}") from error


def _facts(config: Any, name: str) -> ModelFacts | UnknownLayout:
    from plimsoll.facts.hf_config import model_facts  # noqa: PLC0415 - not for --help
    from plimsoll.facts.model import Weights  # noqa: PLC0415
    from plimsoll.facts.source import Confidence, FactSource, Provenance  # noqa: PLC0415

    if not isinstance(config, dict):
        raise BadInputError(f"config: {name} is not an object, as a config.json is")
    return model_facts(
        config,
        id=str(config.get("_name_or_path") or name),
        weights=Weights(total_bytes=0),
        provenance=Provenance(source=FactSource.FILES, confidence=Confidence.EXACT),
    )
