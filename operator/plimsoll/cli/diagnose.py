"""`plimsoll diagnose`: does this recorded worker grow, wait or do well, and would it be recycled?"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from plimsoll.cli.curve import svg_curve, terminal_curve
from plimsoll.cli.exits import BadInputError, Exit
from plimsoll.cli.hints import hint, too_short
from plimsoll.cli.output import Form, add_output, as_text
from plimsoll.cli.replay import Recording, Replay, replay
from plimsoll.cli.series import read_latency, read_memory, read_series, read_share
from plimsoll.diagnose.records import VerdictKind
from plimsoll.diagnose.recycle import Hold, Recycle
from plimsoll.diagnose.settings import DEFAULT, SlopeSettings
from plimsoll.facts.series import Series
from plimsoll.units import gib, parse_bytes, parse_seconds

EPILOG: Final = """\
examples:
  plimsoll diagnose --memory memory.csv
  plimsoll diagnose --memory memory.csv --ttft ttft.csv --load running.csv --limit 64Gi
  plimsoll diagnose --memory memory.csv --cache-cap 8192Mi --slope 50Mi -o json
  plimsoll diagnose --memory rss.csv --swap swap.csv --work tokens.csv --limit 60G
  plimsoll diagnose --memory memory.csv --ttft ttft.csv --load running.csv --waiting waiting.csv \
    --preemptions preemptions.csv --requests finished.csv
  plimsoll diagnose --memory load-test.csv --hour 5m
  promtool query range --format=json http://prometheus:9090 \\
    'container_memory_rss{pod="chat-0",container="engine"}' > memory.json
  plimsoll diagnose --memory memory.json --svg memory.svg

A file holds one container's series: lines of `seconds,value` (a first line may name the columns), or the JSON
that Prometheus gives for a range. Seconds are epoch seconds or count from any beginning, the same in all
files. Memory is in bytes and must be anonymous memory and swap: container_memory_rss plus
container_memory_swap (--swap adds a second file). The working set has page cache in it, and RSS alone falls
when memory is swapped out.

What comes out:
  Growth       memory rises, and so does the time to first token at a load alike: would be recycled
  QuietGrowth  memory rises, latency does not or is not known: recycled when the limit comes near, unless
               it may be a cache that fills (it has risen since the start and was never flat)
  Pressure     memory is flat and latency is up: a restart would not help
  Steady       memory is flat
  WarmingUp    too early to tell growth from warming up
  Unknown      the data do not suffice; the sentence says what is missing

The first hour after the first sample (or after --ready) is warming up, and a rise is told from its end only
after six hours more. A leak of 500 MiB an hour is seen after about 6 hours, one of 50 after about 17; more in
docs/measured/slope.md. A load test that packs hours into minutes is judged with --hour, which shortens the
warm-up and every window with it. Samples of more than an hour apart stretch them in proportion.

