"""`plimsoll facts`: what do a model's own files say about its memory?

Only config.json and the headers of weight files are read, never the weights.
"""

from __future__ import annotations

import argparse
import json
import re
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from plimsoll.cli.exits import BadInputError, Exit
from plimsoll.cli.output import Form, as_text
from plimsoll.facts.gguf import GgufError, GgufHeader, gguf_facts, joined, read_gguf
from plimsoll.facts.hf_config import model_facts
from plimsoll.facts.model import GgufFacts, ModelFacts, UnknownLayout
from plimsoll.facts.safetensors import (
    Header,
    SafetensorsError,
    check_index,
    contradictions,
    read_header,
    weights,
)
from plimsoll.facts.source import Confidence, FactSource, Provenance

EPILOG: Final = """\
examples:
  plimsoll facts models/Llama-3.3-70B-Instruct       a folder with config.json and *.safetensors
  plimsoll facts models/Llama-3.3-70B-Q6_K.gguf      a GGUF file, or one part of a split one
  plimsoll facts FOLDER FILE.gguf                    both engines' facts at once
  plimsoll facts FOLDER --id meta-llama/Llama-3.3-70B-Instruct
  plimsoll facts FOLDER --config-map llama-facts -n inference | kubectl apply -f -

Put the output below spec.model.facts.inline of the manifest, or name the ConfigMap there:
  spec: {model: {facts: {configMap: {name: llama-facts}}}}

exit codes:
  0  facts printed
  2  bad input: nothing to read there, or a file that is not what its name says
  3  refused: parts are missing or cut off, files contradict each other, or the layout is not known;
     the message names which
"""
INDEX: Final = "model.safetensors.index.json"
FACTS_KEY: Final = "facts.yaml"
"""Key of the ConfigMap, the default of spec.model.facts.configMap.key."""
_SPLIT: Final = re.compile(r"^(?P<stem>.+)-\d{5}-of-(?P<parts>\d{5})\.gguf$")
"""ggml-org/llama.cpp src/llama.cpp llama_split_path."""
_CONFIG_MAP_NAME: Final = re.compile(r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")


class RefusedError(Exception):
    """The files are understood, and no facts follow from them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plimsoll facts`."""
    parser.add_argument("path", metavar="PATH", nargs="+", help="a model folder or a .gguf file")
    parser.add_argument(
        "--id", metavar="ID", help="public identity (default: the name of the folder or file)"
    )
    parser.add_argument(
        "--config-map", metavar="NAME", help="print a ConfigMap that holds the facts"
    )
    parser.add_argument("-n", "--namespace", metavar="NAME", help="namespace of the ConfigMap")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FORM",
        choices=[Form.YAML.value, Form.JSON.value],
        default=Form.YAML.value,
        help="yaml (default) or json",
    )


def run(arguments: argparse.Namespace) -> int:
    """Read the headers, print the facts."""
    name = arguments.config_map
    if name is not None and not _CONFIG_MAP_NAME.match(name):
        raise BadInputError(
            f"--config-map: {name!r} is not a name; write lower-case letters, digits and -"
        )
    found: dict[str, Any] = {}
    try:
        for path in arguments.path:
            kind, facts = read_facts(Path(path), identity=arguments.id)
            if kind in found:
                raise BadInputError(f"{path}: a second {kind} beside the first; give one of each")
            found[kind] = facts.to_json()
    except RefusedError as refusal:
        print(f"plimsoll facts: refused: {refusal}", file=sys.stderr)
        return Exit.REFUSED
    form = Form(arguments.output)
    printed = found if name is None else _config_map(name, arguments.namespace, found)
    sys.stdout.write(as_text(printed, form))
    return Exit.FITS


def read_facts(path: Path, *, identity: str | None) -> tuple[str, ModelFacts | GgufFacts]:
    """("model", facts) of a folder, ("gguf", facts) of a file. Raises BadInputError or RefusedError."""
    try:
        if path.is_dir():
            if (path / "config.json").is_file():
                return "model", _of_folder(path, identity or path.resolve().name)
            path = _only_gguf(path)
        if not path.exists():
            raise BadInputError(
                f"{path}: there is no such file; name a model folder or a .gguf file"
            )
        if path.suffix != ".gguf":
            raise BadInputError(f"{path}: neither a folder nor a .gguf file; name one of these")
        return "gguf", _of_gguf(path, identity or path.name)
    except OSError as error:
        raise BadInputError(f"{error.filename}: {error.strerror}; make it readable") from error


