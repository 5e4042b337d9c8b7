"""`plimsoll probe retrieval`: does a server find numbers again that stand anywhere in a long context?"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from plimsoll.cli.exits import BadInputError, Exit
from plimsoll.cli.output import Form, add_output, as_text
from plimsoll.cli.progress import Progress
from plimsoll.cli.text import Column, page_of, table
from plimsoll.diagnose.retrieval import contexts_of, default_depths, default_lengths
from plimsoll.diagnose.retrieval_score import TOLERANCE, judge
from plimsoll.facts.retrieval import Answers, RetrievalReport, RetrievalVerdict

EPILOG: Final = """\
examples:
  plimsoll probe retrieval --url http://127.0.0.1:8001 --against http://127.0.0.1:8000
      8001 serves with an fp8 cache, 8000 the same model at 16 bit; both are asked the very same
  plimsoll probe retrieval --url http://127.0.0.1:8000 --save sixteen.json
  plimsoll probe retrieval --url http://127.0.0.1:8000 --baseline sixteen.json
      the same with one card: first at 16 bit, then restarted with --kv-cache-dtype fp8
  plimsoll probe retrieval --url URL --length 32768 --trials 400 --depths 20
  plimsoll probe retrieval --url URL --baseline sixteen.json --config-map chat-retrieval -n inference \\
      --source hf://Qwen/Qwen3-8B --engine vllm --release 0.22.1 --dtype fp8 | kubectl apply -f -
      what the operator reads where spec.kvCache.tryDtype is fp8 (docs/fp8-kv.md)

Each context is filling with one number at each depth; each number is asked for, with temperature 0. Half of the
trials have the full length, the others a half and a quarter of it. Contexts are measured in the model's own
tokens: by /tokenize where the server has it, else by usage.prompt_tokens. A length that the server does
not hold is left out and named, and then nothing has passed.