exit codes:
  0  answered, whatever the verdict
  2  bad input: the message names the option, the file, the line and the way out
  3  Unknown: read and understood, and nothing can be said
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plimsoll diagnose`."""
    parser.add_argument(
        "--memory", metavar="FILE", required=True, help="resident bytes (anonymous and swap)"
    )
    parser.add_argument(
        "--swap", metavar="FILE", help="bytes swapped out, where --memory is RSS alone: added to it"
    )
    parser.add_argument(
        "--ttft", metavar="FILE", help="seconds to the first token: of requests, or their p95"
    )
    parser.add_argument(
        "--load", metavar="FILE", help="requests in flight; without it a day's tide is in the way"
    )
    parser.add_argument(
        "--work", metavar="FILE", help="tokens (or requests) done, a counter that only rises"
    )
    parser.add_argument(
        "--waiting", metavar="FILE", help="requests that wait for a slot or for room"
    )
    parser.add_argument("--kv-use", metavar="FILE", help="part of the KV pool in use, from 0 to 1")
    parser.add_argument("--preemptions", metavar="FILE", help="preempted requests, a counter")
    parser.add_argument(
        "--requests",
        metavar="FILE",
        help="finished requests, a counter: what preemptions compare with",
    )
    parser.add_argument("--limit", metavar="BYTES", help="memory limit: 64Gi or 68719476736")
    parser.add_argument(
        "--cache-cap",
        metavar="BYTES",
        help="caps of caches in host memory that may fill, added up (llama-server: --cache-ram)",
    )
    parser.add_argument(
        "--slope", metavar="BYTES", help="least growth per hour that counts (default 10Mi)"
    )
    parser.add_argument(
        "--ready", metavar="SECONDS", help="when it was Ready, in the files' seconds"
    )
    parser.add_argument(
        "--warm-up", metavar="DURATION", help="after that, e.g. 30m (default 1h): not judged"
    )
    parser.add_argument(
        "--hour",
        metavar="DURATION",
        help="length of an hour of the detector, e.g. 5m for a load test of 40 minutes (default 1h)",
    )
    parser.add_argument("--svg", metavar="FILE", help="draw the floors of memory into this file")
    add_output(parser, says="table (default: words and a curve), json or yaml")


def run(arguments: argparse.Namespace) -> int:
    """Read, judge and tell."""
    recording = Recording(
        memory=read_memory(arguments.memory, arguments.swap),
        ttft=read_latency(arguments.ttft) if arguments.ttft else (),
        load=_optional("--load", arguments.load),
        work=_optional("--work", arguments.work),
        waiting=_optional("--waiting", arguments.waiting),
        kv_used=read_share("--kv-use", arguments.kv_use) if arguments.kv_use else (),
        preemptions=_optional("--preemptions", arguments.preemptions),
        requests=_optional("--requests", arguments.requests),
        limit_bytes=_bytes("--limit", arguments.limit),
        cache_cap_bytes=_cap(arguments.cache_cap),
        ready_seconds=_number("--ready", arguments.ready),
    )
    _check_times(recording)
    found = replay(recording, _settings(arguments))
    if arguments.svg:
        _draw(arguments, recording, found)
    said = as_data(recording, found)
    form = Form(arguments.output)
    sys.stdout.write(_words(said, found) if form is Form.TABLE else as_text(said, form))
    return Exit.REFUSED if said["verdict"] == VerdictKind.UNKNOWN else Exit.FITS


def as_data(recording: Recording, found: Replay) -> dict[str, Any]:
    """The answer as plain data."""
    began = recording.memory[0].at_seconds
    seen: dict[str, Any] = {
        "samples": len(recording.memory),
        "bins": len(found.bins),
        "binSeconds": found.bin_seconds,
        "hours": round((recording.memory[-1].at_seconds - began) / 3600, 2),
        "lives": found.lives,
    }
    if found.before is not None:
        seen["lifeBefore"] = found.before.value
    if not found.moments:
        return {**too_short(recording, found), "seen": seen}
    last = found.moments[-1]
    first = next(m for m in found.moments if m.verdict.kind is last.verdict.kind)
    changes, before = [], None
    for moment in found.moments:
        if moment.verdict.kind is not before:
            before = moment.verdict.kind
            changes.append({**_when(moment.at_seconds, began), "verdict": before.value})
    recycled = next((m for m in found.moments if isinstance(m.decision, Recycle)), None)
    decision: dict[str, Any] = {
        "decision": "Hold" if isinstance(last.decision, Hold) else "Recycle",
        "reason": last.decision.reason.value,
        "sentence": last.decision.sentence,
    }
    if recycled is not None:
        decision["firstReached"] = _when(recycled.at_seconds, began)
    said = last.verdict.to_json()
    return {
        "verdict": said.pop("kind"),
        "cause": said.pop("cause", None),
        "sentence": said.pop("sentence"),
        "advice": said.pop("advice", "") or hint(last.verdict, found),
        "firstReached": _when(first.at_seconds, began),
        "recycle": decision,
        **said,
        "changes": changes,
        "seen": seen,
    }


def _when(at_seconds: float, began: float) -> dict[str, float]:
    return {"seconds": at_seconds, "hours": round((at_seconds - began) / 3600, 2)}


def _words(said: dict[str, Any], found: Replay) -> str:
    lines = [f"{said['verdict']}" + (f" ({said['cause']})" if said.get("cause") else "")]
    lines.append(f"  {said['sentence']}")
    if said.get("advice"):
        lines.append(f"  {said['advice']}")
    if "firstReached" in said:
        lines.append(f"  First said after {said['firstReached']['hours']:g} h.")
    if recycle := said.get("recycle"):
        when = recycle.get("firstReached")
        since = f", first after {when['hours']:g} h" if when else ""
        lines += ["", f"{recycle['decision']}: {recycle['reason']}{since}"]
        if recycle["sentence"] != said["sentence"]:
            lines.append(f"  {recycle['sentence']}")
    if found.lives > 1:
        lines += [
            "",
            f"Memory fell back {found.lives - 1} times as a restart does; this is the last life.",
        ]
    if found.bins:
        lines += ["", *terminal_curve(found.bins, width=80)]
    over = [f"{change['hours']:g} h {change['verdict']}" for change in said.get("changes", [])]
    lines += ["", "Over time: " + ", ".join(over)] if over else []
    return "\n".join(lines) + "\n"


def _draw(arguments: argparse.Namespace, recording: Recording, found: Replay) -> None:
    said = found.moments[-1].verdict if found.moments else None
    title = (
        f"{Path(arguments.memory).name}: {said.kind.value if said else VerdictKind.UNKNOWN.value}"
    )
    if recording.limit_bytes is not None:
        title += f", limit {gib(recording.limit_bytes)}"
    drawing = svg_curve(found.bins, title=title, limit_bytes=recording.limit_bytes)
    try:
        Path(arguments.svg).write_text(drawing, encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"--svg {arguments.svg}: {error.strerror}") from error


def _optional(option: str, path: str | None) -> Series:
    return read_series(option, path) if path else ()


def _check_times(recording: Recording) -> None:
    """Other files that have nothing to do with the memory's times are a mistake, not unknown data."""
    first, last = recording.memory[0].at_seconds, recording.memory[-1].at_seconds
    for option, series in (
        ("--ttft", recording.ttft),
        ("--load", recording.load),
        ("--work", recording.work),
        ("--waiting", recording.waiting),
        ("--kv-use", recording.kv_used),
        ("--preemptions", recording.preemptions),
        ("--requests", recording.requests),
    ):
        if series and (series[-1].at_seconds < first or series[0].at_seconds > last):
            raise BadInputError(
                f"{option}: its times run from {series[0].at_seconds:.0f} to {series[-1].at_seconds:.0f}, those "
                f"of --memory from {first:.0f} to {last:.0f}; all files count from the same beginning"
            )


def _settings(arguments: argparse.Namespace) -> SlopeSettings:
    settings = DEFAULT
    hour = _duration("--hour", arguments.hour) if arguments.hour is not None else 3600.0
    if not MIN_HOUR_SECONDS <= hour <= MOST_HOUR_SECONDS:
        raise BadInputError(f"--hour: {arguments.hour} is not between 10s and 7d")
    if hour != settings.hour_seconds:
        settings = settings.shortened(hour, 1.0)
    if (slope := _bytes("--slope", arguments.slope)) is not None:
        settings = settings._replace(slope_bytes_per_hour=float(slope))
    if arguments.warm_up is not None:
        settings = settings._replace(warm_up_hours=_duration("--warm-up", arguments.warm_up) / hour)
    return settings


MIN_HOUR_SECONDS: Final = 10.0
MOST_HOUR_SECONDS: Final = 7 * 86400.0


def _duration(option: str, text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise BadInputError(f"{option}: {error}") from error


def _cap(text: str | None) -> int:
    if text is not None and text.strip().startswith("-"):
        raise BadInputError(
            f"--cache-cap: {text} is a cache without a cap, which grows until the host is full; give "
            "llama-server a --cache-ram in MiB and name that, or leave --cache-cap out to see the growth"
        )
    return _bytes("--cache-cap", text) or 0


def _bytes(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise BadInputError(f"{option}: {error}") from error


def _number(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError as error:
        raise BadInputError(f"{option}: {text!r} is not a number of seconds") from error
