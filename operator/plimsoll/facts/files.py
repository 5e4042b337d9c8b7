"""What do the files of one model say, wherever they lie?

Only config.json and the headers of weight files are read, never the weights. A folder on disk is one
place; a model hub is another, with the same questions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

from plimsoll.facts.agreement import disagreements, gguf_disagreements
from plimsoll.facts.gguf import gguf_facts
from plimsoll.facts.gguf_header import GgufError, GgufHeader, joined, read_gguf
from plimsoll.facts.hf_config import model_facts
from plimsoll.facts.model import GgufFacts, ModelFacts, UnknownLayout
from plimsoll.facts.safetensors import (
    Header,
    SafetensorsError,
    check_index,
    read_header,
    weights,
)
from plimsoll.facts.source import Confidence, FactSource, Provenance

CONFIG: Final = "config.json"
INDEX: Final = "model.safetensors.index.json"
LARGEST_JSON_BYTES: Final = 64 * 2**20
"""The index of a model of 700B parameters has 9 MB; what is larger is no such file."""
_SPLIT: Final = re.compile(r"^(?P<stem>.+)-\d{5}-of-(?P<parts>\d{5})\.gguf$")
"""ggml-org/llama.cpp src/llama.cpp llama_split_path."""


class ModelFiles(Protocol):
    """A place where a model's files lie."""

    @property
    def where(self) -> str:
        """As it is called in sentences."""

    @property
    def revision(self) -> str:
        """What names this very state of the files; empty where only the files themselves can tell."""

    def sizes(self) -> Mapping[str, int | None]:
        """All files by name, with their bytes where the place knows them. Raises ModelFilesError."""

    def title(self, name: str) -> str:
        """One file as it is called in sentences."""

    def stamp(self, name: str) -> str:
        """Changes when the file does: its size and its time."""

    def open(self, name: str) -> BinaryIO:
        """From its beginning. Raises ModelFilesError."""


class ModelFilesError(Exception):
    """The files cannot be had: names the place, what is wrong and the way out."""


class RefusedFilesError(Exception):
    """The files are there, and no facts follow from them: names the file, what it says, the way out."""


class Read(NamedTuple):
    """Facts from files."""

    facts: ModelFacts | GgufFacts
    """As vLLM or as llama.cpp loads the model."""
    fingerprint: str
    """Digest of the names, sizes and times (or of the revision) of what was read."""

    @property
    def kind(self) -> str:
        """The key below spec.model.facts.inline: model or gguf."""
        return "model" if isinstance(self.facts, ModelFacts) else "gguf"


class Folder:
    """A folder on disk."""

    revision: str = ""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def where(self) -> str:
        """The path as it was given."""
        return str(self._path)

    def sizes(self) -> Mapping[str, int | None]:
        """Files right in the folder."""
        try:
            return {p.name: p.stat().st_size for p in sorted(self._path.iterdir()) if p.is_file()}
        except OSError as error:
            raise _unreadable(self._path, error) from error

    def title(self, name: str) -> str:
        """Its path."""
        return str(self._path / name)

    def stamp(self, name: str) -> str:
        """Bytes and nanoseconds of the last change."""
        seen = (self._path / name).stat()
        return f"{seen.st_size}:{seen.st_mtime_ns}"

    def open(self, name: str) -> BinaryIO:
        """The file. Raises ModelFilesError."""
        try:
            return (self._path / name).open("rb")
        except OSError as error:
            raise _unreadable(self._path / name, error) from error


def read_folder(files: ModelFiles, *, identity: str) -> Read:
    """Facts of a model as vLLM loads it: config.json and *.safetensors.

    Raises ModelFilesError and RefusedFilesError.
    """
    config = read_json(files, CONFIG)
    sizes = files.sizes()
    names, indexed = _weight_files(files, sizes)
    headers = {name: _whole_header(files, name, sizes[name]) for name in names}
    try:
        counted = weights(headers.values())
    except SafetensorsError as error:
        raise RefusedFilesError(f"{files.where}: {error}") from error
    held = (
        f"the header of {names[0]}"
        if len(names) == 1
        else f"the headers of {len(names)} safetensors files"
    )
    facts = model_facts(
        config,
        id=identity,
        weights=counted,
        provenance=_provenance(files, f"config.json and {held}"),
    )
    if isinstance(facts, UnknownLayout):
        raise RefusedFilesError(f"{files.title(CONFIG)}: {facts.message}")
    _refuse_strays(files, headers, indexed)
    if denied := disagreements(config, facts, headers):
        raise RefusedFilesError(f"{files.where}: {' '.join(denied)}")
    also = (INDEX,) if INDEX in sizes else ()
    return Read(facts, _fingerprint(files, (CONFIG, *also, *names)))


