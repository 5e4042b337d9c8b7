"""Is a live object already what we want, and if not, where does it differ?

What we want is a part of what lives: the API server adds defaults, controllers add annotations. Inside
a worker's pod template we are stricter. An argument, an environment variable or a container that we
did not ask for may change a pinned flag, so it counts as a difference and is called foreign:
server-side apply leaves other people's list entries alone, so it takes another way out (apply.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

POD_SPEC: Final = ("spec", "template", "spec")

# Lists whose entries have a name, and the field that is the name (listMapKey or patchMergeKey in
# k8s.io/api, v0.37). Entries of other lists are compared by position.
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "ports": ("containerPort", "port"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
_HANDLERS: Final = ("exec", "grpc", "httpGet", "tcpSocket")
# What nobody may add to a pod of ours, by the list or field in which it would stand: each can change
# what the engine is told, or stands in the way of what we want (a volume has one source).
_STRICT: Final[Mapping[str, tuple[str, ...]]] = {
    "spec": ("initContainers", "hostNetwork", "hostPID", "hostIPC", "serviceAccountName"),
    "containers": ("command", "args", "env", "envFrom", "lifecycle", "workingDir"),
    "initContainers": ("command", "args", "env", "envFrom", "workingDir"),
    "env": ("value", "valueFrom"),
    "volumes": (
        "configMap",
        "csi",
        "emptyDir",
        "ephemeral",
        "hostPath",
        "image",
        "nfs",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ),
    "lifecycle": ("postStart", "preStop"),
    "livenessProbe": _HANDLERS,
    "readinessProbe": _HANDLERS,
    "startupProbe": _HANDLERS,
}
_QUANTITIES: Final = frozenset({"limits", "requests", "sizeLimit", "storage"})
_AMOUNT: Final = re.compile(r"^([+-]?[0-9.]+)(?:([eE][+-]?[0-9]+)|(n|u|m|k|[KMGTPE]i?)?)$")
_FACTORS: Final = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    **{unit: Decimal(10**power) for power, unit in zip((6, 9, 12, 15, 18), "MGTPE", strict=True)},
    **{f"{unit}i": Decimal(2 ** (10 * i)) for i, unit in enumerate("KMGTPE", start=1)},
}

Path = tuple[str, ...]


class Difference(NamedTuple):
    """One place where live and wanted part."""

    path: Path
    """The way to it; entries of lists by their name where they have one."""
    is_foreign: bool = False
    """Whether it is there without being wanted."""

    def __str__(self) -> str:
        return ".".join(self.path) + (" (foreign)" if self.is_foreign else "")


def is_so(wanted: Mapping[str, Any], live: Mapping[str, Any], *, manager: str) -> bool:
    """Whether nothing needs to be written."""
    return not found(wanted, live, manager=manager)


def found(
    wanted: Mapping[str, Any], live: Mapping[str, Any], *, manager: str
) -> tuple[Difference, ...]:
    """All that keeps the live object from being so: differences, and what an older intent left."""
    return differences(wanted, live) + leftovers(wanted, live, manager=manager)


def differences(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Every place where the live object is not what is wanted."""
    return tuple(_of_dicts(wanted, live, ()))


def leftovers(
    wanted: Mapping[str, Any], live: Mapping[str, Any], *, manager: str
) -> tuple[Difference, ...]:
    """Fields that our last apply set and that are no longer wanted, read from managedFields.

    An object that we never applied has one difference: its managedFields.
    """
    for entry in _managed(live, manager):
        if entry.get("operation") == "Apply":
            paths = set(_unwanted(entry["fieldsV1"], wanted, ()))
            return tuple(Difference(path) for path in sorted(paths))
    return (Difference(("metadata", "managedFields")),)


def has_own_updates(live: Mapping[str, Any], *, manager: str) -> bool:
    """Whether we once wrote to it in another way than by apply. What we own that way does not go when
    an apply leaves it out."""
    return any(entry.get("operation") == "Update" for entry in _managed(live, manager))


def same_amount(one: str | float, other: str | float) -> bool:
    """Whether two quantities are the same amount: "1" and "1000m", "1Gi" and "1024Mi"."""
    amounts = _amount(one), _amount(other)
    return None not in amounts and amounts[0] == amounts[1]