Passed means that with 95 % confidence (one-sided, Tango's bound on paired trials) fewer than --tolerance of the
numbers are lost by the difference, and fewer than one and a half times that at the full length. Failed means that more
are lost, by the best guess. Inconclusive means neither: the model finds fewer than half of the numbers at 16 bit, or
there were too few trials. Without a baseline at least 90 % must come back, and model and cache cannot be told apart.

The key for an API is read from a file, or from PLIMSOLL_API_KEY (PLIMSOLL_AGAINST_API_KEY for --against); it goes
to that server only, and is never printed.

exit codes:
  0  passed
  2  bad input, or a server that does not answer as it should
  3  failed, or inconclusive: the sentence says which
"""
MOST_LENGTH: Final = 32_768
"""Without --length, no longer than this."""
UNTOLD_LENGTH: Final = 4096
"""Without --length, where the server does not say how much it holds."""
_NAME: Final = re.compile(r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")
KEY_VARIABLE: Final = "PLIMSOLL_API_KEY"
AGAINST_KEY_VARIABLE: Final = "PLIMSOLL_AGAINST_API_KEY"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plimsoll probe`."""
    parser.add_argument(
        "what", choices=["retrieval"], help="retrieval: numbers hidden in long contexts"
    )
    parser.add_argument(
        "--url", metavar="URL", required=True, help="server that is judged, e.g. http://host:8000"
    )
    parser.add_argument("--model", metavar="NAME", help="served model, where there are several")
    baseline = parser.add_mutually_exclusive_group()
    baseline.add_argument(
        "--against", metavar="URL", help="server of the same model at 16 bit, asked the same"
    )
    baseline.add_argument(
        "--baseline",
        metavar="FILE",
        help="answers that a run with --save kept, instead of a server",
    )
    parser.add_argument("--save", metavar="FILE", help="keep this server's answers as a baseline")
    parser.add_argument(
        "--length",
        metavar="TOKENS",
        type=int,
        help=f"longest context, answer included (default: what the server holds, at most {MOST_LENGTH})",
    )
    parser.add_argument(
        "--lengths",
        metavar="LIST",
        help="all lengths, e.g. 2048,8192 (default: 1/4, 1/2 and all of it)",
    )
    parser.add_argument(
        "--depths",
        metavar="LIST",
        default="10",
        help="how many depths (default 10), or which: 0,0.25,0.5,1",
    )
    parser.add_argument(
        "--trials", metavar="N", type=int, default=200, help="numbers to ask for (default 200)"
    )
    parser.add_argument(
        "--digits", metavar="N", type=int, default=6, help="digits of each number (default 6)"
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, default=1, help="chooses words and numbers (default 1)"
    )
    parser.add_argument(
        "--tolerance",
        metavar="PART",
        type=float,
        default=TOLERANCE,
        help=f"part of the numbers that may be lost against the baseline (default {TOLERANCE})",
    )
    parser.add_argument(
        "--api",
        choices=["auto", "completions", "chat"],
        default="auto",
        help="what is asked: /v1/completions, or a chat where there is nothing else (auto, the default)",
    )
    parser.add_argument(
        "--at-once", metavar="N", type=int, default=1, help="contexts at the same time (default 1)"
    )
    parser.add_argument("--key-file", metavar="FILE", help="file with the API key of --url")
    parser.add_argument("--against-key-file", metavar="FILE", help="file with that of --against")
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="also write the result to FILE, in 4096 bytes, for the operator",
    )
    record = parser.add_argument_group("as a record for the operator")
    record.add_argument("--config-map", metavar="NAME", help="print a ConfigMap with the result")
    record.add_argument("-n", "--namespace", metavar="NAME", help="its namespace")
    record.add_argument("--source", metavar="URI", help="spec.model.uri, or that of model.gguf")
    record.add_argument("--engine", choices=["vllm", "llamaCpp"], help="the engine")
    record.add_argument("--release", metavar="TEXT", help="its release, as in the image's tag")
    record.add_argument("--dtype", metavar="DTYPE", help="the KV cache dtype of --url")
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    add_output(parser, says="table (default: words and numbers), json or yaml")


class Wish(NamedTuple):
    """What is to be asked, read from the options."""

    lengths: tuple[int, ...]
    """Empty where the server decides."""
    depths: tuple[float, ...]
    contexts: int


def run(arguments: argparse.Namespace) -> int:
    """Ask, judge and tell."""
    from plimsoll.telemetry.openai import AskError  # noqa: PLC0415 - aiohttp takes its time

    wish = _wish(arguments)
    _check_record(arguments)
    kept = _read_answers(arguments.baseline) if arguments.baseline else None
    try:
        report, asked = asyncio.run(_probe(arguments, wish, kept))
    except AskError as error:
        raise BadInputError(str(error)) from error
    if arguments.save:
        _write("--save", arguments.save, asked.model_dump_json(by_alias=True, exclude_none=True))
    if arguments.report:
        _write("--report", arguments.report, report.to_message())
    form = Form(arguments.output)
    if arguments.config_map is not None:
        chosen = Form.YAML if form is Form.TABLE else form
        sys.stdout.write(as_text(_record(arguments, report), chosen))
    elif form is Form.TABLE:
        sys.stdout.write(_words(report))
    else:
        sys.stdout.write(as_text(report.to_json(), form))
    return Exit.FITS if report.verdict is RetrievalVerdict.PASSED else Exit.REFUSED


