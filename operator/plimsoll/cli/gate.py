"""`plimsoll gate`: what do the lanes of one deployment's gate have, wait for and get refused?"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from plimsoll.api.status_types import GatewayStatus
from plimsoll.cli.exits import BadInputError, Exit
from plimsoll.cli.gate_report import Seen, as_data, told
from plimsoll.cli.output import Form, add_output, as_text
from plimsoll.cli.text import page_of
from plimsoll.cli.watched import add_cluster_arguments, look, with_client
from plimsoll.gate.figures import Page, figures_of
from plimsoll.units import parse_seconds

EPILOG: Final = """\
examples:
  plimsoll gate chat -n inference
  plimsoll gate chat -n inference --over 30s           counts of half a minute, not since the keeper's start
  plimsoll gate chat -o json | jq '.lanes[] | {name, slots, queued, refused}'

Gates' pages are read by the API server's proxy, with your own rights: list pods, get pods/proxy (Kubernetes' role
edit has both). Without, or where a NetworkPolicy is in the way:

  kubectl port-forward -n inference POD 8406
  plimsoll gate --page http://127.0.0.1:8406

A page that was saved is read as well, several gates' pages together:

  curl -s http://127.0.0.1:8406/metrics | plimsoll gate -f -
  plimsoll gate -f gate-0.txt -f gate-1.txt

LENT is what a lane has above its own slots, or gave away of them. WAIT P95 is the bound below which 95 in a hundred
waits for a slot lie; `more` is above the largest, a minute.

exit codes:
  0  done, also where a gate's page could not be read: the output says why
  2  bad input, no such InferenceDeployment, no gate, or the cluster does not answer
"""
STDIN: Final = "-"
WAYS: Final = "name an InferenceDeployment, or give --page URL, or -f FILE"


class Looked(NamedTuple):
    """One look at all gates."""

    pages: dict[str, Page]
    """By gate."""
    problems: dict[str, str]
    """By gate: why there is no page."""
    where: str = ""
    """namespace/name; empty where nobody was asked for one."""
    status: GatewayStatus | None = None
    """What the operator says of the gate."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Whose gate, where its pages are, and how to show them."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="the InferenceDeployment")
    add_cluster_arguments(parser)
    parser.add_argument(
        "--page",
        metavar="URL",
        action="append",
        help="a keeper's page, e.g. http://127.0.0.1:8406; once for each gate",
    )
    parser.add_argument(
        "-f",
        "--file",
        metavar="FILE",
        action="append",
        help="a page that was saved, - for standard input; once for each gate",
    )
    parser.add_argument(
        "--over", metavar="TIME", help="look twice, so long apart, and count what came between"
    )
    add_output(parser, says="table (default), or json or yaml for programs")


def run(arguments: argparse.Namespace) -> int:
    """Look, once or twice, and show."""
    look_now = _source(arguments)
    over_seconds = _over(arguments)
    before = look_now() if over_seconds else None
    if over_seconds:
        time.sleep(over_seconds)
    seen = _together(look_now(), before, over_seconds)
    form = Form(arguments.output)
    if form is not Form.TABLE:
        sys.stdout.write(as_text(as_data(seen), form))
        return Exit.FITS
    page = page_of(sys.stdout, no_colour=bool(os.environ.get("NO_COLOR")))
    sys.stdout.write("\n".join(told(seen, page)) + "\n")
    return Exit.FITS


def _source(arguments: argparse.Namespace) -> Callable[[], Looked]:
    """The way to the pages that was asked for; exactly one."""
    given = [bool(each) for each in (arguments.name, arguments.page, arguments.file)]
    if sum(given) != 1:
        raise BadInputError(f"{'choose one' if any(given) else 'whose gate?'}: {WAYS}")
    if arguments.page:
        return lambda: asyncio.run(_fetched(arguments.page))
    if arguments.file:
        return lambda: _saved(arguments.file)
    return lambda: with_client(
        arguments.kubeconfig,
        lambda client: _in_cluster(client, arguments.name, arguments.namespace),
    )


