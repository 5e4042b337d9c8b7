"""Which command did a person ask for?

Only the module of that command is imported, so `plimsoll plan` starts without kopf, kubernetes,
aiohttp or rich.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, cast

from plimsoll import __version__
from plimsoll.cli.exits import BadInputError, Exit


class Command(NamedTuple):
    """One word after `plimsoll`, and the sentence that `plimsoll --help` says about it."""

    name: str
    summary: str


class CommandModule(Protocol):
    """What plimsoll/cli/NAME.py holds for the command NAME."""

    EPILOG: str
    """Examples and exit codes, below the options in --help."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's options."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it, and give the exit code. Raises BadInputError for what cannot be read as meant."""


COMMANDS: Final = (
    Command("plan", "what fits on each card, with which flags, and where every byte goes"),
    Command("explain", "the same as a picture: a bar in the terminal, or an SVG file"),
    Command("render", "the exact manifests that the operator would apply"),
    Command("kv", "how vLLM lays out a model's KV cache, and what some memory holds"),
    Command("advise", "does what runs already fit, and what would be pinned for it; never writes"),
    Command("facts", "what a model's files say about its memory, to carry in a manifest"),
    Command("diagnose", "does a recorded worker grow, wait or do well, and would it be recycled"),
    Command("top", "the workers of a cluster: memory, slope, time to the limit, verdict"),
    Command("why", "what is said of one worker, and what holds a recycle back"),
    Command("gate", "the lanes of one gate: slots, lent, queue, refusals, and how long they wait"),
    Command("probe", "does a server find numbers again in long contexts, at 16 bit and at fp8"),
    Command("calibration", "what engines were seen to take: show, export, import, reset"),
    Command("generate", "write CRDs, the chart's parts and the reference pages from the code"),
    Command(
        "agent", "tell of one node's cards (a pod on each GPU node), or show what would be told"
    ),
    Command("keeper", "look after the HAProxy that stands before the workers"),
    Command("healthy", "do the operator's addresses answer that all is well"),
    Command("run", "start the operator (in a pod, or on a laptop with a kubeconfig)"),
    Command("version", "print the version"),
)

_DESCRIPTION: Final = """\
A load line for LLM inference workers: this much context, this many sequences, this many layers on
this card, and no more. plan, explain, render, kv and facts work offline: they need no cluster.
"""
TOP_EPILOG: Final = """\
start with:
  plimsoll plan -f docs/examples/edge-assistant.yaml
  plimsoll plan --help

exit codes:
  0  done, everything fits
  2  bad input: the message on stderr names the field, the value and the way out
  3  read and understood, and refused: the output says why and what would fit
"""
SHORT_LIVED: Final = frozenset(
    {"plan", "explain", "render", "kv", "advise", "facts", "diagnose", "version"}
)
"""Commands over which nobody should wait: they start and end as fast as Python lets them."""
_INTERRUPTED: Final = 130
"""128 + SIGINT, as shells count."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; argv without the program's own name.

    Without argv this is the whole process, and a short-lived command collects no garbage in it.
    """
    if argv is not None:
        return _main(list(argv))
    words = sys.argv[1:]
    if not words or words[0] not in SHORT_LIVED:
        return _main(words)
    gc.disable()  # a process this short makes no garbage worth a search
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # pydantic's own; we use none
    code = _main(words)
    gc.freeze()  # so that the interpreter does not search all of it once more on its way out
    return code


def _main(words: list[str]) -> int:
    try:
        arguments = _parser(words).parse_args(words)
    except SystemExit as leaving:  # --help, or arguments that argparse has already complained about
        return leaving.code if isinstance(leaving.code, int) else Exit.BAD_INPUT
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, `head` for one, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FITS
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


def _run(arguments: argparse.Namespace) -> int:
    if arguments.command == "version":
        print(f"plimsoll {__version__}")
        return Exit.FITS
    try:
        return command_module(arguments.command).run(arguments)
    except BadInputError as error:
        print(f"plimsoll {arguments.command}: {error}", file=sys.stderr)
        return Exit.BAD_INPUT


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_prog(),
        description=_DESCRIPTION,
        epilog=TOP_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"plimsoll {__version__}")
    commands = parser.add_subparsers(prog=_prog(), dest="command", metavar="COMMAND", required=True)
    named = [command for command in COMMANDS if words[:1] == [command.name]]
    for command in named or COMMANDS:
        below = commands.add_parser(
            command.name,
            help=command.summary,
            description=f"{command.summary[0].upper()}{command.summary[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if named and command.name != "version":
            module = command_module(command.name)
            below.epilog = module.EPILOG
            module.add_arguments(below)
    return parser


def _prog() -> str:
    """As it was called: kubectl runs a plugin by the name kubectl-plimsoll."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""  # noqa: PTH119 - pathlib is 4 ms to import
    return "kubectl plimsoll" if name.startswith("kubectl-plimsoll") else "plimsoll"


def command_module(name: str) -> CommandModule:
    """The module of one command, imported only now."""
    return cast(CommandModule, importlib.import_module(f"plimsoll.cli.{name}"))


if __name__ == "__main__":
    raise SystemExit(main())
