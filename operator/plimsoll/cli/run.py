"""`plimsoll run`: how is the operator started?

One option for each setting; the settings themselves, with defaults and checks, are in
controller/settings.py.
"""

from __future__ import annotations

import argparse
import os
import platform
from typing import Final

from pydantic import ValidationError

from plimsoll.cli.exits import BadInputError
from plimsoll.cli.options import add_options, explained, given_options
from plimsoll.controller.settings import PREFIX, Settings, read_settings

EPILOG: Final = """\
examples:
  plimsoll run                                     in a pod: by its service account
  plimsoll run --kubeconfig ~/.kube/config         from a laptop
  plimsoll run --namespaces team-a,team-b          look after these namespaces only

Every option can stand in the environment instead, under the name in brackets; the command line wins.

exit codes:
  0  told to stop, and stopped in good order
  1  something ended unasked: the log says what, and starting anew is right
  2  a setting cannot be read as meant
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One option for each setting. Values are checked by the settings themselves."""
    add_options(parser, Settings, PREFIX)


def run(arguments: argparse.Namespace) -> int:
    """Start the operator and wait until it ends."""
    given = given_options(arguments, Settings)
    try:
        settings = read_settings(os.environ, default_identity=_identity(), **given)
    except ValidationError as error:
        raise BadInputError(explained(error, Settings, PREFIX)) from error
    from plimsoll.controller.main import run as run_operator  # noqa: PLC0415 - after the settings

    return run_operator(settings)


def _identity() -> str:
    """Different for two operators on one laptop."""
    return f"{platform.node() or 'plimsoll'}-{os.getpid()}"
