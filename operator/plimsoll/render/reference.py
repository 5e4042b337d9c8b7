"""How do the reference pages read that are printed from the code?

Markdown from plain data: rows in, a page out. Nothing depends on a terminal, an environment or the version of
Python. Who collects the rows is `plimsoll generate`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

PRINTED: Final = "<!-- Printed by `plimsoll generate` from {source}; edit that. -->\n"
_ANCHOR: Final = re.compile(r"[^a-z0-9]+")


class FieldRow(NamedTuple):
    """One field of an object."""

    path: str
    """From the object's top, e.g. spec.pools[].gpu.perWorker."""
    type: str
    """As in the CRD, e.g. integer, list of string."""
    is_required: bool
    default: str
    """As JSON; empty where there is none."""
    bounds: str
    """In words; empty where there are none."""
    text: str
    """What it is."""


class FieldTable(NamedTuple):
    """The fields right below one path, and the rules that hold between them."""

    path: str
    """Empty for the object itself."""
    text: str
    fields: tuple[FieldRow, ...]
    rules: tuple[str, ...] = ()


class ObjectReference(NamedTuple):
    """One kind of object."""

    kind: str
    text: str
    tables: tuple[FieldTable, ...]


class OptionRow(NamedTuple):
    """One option or argument of a command."""

    names: tuple[str, ...]
    """Spellings with what follows them, e.g. ("-f FILE", "--filename FILE"); for an argument its name."""
    text: str


class CommandReference(NamedTuple):
    """One command of the CLI."""

    name: str
    summary: str
    usage: str
    options: tuple[OptionRow, ...]
    excluding: tuple[tuple[str, ...], ...]
    """Options of which one at most may be given."""
    epilog: str


class SettingRow(NamedTuple):
    """One setting of a process."""

    variable: str
    default: str
    bounds: str
    text: str


class SettingsReference(NamedTuple):
    """What one process is told when it starts."""

    heading: str
    text: str
    rows: tuple[SettingRow, ...]


class MetricRow(NamedTuple):
    """One family of metrics."""

    name: str
    type: str
    labels: tuple[str, ...]
    text: str


def render_api_reference(objects: Sequence[ObjectReference]) -> str:
    """docs/reference/api.md."""
    parts = [
        PRINTED.format(source="the types in operator/plimsoll/api"),
        "# Fields of the objects\n\n"
        "Group and version are `plimsoll.dev/v1alpha1`. A field without a default may be left out, unless it is "
        "*required*: then Plimsoll decides, and `plimsoll plan` shows what it decided. Each field can be linked to: "
        "`#spec-pools-gpu-perworker`. What is promised of them: [versions](../versions.md).\n",
    ]
    for each in objects:
        parts.append(f"## {each.kind}\n\n{_prose(each.text)}\n")
        for table in each.tables:
            heading = f"`{each.kind}.{table.path}`" if table.path else f"`{each.kind}`, at the top"
            parts.append(f"### {heading}\n")
            if table.text:
                parts.append(f"{_prose(table.text)}\n")
            parts.append(
                _table(
                    ("field", "type", "default", "bounds", "what it is"), _fields(each.kind, table)
                )
            )
            if table.rules:
                rules = "".join(f"- {_prose(rule)}\n" for rule in table.rules)
                parts.append(f"Between them:\n\n{rules}")
    return "\n".join(parts)


def _fields(kind: str, table: FieldTable) -> Iterable[tuple[str, ...]]:
    for row in table.fields:
        name = row.path.rpartition(".")[2]
        yield (
            f'<a id="{anchor(kind, row.path)}"></a>`{name}`',
            row.type,
            f"`{row.default}`" if row.default else ("*required*" if row.is_required else ""),
            row.bounds,
            row.text,
        )


def anchor(kind: str, path: str) -> str:
    """The word after # that leads to a field: of the InferenceDeployment the path alone, of others with
    the kind before it."""
    words = path if kind == "InferenceDeployment" else f"{kind} {path}"
    return _ANCHOR.sub("-", words.lower()).strip("-")


def render_cli_reference(commands: Sequence[CommandReference], exits: str) -> str:
    """docs/reference/cli.md; `exits` is the text about exit codes that `plimsoll --help` ends with."""
    parts = [
        PRINTED.format(source="the commands in operator/plimsoll/cli"),
        "# Commands\n\n"
        "What `plimsoll COMMAND --help` says, command by command. As a plugin every one is also "
        "`kubectl plimsoll COMMAND`.\n",
        _table(
            ("command", "what it answers"),
            ((f"[`{each.name}`](#{each.name})", each.summary) for each in commands),
        ),
        f"```text\n{exits.strip()}\n```\n",
    ]
    for each in commands:
        parts.append(f"## {each.name}\n\n{_prose(each.summary[0].upper() + each.summary[1:])}.\n")
        parts.append(f"```text\n{each.usage}\n```\n")
        if each.options:
            rows = (
                (", ".join(f"`{name}`" for name in row.names), row.text) for row in each.options
            )
            parts.append(_table(("option", "what it means"), rows))
        parts += (
            f"Only one of {', '.join(f'`{name}`' for name in names)} may be given.\n"
            for names in each.excluding
        )
        if each.epilog:
            parts.append(f"```text\n{each.epilog.strip()}\n```\n")
    return "\n".join(parts)


def render_settings_reference(processes: Sequence[SettingsReference]) -> str:
    """docs/reference/settings.md."""
    parts = [
        PRINTED.format(source="the settings modules of controller, agent and keeper"),
        "# Settings\n\n"
        "What each process reads from its environment when it starts. The chart sets what belongs to it; the rest "
        "goes into `operator.extraEnv` and `agent.extraEnv`. A value that cannot be read ends the process at once, "
        "with a message that names it. Options of the command line come before the environment. Several values are "
        "separated by commas. *None* in a sentence means that the variable is not set.\n",
    ]
    for each in processes:
        parts.append(f"## {each.heading}\n\n{each.text}\n")
        rows = (
            (f"`{row.variable}`", f"`{row.default}`" if row.default else "", row.bounds, row.text)
            for row in each.rows
        )
        parts.append(_table(("variable", "default", "bounds", "what it means"), rows))
    return "\n".join(parts)


def render_metrics_reference(groups: Sequence[tuple[str, str, Sequence[MetricRow]]]) -> str:
    """docs/reference/metrics.md: for each group its heading, a sentence and its families."""
    parts = [
        PRINTED.format(source="what operator and keeper export"),
        "# Metrics\n\n"
        "Names end in a base unit. What is not known has no line, never a zero. Alerts on them stand in "
        "[alerts](../alerts.md), pictures in [the dashboard](../dashboard.md).\n",
    ]
    for heading, text, families in groups:
        parts.append(f"## {heading}\n\n{text}\n")
        rows = (
            (f"`{row.name}`", row.type, ", ".join(f"`{label}`" for label in row.labels), row.text)
            for row in families
        )
        parts.append(_table(("metric", "type", "labels", "what it counts"), rows))
    return "\n".join(parts)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """On one line, without what would end the cell."""
    return _prose(text).replace("|", "\\|")


def _prose(text: str) -> str:
    """On one line; angle brackets outside of code and of our own anchors are words, not HTML."""
    parts = re.split(r'(`[^`]*`|<a id="[a-z0-9-]+"></a>)', " ".join(text.split()))
    return "".join(
        part
        if place % 2
        else part.replace("<", "&lt;").replace("*", "\\*")
        if part != "*required*"
        else part
        for place, part in enumerate(parts)
    )
