"""`plimsoll facts`: what do a model's own files say about its memory?

Only config.json and the headers of weight files are read, never the weights.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from plimsoll.cli.exits import BadInputError, Exit
from plimsoll.cli.output import Form, add_output, as_text
from plimsoll.facts.files import (
    CONFIG,
    Folder,
    ModelFiles,
    ModelFilesError,
    Read,
    RefusedFilesError,
    gguf_models,
    read_folder,
    read_gguf_files,
)
from plimsoll.facts.inspection import InspectionReport, refusal_report

EPILOG: Final = """\
examples:
  plimsoll facts models/Llama-3.3-70B-Instruct       a folder with config.json and *.safetensors
  plimsoll facts models/Llama-3.3-70B-Q6_K.gguf      a GGUF file, or one part of a split one
  plimsoll facts FOLDER FILE.gguf                    both engines' facts at once
  plimsoll facts hf://Qwen/Qwen3-8B@main             a repository on the hub, by ranges of its files
  plimsoll facts hf://org/name --gguf FILE.gguf      a GGUF file of a repository
  plimsoll facts FOLDER --id meta-llama/Llama-3.3-70B-Instruct
  plimsoll facts FOLDER --config-map llama-facts -n inference | kubectl apply -f -

Put the output below spec.model.facts.inline of the manifest, or name the ConfigMap there:
  spec: {model: {facts: {configMap: {name: llama-facts}}}}

The hub is asked by huggingface_hub (install plimsoll[hub]): HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE count.

exit codes:
  0  facts printed
  2  bad input: nothing to read there, or a file that is not what its name says
  3  refused: parts are missing or cut off, files contradict each other, or the layout is not known;
     the message names which
"""
FACTS_KEY: Final = "facts.yaml"
"""Key of the ConfigMap, the default of spec.model.facts.configMap.key."""
_CONFIG_MAP_NAME: Final = re.compile(r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")
HUB: Final = "hf://"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `plimsoll facts`."""
    parser.add_argument(
        "path",
        metavar="PATH",
        nargs="+",
        help="a model folder, a .gguf file, or hf://org/name[@revision]",
    )
    parser.add_argument(
        "--gguf", metavar="FILE", help="of the folder or repository, this GGUF file"
    )
    parser.add_argument(
        "--id", metavar="ID", help="public identity (default: the name of the folder or file)"
    )
    parser.add_argument(
        "--config-map", metavar="NAME", help="print a ConfigMap that holds the facts"
    )
    parser.add_argument("-n", "--namespace", metavar="NAME", help="namespace of the ConfigMap")
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="also write what was found to FILE, in 4096 bytes, for the operator's inspection pods",
    )
    add_output(
        parser,
        says="yaml (default) or json",
        forms=[Form.YAML.value, Form.JSON.value],
        default=Form.YAML.value,
    )


def run(arguments: argparse.Namespace) -> int:
    """Read the headers, print the facts."""
    name = arguments.config_map
    if name is not None and not _CONFIG_MAP_NAME.match(name):
        raise BadInputError(
            f"--config-map: {name!r} is not a name; write lower-case letters, digits and -"
        )
    if arguments.report is not None and len(arguments.path) > 1:
        raise BadInputError("--report: takes what one PATH says; run it once for each")
    found: dict[str, Any] = {}
    try:
        for path in arguments.path:
            read = read_facts(path, identity=arguments.id, gguf=arguments.gguf)
            if read.kind in found:
                raise BadInputError(
                    f"{path}: a second {read.kind} beside the first; give one of each"
                )
            found[read.kind] = read.facts.to_json()
            _report(arguments.report, _report_of(read))
    except RefusedFilesError as refusal:
        _report(arguments.report, refusal_report(str(refusal)))
        print(f"plimsoll facts: refused: {refusal}", file=sys.stderr)
        return Exit.REFUSED
    except (BadInputError, ModelFilesError) as error:
        _report(arguments.report, refusal_report(str(error)))
        raise BadInputError(str(error)) from error
    form = Form(arguments.output)
    printed = found if name is None else _config_map(name, arguments.namespace, found)
    sys.stdout.write(as_text(printed, form))
    return Exit.FITS


def read_facts(path: str, *, identity: str | None, gguf: str | None = None) -> Read:
    """Facts of a folder, a GGUF file or a repository on the hub; with `gguf`, of that file in it.

    Raises BadInputError, ModelFilesError or RefusedFilesError.
    """
    if path.startswith(HUB):
        return _of_repository(path, identity, gguf)
    place = Path(path)
    if not place.exists():
        raise BadInputError(f"{path}: there is no such file; name a model folder or a .gguf file")
    if place.is_dir():
        return _read(Folder(place), gguf, identity, place.resolve().name)
    if place.suffix != ".gguf" or gguf is not None:
        raise BadInputError(f"{path}: neither a folder nor a .gguf file; name one of these")
    return read_gguf_files(Folder(place.parent), place.name, identity=identity or place.name)


def _of_repository(uri: str, identity: str | None, gguf: str | None) -> Read:
    """The files that the hub has at the revision's commit."""
    from plimsoll.hub.files import HubFiles, Repository  # noqa: PLC0415 - only who asks a hub pays
    from plimsoll.render.source import parse_source  # noqa: PLC0415

    try:
        source = parse_source(uri)
    except ValueError as error:
        raise BadInputError(str(error)) from error
    if source.file is not None and gguf is not None:
        raise BadInputError(f"{uri}: names a file, and so does --gguf {gguf}; give one of the two")
    files = HubFiles(Repository(source.model, source.revision))
    return _read(files, gguf or source.file, identity, source.model)


def _read(files: ModelFiles, gguf: str | None, identity: str | None, name: str) -> Read:
    """The GGUF file that is named, else the model in config.json, else the only GGUF model."""
    sizes = files.sizes()
    if gguf is None and CONFIG in sizes:
        return read_folder(files, identity=identity or name)
    models = gguf_models(sizes)
    if gguf is not None and gguf not in sizes:
        there = ", ".join(models) or "none"
        raise BadInputError(f"{files.where}: no file {gguf!r} in it; GGUF files there: {there}")
    if gguf is None and not models:
        raise BadInputError(
            f"{files.where}: neither config.json nor a .gguf file in it; name a model folder"
        )
    if gguf is None and len(models) > 1:
        raise BadInputError(
            f"{files.where}: several .gguf files in it; name one: {', '.join(models)}"
        )
    file = gguf or models[0]
    return read_gguf_files(files, file, identity=identity or file.rpartition("/")[2])


def _report_of(read: Read) -> InspectionReport:
    facts = {read.kind: read.facts}
    return InspectionReport.model_validate({**facts, "fingerprint": read.fingerprint})


def _report(path: str | None, report: InspectionReport) -> None:
    """Write the report, if one is asked for. Raises BadInputError when it cannot be written."""
    if path is None:
        return
    try:
        Path(path).write_text(report.to_message(), encoding="utf-8")
    except ValueError as error:
        raise BadInputError(f"--report: {error}") from error
    except OSError as error:
        raise BadInputError(f"--report: {path}: {error.strerror}") from error


def _config_map(name: str, namespace: str | None, facts: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {FACTS_KEY: as_text(facts, Form.YAML)},
    }