async def _probe(
    arguments: argparse.Namespace, wish: Wish, kept: Answers | None
) -> tuple[RetrievalReport, Answers]:
    """Both servers asked, or one and the kept answers. Raises AskError."""
    from plimsoll.telemetry.openai import Server  # noqa: PLC0415
    from plimsoll.telemetry.retrieval import Asked, answers_of, fits, made_to_measure  # noqa: PLC0415

    shown = not arguments.quiet
    key = _key("--key-file", arguments.key_file, KEY_VARIABLE)
    async with Server(arguments.url, key=key) as server:
        most = await server.meet(arguments.model)
        await server.choose_api(arguments.api if kept is None else _api_of(kept))
        skipped: tuple[int, ...] = ()
        if kept is not None:
            sheet = kept.sheet
            if most is not None and sheet.longest_tokens > most:
                raise BadInputError(
                    f"--baseline {arguments.baseline}: has contexts of {sheet.longest_tokens:,} tokens, and "
                    f"{arguments.url} holds {most:,}; make the baseline with --length {most}"
                )
        else:
            wanted = wish.lengths or default_lengths(
                min(MOST_LENGTH, most) if most else UNTOLD_LENGTH
            )
            lengths, skipped = fits(wanted, most)
            if not lengths:
                raise BadInputError(
                    f"--lengths: none of {', '.join(map(str, wanted))} fits in the {most:,} tokens that "
                    f"{arguments.url} holds"
                )
            sheet = await made_to_measure(
                server,
                Asked(
                    contexts_of(lengths, contexts=wish.contexts),
                    wish.depths,
                    digits=arguments.digits,
                    seed=arguments.seed,
                ),
            )
        if arguments.against:
            key = _key("--against-key-file", arguments.against_key_file, AGAINST_KEY_VARIABLE)
            async with Server(arguments.against, key=key) as other:
                await other.meet(arguments.model)
                other.is_chat = server.is_chat
                with Progress("at 16 bit", is_shown=shown) as progress:
                    kept = await answers_of(
                        other, sheet, at_once=arguments.at_once, progress=progress.step
                    )
        with Progress("asking", is_shown=shown) as progress:
            asked = await answers_of(
                server, sheet, at_once=arguments.at_once, progress=progress.step
            )
    report = judge(asked, kept, tolerance=arguments.tolerance, skipped_tokens=skipped)
    return report, asked


def _api_of(kept: Answers) -> str:
    return "chat" if kept.is_chat else "completions"


# ---- options -------------------------------------------------------------------------------------


