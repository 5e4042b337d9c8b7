"""What do the reference pages in docs/reference/ say?

Collected from the code itself: types, parsers, settings and exporters. Not on the path of any command but
`plimsoll generate`.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

import yaml
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from plimsoll.agent.settings import PREFIX as AGENT_PREFIX
from plimsoll.agent.settings import AgentSettings
from plimsoll.api.gpunode import GPUNode
from plimsoll.api.schema import crd_files
from plimsoll.api.v1alpha1 import InferenceDeployment
from plimsoll.cli.main import COMMANDS, TOP_EPILOG, command_module
from plimsoll.controller.settings import PREFIX as OPERATOR_PREFIX
from plimsoll.controller.settings import Settings
from plimsoll.keeper.page import HELP as KEEPER_METRICS
from plimsoll.keeper.settings import PREFIX as KEEPER_PREFIX
from plimsoll.keeper.settings import Duty
from plimsoll.render.reference import (
    CommandReference,
    FieldRow,
    FieldTable,
    MetricRow,
    ObjectReference,
    OptionRow,
    SettingRow,
    SettingsReference,
    render_api_reference,
    render_cli_reference,
    render_metrics_reference,
    render_settings_reference,
)
from plimsoll.telemetry.families import families

Json = dict[str, Any]
FOLDER: Final = "docs/reference"
_KINDS: Final[tuple[type[BaseModel], ...]] = (InferenceDeployment, GPUNode)
_ENVELOPE: Final = ("apiVersion", "kind", "metadata")
_REFUSED: Final = re.compile(r"^cannot be (?:read|used); ")
"""How a rule's message begins for the person whose value was refused."""
_MOST_DEFAULT: Final = 60
"""Characters of a default that still reads well in a table."""


def references() -> dict[str, str]:
    """Path below the checkout to text."""
    return {
        f"{FOLDER}/api.md": render_api_reference(tuple(_objects())),
        f"{FOLDER}/cli.md": render_cli_reference(tuple(_commands()), TOP_EPILOG),
        f"{FOLDER}/settings.md": render_settings_reference(tuple(_settings())),
        f"{FOLDER}/metrics.md": render_metrics_reference(tuple(_metrics())),
    }


# ---- fields of the objects -----------------------------------------------------------------------


def _objects() -> Iterator[ObjectReference]:
    by_kind = {
        crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for crd in map(yaml.safe_load, crd_files().values())
    }
    for kind in _KINDS:
        node = by_kind[kind.__name__]
        raw = kind.model_json_schema(by_alias=True, mode="validation")
        tables = tuple(_tables(node, raw, raw.get("$defs", {}), ""))
        yield ObjectReference(kind.__name__, node.get("description", ""), tables)


def _tables(node: Json, raw: Json, definitions: Json, path: str) -> Iterator[FieldTable]:
    """The fields right below a node, then those below each of them. The CRD tells types and bounds, the type's
    own schema the defaults that Plimsoll takes and the CRD does not write into objects."""
    raw = _resolved(raw, definitions)
    properties: Json = node["properties"]
    shown = {name: below for name, below in properties.items() if path or name not in _ENVELOPE}
    required = node.get("required", ())
    rows = tuple(
        FieldRow(
            path=f"{path}.{name}" if path else name,
            type=_type(below),
            is_required=name in required,
            default=_default(raw.get("properties", {}).get(name, {})),
            bounds=_bounds(below, raw.get("properties", {}).get(name, {}), definitions),
            text=below.get("description", ""),
        )
        for name, below in shown.items()
    )
    rules = tuple(_rule(each) for each in node.get("x-kubernetes-validations", ()))
    yield FieldTable(path, node.get("description", "") if path else "", rows, rules)
    for name, below in shown.items():
        inner, raw_inner = below, _resolved(raw.get("properties", {}).get(name, {}), definitions)
        inner_path = f"{path}.{name}" if path else name
        while inner.get("type") == "array":
            inner, inner_path = inner["items"], f"{inner_path}[]"
            raw_inner = _resolved(raw_inner.get("items", {}), definitions)
        if "properties" in inner:
            yield from _tables(inner, raw_inner, definitions, inner_path)


def _resolved(raw: Json, definitions: Json) -> Json:
    """Behind references and choices with null."""
    while True:
        if "$ref" in raw:
            raw = definitions[raw["$ref"].rpartition("/")[2]]
        elif "anyOf" in raw:
            raw = next(each for each in raw["anyOf"] if each.get("type") != "null")
        else:
            return raw


def _type(node: Json) -> str:
    if node.get("x-kubernetes-int-or-string"):
        return "integer or string"
    kind: str = node.get("type", "any")
    if kind == "array":
        return f"list of {_type(node['items'])}"
    if kind == "object" and "additionalProperties" in node:
        return f"map to {_type(node['additionalProperties'])}"
    return kind


def _default(raw: Json) -> str:
    """As JSON; of an object none, for its fields have their own."""
    value = raw.get("default")
    if value is None or isinstance(value, Mapping):
        return ""
    text = json.dumps(value)
    return text if len(text) <= _MOST_DEFAULT else ""


