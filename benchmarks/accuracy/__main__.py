"""`make accuracy`: every reported figure beside the planned one, and beside the peers'.

python -m benchmarks.accuracy                    a summary and what is not met, as text
python -m benchmarks.accuracy -o json            one row a case, and the summary
python -m benchmarks.accuracy --write            docs/measured/accuracy.md and its plot
python -m benchmarks.accuracy --check            exit 1 with the lines that differ from them

--vllm-oracle, --readings, --llamacpp-oracle and --llamacpp-readings take files in the formats of tests/data,
with any models; where one is given, only the given ones are compared.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.accuracy import plot, report
from benchmarks.accuracy.cases import (
    ROOT,
    SOURCES,
    CasesError,
    Compared,
    Source,
    compared,
    with_peers,
)
from benchmarks.accuracy.summary import summary

FOUND, DIFFERS, BAD_INPUT = 0, 1, 2


def main(words: Sequence[str]) -> int:
    arguments = _parsed(words)
    given = {source: getattr(arguments, source.option.replace("-", "_")) for source in SOURCES}
    chosen = {source: path for source, path in given.items() if path} or {
        source: source.default for source in SOURCES
    }
    try:
        figures = [each for source, path in chosen.items() for each in compared(source, path)]
    except CasesError as missing:
        print(f"accuracy: {missing}", file=sys.stderr)
        return BAD_INPUT
    rows, told = with_peers(figures), summary(figures)
    if arguments.write or arguments.check:
        pages = written(figures, chosen)
        return check(pages) if arguments.check else write(pages)
    if arguments.output == "json":
        print(report.as_json(rows, told))
    elif arguments.output == "markdown":
        print(report.as_markdown(figures, told, _named(chosen)), end="")
    else:
        print(report.as_text(rows, told))
    return FOUND


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for source in SOURCES:
        parser.add_argument(f"--{source.option}", type=Path, metavar="FILE", help=source.words)
    parser.add_argument("-o", "--output", choices=("json", "text", "markdown"), default="text")
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--write", "--markdown", action="store_true", help=f"{report.PAGE} and plot")
    end.add_argument("--check", action="store_true", help="compare with the committed report")
    return parser.parse_args(words)


def written(figures: Sequence[Compared], chosen: dict[Source, Path]) -> dict[Path, str]:
    """The page and its plot."""
    told = summary(figures)
    return {
        ROOT / report.PAGE: report.as_markdown(figures, told, _named(chosen)),
        ROOT / report.PLOT: plot.svg(figures),
    }


def write(pages: dict[Path, str]) -> int:
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
        print(f"accuracy: wrote {path.relative_to(ROOT)}", file=sys.stderr)
    return FOUND


def check(pages: dict[Path, str]) -> int:
    """Print the lines that differ; `make accuracy` writes them anew."""
    ends = FOUND
    for path, text in pages.items():
        name = str(path.relative_to(ROOT))
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        for line in difflib.unified_diff(
            before.splitlines(), text.splitlines(), name, f"{name}, planned now", n=0, lineterm=""
        ):
            ends = DIFFERS
            print(line)
    if ends == DIFFERS:
        print("accuracy: the report differs; `make accuracy` writes it anew", file=sys.stderr)
    return ends


def _named(chosen: dict[Source, Path]) -> list[tuple[Source, str]]:
    whole = ((source, path.resolve()) for source, path in chosen.items())
    return [
        (source, str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name)
        for source, path in whole
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