def _wish(arguments: argparse.Namespace) -> Wish:
    for option, value, least, most in (
        ("--trials", arguments.trials, 1, 20_000),
        ("--digits", arguments.digits, 2, 18),
        ("--at-once", arguments.at_once, 1, 256),
    ):
        if not least <= value <= most:
            raise BadInputError(f"{option} {value}: write a number from {least} to {most:,}")
    if not 0 < arguments.tolerance < 1:
        raise BadInputError(
            f"--tolerance {arguments.tolerance:g}: write a part between 0 and 1, e.g. {TOLERANCE}"
        )
    if arguments.baseline and (arguments.length or arguments.lengths):
        raise BadInputError(
            f"--baseline {arguments.baseline}: is asked again as it is; leave --length and --lengths out"
        )
    depths = _depths(arguments.depths)
    lengths = _lengths(arguments)
    contexts = -(-arguments.trials // len(depths))
    if max(contexts, len(lengths)) > 512:
        raise BadInputError(
            f"--trials {arguments.trials}: that takes {contexts} contexts of {len(depths)} depths, 512 are the "
            "most; ask for more depths"
        )
    return Wish(lengths, depths, contexts)


def _depths(text: str) -> tuple[float, ...]:
    try:
        if text.isdigit() and "," not in text and int(text) > 1:
            count = int(text)
            found = default_depths(count) if count <= 64 else ()
        else:
            found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or len(found) > 64 or not all(0 <= depth <= 1 for depth in found):
        raise BadInputError(
            f"--depths {text}: write how many (2 to 64), or a list of parts from 0 to 1 like 0,0.5,1"
        )
    return found


def _lengths(arguments: argparse.Namespace) -> tuple[int, ...]:
    if arguments.lengths is None:
        longest = arguments.length
        if longest is None:
            return ()
        if longest < 1:
            raise BadInputError(f"--length {longest}: write a number of tokens, e.g. 8192")
        return default_lengths(longest)
    try:
        found = tuple(sorted({int(part) for part in arguments.lengths.split(",")}))
    except ValueError:
        found = ()
    if arguments.length is not None:
        raise BadInputError("--lengths: stands instead of --length; give one of the two")
    if not found or found[0] < 1 or len(found) > 16:
        raise BadInputError(
            f"--lengths {arguments.lengths}: write up to 16 numbers of tokens, e.g. 2048,8192"
        )
    return found


def _key(option: str, path: str | None, variable: str) -> str | None:
    """The key from the file, else from the environment; never from the command line, where others see it."""
    if path is None:
        return os.environ.get(variable) or None
    try:
        key = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{option} {path}: cannot be read as a key") from error
    if not key or not key.isprintable() or not key.isascii():
        raise BadInputError(f"{option} {path}: holds no key of one line")
    return key


def _read_answers(path: str) -> Answers:
    try:
        return Answers.model_validate_json(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInputError(f"--baseline {path}: {error.strerror}") from error
    except (ValidationError, ValueError) as error:
        raise BadInputError(
            f"--baseline {path}: holds no answers; make it with `plimsoll probe retrieval --save`"
        ) from error


def _write(option: str, path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"{option} {path}: {error.strerror}") from error


# ---- what is told --------------------------------------------------------------------------------


def _words(report: RetrievalReport) -> str:
    page = page_of(sys.stdout)
    has_baseline = report.baseline_exact is not None
    columns = [
        Column("LENGTH", right=True),
        Column("TRIALS", right=True),
        Column("EXACT", right=True),
    ]
    if has_baseline:
        columns.append(Column("AT 16 BIT", right=True))
    rows = [
        [
            f"{each.length_tokens:,}",
            str(each.trials),
            str(each.exact),
            *([str(each.baseline_exact)] if has_baseline else []),
        ]
        for each in report.by_length
    ]
    digits = f"{report.digits_right:.1%} of all digits stood in their place"
    if report.baseline_digits_right is not None:
        digits += f", {report.baseline_digits_right:.1%} at 16 bit"
    lines = [
        f"{report.verdict.value}: {report.sentence}",
        f"  {digits}.",
        "",
        *table(columns, rows, page=page),
    ]
    return "\n".join(lines) + "\n"


def _check_record(arguments: argparse.Namespace) -> None:
    if arguments.config_map is None:
        return
    if not _NAME.match(arguments.config_map):
        raise BadInputError(
            f"--config-map: {arguments.config_map!r} is not a name; write lower-case letters, digits and -"
        )
    for option in ("source", "engine", "release", "dtype"):
        if not getattr(arguments, option):
            raise BadInputError(
                f"--config-map: says nothing without --{option}; it must name what was probed"
            )
    if not (arguments.against or arguments.baseline):
        raise BadInputError(
            "--config-map: a record needs a comparison with 16 bit; give --against or --baseline"
        )


def _record(arguments: argparse.Namespace, report: RetrievalReport) -> dict[str, Any]:
    """The ConfigMap that the operator reads."""
    import time  # noqa: PLC0415
    from datetime import UTC, datetime  # noqa: PLC0415

    from plimsoll.api.kv_gate_records import Probed, ProbeRecord, record_data  # noqa: PLC0415

    at = datetime.fromtimestamp(time.time(), tz=UTC)  # noqa: TID251 - a command's own clock
    probed = Probed(
        source=arguments.source,
        engine=arguments.engine,
        release=arguments.release,
        dtype=arguments.dtype,
    )
    record = ProbeRecord(probed=probed, at=at.strftime("%Y-%m-%dT%H:%M:%SZ"), report=report)
    metadata = {"name": arguments.config_map}
    if arguments.namespace is not None:
        metadata["namespace"] = arguments.namespace
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": record_data((record,)),
    }