def _of_folder(folder: Path, identity: str) -> ModelFacts:
    config = _json(folder / "config.json")
    files = _weight_files(folder)
    try:
        headers = [_whole_header(folder / name) for name in files]
        counted = weights(headers)
    except SafetensorsError as error:
        raise RefusedError(str(error)) from error
    held = files[0] if len(files) == 1 else f"{len(files)} safetensors files"
    facts = model_facts(
        config,
        id=identity,
        weights=counted,
        provenance=Provenance(
            source=FactSource.FILES,
            confidence=Confidence.EXACT,
            detail=f"config.json and the header of {held}"
            if len(files) == 1
            else f"config.json and the headers of {held}",
        ),
    )
    if isinstance(facts, UnknownLayout):
        raise RefusedError(facts.message)
    if denied := contradictions(facts, headers):
        raise RefusedError(f"{folder}: {' '.join(denied)}")
    return facts


def _weight_files(folder: Path) -> list[str]:
    """The files that the engine would load: those of the index, else all. Raises RefusedError."""
    there = sorted(path.name for path in folder.glob("*.safetensors"))
    if (folder / INDEX).is_file():
        index = _json(folder / INDEX)
        try:
            missing = check_index(index, there)
        except SafetensorsError as error:
            raise RefusedError(f"{folder / INDEX}: {error}") from error
        if missing:
            shown = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
            raise RefusedError(
                f"{folder}: {len(missing)} of the files that {INDEX} names are not there: {shown}; "
                "finish the download"
            )
        return sorted({str(name) for name in index["weight_map"].values()})
    if not there:
        raise RefusedError(
            f"{folder}: no *.safetensors in it, so nobody can count its weights; convert the model, or "
            "finish the download"
        )
    return there


def _whole_header(path: Path) -> Header:
    """The header of a file that is as long as its header says. Raises SafetensorsError."""
    with path.open("rb") as stream:
        header = read_header(stream)
        stream.seek(0)
        (length,) = struct.unpack("<Q", stream.read(8))
    ends = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    expected, size = 8 + length + ends, path.stat().st_size
    if size < expected:
        raise SafetensorsError(
            f"{path}: it has {size:,} of {expected:,} bytes; it was cut off, copy it again."
        )
    return header


def _of_gguf(path: Path, identity: str) -> GgufFacts:
    try:
        header = joined([_whole_gguf(part) for part in _gguf_parts(path)])
    except GgufError as error:
        raise RefusedError(str(error)) from error
    facts = gguf_facts(header, id=identity)
    if isinstance(facts, UnknownLayout):
        raise RefusedError(facts.message)
    return facts


def _gguf_parts(path: Path) -> list[Path]:
    """All parts of a split model that lie beside the one named, or the one file itself."""
    match = _SPLIT.match(path.name)
    if match is None:
        return [path]
    pattern = f"{match['stem']}-*-of-{match['parts']}.gguf"
    return [part for part in sorted(path.parent.iterdir()) if part.match(pattern)]


def _whole_gguf(path: Path) -> GgufHeader:
    """The header of a file that holds all its tensors. Raises GgufError."""
    with path.open("rb") as stream:
        header = read_gguf(stream)
    size = path.stat().st_size
    if size <= header.file_bytes - header.alignment:  # the last tensor need not be padded
        raise GgufError(
            f"{path}: it has {size:,} of {header.file_bytes:,} bytes; it was cut off, copy it again."
        )
    return header


def _only_gguf(folder: Path) -> Path:
    """The one GGUF model of a folder. Raises BadInputError when there is none, or several."""
    files = sorted(folder.glob("*.gguf"))
    models = {m["stem"] if (m := _SPLIT.match(file.name)) else file.name for file in files}
    if len(models) == 1:
        return files[0]
    if not models:
        raise BadInputError(
            f"{folder}: neither config.json nor a .gguf file in it; name a model folder"
        )
    raise BadInputError(
        f"{folder}: several .gguf files in it; name one: {', '.join(sorted(models))}"
    )


def _json(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadInputError(
            f"{path}: not JSON ({error}); a Git LFS pointer is fetched with `git lfs pull`"
        ) from error
    if not isinstance(found, dict):
        raise BadInputError(f"{path}: a JSON {type(found).__name__} and not an object")
    return found


def _config_map(name: str, namespace: str | None, facts: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {FACTS_KEY: as_text(facts, Form.YAML)},
    }
