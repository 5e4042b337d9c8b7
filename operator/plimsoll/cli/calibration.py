"""`plimsoll calibration`: what have engines been seen to take, and how is it carried elsewhere?

It lies in the ConfigMap plimsoll-calibration of each namespace. Without --write nothing is changed: what would
be written is printed, for `kubectl apply -f -`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from plimsoll.cli.calibration_file import read_calibration
from plimsoll.cli.exits import BadInputError, Exit
from plimsoll.cli.output import as_yaml
from plimsoll.cli.watched import add_cluster_arguments, with_client
from plimsoll.plan.calibration import LEAST_SHARE, Measurement, merged
from plimsoll.plan.calibration_text import Calibration, text_of
from plimsoll.render.calibration import CALIBRATION_NAME, calibration_manifest
from plimsoll.units import gib

EPILOG: Final = """\
examples:
  plimsoll calibration show -n chat
  plimsoll calibration export -n chat > h100.json
  plimsoll calibration import h100.json -n other --write
  plimsoll calibration import h100.json | kubectl apply -n fresh -f -
  plimsoll calibration reset -n chat --write
  kubectl get cm plimsoll-calibration -n chat -o yaml | plimsoll calibration show -f -
  plimsoll plan -f chat.yaml --calibration h100.json

actions:
  show    what is known, a line each, and which part of the bound lines a plan would use
  export  the same as JSON, to keep or to carry to another cluster
  import  add what a file holds to what is known (with --write in the cluster, with --file in that file); of
          one key the larger measurement counts
  reset   forget all of it

The namespace is --namespace, else default. --file reads a file in the cluster's place.

exit codes:
  0  done
  2  bad input, or the cluster does not answer
"""
ACTIONS: Final = ("show", "export", "import", "reset")
DEFAULT_NAMESPACE: Final = "default"
_COLUMNS: Final = (
    *("GPU", "CARDS", "ARCHITECTURE", "RELEASE", "MEASURED", "BOUND"),
    *("USED", "PLANS", "UNTIL", "FLAGS"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plimsoll calibration`."""
    parser.add_argument("action", metavar="ACTION", choices=ACTIONS, help=", ".join(ACTIONS))
    parser.add_argument(
        "source",
        metavar="FILE",
        nargs="?",
        help="import: what to add, as export printed it, or a ConfigMap; - is standard input",
    )
    parser.add_argument(
        "-f",
        "--file",
        metavar="FILE",
        help="read what is known from this file (JSON, or the ConfigMap) and not from the cluster",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="import and reset: write the ConfigMap to the cluster instead of printing it",
    )
    add_cluster_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Do it."""
    action: str = arguments.action
    _check(arguments)
    if action == "reset":
        return _put(arguments, ())
    if action == "import":
        added = read_calibration(arguments.source, "import").measured
        known = _known(arguments).measured if arguments.file or arguments.write else ()
        return _put(arguments, merged(known, added) if known else added)
    known = _known(arguments).measured
    sys.stdout.write(text_of(known) if action == "export" else table(known))
    return Exit.FITS


def _check(arguments: argparse.Namespace) -> None:
    is_import = arguments.action == "import"
    if is_import and arguments.source is None:
        raise BadInputError("import: name the FILE to import; - is standard input")
    if not is_import and arguments.source is not None:
        raise BadInputError(
            f"{arguments.action}: takes no FILE of its own; --file {arguments.source} reads it in the "
            "cluster's place"
        )
    if arguments.write and arguments.action not in ("import", "reset"):
        raise BadInputError(f"--write: {arguments.action} writes nothing; leave it out")
    if arguments.write and arguments.file:
        raise BadInputError("--write and --file: one is the cluster, the other is not; give one")


def _known(arguments: argparse.Namespace) -> Calibration:
    """What is known, in the file or in the cluster."""
    if arguments.file:
        return read_calibration(arguments.file, "--file")
    from plimsoll.cluster.calibration import read_calibration as read  # noqa: PLC0415 - a second to import

    namespace = arguments.namespace or DEFAULT_NAMESPACE

    async def ask(client: Any) -> Calibration:
        return await read(client, namespace)

    found = with_client(arguments.kubeconfig, ask)
    for warning in found.warnings:
        print(f"plimsoll: {namespace}/{CALIBRATION_NAME}: {warning}", file=sys.stderr)
    return found


def _put(arguments: argparse.Namespace, measured: Sequence[Measurement]) -> int:
    if not arguments.write:
        sys.stdout.write(as_yaml(calibration_manifest(arguments.namespace, text_of(measured))))
        return Exit.FITS
    from plimsoll.cluster.calibration import put_calibration  # noqa: PLC0415 - a second to import

    namespace = arguments.namespace or DEFAULT_NAMESPACE

    async def write(client: Any) -> None:
        client.may_write = lambda: True
        await put_calibration(client, namespace, measured)

    with_client(arguments.kubeconfig, write)
    print(f"{namespace}/{CALIBRATION_NAME}: {len(measured)} entries", file=sys.stderr)
    return Exit.FITS


def table(measured: Sequence[Measurement]) -> str:
    """A line each, columns as wide as they need."""
    rows = [_COLUMNS, *(_row(one) for one in measured)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_COLUMNS))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(lines) + "\n"


def _row(one: Measurement) -> tuple[str, ...]:
    key = one.key
    extras = f",extras={key.extras}" if key.extras else ""
    return (
        key.gpu,
        str(key.cards),
        f"{key.architecture} {key.shape.partition('/')[0]}",
        f"{key.engine} {key.release}",
        gib(one.measured_bytes),
        gib(one.bound_bytes),
        f"{max(one.share, LEAST_SHARE):.0%}",
        str(one.plans),
        one.until[:10] or "-",
        key.flags + extras,
    )
