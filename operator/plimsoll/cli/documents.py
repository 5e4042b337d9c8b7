"""What stands in the YAML and JSON files that a person names?"""

import json
import sys
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from plimsoll.cli.exits import BadInputError

Json = dict[str, Any]

STDIN: Final = "-"
"""The file name that means standard input."""
_MERGE: Final = "tag:yaml.org,2002:merge"
"""The key << that takes in another mapping."""
_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader where PyYAML was built with it: ten times faster, the same result."""


class Document(NamedTuple):
    """One object of a file, and where it stood."""

    where: str
    """For messages: "chat.yaml" or "chat.yaml, document 2"."""
    body: Json
    """The object as plain data."""

    @property
    def kind(self) -> str:
        """Its kind; empty where it has none."""
        kind = self.body.get("kind")
        return kind if isinstance(kind, str) else ""


class _OnceLoader(_Loader):  # type: ignore[misc] # chosen at run time
    """Refuses a mapping that says the same key twice: the first of the two would be lost unsaid."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue  # the loader itself refuses it
            if key in seen:
                line = key_node.start_mark.line + 1
                raise BadInputError(f"line {line}: the key {key!r} stands twice; keep one of them")
            seen.add(key)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def read_documents(paths: Sequence[str]) -> tuple[Document, ...]:
    """Every object of every file, Lists taken apart; "-" is standard input. Raises BadInputError."""
    return tuple(document for path in paths for document in _read(path))


def _read(path: str) -> Iterator[Document]:
    name = "standard input" if path == STDIN else path
    text = _text(path, name)
    try:
        loaded = _loaded(text)
    except BadInputError as error:
        raise BadInputError(f"{name}, {error}") from error
    except yaml.MarkedYAMLError as error:
        raise BadInputError(f"{name}{_mark(error)}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise BadInputError(f"{name}: not YAML: {error}") from error
    whole = [(at, body) for at, body in enumerate(loaded, start=1) if body is not None]
    if not whole:
        raise BadInputError(f"{name} is empty; write an InferenceDeployment into it")
    for at, body in whole:
        where = name if len(whole) == 1 else f"{name}, document {at}"
        if not isinstance(body, dict):
            raise BadInputError(
                f"{where}: {str(body)[:60]!r} is not an object; "
                "write apiVersion, kind, metadata and spec"
            )
        yield from _apart(Document(where, body))


def read_text(path: str) -> str:
    """The text of a file that is no manifest; "-" is standard input. Raises BadInputError."""
    return _text(path, "standard input" if path == STDIN else path)


def _loaded(text: str) -> list[Any]:
    if text.lstrip().startswith("{"):  # a dump of many nodes is JSON, and json is much faster
        try:
            return [json.loads(text)]
        except json.JSONDecodeError:
            pass  # YAML's flow style, or broken: the YAML parser says where
    return list(yaml.load_all(text, Loader=_OnceLoader))


def _text(path: str, name: str) -> str:
    try:
        if path == STDIN:
            return sys.stdin.read()
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInputError(
            f"{name}: {error.strerror or error}; name a file that can be read"
        ) from (error)
    except UnicodeDecodeError as error:
        raise BadInputError(f"{name}: not UTF-8 text at byte {error.start}") from error


def _mark(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark
    return "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"


def _apart(document: Document) -> Iterator[Document]:
    """A List's items; anything else as it is."""
    items = document.body.get("items")
    if not document.kind.endswith("List") or not isinstance(items, list):
        yield document
        return
    for at, item in enumerate(items):
        where = f"{document.where}, items[{at}]"
        if not isinstance(item, dict):
            raise BadInputError(f"{where}: {str(item)[:60]!r} is not an object")
        yield Document(where, item)
