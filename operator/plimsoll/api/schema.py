"""Which CRDs follow from the types?

Pydantic's JSON schema, made structural (Kubernetes 1.37, apiextensions.k8s.io/v1): references are
written out, a field that may be None is simply not required, everything has a bound, and the rules of
`rules.py` stand at their objects. The spec is strict. The status is not: enums are told in the
description and nothing but keys is required, so that an older CRD never refuses a newer operator's
status.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from plimsoll.api import gpunode, v1alpha1
from plimsoll.api.rules import LISTS_BY_KEY, LONGEST_LISTS, RULES
from plimsoll.api.status_types import LONGEST_LIST, LONGEST_TEXT

Json = dict[str, Any]

HEADER: Final = (
    "# Made from operator/plimsoll/api by `plimsoll generate`; change the types, not this file.\n"
)
WIDTH: Final = 160
"""Characters of a line in the YAML: wrapped lines repeat a deep indentation, and the CRD stays small."""
DEFAULTED: Final = (("InferenceDeploymentSpec", "replicas"),)
"""Fields with a default in the CRD. Only where the API server itself reads the field (scale)."""
CARRIED_WHOLE: Final = (("InlineFacts", "model"), ("InlineFacts", "gguf"))
"""Fields whose inside the API server keeps and does not judge: `plimsoll facts` writes them and the
operator reads them strictly, and written out they would be a third of the CRD."""
UNANSWERED: Final = {"observedGeneration": -1}
"""The status of an InferenceDeployment that no operator has seen. Without it kstatus (Flux, `helm --wait`)
takes a new object for finished: what tells no observedGeneration is not held to it (fluxcd/cli-utils v1.2.2,
pkg/kstatus/status/generic.go)."""
CARRIED: Final = (
    "description",
    "type",
    "enum",
    "minimum",
    "maximum",
    "maxLength",
    "maxItems",
    "maxProperties",
    "x-kubernetes-int-or-string",
    "x-kubernetes-validations",
)
"""What a node of the schema keeps."""

BOUNDS: Final = {
    "minimum": (">=", "not below"),
    "exclusiveMinimum": (">", "above"),
    "maximum": ("<=", "not above"),
    "exclusiveMaximum": ("<", "below"),
}
"""Bounds of a number: as an operator, and in words."""

COLUMNS: Final = (
    ("Model", "string", ".spec.model.name", 0),
    ("Pools", "string", ".status.poolsSummary", 0),
    ("Desired", "integer", ".spec.replicas", 0),
    ("Ready", "integer", ".status.readyReplicas", 0),
    ("KV Tokens", "integer", ".status.kvTokens", 0),
    ("Status", "string", '.status.conditions[?(@.type=="Ready")].reason', 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Engine", "string", ".status.engineSummary", 1),
    ("Concurrency", "integer", ".status.concurrency", 1),
    ("Trend", "string", ".status.trend", 1),
    ("Recycles", "integer", ".status.recycling.total", 1),
)
"""Columns of `kubectl get infd`: name, type, where, and 1 for those that only -o wide shows."""

GPU_NODE_COLUMNS: Final = (
    ("GPU", "string", ".status.cards[0].product", 0),
    ("Driver", "string", ".status.driver", 0),
    ("Status", "string", '.status.conditions[?(@.type=="DriverAnswers")].reason', 0),
    ("Seen", "date", ".status.heartbeat", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)
"""Columns of `kubectl get gpun`."""


class _Structural:
    """Writes one part of a pydantic schema as a structural schema."""

    def __init__(self, definitions: Json, *, strict: bool) -> None:
        self.definitions = definitions
        self.strict = strict

    def node(self, given: Json, owner: tuple[str, str]) -> Json:
        """One node; `owner` is the type and field that hold it."""
        if owner in CARRIED_WHOLE:
            says = " ".join(given.get("description", "").split())
            return {
                "description": f"{says} As `plimsoll facts` prints it.".strip(),
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
            }
        if "$ref" in given:
            return self.reference(given, owner)
        if "anyOf" in given:
            return self.optional(given, owner)
        made: Json = {key: given[key] for key in CARRIED if key in given}
        if "description" in made:
            made["description"] = " ".join(made["description"].split())
        if owner in DEFAULTED:
            made["default"] = given["default"]
        self.numbers(given, made)
        if "enum" in made and not self.strict:
            known = ", ".join(made.pop("enum"))
            made["description"] = f"{made.get('description', '')} One of {known}.".strip()
        if made.get("type") == "string" and "enum" not in made:
            made.setdefault("maxLength", LONGEST_TEXT)
        if made.get("type") == "array":
            self.list(given, made, owner)
        if made.get("type") == "object":
            self.object(given, made, owner)
        return made

    def reference(self, given: Json, owner: tuple[str, str]) -> Json:
        """A named type, written out; the field's own description wins."""
        name = given["$ref"].rsplit("/", maxsplit=1)[-1]
        target = {"title": name} | self.definitions[name]
        own = {key: value for key, value in given.items() if key != "$ref"}
        return self.node(target | own, owner if "enum" in target else (name, ""))

    def optional(self, given: Json, owner: tuple[str, str]) -> Json:
        """X or None is X, not required."""
        real = [choice for choice in given["anyOf"] if choice.get("type") != "null"]
        if len(real) != 1:
            raise ValueError(f"{owner}: a choice of {len(real)} types has no structural schema")
        own = {key: value for key, value in given.items() if key != "anyOf"}
        return self.node(real[0] | own, owner)

    def numbers(self, given: Json, made: Json) -> None:
        """Bounds of whole numbers as OpenAPI 3.0 has them, of others as a rule: kube-apiserver 1.37.2 tells
        a maximum of 0.99 as "less than or equal to 0"."""
        if made.get("type") == "integer":
            made["format"] = "int64"
            if self.strict:
                made.setdefault("minimum", 0)
        if made.get("type") == "number":
            made["format"] = "double"
            bounds = {key: given[key] for key in BOUNDS if key in given}
            for key in bounds:
                made.pop(key, None)
            if bounds:
                both = " && ".join(f"self {BOUNDS[key][0]} {float(bounds[key])}" for key in bounds)
                says = " and ".join(f"{BOUNDS[key][1]} {bounds[key]}" for key in bounds)
                made["x-kubernetes-validations"] = [
                    {"rule": both, "message": f"cannot be used; write a number {says}"}
                ]

    def list(self, given: Json, made: Json, owner: tuple[str, str]) -> None:
        """Entries, bound, and the key where the entries have names."""
        made.setdefault("maxItems", LONGEST_LISTS.get(owner, LONGEST_LIST))
        made["items"] = self.node(given["items"], (owner[0], f"{owner[1]}[]"))
        if key := LISTS_BY_KEY.get(owner):
            made["x-kubernetes-list-type"] = "map"
            made["x-kubernetes-list-map-keys"] = [key]
            required = made["items"].setdefault("required", [])
            made["items"]["required"] = sorted({*required, key})

    def object(self, given: Json, made: Json, owner: tuple[str, str]) -> None:
        """Fields and rules of a type, or keys and values of a map."""
        if "properties" not in given:
            made["additionalProperties"] = self.node(given["additionalProperties"], (owner[0], ""))
            made["x-kubernetes-map-type"] = "atomic"
            keys = given["propertyNames"]
            made["x-kubernetes-validations"] = [
                {
                    "rule": f"self.all(key, key.size() <= {keys['maxLength']} && "
                    + rule["rule"].replace("self.", "key.")
                    + ")",
                    "message": f"a key {rule['message']}",
                }
                for rule in keys["x-kubernetes-validations"]
            ]
            return
        name = owner[0]
        made["properties"] = {
            field: self.node(schema, (name, field)) for field, schema in given["properties"].items()
        }
        if self.strict and given.get("required"):
            made["required"] = sorted(given["required"])
        if rules := RULES.get(name):
            made["x-kubernetes-validations"] = [rule.to_crd() for rule in rules]


