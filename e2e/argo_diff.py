"""Where does an object differ from what a sync would make of it, by Argo CD's arithmetic?

The three-way merge for kinds that are merged as plain JSON, and what no comparison looks at. Source:
argoproj/argo-cd, gitops-engine/pkg/diff/diff.go and gitops-engine/pkg/utils/json/json.go.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

Manifest = dict[str, Any]

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def three_way(config: Manifest, live: Manifest) -> Manifest:
    """The live object as it would be after a client-side apply of `config`, for kinds merged as plain JSON.

    Source: gitops-engine/pkg/diff/diff.go (Diff, ThreeWayDiff, threeWayMergePatch). Where there is no
    last-applied configuration, `config` itself stands for it (TwoWayDiff).
    """
    config = _without_namespace(config)
    text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    original = _without_namespace(json.loads(text)) if text else config
    seen = only_known(original, live)
    patch = merged_patches(_changes(seen, config), _removals(original, config))
    predicted: Manifest = patched(live, patch)
    return predicted


def only_known(known: Mapping[str, Any], live: Mapping[str, Any]) -> Manifest:
    """Live without the fields that were not given: defaults (gitops-engine/pkg/utils/json, RemoveMapFields)."""
    return {key: _only_known(known[key], live[key]) for key in known if key in live}


def _only_known(known: Any, live: Any) -> Any:
    if isinstance(known, Mapping) and isinstance(live, Mapping):
        return only_known(known, live)
    if isinstance(known, list) and isinstance(live, list):
        paired = [_only_known(one, other) for one, other in zip(known, live, strict=False)]
        return paired + live[len(paired) :]
    return live


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Manifest:
    """A merge patch of what was added or changed, never of what is gone."""
    patch: Manifest = {}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            inner = _changes(old, value)
            patch |= {key: inner} if inner else {}
        elif key not in before or old != value:
            patch[key] = value
    return patch


def _removals(before: Mapping[str, Any], after: Mapping[str, Any]) -> Manifest:
    """A merge patch of what is gone, and of nothing else."""
    patch: Manifest = {}
    for key, old in before.items():
        if key not in after:
            patch[key] = None
        elif isinstance(old, Mapping) and isinstance(after[key], Mapping):
            inner = _removals(old, after[key])
            patch |= {key: inner} if inner else {}
    return patch


def merged_patches(one: Mapping[str, Any], other: Mapping[str, Any]) -> Manifest:
    """Both patches in one; they never speak of the same leaf."""
    made = dict(one)
    for key, value in other.items():
        both = isinstance(value, Mapping) and isinstance(made.get(key), Mapping)
        made[key] = merged_patches(made[key], value) if both else value
    return made


def patched(live: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return patch
    made = dict(live) if isinstance(live, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = patched(made.get(key), value)
    return made


def _without_namespace(manifest: Mapping[str, Any]) -> Manifest:
    """diff.go, removeNamespaceAnnotation."""
    made = deepcopy(dict(manifest))
    made["metadata"].pop("namespace", None)
    if not made["metadata"].get("annotations"):
        made["metadata"].pop("annotations", None)
    return made


def normal(manifest: Mapping[str, Any]) -> Manifest:
    """Without what Argo never compares.

    diff.go: Normalize, serverSideDiff, and removeWebhookMutation, which gives back what the API server alone
    sets. The status: `ignoreResourceStatusField: all` is the default (docs/user-guide/diffing.md).
    """
    made = {key: value for key, value in manifest.items() if key != "status"}
    made["metadata"] = deepcopy(manifest["metadata"])
    for key in ("managedFields", "resourceVersion", "creationTimestamp", "generation"):
        made["metadata"].pop(key, None)
    notes = made["metadata"].get("annotations") or {}
    notes.pop(LAST_APPLIED, None)
    if not notes:
        made["metadata"].pop("annotations", None)
    return made


def differences(before: Any, after: Any, path: str = "") -> tuple[str, ...]:
    """Where two objects differ, as dotted paths."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = sorted({*before, *after})
        return tuple(
            found
            for key in keys
            for found in differences(before.get(key), after.get(key), f"{path}.{key}")
        )
    return () if before == after else (path,)