def _managed(live: Mapping[str, Any], manager: str) -> Iterator[Mapping[str, Any]]:
    for entry in live.get("metadata", {}).get("managedFields") or ():
        if entry.get("manager") == manager and not entry.get("subresource"):
            yield entry


def _of_dicts(
    wanted: Mapping[str, Any], live: Mapping[str, Any], path: Path, room: str = ""
) -> Iterator[Difference]:
    for key, value in wanted.items():
        if key in live:
            yield from _of_values(value, live[key], (*path, key))
        elif not _says_nothing(value):
            yield Difference((*path, key))
    if path[: len(POD_SPEC)] == POD_SPEC:
        for key in _STRICT.get(room or path[-1], ()):
            if key not in wanted and live.get(key):
                yield Difference((*path, key), is_foreign=True)


def _of_values(wanted: Any, live: Any, path: Path) -> Iterator[Difference]:
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        yield from _of_dicts(wanted, live, path)
    elif _is_list(wanted) and _is_list(live):
        if any(isinstance(item, Mapping) for item in (*wanted, *live)):
            yield from _of_lists(wanted, live, path)
        elif list(wanted) != list(live):
            yield Difference(path)
    elif _says_nothing(wanted) and _says_nothing(live):
        return
    elif type(wanted) is not type(live) or wanted != live:
        is_amount = not _QUANTITIES.isdisjoint(path[-2:])
        if not (is_amount and same_amount(wanted, live)):
            yield Difference(path)


def _of_lists(wanted: Sequence[Any], live: Sequence[Any], path: Path) -> Iterator[Difference]:
    name_of = _naming(path[-1], wanted, live)
    if name_of is None:
        if len(wanted) != len(live):
            yield Difference(path)
            return
        for index, (one, other) in enumerate(zip(wanted, live, strict=True)):
            yield from _of_values(one, other, (*path, str(index)))
        return
    others = {item[name_of]: item for item in live}
    for item in wanted:
        name = item[name_of]
        if (other := others.pop(name, None)) is None:
            yield Difference((*path, str(name)))
        else:
            yield from _of_dicts(item, other, (*path, str(name)), room=path[-1])
    if path[: len(POD_SPEC)] == POD_SPEC:
        for name in others:
            yield Difference((*path, str(name)), is_foreign=True)


def _naming(list_name: str, *lists: Sequence[Any]) -> str | None:
    """The field by which all entries of these lists can be told apart, if there is one."""
    for field in _NAMES.get(list_name, ()):
        names = [[i.get(field) for i in items if isinstance(i, Mapping)] for items in lists]
        if all(
            None not in seen and len(set(seen)) == len(items)
            for seen, items in zip(names, lists, strict=True)
        ):
            return field
    return None


def _unwanted(fields: Mapping[str, Any], wanted: Any, path: Path) -> Iterator[Path]:
    """Walk a fieldsV1 tree (f: field, k: list entry by key, v: value in a set) beside what we want."""
    for token, below in fields.items():
        sign, _, rest = token.partition(":")
        if sign == "f":
            if not isinstance(wanted, Mapping) or rest not in wanted:
                yield (*path, rest)
            else:
                yield from _unwanted(below, wanted[rest], (*path, rest))
        elif sign == "k":
            keys = json.loads(rest)
            entry = (
                next((i for i in wanted if _matches(i, keys)), None) if _is_list(wanted) else None
            )
            if entry is None:
                yield (*path, rest)
            else:
                yield from _unwanted(_without(below, keys), entry, (*path, rest))
        elif sign == "v" and not (_is_list(wanted) and json.loads(rest) in wanted):
            yield (*path, rest)


def _matches(item: Any, keys: Mapping[str, Any]) -> bool:
    """A key that we leave to its default (a port's protocol) matches any value."""
    return isinstance(item, Mapping) and all(item.get(k, v) == v for k, v in keys.items())


def _without(fields: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """An entry's keys are owned with the entry, also those that its default filled in."""
    return {token: below for token, below in fields.items() if token.removeprefix("f:") not in keys}


def _says_nothing(value: Any) -> bool:
    """The API server leaves these out when it stores an object; false and 0 can mean something."""
    return value is None or (isinstance(value, str | Mapping | list | tuple) and not value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _amount(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    match = _AMOUNT.match(str(value).strip())
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    try:
        return Decimal(number + (exponent or "")) * _FACTORS.get(suffix or "", Decimal(1))
    except ArithmeticError:
        return None