def _bounds(node: Json, raw: Json, definitions: Json) -> str:
    """What the API server holds a value against."""
    if "items" in node:
        inner = _bounds(node["items"], _resolved(raw, definitions).get("items", {}), definitions)
        most = f"at most {node['maxItems']}" if "maxItems" in node else ""
        return "; ".join(filter(None, (most, f"each {inner}" if inner else "")))
    words = []
    if "enum" in node:
        words.append("one of " + ", ".join(f"`{each}`" for each in node["enum"]))
    if "minimum" in node and "maximum" in node:
        words.append(f"{node['minimum']:,} to {node['maximum']:,}")
    elif "minimum" in node:
        words.append(f"at least {node['minimum']:,}")
    elif "maximum" in node:
        words.append(f"at most {node['maximum']:,}")
    if "maxLength" in node and node.get("type") == "string":
        words.append(f"at most {node['maxLength']:,} characters")
    if "maxProperties" in node:
        words.append(f"at most {node['maxProperties']}")
    if "properties" not in node:
        words += [_rule(each) for each in node.get("x-kubernetes-validations", ())]
    return "; ".join(words)


def _rule(entry: Json) -> str:
    """In words, with the field where it names one."""
    field = entry.get("fieldPath", "").lstrip(".")
    says = _REFUSED.sub("", entry["message"])
    return f"`{field}`: {says}" if field else says


# ---- commands ------------------------------------------------------------------------------------


def _commands() -> Iterator[CommandReference]:
    for command in COMMANDS:
        parser = argparse.ArgumentParser(prog=f"plimsoll {command.name}")
        epilog = ""
        if command.name != "version":
            module = command_module(command.name)
            module.add_arguments(parser)
            epilog = module.EPILOG
        actions = [each for each in parser._actions if each.help != argparse.SUPPRESS]
        arguments = [_named(each) for each in actions if not each.option_strings]
        yield CommandReference(
            name=command.name,
            summary=command.summary,
            usage=" ".join((f"plimsoll {command.name}", "[OPTION ...]", *arguments)),
            options=tuple(_option(each) for each in actions if "-h" not in each.option_strings),
            excluding=tuple(
                tuple(each.option_strings[-1] for each in group._group_actions)
                for group in parser._mutually_exclusive_groups
            ),
            epilog=epilog,
        )


def _named(action: argparse.Action) -> str:
    """A positional argument as a usage line has it."""
    name = _metavar(action)
    known = {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} [{name} ...]"}
    return known.get(str(action.nargs), name)


def _option(action: argparse.Action) -> OptionRow:
    takes = "" if action.nargs == 0 else f" {_metavar(action)}"
    names = tuple(f"{name}{takes}" for name in action.option_strings) or (_metavar(action),)
    says = (action.help or "") % {**vars(action), "prog": "plimsoll"}
    return OptionRow(
        names, f"{says} (required)" if action.option_strings and action.required else says
    )


def _metavar(action: argparse.Action) -> str:
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar is None and action.choices is not None:
        return "{" + ",".join(str(each) for each in action.choices) + "}"
    return action.metavar or (action.dest.upper() if action.option_strings else action.dest)


# ---- settings ------------------------------------------------------------------------------------


def _settings() -> Iterator[SettingsReference]:
    yield SettingsReference(
        "Operator",
        "`plimsoll run`. `POD_NAME` and `POD_NAMESPACE` stand in for identity and namespace of the Lease, "
        "`KUBECONFIG` for the file.",
        tuple(_setting_rows(Settings, OPERATOR_PREFIX)),
    )
    yield SettingsReference(
        "Agent",
        "`plimsoll agent`. `NODE_NAME` stands in for the node's name.",
        tuple(_setting_rows(AgentSettings, AGENT_PREFIX)),
    )
    yield SettingsReference(
        "Keeper of the gate",
        "`plimsoll keeper`, in the gate's pods; the operator sets what it needs.",
        tuple(_setting_rows(Duty, KEEPER_PREFIX)),
    )


def _setting_rows(settings: type[BaseModel], prefix: str) -> Iterator[SettingRow]:
    schema = settings.model_json_schema()
    definitions = schema.get("$defs", {})
    for name, field in settings.model_fields.items():
        raw = schema["properties"][field.alias or name]
        yield SettingRow(
            variable=f"{prefix}{name.upper()}",
            default=_setting_default(field.default),
            bounds=_setting_bounds(_resolved(raw, definitions)),
            text=raw.get("description", ""),
        )


def _setting_default(value: object) -> str:
    """As one would write it in an environment; empty for none."""
    match value:
        case None | () | "":
            return ""
        case bool():
            return str(value).lower()
        case int() | float():
            return f"{value:g}"
        case PurePath():
            return value.as_posix()
        case _ if value is PydanticUndefined:
            return ""
    return str(value)


def _setting_bounds(raw: Json) -> str:
    words = {
        "minimum": "at least {}",
        "exclusiveMinimum": "above {}",
        "maximum": "at most {}",
        "exclusiveMaximum": "below {}",
    }
    said = [text.format(f"{raw[key]:g}") for key, text in words.items() if key in raw]
    if "pattern" in raw:
        said.append(f"`{raw['pattern']}`")
    return ", ".join(said)


# ---- metrics -------------------------------------------------------------------------------------


def _metrics() -> Iterator[tuple[str, str, tuple[MetricRow, ...]]]:
    yield (
        "Operator",
        "At `/metrics` of port `PLIMSOLL_METRICS_PORT` of the operator's pod.",
        tuple(MetricRow(*each) for each in families()),
    )
    yield (
        "Gate",
        "At `/metrics` of port `PLIMSOLL_KEEPER_PORT` of each pod of a gate; lines of a lane have the label `lane`, "
        "those of a worker `pod`.",
        tuple(
            MetricRow(name, kind, (), text) for name, (kind, text) in sorted(KEEPER_METRICS.items())
        ),
    )
