"""`plimsoll agent`: how is the agent of one GPU node started, and what does it see here?"""

from __future__ import annotations

import argparse
import json
import os
from typing import Final

from pydantic import ValidationError

from plimsoll.agent.settings import PREFIX, AgentSettings, read_agent_settings
from plimsoll.cli.exits import BadInputError, Exit
from plimsoll.cli.options import add_options, explained, given_options

EPILOG: Final = """\
examples:
  plimsoll agent                                   in a pod of the chart's DaemonSet
  plimsoll agent --show                            what would be said of the cards here; needs no cluster

Every option can stand in the environment instead, under the name in brackets; the command line wins.

exit codes:
  0  told to stop, and stopped in good order; or shown
  1  no credentials, or no name of the node: the log says which
  2  a setting cannot be read as meant
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One option for each setting, and --show."""
    parser.add_argument(
        "--show",
        action="store_true",
        help="look once, print the status as JSON, write nothing anywhere",
    )
    add_options(parser, AgentSettings, PREFIX)


def run(arguments: argparse.Namespace) -> int:
    """Start the agent and wait until it ends, or look once."""
    try:
        settings = read_agent_settings(os.environ, **given_options(arguments, AgentSettings))
    except ValidationError as error:
        raise BadInputError(explained(error, AgentSettings, PREFIX)) from error
    if arguments.show:
        from plimsoll.agent.look import show  # noqa: PLC0415 - the agent itself needs a client

        print(json.dumps(show(settings).to_json(), indent=2))
        return Exit.FITS
    from plimsoll.agent.main import run as run_agent  # noqa: PLC0415 - after the settings

    return run_agent(settings)
