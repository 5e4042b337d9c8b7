"""`plimsoll explain`: how does the card look, byte by byte?"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from plimsoll.cli.answers import Answer, exit_code
from plimsoll.cli.documents import STDIN
from plimsoll.cli.exits import BadInputError
from plimsoll.cli.inputs import add_input_arguments, add_lengths_argument, answers_to
from plimsoll.cli.text import page_of

EPILOG: Final = """\
examples:
  plimsoll explain -f chat.yaml                    a bar for each pool, in the terminal
  plimsoll explain -f chat.yaml --gpu l40s         the same on another card
  plimsoll explain -f chat.yaml --svg card.svg     and a picture for a page or a review
  plimsoll explain -f chat.yaml --svg - >card.svg  only the picture

Every owner of bytes has its letter, so the bar reads without colour too (NO_COLOR=1). A bar shows one
card of the worker, the fullest one.

exit codes:
  0  every pool fits
  2  bad input: the message on stderr names the field, the value and the way out
  3  at least one pool is refused
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plimsoll explain`."""
    add_input_arguments(parser)
    add_lengths_argument(parser)
    parser.add_argument(
        "--svg", metavar="FILE", help="write the picture to this file; - for standard output"
    )


def run(arguments: argparse.Namespace) -> int:
    """Plan, draw, and say by the exit code whether all fits."""
    answers = answers_to(arguments)
    if arguments.svg == STDIN:
        sys.stdout.write(_svg(answers))
        return exit_code(answers)
    _draw(answers)
    if arguments.svg is not None:
        _write(Path(arguments.svg), _svg(answers))
    return exit_code(answers)


def _draw(answers: Sequence[Answer]) -> None:
    from rich.console import Console  # noqa: PLC0415 - only where something is drawn

    from plimsoll.cli.bar import draw  # noqa: PLC0415

    page = page_of(sys.stdout, no_colour=bool(os.environ.get("NO_COLOR")))
    console = Console(
        file=sys.stdout,
        width=page.width,
        no_color=not page.colour,
        force_terminal=page.colour,
        highlight=False,
        markup=False,
        emoji=False,
    )
    draw(answers, console)


def _svg(answers: Sequence[Answer]) -> str:
    from plimsoll.cli.svg import svg  # noqa: PLC0415 - only where a picture is asked for

    return svg(answers)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInputError(
            f"--svg: {path} cannot be written: {error.strerror or error}; name a file in a folder "
            "that exists and is yours"
        ) from error
    print(f"wrote {path}", file=sys.stderr)