def read_gguf_files(files: ModelFiles, name: str, *, identity: str) -> Read:
    """Facts of a GGUF model as llama.cpp loads it: the file named, and the parts beside it.

    Raises ModelFilesError and RefusedFilesError.
    """
    sizes = files.sizes()
    parts = gguf_parts(name, sizes)
    try:
        header = joined([_whole_gguf(files, part, sizes.get(part)) for part in parts])
    except GgufError as error:
        raise RefusedFilesError(_about(files.title(name), error)) from error
    facts = gguf_facts(header, id=identity)
    if isinstance(facts, UnknownLayout):
        raise RefusedFilesError(f"{files.title(name)}: {facts.message}")
    if denied := gguf_disagreements(header):
        raise RefusedFilesError(f"{files.title(name)}: {' '.join(denied)}")
    facts = facts.model_copy(update={"provenance": _provenance(files, "GGUF header")})
    return Read(facts, _fingerprint(files, parts))


def gguf_models(names: Mapping[str, int | None]) -> tuple[str, ...]:
    """One file for each GGUF model among the names: of a split one the first part.

    Vision projectors (mmproj) are no models of their own.
    """
    first: dict[str, str] = {}
    for name in sorted(names):
        if name.endswith(".gguf") and not name.rpartition("/")[2].startswith("mmproj"):
            match = _SPLIT.match(name)
            first.setdefault(match["stem"] if match else name, name)
    return tuple(first.values())


def gguf_parts(name: str, names: Mapping[str, int | None]) -> tuple[str, ...]:
    """All parts of a split model that are there, or the one file itself."""
    match = _SPLIT.match(name)
    if match is None:
        return (name,)
    parts = re.compile(rf"{re.escape(match['stem'])}-\d{{5}}-of-{match['parts']}\.gguf")
    return tuple(sorted(each for each in names if parts.fullmatch(each))) or (name,)


def read_json(files: ModelFiles, name: str) -> Mapping[str, Any]:
    """A JSON object. Raises ModelFilesError."""
    with files.open(name) as stream:
        text = stream.read(LARGEST_JSON_BYTES)
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ModelFilesError(
            f"{files.title(name)}: not JSON ({error}); a Git LFS pointer is fetched with `git lfs pull`"
        ) from error
    if not isinstance(found, dict):
        raise ModelFilesError(
            f"{files.title(name)}: a JSON {type(found).__name__} and not an object"
        )
    return found


def _weight_files(
    files: ModelFiles, sizes: Mapping[str, int | None]
) -> tuple[list[str], Mapping[str, str]]:
    """The files that the engine would load (those of the index, else all), and the index's map."""
    there = sorted(name for name in sizes if name.endswith(".safetensors") and "/" not in name)
    if INDEX in sizes:
        index = read_json(files, INDEX)
        try:
            missing = check_index(index, there)
        except SafetensorsError as error:
            raise RefusedFilesError(f"{files.title(INDEX)}: {error}") from error
        if missing:
            shown = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
            raise RefusedFilesError(
                f"{files.where}: {len(missing)} of the files that {INDEX} names are not there: {shown}; "
                "finish the download"
            )
        named = {str(tensor): str(file) for tensor, file in index["weight_map"].items()}
        return sorted(set(named.values())), named
    if not there:
        raise RefusedFilesError(
            f"{files.where}: no *.safetensors in it, so nobody can count its weights; convert the model, "
            "or finish the download"
        )
    return there, {}


def _refuse_strays(
    files: ModelFiles, headers: Mapping[str, Header], indexed: Mapping[str, str]
) -> None:
    """The index names a tensor that its file does not hold."""
    for tensor, file in indexed.items():
        if tensor not in headers[file]:
            raise RefusedFilesError(
                f"{files.title(file)}: {INDEX} says that it holds {tensor}, and it does not; the two are "
                "of different downloads, fetch both again"
            )


def _whole_header(files: ModelFiles, name: str, size: int | None) -> Header:
    """The header of a file that is as long as its header says."""
    with files.open(name) as stream:
        try:
            header = read_header(stream)
        except SafetensorsError as error:
            raise RefusedFilesError(_about(files.title(name), error)) from error
        begins = stream.tell()
    expected = begins + max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if size is not None and size < expected:
        raise RefusedFilesError(
            f"{files.title(name)}: it has {size:,} of {expected:,} bytes; it was cut off, copy it again."
        )
    return header


def _whole_gguf(files: ModelFiles, name: str, size: int | None) -> GgufHeader:
    """The header of a file that holds all its tensors. Raises GgufError."""
    with files.open(name) as stream:
        header = read_gguf(stream)
    if (
        size is not None and size <= header.file_bytes - header.alignment
    ):  # the last needs no padding
        raise GgufError(
            f"{files.title(name)}: it has {size:,} of {header.file_bytes:,} bytes; it was cut off, copy "
            "it again."
        )
    return header


def _about(title: str, error: Exception) -> str:
    """The error's sentence, with the file's name unless it is there already."""
    said = str(error)
    return said if title in said else f"{title}: {said}"


def _provenance(files: ModelFiles, detail: str) -> Provenance:
    at = f" of {files.where}" if files.revision else ""
    return Provenance(source=FactSource.FILES, confidence=Confidence.EXACT, detail=f"{detail}{at}")


def _fingerprint(files: ModelFiles, names: tuple[str, ...]) -> str:
    text = "\n".join(f"{name} {files.revision or files.stamp(name)}" for name in names)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _unreadable(path: Path, error: OSError) -> ModelFilesError:
    return ModelFilesError(f"{error.filename or path}: {error.strerror}; make it readable")
