"""`plimsoll keeper`: who looks after an HAProxy that stands before workers?"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final

from pydantic import ValidationError

from plimsoll.cli.exits import BadInputError
from plimsoll.cli.options import add_options, explained, given_options
from plimsoll.keeper.settings import PREFIX, Duty, read_duty

EPILOG: Final = """\
examples:
  plimsoll keeper --prepare                        write the maps that HAProxy needs to start, and end
  plimsoll keeper                                  keep limits and workers until told to stop

It stands beside the data path. When it ends, limits stay as they are and keep to the plan; the next one
reads what runs and goes on. SIGUSR1 says that another gate takes over: nothing is raised any more.

exit codes:
  0  told to stop, and stopped in good order
  1  something ended unasked, or another keeper runs here
  2  a setting, the plan or a key cannot be read as meant
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One option for each setting."""
    parser.add_argument("--prepare", action="store_true", help="write HAProxy's maps, and end")
    add_options(parser, Duty, PREFIX)


def run(arguments: argparse.Namespace) -> int:
    """Prepare, or keep until told to stop."""
    try:
        duty = read_duty(os.environ, **given_options(arguments, Duty))
    except ValidationError as error:
        raise BadInputError(explained(error, Duty, PREFIX)) from error
    import asyncio  # noqa: PLC0415 - after the settings

    from plimsoll.keeper.main import BusyError, prepare  # noqa: PLC0415
    from plimsoll.keeper.main import run as keep  # noqa: PLC0415
    from plimsoll.telemetry.log import set_up  # noqa: PLC0415

    set_up("json", "INFO")
    try:
        if arguments.prepare:
            prepare(duty)
        else:
            asyncio.run(keep(duty))
    except BusyError as error:
        print(f"plimsoll keeper: {error}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        raise BadInputError(str(error)) from error
    return 0