def _over(arguments: argparse.Namespace) -> int:
    """Seconds between two looks; 0 for one look."""
    if arguments.over is None:
        return 0
    if arguments.file:
        raise BadInputError("--over: a saved page stays as it is; look at the gate itself")
    try:
        return max(1, parse_seconds(arguments.over))
    except ValueError as error:
        raise BadInputError(f"--over: {error}") from error


def _together(looked: Looked, before: Looked | None, over_seconds: int) -> Seen:
    """Gates that came within the time are counted from their start."""
    earlier = None if before is None else [before.pages.get(gate, ()) for gate in looked.pages]
    return Seen(
        figures_of(list(looked.pages.values()), earlier),
        where=looked.where,
        status=looked.status,
        over_seconds=over_seconds,
        problems=looked.problems,
    )


# ---- the ways to the pages -----------------------------------------------------------------------


def _saved(names: list[str]) -> Looked:
    from plimsoll.telemetry.gate_page import read_gate_page  # noqa: PLC0415 - after the arguments
    from plimsoll.telemetry.source import ScrapeError  # noqa: PLC0415

    pages: dict[str, Page] = {}
    for name in names:
        if name in pages:
            raise BadInputError(f"-f {name}: it is there twice, and its gate would count twice")
        try:
            text = sys.stdin.read() if name == STDIN else Path(name).read_text(encoding="utf-8")
            pages[name] = read_gate_page(text)
        except OSError as error:
            raise BadInputError(f"-f {name}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise BadInputError(f"-f {name}: no text, byte {error.start} is not UTF-8") from error
        except ScrapeError as error:
            raise BadInputError(f"-f {name}: {error.message}") from error
    return Looked(pages, {})


async def _fetched(urls: list[str]) -> Looked:
    from plimsoll.telemetry.fetch import Fetcher  # noqa: PLC0415 - after the arguments
    from plimsoll.telemetry.gate_page import PATH, read_gate_page  # noqa: PLC0415
    from plimsoll.telemetry.source import ScrapeError  # noqa: PLC0415

    pages, problems = {}, {}
    fetcher = Fetcher()
    try:
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise BadInputError(
                    f"--page {url}: write it with http:// or https://, e.g. http://127.0.0.1:8406"
                )
            address = url.rstrip("/").removesuffix(PATH) + PATH
            try:
                body = await fetcher.get(address)
                pages[url] = read_gate_page(body.decode("utf-8", "replace"))
            except ScrapeError as error:
                problems[url] = error.message
    finally:
        await fetcher.close()
    if not pages:
        said = "; ".join(f"{url}: {problem}" for url, problem in problems.items())
        raise BadInputError(f"--page {said}")
    return Looked(pages, problems)


async def _in_cluster(client: Any, name: str, namespace: str | None) -> Looked:
    from plimsoll.cluster.gate_pages import gate_pages  # noqa: PLC0415 - a second to import
    from plimsoll.telemetry.gate_page import read_gate_page  # noqa: PLC0415
    from plimsoll.telemetry.source import ScrapeError  # noqa: PLC0415

    found = [seen for seen in await look(client, namespace) if seen.name == name]
    if not found:
        raise BadInputError(
            f"{name!r} is no InferenceDeployment in reach; `kubectl get infd -A` lists them"
        )
    if len(found) > 1:
        where = " and ".join(seen.namespace for seen in found)
        raise BadInputError(f"{name!r} is in {where}; say which with --namespace")
    (seen,) = found
    where = f"{seen.namespace}/{seen.name}"
    pages, problems = {}, {}
    for each in await gate_pages(client, seen.namespace, seen.name):
        try:
            if each.problem:
                problems[each.pod] = each.problem
            else:
                pages[each.pod] = read_gate_page(each.text)
        except ScrapeError as error:
            problems[each.pod] = error.message
    if seen.status.gateway is None and not pages and not problems:
        raise BadInputError(
            f"{where} has no gate: set spec.gateway.enabled and spec.gateway.image, or see whether the operator runs"
        )
    return Looked(pages, problems, where, seen.status.gateway)