def structural(model: type[BaseModel], *, strict: bool) -> Json:
    """The structural schema of one type: of a spec (strict) or a status (not)."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return _Structural(schema.get("$defs", {}), strict=strict).node(schema, (model.__name__, ""))


def _whole(kind: type[BaseModel], parts: Json, required: list[str]) -> Json:
    """An object with its envelope."""
    schema: Json = {
        "description": " ".join((kind.__doc__ or "").split()),
        "type": "object",
        "required": required,
        "properties": {
            "apiVersion": {
                "description": "Version of this object's schema: plimsoll.dev/v1alpha1.",
                "type": "string",
            },
            "kind": {"description": f"{kind.__name__}.", "type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            **parts,
        },
    }
    if not required:
        del schema["required"]
    if rules := RULES.get(kind.__name__):
        schema["x-kubernetes-validations"] = [rule.to_crd() for rule in rules]
    return schema


def _columns(rows: tuple[tuple[str, str, str, int], ...]) -> list[Json]:
    return [
        {"name": name, "type": kind, "jsonPath": path} | ({"priority": wide} if wide else {})
        for name, kind, path, wide in rows
    ]


def _crd(names: Json, scope: str, version: Json) -> Json:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{v1alpha1.GROUP}"},
        "spec": {
            "group": v1alpha1.GROUP,
            "names": names,
            "scope": scope,
            "versions": [{"name": v1alpha1.VERSION, "served": True, "storage": True, **version}],
        },
    }


def _names(kind: str, plural: str, short: str) -> Json:
    return {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "shortNames": [short],
        "categories": [v1alpha1.CATEGORY],
    }


def inference_deployment_crd() -> Json:
    """The CRD of InferenceDeployment."""
    parts = {
        "spec": structural(v1alpha1.InferenceDeploymentSpec, strict=True),
        "status": structural(v1alpha1.InferenceDeploymentStatus, strict=False)
        | {"default": dict(UNANSWERED)},
    }
    return _crd(
        _names(v1alpha1.KIND, v1alpha1.PLURAL, v1alpha1.SHORT_NAME),
        "Namespaced",
        {
            "additionalPrinterColumns": _columns(COLUMNS),
            "subresources": {
                "status": {},
                "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                },
            },
            "schema": {"openAPIV3Schema": _whole(v1alpha1.InferenceDeployment, parts, ["spec"])},
        },
    )


def gpu_node_crd() -> Json:
    """The CRD of GPUNode."""
    parts = {"status": structural(gpunode.GPUNodeStatus, strict=False)}
    return _crd(
        _names(gpunode.KIND, gpunode.PLURAL, gpunode.SHORT_NAME),
        "Cluster",
        {
            "additionalPrinterColumns": _columns(GPU_NODE_COLUMNS),
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": _whole(gpunode.GPUNode, parts, [])},
        },
    )


def crd_files() -> dict[str, str]:
    """File name to YAML, for the folder `crds/`."""
    import yaml  # noqa: PLC0415 - whoever only reads manifests as data needs no YAML

    return {
        f"{v1alpha1.GROUP}_{crd['spec']['names']['plural']}.yaml": HEADER
        + yaml.safe_dump(crd, sort_keys=False, width=WIDTH)
        for crd in (inference_deployment_crd(), gpu_node_crd())
    }


def write_crds(folder: Path) -> tuple[Path, ...]:
    """Writes the CRDs into a folder; gives the files."""
    files = tuple(folder / name for name in crd_files())
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in zip(files, crd_files().values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return files
