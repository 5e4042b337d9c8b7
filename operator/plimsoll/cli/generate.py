"""`plimsoll generate`: which files of this repository are printed from code, and do they say what it says?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from plimsoll.api.schema import crd_files
from plimsoll.cli.exits import BadInputError, Exit
from plimsoll.cli.references import FOLDER as REFERENCE
from plimsoll.cli.references import references
from plimsoll.cluster.agent_grants import agent_role_rules
from plimsoll.cluster.grants import cluster_role_rules, own_role_rules, watched_role_rules
from plimsoll.render.chart import render_chart_crd, render_chart_rbac, render_chart_watched_rbac
from plimsoll.render.chart_readme import render_chart_readme

EPILOG: Final = """\
examples:
  plimsoll generate                      in a checkout: write the files
  plimsoll generate --check              write nothing; list the files that differ
  plimsoll generate --root ../plimsoll   for a checkout elsewhere

written: crds/ from the types, charts/plimsoll/templates/crds/ as the chart's copy of it, the
operator's and the agents' roles in the chart from the lists of verbs that their code uses, the chart's
README from its values and their schema, and docs/reference/ from types, commands, settings and metrics.

exit codes:
  0  done, or nothing differs
  1  with --check: the files listed differ from what the code prints
  2  the folder is not a checkout
"""
CHART: Final = "charts/plimsoll/templates"
README: Final = "charts/plimsoll/README.md"
README_FROM: Final = ("charts/plimsoll/values.yaml", "charts/plimsoll/values.schema.json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plimsoll generate`."""
    parser.add_argument(
        "--check", action="store_true", help="write nothing, list the files that differ"
    )
    parser.add_argument(
        "--root", metavar="FOLDER", default=".", help="the checkout (default: where you are)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the files, or list those that differ."""
    root = Path(arguments.root)
    if not (root / "charts" / "plimsoll" / "Chart.yaml").is_file():
        raise BadInputError(
            f"--root: {arguments.root!r} is not a checkout of Plimsoll: it has no "
            "charts/plimsoll/Chart.yaml"
        )
    differing = differing_files(root)
    if arguments.check:
        for name in differing:
            print(name)
        if differing:
            print("differ from what the code prints; run `plimsoll generate`", file=sys.stderr)
        return Exit.DIFFERS if differing else Exit.FITS
    texts = generated(root)
    for name in differing:
        path = root / name
        if name not in texts:
            path.unlink()
            print(f"removed {name}")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts[name], encoding="utf-8")
        print(f"wrote {name}")
    return Exit.FITS


def generated(root: Path | None = None) -> Mapping[str, str]:
    """Path below the checkout to text, for every file that is printed from code; with the checkout also those
    that are printed from other files of it."""
    crds = crd_files()
    from_files = {} if root is None else _from_files(root)
    return from_files | {
        **{f"crds/{name}": text for name, text in crds.items()},
        **{f"{CHART}/crds/{name}": render_chart_crd(text) for name, text in crds.items()},
        f"{CHART}/clusterrole.yaml": render_chart_rbac(
            cluster_role_rules(), elsewhere=cluster_role_rules(watches_all_namespaces=False)
        ),
        f"{CHART}/watched-role.yaml": render_chart_watched_rbac(watched_role_rules()),
        f"{CHART}/agent-clusterrole.yaml": render_chart_rbac(agent_role_rules(), of_agents=True),
        f"{CHART}/role.yaml": render_chart_rbac(own_role_rules(), namespaced=True),
        **references(),
    }


def differing_files(root: Path) -> tuple[str, ...]:
    """Files that are missing or differ, and CRDs and reference pages that nothing prints any more."""
    texts = generated(root)
    changed = [name for name, text in texts.items() if _read(root / name) != text]
    folders = (root / "crds", root / CHART / "crds")
    there = [path for folder in folders if folder.is_dir() for path in folder.glob("*.yaml")]
    there += (root / REFERENCE).glob("*.md")
    left_over = [name for path in there if (name := path.relative_to(root).as_posix()) not in texts]
    return tuple(sorted([*changed, *left_over]))


def _from_files(root: Path) -> dict[str, str]:
    values, schema = (_read(root / name) or "{}" for name in README_FROM)
    return {README: render_chart_readme(yaml.safe_load(values), json.loads(schema))}


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
