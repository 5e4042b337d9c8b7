"""`plimsoll healthy`: do these addresses answer that all is well?

For `helm test`, and for whoever has our image and no other program in it.
"""

from __future__ import annotations

import argparse
import sys
import urllib.error
import urllib.request
from typing import Final

from plimsoll.cli.exits import BadInputError, Exit

EPILOG: Final = """\
examples:
  plimsoll healthy http://plimsoll-metrics.plimsoll-system.svc:8081/readyz
  plimsoll healthy http://127.0.0.1:8081/healthz http://127.0.0.1:8080/metrics

exit codes:
  0  each answered with 200
  1  one did not; it is named, with what it said
  2  an address that is none
"""
TIMEOUT_SECONDS: Final = 10.0
LONGEST_ANSWER_BYTES: Final = 1024
SHOWN_CHARACTERS: Final = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plimsoll healthy`."""
    parser.add_argument("addresses", metavar="URL", nargs="+", help="http:// or https:// address")


def run(arguments: argparse.Namespace) -> int:
    """Ask each once, and say what came."""
    for address in arguments.addresses:
        if not address.startswith(("http://", "https://")):
            raise BadInputError(f"{address!r} is no address: it begins with http:// or https://")
    said = [(address, _asked(address)) for address in arguments.addresses]
    for address, trouble in said:
        if trouble is None:
            print(f"{address}: ok")
        else:
            print(f"{address}: {trouble}", file=sys.stderr)
    return Exit.FITS if all(trouble is None for _, trouble in said) else Exit.DIFFERS


def _asked(address: str) -> str | None:
    """What is wrong; None for an answer of 200. No proxy is asked: the address is the cluster's own."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=TIMEOUT_SECONDS) as answer:
            return None if answer.status == 200 else f"answered {answer.status}"
    except urllib.error.HTTPError as error:
        text = error.read(LONGEST_ANSWER_BYTES).decode(errors="replace")[:SHOWN_CHARACTERS]
        return f"answered {error.code}: {text.strip()}"
    except (OSError, ValueError) as error:
        return f"no answer: {error}"
