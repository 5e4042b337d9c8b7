"""What does a config say in one of its fields, and which fields did nobody ask for?

A field that a published file leaves out has the value that the configuration class gives it: the
engine reads it so. The classes' values stand in data/hf_classes.json, by model type.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

Config = Mapping[str, Any]

MOST_LAYERS: Final = 10_000
"""Far above any model; stops a broken config from being read as gigabytes of layers."""
_CLASSES: Final = Path(__file__).with_name("data") / "hf_classes.json"


class NotUnderstoodError(ValueError):
    """Says in one sentence what is missing or strange in a config."""


class Fields:
    """One part of a config with its class's values behind it, which remembers what was asked."""

    def __init__(self, given: Config, *, model_type: str = "", where: str = "") -> None:
        """`model_type` names the class whose values stand behind, "" for none; `where` leads names."""
        behind = _classes().get(model_type, {})
        self.given = given
        self.where = where
        self.has_class = bool(behind)
        self._defaults: Mapping[str, Any] = behind.get("defaults", {})
        self._nullable: frozenset[str] = frozenset(behind.get("nullable", ()))
        self._aliases: Mapping[str, str] = behind.get("aliases", {})
        self._asked: set[str] = set()

    def __contains__(self, name: str) -> bool:
        """Whether the file itself gives the field a value."""
        self._asked.add(name)
        return self._spelt(name) is not None

    def value(self, name: str) -> Any:
        """As given, else the class's value, else None. Raises NotUnderstoodError."""
        self._asked.add(name)
        spelt = self._spelt(name)
        default = self._defaults.get(name)
        if spelt is None:
            if name in self.given and default is not None and name not in self._nullable:
                raise NotUnderstoodError(
                    f"{self.where}{name} is None; it must be {_kind(default)}."
                )
            return None if name in self.given else default
        return self.given[spelt]

    def whole(self, name: str) -> int:
        """A whole number above zero. Raises NotUnderstoodError."""
        found = self.count(name)
        if found == 0:
            spelt = self._spelt(name)
            seen = "is not given" if spelt is None else f"is {self.given[spelt]!r}"
            raise NotUnderstoodError(
                f"{self.where}{name} {seen}; it must be a whole number above zero."
            )
        return found

    def count(self, name: str) -> int:
        """A whole number, 0 where it is left out or null. Raises NotUnderstoodError."""
        value = self.value(name)
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise NotUnderstoodError(f"{self.where}{name} is {value!r}; it must be a whole number.")
        return value

    def flag(self, name: str) -> bool:
        """True or false, false where it is left out or null. Raises NotUnderstoodError."""
        value = self.value(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise NotUnderstoodError(f"{self.where}{name} is {value!r}; it must be true or false.")
        return value

    def text(self, name: str) -> str:
        """A word, "" where it is left out or null. Raises NotUnderstoodError."""
        value = self.value(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise NotUnderstoodError(f"{self.where}{name} is {value!r}; it must be a word.")
        return value

    def listed(self, name: str) -> Sequence[Any] | None:
        """A list, None where it is left out or null. Raises NotUnderstoodError."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise NotUnderstoodError(f"{self.where}{name} is {value!r}; it must be a list.")
        return value

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """A list of whole numbers, None where it is left out or null. Raises NotUnderstoodError."""
        found = self.listed(name)
        if found is None:
            return None
        for value in found:
            if not isinstance(value, int) or value < 0:
                raise NotUnderstoodError(
                    f"{self.where}{name} holds {value!r}; it must hold whole numbers."
                )
        return tuple(int(value) for value in found)

    def part(self, name: str, *, model_type: str = "") -> Fields | None:
        """A config inside the config, None where it is left out or null. Raises NotUnderstoodError."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise NotUnderstoodError(
                f"{self.where}{name} is {value!r}; it must be a group of fields."
            )
        return Fields(value, model_type=model_type, where=f"{self.where}{name}.")

    def per_layer(self, name: str, layers: int, *, goes_on: bool = False) -> tuple[int, ...] | None:
        """A list of whole numbers with one for each layer; `goes_on` where the engine cuts a longer one.

        Raises NotUnderstoodError.
        """
        found = self.numbers(name)
        if found is None:
            return None
        if len(found) < layers or (len(found) > layers and not goes_on):
            raise NotUnderstoodError(
                f"{self.where}{name} has {len(found)} entries for {layers} layers."
            )
        return found[:layers]

    def layers(self) -> int:
        """How many layers, refused when no model has so many. Raises NotUnderstoodError."""
        found = self.whole("num_hidden_layers")
        if found > MOST_LAYERS:
            raise NotUnderstoodError(f"num_hidden_layers is {found}, which no model has.")
        return found

    def same(self, name: str, expected: int, reason: str) -> None:
        """Refuse a field that contradicts what the engine computes without reading it."""
        if name in self and self.count(name) not in (0, expected):
            raise NotUnderstoodError(
                f"{self.where}{name} is {self.count(name)}, but {reason} gives {expected}."
            )

    def skip(self, *names: str) -> None:
        """Say that these fields are known and change nothing about the cache here."""
        self._asked.update(names)

    def rest(self) -> Iterator[tuple[str, Any]]:
        """Fields that were given and never asked for."""
        for name, value in self.given.items():
            if name not in self._asked and self._aliases.get(name) not in self._asked:
                yield name, value

    def _spelt(self, name: str) -> str | None:
        """The name under which the file gives the field a value, by its own or another name."""
        others = (alias for alias, own in self._aliases.items() if own == name)
        found = [spelt for spelt in (name, *others) if self.given.get(spelt) is not None]
        if len({repr(self.given[spelt]) for spelt in found}) > 1:
            both = " and ".join(f"{spelt} = {self.given[spelt]!r}" for spelt in found)
            raise NotUnderstoodError(
                f"{both} are two names of one field and contradict each other."
            )
        return found[0] if found else None


def is_known_type(model_type: str) -> bool:
    """Whether we have the values of a model type's configuration class."""
    return model_type in _classes()


@cache
def _classes() -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = json.loads(_CLASSES.read_text(encoding="utf-8"))[
        "classes"
    ]
    return found


def _kind(value: object) -> str:
    return "true or false" if isinstance(value, bool) else "a whole number"
