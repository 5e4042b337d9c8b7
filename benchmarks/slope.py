"""How often is a healthy worker recycled, and how soon is a leak found?

python -m benchmarks.slope --seeds 1000-1005              a table; exit 1 when a target is missed
python -m benchmarks.slope --seeds 1000-1027 -o json      for programs; markdown for docs/measured
python -m benchmarks.slope --cost                         what one diagnosis of 2,000 workers costs

Weeks are made by slope_scenarios.py from seeds (both ends of the range count). A decision is made each
hour; after a recycle the same worker is left alone for 24 h. A rise that is told but not acted on, for it
may be a cache that fills, counts as told, not as a recycle. Plain rules get the same guards.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.slope_scenarios import LEAKS, ONSET_HOURS, QUIET, RATES, TIMES, Week, week

from plimsoll.diagnose.floors import floors
from plimsoll.diagnose.records import Trend
from plimsoll.diagnose.robust import Line, theil_sen
from plimsoll.diagnose.settings import DEFAULT
from plimsoll.diagnose.slope import growth
from plimsoll.facts.series import FloorBin, Sample
from plimsoll.units import MIB

HOUR: Final = 3600.0
KEPT_HOURS: Final = 72
REST_HOURS: Final = 24.0
"""After a recycle."""
WARM_UP_HOURS: Final = 1.0
OURS: Final = "Plimsoll"
PLAIN_MIB: Final = DEFAULT.slope_bytes_per_hour / MIB
"""Slope from which the plain rules alarm, MiB per hour: the same as ours."""
FALSE_AT_MOST: Final = 0.01
FILLING_AT_MOST: Final = 0.2
DELAY_AT_MOST: Final = {500: 8.0, 200: 9.0, 100: 11.0, 50: 18.0, 20: 36.0}
"""Hours, median."""


class Moment(NamedTuple):
    """What a rule may look at."""

    bins: tuple[FloorBin, ...]
    """Of this life, up to now."""
    medians: Line
    """MiB by hours, since the warm-up."""
    now_seconds: float
    ready_seconds: float


Detector = Callable[[Moment], bool]


def ols(hours: float) -> Detector:
    """Slope of the least squares line over the last hours."""

    def alarms(moment: Moment) -> bool:
        line = _window(moment, hours)
        if line is None:
            return False
        middle = math.fsum(line.times) / len(line.times)
        level = math.fsum(line.values) / len(line.values)
        rise = sum((t - middle) * (v - level) for t, v in zip(*line, strict=True))
        return rise / sum((t - middle) ** 2 for t in line.times) > PLAIN_MIB

    return alarms


def theil_sen_bound(hours: float) -> Detector:
    """Lower 95 % bound of the Theil-Sen slope."""

    def alarms(moment: Moment) -> bool:
        line = _window(moment, hours)
        return line is not None and theil_sen(line).lower > PLAIN_MIB

    return alarms


def mann_kendall(hours: float) -> Detector:
    """A trend at 99 % by Mann (1945) and Kendall, its variance corrected for autocorrelation by Hamed and
    Rao (1998), with a Theil-Sen slope above the threshold."""

    def alarms(moment: Moment) -> bool:
        line = _window(moment, hours)
        if line is None:
            return False
        slope = theil_sen(line).middle
        return slope > PLAIN_MIB and mann_kendall_z(line, slope) > Z_99

    return alarms


Z_99: Final = 2.3263479
"""One-sided 99 % of the normal distribution."""
Z_975: Final = 1.9599640
"""Autocorrelations nearer to 0 than this, in their own deviations, are taken for noise."""


def mann_kendall_z(line: Line, slope: float) -> float:
    """The score of a trend in its standard deviations, after Hamed and Rao (1998): the variance grows by
    what the ranks of the line without its slope have in common with themselves later on."""
    values, count = line.values, len(line.values)
    score = sum((b > a) - (b < a) for at, a in enumerate(values) for b in values[at + 1 :])
    rests = [value - slope * place for place, value in zip(line.times, values, strict=True)]
    ranks = _ranks(rests)
    middle = math.fsum(ranks) / count
    off = [rank - middle for rank in ranks]
    squares = math.fsum(each * each for each in off)
    more = 0.0
    for lag in range(1, count):
        alike = math.fsum(a * b for a, b in zip(off, off[lag:], strict=False)) / squares
        if abs(alike) > Z_975 / math.sqrt(count):
            more += (count - lag) * (count - lag - 1) * (count - lag - 2) * alike
    times = 1 + 2 / (count * (count - 1) * (count - 2)) * more
    variance = count * (count - 1) * (2 * count + 5) / 18 * max(times, 1 / count)
    return (score - (score > 0) + (score < 0)) / math.sqrt(variance)


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1; what is equal shares the mean of its ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for place in order[at : end + 1]:
            found[place] = (at + end) / 2 + 1
        at = end + 1
    return found


def _window(moment: Moment, hours: float) -> Line | None:
    now = moment.now_seconds / HOUR
    if now - moment.ready_seconds / HOUR - WARM_UP_HOURS < hours:
        return None
    line = moment.medians.since(now - hours - 1e-9)
    return line if len(line.times) >= 0.7 * hours * 6 else None


def ours(moment: Moment) -> bool:
    """Growth without a doubt."""
    found = _finding(moment)
    return found.trend is Trend.RISING and found.doubt is None


def _finding(moment: Moment) -> Any:
    return growth(moment.bins, now_seconds=moment.now_seconds, ready_seconds=moment.ready_seconds)


PLAIN: Final[dict[str, Detector]] = {
    "OLS 6 h": ols(6),
    "OLS 24 h": ols(24),
    "Theil-Sen 12 h": theil_sen_bound(12),
    "Mann-Kendall (Hamed-Rao) 12 h": mann_kendall(12),
}


def alarms_of(made: Week, detectors: dict[str, Detector]) -> dict[str, list[float]]:
    """Hours at which each detector alarms, over one week."""
    found: dict[str, list[float]] = {name: [] for name in detectors}
    memory = tuple(
        Sample(t * HOUR, m * MIB)
        for t, m, s in zip(TIMES, made.memory, made.seen, strict=True)
        if s
    )
    load = tuple(Sample(t * HOUR, value) for t, value in zip(TIMES, made.load, strict=True))
    for life in made.lives:
        start, end = life.started_hours * HOUR, life.ends_hours * HOUR
        mine = tuple(s for s in memory if start <= s.at_seconds < end)
        bins = floors(
            mine,
            load=tuple(s for s in load if start <= s.at_seconds < end),
            now_seconds=end,
            started_seconds=start,
        )
        medians = _medians(mine, start + WARM_UP_HOURS * HOUR)
        for hour in range(math.ceil(life.started_hours), math.floor(life.ends_hours) + 1):
            now = hour * HOUR
            moment = Moment(
                tuple(b for b in bins if now - KEPT_HOURS * HOUR < b.at_seconds <= now),
                _until(medians, hour),
                now,
                start,
            )
            for name, alarms in detectors.items():
                rests = found[name] and hour - found[name][-1] < REST_HOURS
                if not rests and alarms(moment):
                    found[name].append(float(hour))
    return found


def _medians(memory: Sequence[Sample], since_seconds: float) -> Line:
    """Of ten minutes each, as plain rules see memory."""
    by_bin: dict[int, list[float]] = {}
    for at, value in memory:
        if at >= since_seconds:
            by_bin.setdefault(math.ceil(at / 600), []).append(value)
    kept = [(end / 6, statistics.median(v) / MIB) for end, v in by_bin.items() if len(v) >= 5]
    return Line([t for t, _ in kept], [v for _, v in kept])


def _until(line: Line, hours: float) -> Line:
    at = bisect_right(line.times, hours)
    return Line(line.times[:at], line.values[:at])


# --- the whole ------------------------------------------------------------------------------------


class Quiet(NamedTuple):
    """Alarms over healthy weeks of one kind."""

    kind: str
    weeks: int
    alarms_per_week: dict[str, float]
    weeks_with_alarm: dict[str, list[int]]
    """Seeds, for who wants to look."""


class Leak(NamedTuple):
    """Delays over leaking weeks of one rate."""

    kind: str
    mib_per_hour: int
    weeks: int
    found: dict[str, float]
    """Share within the week."""
    median_hours: dict[str, float | None]
    p90_hours: dict[str, float | None]
    early_per_week: dict[str, float]
    """Alarms before the leak began: a rule that always alarms has short delays."""


class Results(NamedTuple):
    """Of one run."""

    quiet: tuple[Quiet, ...]
    leaks: tuple[Leak, ...]
    pod_weeks: int
    has_plain: bool

    @property
    def false_per_week(self) -> float:
        """Mean over the quiet kinds other than the cache that fills undeclared."""
        rates = [each.alarms_per_week[OURS] for each in self.quiet if each.kind != "cachefill"]
        return statistics.fmean(rates) if rates else 0.0

    @property
    def filling_per_week(self) -> float:
        """For the cache that fills undeclared."""
        return next((q.alarms_per_week[OURS] for q in self.quiet if q.kind == "cachefill"), 0.0)

    @property
    def misses(self) -> tuple[str, ...]:
        """Targets that were not met."""
        found = []
        if self.false_per_week > FALSE_AT_MOST:
            found.append(f"{self.false_per_week:.4f} false recycles a week, target {FALSE_AT_MOST}")
        if self.filling_per_week > FILLING_AT_MOST:
            found.append(
                f"{self.filling_per_week:.2f} for a filling cache, target {FILLING_AT_MOST}"
            )
        for leak in self.leaks:
            if leak.kind != "leak":
                continue
            most, median = DELAY_AT_MOST[leak.mib_per_hour], leak.median_hours[OURS]
            if median is None or median > most:
                found.append(f"{leak.mib_per_hour} MiB/h after {median} h, target {most:g} h")
            if leak.found[OURS] < 1:
                found.append(f"{leak.mib_per_hour} MiB/h found in {leak.found[OURS]:.0%} of weeks")
        return tuple(found)


def measured(seeds: range, kinds: Sequence[str], *, plain: bool) -> Results:
    """All kinds over all seeds, with progress on stderr."""
    detectors = {OURS: ours} | (PLAIN if plain else {})
    began, done = time.perf_counter(), 0
    plans = [(kind, 0) for kind in QUIET if kind in kinds]
    plans += [(kind, rate) for kind in LEAKS if kind in kinds for rate in RATES]
    quiet, leaks = [], []
    for kind, rate in plans:
        weeks = []
        for seed in seeds:
            weeks.append(alarms_of(week(kind, seed, rate), detectors))
            done += 1
            spent = time.perf_counter() - began
            total = len(plans) * len(seeds)
            left = spent / done * (total - done) / 60
            print(
                f"\r{done}/{total} weeks, {kind} {rate or ''}: {left:.0f} min left   ",
                end="",
                file=sys.stderr,
                flush=True,
            )
        if rate:
            leaks.append(_leak(kind, rate, weeks))
        else:
            quiet.append(_quiet(kind, seeds, weeks))
    print(file=sys.stderr)
    return Results(tuple(quiet), tuple(leaks), len(plans) * len(seeds), plain)


def _quiet(kind: str, seeds: range, weeks: Sequence[dict[str, list[float]]]) -> Quiet:
    names = list(weeks[0])
    return Quiet(
        kind,
        len(weeks),
        {name: statistics.fmean(len(each[name]) for each in weeks) for name in names},
        {OURS: [seed for seed, each in zip(seeds, weeks, strict=True) if each[OURS]]},
    )


def _leak(kind: str, rate: int, weeks: Sequence[dict[str, list[float]]]) -> Leak:
    found, medians, nineties, early = {}, {}, {}, {}
    for name in weeks[0]:
        delays = sorted(
            next((at - ONSET_HOURS for at in each[name] if at > ONSET_HOURS), math.inf)
            for each in weeks
        )
        found[name] = sum(math.isfinite(each) for each in delays) / len(delays)
        medians[name] = _finite(statistics.median(delays))
        nineties[name] = _finite(delays[math.ceil(0.9 * len(delays)) - 1])
        early[name] = statistics.fmean(sum(a <= ONSET_HOURS for a in each[name]) for each in weeks)
    return Leak(kind, rate, len(weeks), found, medians, nineties, early)


def _finite(value: float) -> float | None:
    """Of all weeks, those without an alarm included; None when it lies among them."""
    return value if math.isfinite(value) else None


# --- how it is told -------------------------------------------------------------------------------


def as_json(results: Results) -> str:
    return json.dumps(
        {
            "podWeeks": results.pod_weeks,
            "falseRecyclesPerPodWeek": results.false_per_week,
            "cacheFillPerPodWeek": results.filling_per_week,
            "misses": results.misses,
            "quiet": [each._asdict() for each in results.quiet],
            "leaks": [each._asdict() for each in results.leaks],
        },
        indent=2,
    )


def as_markdown(results: Results) -> str:
    names = [OURS, *PLAIN] if results.has_plain else [OURS]
    lines = []
    if results.quiet:
        lines += [
            "| alarms per pod-week | " + " | ".join(names) + " |",
            "| --- |" + " ---: |" * len(names),
        ]
        for quiet in results.quiet:
            rates = (f"{quiet.alarms_per_week[name]:.3f}" for name in names)
            lines.append(f"| {quiet.kind} | " + " | ".join(rates) + " |")
        lines.append("")
    if results.leaks:
        lines += [
            "| median hours from onset (90th percentile; share found; alarms before the onset) | "
            + " | ".join(names)
            + " |",
            "| --- |" + " ---: |" * len(names),
        ]
        for leak in results.leaks:
            cells = (_delay(leak, name) for name in names)
            lines.append(f"| {leak.kind}, {leak.mib_per_hour} MiB/h | " + " | ".join(cells) + " |")
        lines.append("")
    lines.append(
        f"{results.pod_weeks} pod-weeks; {results.false_per_week:.4f} false recycles per pod-week over the "
        f"quiet kinds other than cachefill, {results.filling_per_week:.3f} for cachefill."
    )
    return "\n".join(lines)


def _delay(leak: Leak, name: str) -> str:
    def hours(value: float | None) -> str:
        return "-" if value is None else f"{value:.1f}"

    return (
        f"{hours(leak.median_hours[name])} ({hours(leak.p90_hours[name])}; {leak.found[name]:.0%}; "
        f"{leak.early_per_week[name]:.2f})"
    )


def cost() -> dict[str, float]:
    """Of one diagnosis of 2,000 workers with 48 h of bins each: a quarter of them grow."""
    lives = [
        (kind, floors_of(week(kind, seed, rate)))
        for kind, rate in (("diurnal", 0), ("sawtooth", 0), ("plateau", 0), ("leak", 50))
        for seed in range(5)
    ]
    now = 48 * HOUR
    held = [tuple(b for b in bins if b.at_seconds <= now) for _, bins in lives]
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = 2000 // len(held)
    for _ in range(times):
        for bins in held:
            growth(bins, now_seconds=now, ready_seconds=0.0)
    spent = time.process_time() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "workers": times * len(held),
        "seconds": round(spent, 2),
        "millisecondsPerWorkerHour": round(1000 * spent / (times * len(held)), 2),
        "peakMiB": round(after / 1024, 1),
        "grownMiB": round((after - before) / 1024, 1),
        "binsPerWorker": len(held[0]),
    }


def floors_of(made: Week) -> tuple[FloorBin, ...]:
    """Bins of the week's first container."""
    end = made.lives[0].ends_hours * HOUR
    samples = zip(TIMES, made.memory, made.seen, strict=True)
    return floors(
        tuple(Sample(t * HOUR, m * MIB) for t, m, s in samples if s),
        load=tuple(Sample(t * HOUR, value) for t, value in zip(TIMES, made.load, strict=True)),
        now_seconds=end,
    )


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.slope",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", default="0-4", metavar="A-B", help="both ends count")
    parser.add_argument(
        "-o", "--output", choices=("text", "json", "markdown"), default="text", help="default: text"
    )
    parser.add_argument("--only", metavar="KIND,KIND", help="some kinds alone")
    parser.add_argument("--no-plain", action="store_true", help="ours alone, which is quicker")
    parser.add_argument(
        "--cost", action="store_true", help="measure the cost of a diagnosis instead"
    )
    arguments = parser.parse_args(words)
    if arguments.cost:
        print(json.dumps(cost(), indent=2))
        return 0
    kinds = arguments.only.split(",") if arguments.only else [*QUIET, *LEAKS]
    results = measured(_seeds(parser, arguments.seeds), kinds, plain=not arguments.no_plain)
    print(as_json(results) if arguments.output == "json" else as_markdown(results))
    for miss in results.misses:
        print(f"missed: {miss}", file=sys.stderr)
    return 1 if results.misses else 0


def _seeds(parser: argparse.ArgumentParser, text: str) -> range:
    first, _, last = text.partition("-")
    if not first.isdigit() or not (last or first).isdigit() or int(last or first) < int(first):
        parser.error(f"--seeds: {text!r} is not a range; write 0-19")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
