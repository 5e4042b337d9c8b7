"""How long are the requests that an engine has served, by its own count?

vLLM exports histograms of prompt and answer tokens (vLLM 0.33.0, v1/metrics/loggers.py; the same names
since 0.8.5). Only the few lines that are needed are read here: the command line answers without a
metrics library.
"""

import math
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

PROMPTS: Final = "vllm:request_prompt_tokens"
ANSWERS: Final = "vllm:request_generation_tokens"
FEW_REQUESTS: Final = 1000
"""Below so many requests a tail of one in a thousand has hardly been seen."""

_SAMPLE: Final = re.compile(
    r"^(?P<name>[A-Za-z_:][\w:]*)_(?P<part>bucket|sum)\{(?P<labels>.*)\}\s+(?P<value>\S+)"
)
_LABEL: Final = re.compile(r'(?P<key>[A-Za-z_]\w*)="(?P<value>(?:[^"\\]|\\.)*)"')


class LengthHistogram(NamedTuple):
    """Lengths of many requests, counted by bucket."""

    bounds: tuple[int, ...]
    """Upper bounds of the buckets in tokens, rising; above the last is one more bucket without a bound."""
    counts: tuple[int, ...]
    """Requests in each bucket, one more than there are bounds."""
    total_tokens: int
    """Tokens of all requests together."""

    @property
    def requests(self) -> int:
        """Requests that were counted."""
        return sum(self.counts)

    @property
    def p50(self) -> int:
        """The bound below which at least half of the requests lie, in tokens."""
        return self._bound_of(0.5)

    @property
    def p99(self) -> int:
        """The bound below which at least 99 of 100 requests lie, in tokens.

        Where the bucket has no bound, twice the last one: the engine's buckets go 1, 2, 5, 10 and end
        below its longest sequence.
        """
        return self._bound_of(0.99)

    def _bound_of(self, share: float) -> int:
        needed, seen = share * self.requests, 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            seen += count
            if seen >= needed:
                return bound
        return 2 * self.bounds[-1]


class SeenLengths(NamedTuple):
    """What one or more engines counted."""

    prompts: LengthHistogram
    """Prompts, in tokens."""
    answers: LengthHistogram
    """Answers, in tokens."""


def read_lengths(text: str) -> SeenLengths:
    """The lengths in the text of one or more /metrics pages, all engines and models together.

    Raises ValueError when a histogram is missing, empty, or not one.
    """
    return SeenLengths(prompts=_histogram(text, PROMPTS), answers=_histogram(text, ANSWERS))


def _histogram(text: str, name: str) -> LengthHistogram:
    series: dict[str, dict[float, float]] = {}
    total = 0.0
    for page, line in enumerate_pages(text.splitlines(), f"# TYPE {name} "):
        match = _SAMPLE.match(line)
        if match is None or match["name"] != name:
            continue
        labels = {found["key"]: found["value"] for found in _LABEL.finditer(match["labels"])}
        try:
            value = float(match["value"])
            bound = float(labels.pop("le")) if match["part"] == "bucket" else None
        except (KeyError, ValueError) as error:
            raise ValueError(f"{name}: cannot be read: {line.strip()[:100]}") from error
        if bound is None:
            total += value
        else:
            series.setdefault(f"{page} {sorted(labels.items())}", {})[bound] = value
    if not series:
        raise ValueError(
            f"{name} is not in it; give the text of vLLM's /metrics, e.g. from `curl HOST:8000/metrics`"
        )
    bounds = sorted(next(iter(series.values())))
    if any(sorted(each) != bounds for each in series.values()):
        raise ValueError(
            f"{name}: the engines count in different buckets; give pages of engines with one "
            "max_model_len"
        )
    if len(bounds) < 2 or not math.isinf(bounds[-1]):
        raise ValueError(f"{name}: a bucket is missing; give the page as the engine wrote it")
    return _counted(name, series.values(), bounds, total)


def enumerate_pages(lines: Iterable[str], begins: str) -> Iterable[tuple[int, str]]:
    """Each line with the number of its page, so that equal labels of two engines stay apart."""
    page = 0
    for line in lines:
        page += line.startswith(begins)
        yield page, line


def _counted(
    name: str, series: Iterable[dict[float, float]], bounds: list[float], total: float
) -> LengthHistogram:
    up_to = [sum(each[bound] for each in series) for bound in bounds]
    counts = [round(here - before) for before, here in zip([0.0, *up_to], up_to, strict=False)]
    if any(count < 0 for count in counts):
        raise ValueError(f"{name}: counts fall while lengths grow; give the page as it was written")
    if not any(counts):
        raise ValueError(f"{name} has counted no request yet; ask again when the engine has served")
    return LengthHistogram(
        bounds=tuple(int(bound) for bound in bounds[:-1]),
        counts=tuple(counts),
        total_tokens=round(total),
    )
