"""`plimsoll plan`: what fits on each card, with which flags, and where does every byte go?"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final

from plimsoll.cli.answers import exit_code
from plimsoll.cli.exits import BadInputError, Exit
from plimsoll.cli.inputs import (
    add_calibration_argument,
    add_input_arguments,
    add_lengths_argument,
    answers_to,
)
from plimsoll.cli.output import Form, add_output, as_text
from plimsoll.cli.text import Page, page_of

EPILOG: Final = """\
examples:
  plimsoll plan -f chat.yaml                       every pool of the file
  plimsoll plan -f chat.yaml --gpu rtx-4090        the same on another card
  plimsoll plan -f chat.yaml --all-gpus            on every card of the catalogue, best first
  kubectl get nodes -o json | plimsoll plan -f chat.yaml --facts -
  curl -s vllm:8000/metrics | plimsoll plan -f chat.yaml --lengths -
  plimsoll plan -f chat.yaml -o json | jq '.[0].outcome.flags'

Works offline. Cards come from --facts, else from the catalogue; facts of the model from the file's
model.facts, else from the catalogue by model.id.

exit codes:
  0  every pool fits (with --all-gpus: each on some card)
  2  bad input: the message on stderr names the field, the value and the way out
  3  at least one pool is refused: the output says why and what would fit
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plimsoll plan`."""
    add_input_arguments(parser)
    add_lengths_argument(parser)
    add_calibration_argument(parser)
    parser.add_argument(
        "--all-gpus",
        action="store_true",
        help="compare all cards of the catalogue, best capacity first",
    )
    add_output(parser, says="table (default), json or yaml")


def run(arguments: argparse.Namespace) -> int:
    """Plan, print, and say by the exit code whether all fits."""
    form = Form(arguments.output)
    if arguments.all_gpus:
        return _compare(arguments, form)
    answers = answers_to(arguments)
    if form is Form.TABLE:
        from plimsoll.cli.report import report  # noqa: PLC0415 - not for JSON

        sys.stdout.write(report(answers, page=_page()))
    else:
        sys.stdout.write(as_text([answer.to_json() for answer in answers], form))
    return exit_code(answers)


def _compare(arguments: argparse.Namespace, form: Form) -> int:
    """A pool for which no card fits is refused; cards that do not fit are what a comparison is for."""
    from plimsoll.cli.compare import compare, comparison  # noqa: PLC0415 - rarely needed

    if arguments.gpu is not None or arguments.facts:
        raise BadInputError("--all-gpus looks at the whole catalogue; leave out --gpu and --facts")
    contests = compare(arguments)
    if form is Form.TABLE:
        sys.stdout.write(comparison(contests, page=_page()))
    else:
        answers = [answer.to_json() for contest in contests for answer in contest.answers]
        sys.stdout.write(as_text(answers, form))
    return max((exit_code(contest.answers[:1]) for contest in contests), default=Exit.FITS)


def _page() -> Page:
    return page_of(sys.stdout, no_colour=bool(os.environ.get("NO_COLOR")))
