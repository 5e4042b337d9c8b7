"""Are the files in `crds/` what the types say, and do they take what people and Plimsoll write?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
import yaml
from jsonschema import Draft4Validator
from pydantic import BaseModel

from plimsoll.api.gpunode import GPUNodeStatus
from plimsoll.api.schema import crd_files, write_crds
from plimsoll.api.v1alpha1 import (
    InferenceDeployment,
    InferenceDeploymentSpec,
    InferenceDeploymentStatus,
    written,
)

Json = dict[str, Any]

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((REPOSITORY / "docs" / "examples").glob("*.yaml"))
LARGEST_BYTES = 100_000
"""As JSON, which is how `kubectl apply` keeps it in its annotation; well below the 262,144 that fit there."""


generated = cache(crd_files)


@cache
def crd(name: str) -> Json:
    loaded: Json = yaml.safe_load((REPOSITORY / "crds" / name).read_text(encoding="utf-8"))
    return loaded


def version(name: str) -> Json:
    only: Json = crd(name)["spec"]["versions"][0]
    return only


def schema(name: str) -> Json:
    whole: Json = version(name)["schema"]["openAPIV3Schema"]
    return whole


INFERENCE_DEPLOYMENTS = "plimsoll.dev_inferencedeployments.yaml"
GPU_NODES = "plimsoll.dev_gpunodes.yaml"
BOTH = pytest.mark.parametrize("name", [INFERENCE_DEPLOYMENTS, GPU_NODES])


def nodes(node: Json, place: str = "") -> Iterator[tuple[str, Json]]:
    """Every node of a schema with its path."""
    yield place, node
    for field, inner in node.get("properties", {}).items():
        yield from nodes(inner, f"{place}.{field}")
    if "items" in node:
        yield from nodes(node["items"], f"{place}[]")
    if isinstance(node.get("additionalProperties"), dict):
        yield from nodes(node["additionalProperties"], f"{place}{{}}")


def unknown_fields(value: object, node: Json, place: str = "") -> Iterator[str]:
    """Fields that the API server would prune, or answer with an error under server-side apply."""
    if isinstance(value, dict) and "properties" in node:
        for key, inner in value.items():
            if key not in node["properties"]:
                yield f"{place}.{key}"
            else:
                yield from unknown_fields(inner, node["properties"][key], f"{place}.{key}")
    if isinstance(value, list):
        for inner in value:
            yield from unknown_fields(inner, node["items"], f"{place}[]")


def filled(annotation: Any, extra: tuple[Any, ...] = ()) -> Any:
    """A value for a type in which every field says something."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return filled(arguments[0], arguments[1:])
    if origin is Literal:
        return arguments[0]
    if origin in {Union, UnionType}:
        return filled(next(choice for choice in arguments if choice is not type(None)))
    if origin is tuple:
        return [filled(arguments[0])]
    if origin is dict:
        return {"key": filled(arguments[1])}
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return next(iter(annotation)).value
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {
            field.alias or name: filled(field.annotation)
            for name, field in annotation.model_fields.items()
        }
    return {str: "text", int: 1, float: 0.5, bool: True}[annotation]


@BOTH
def test_the_file_is_what_the_types_say(name: str) -> None:
    assert generated()[name] == (REPOSITORY / "crds" / name).read_text(encoding="utf-8")


def test_there_are_no_other_files() -> None:
    assert set(generated()) == {path.name for path in (REPOSITORY / "crds").iterdir()}


def test_writing_gives_the_same_files(tmp_path: Path) -> None:
    files = write_crds(tmp_path / "crds")
    assert generated() == {path.name: path.read_text(encoding="utf-8") for path in files}


@BOTH
def test_the_file_stays_small(name: str) -> None:
    kept = json.dumps(yaml.safe_load(generated()[name]), separators=(",", ":"))
    assert len(kept.encode()) < LARGEST_BYTES


@BOTH
def test_every_field_is_described(name: str) -> None:
    silent = [
        place
        for place, node in nodes(schema(name))
        if not place.endswith(("[]", "{}", ".metadata", ".metadata.name"))
        and not node.get("description", "").endswith(".")
    ]
    assert silent == []


@BOTH
def test_everything_has_a_bound(name: str) -> None:
    endless = [
        place
        for place, node in nodes(schema(name))
        if not place.startswith((".metadata", ".apiVersion", ".kind"))
        and (
            (node.get("type") == "string" and not {"maxLength", "enum"} & set(node))
            or (node.get("type") == "array" and "maxItems" not in node)
            or ("additionalProperties" in node and "maxProperties" not in node)
            or (node.get("x-kubernetes-int-or-string") and "maxLength" not in node)
        )
    ]
    assert endless == []


@BOTH
def test_the_schema_is_structural(name: str) -> None:
    for place, node in nodes(schema(name)):
        assert not {"$ref", "anyOf", "oneOf", "allOf", "title", "const", "nullable"} & set(node), (
            place
        )
        assert ("type" in node) != ("x-kubernetes-int-or-string" in node), place
        assert not {"properties", "additionalProperties"} <= set(node), place


def test_replicas_is_the_only_default_of_what_people_write() -> None:
    """HPA and `kubectl scale` read it; any other would be a difference to what is in Git. A new object's
    status says that nobody has answered yet, for kstatus."""
    defaults = [place for place, node in nodes(schema(INFERENCE_DEPLOYMENTS)) if "default" in node]
    assert defaults == [".spec.replicas", ".status"]
    status = schema(INFERENCE_DEPLOYMENTS)["properties"]["status"]
    assert status["default"] == {"observedGeneration": -1}


@BOTH
def test_every_rule_says_the_way_out(name: str) -> None:
    for place, node in nodes(schema(name)):
        for rule in node.get("x-kubernetes-validations", ()):
            assert any(
                word in rule["message"] for word in ("write", "keep", "change", "use", "take")
            ), (
                place,
                rule,
            )
            assert "\n" not in rule["message"]


def test_lists_with_names_are_maps() -> None:
    keyed = {
        place: node["x-kubernetes-list-map-keys"]
        for place, node in nodes(schema(INFERENCE_DEPLOYMENTS))
        if node.get("x-kubernetes-list-type") == "map"
    }
    assert keyed[".spec.pools"] == ["name"]
    assert keyed[".status.pools"] == ["name"]
    assert keyed[".status.conditions"] == ["type"]
    for place, node in nodes(schema(INFERENCE_DEPLOYMENTS)):
        if place in keyed:
            assert set(keyed[place]) <= set(node["items"]["required"]), place


def test_scale_reads_and_writes_the_right_fields() -> None:
    scale = version(INFERENCE_DEPLOYMENTS)["subresources"]["scale"]
    known = {place for place, _ in nodes(schema(INFERENCE_DEPLOYMENTS))}
    assert {".spec.replicas", ".status.replicas", ".status.selector"} == set(scale.values())
    assert set(scale.values()) <= known


@BOTH
def test_columns_show_fields_that_exist(name: str) -> None:
    known = {place for place, _ in nodes(schema(name))} | {".metadata.creationTimestamp"}
    for column in version(name)["additionalPrinterColumns"]:
        path = re.sub(r'\[(0|\?\(@\.type=="\w+"\))\]', "[]", column["jsonPath"])
        assert path in known, column


def test_names_are_those_of_the_documentation() -> None:
    names = crd(INFERENCE_DEPLOYMENTS)["spec"]["names"]
    assert names["shortNames"] == ["infd"]
    assert names["categories"] == ["inference"]
    assert crd(INFERENCE_DEPLOYMENTS)["spec"]["scope"] == "Namespaced"
    assert crd(GPU_NODES)["spec"]["scope"] == "Cluster"
    assert crd(GPU_NODES)["spec"]["names"]["shortNames"] == ["gpun"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_accepted(example: Path) -> None:
    raw = yaml.safe_load(example.read_text(encoding="utf-8"))
    assert [error.message for error in validator(INFERENCE_DEPLOYMENTS).iter_errors(raw)] == []
    assert (
        list(unknown_fields(raw["spec"], schema(INFERENCE_DEPLOYMENTS)["properties"]["spec"])) == []
    )
    InferenceDeployment.model_validate(raw)


def test_there_are_examples() -> None:
    assert [path.stem for path in EXAMPLES] == ["chat-and-batch", "edge-assistant", "mixed-fleet"]


def validator(name: str) -> Draft4Validator:
    """OpenAPI 3.0's bounds are those of JSON schema draft 4."""
    Draft4Validator.check_schema(schema(name))
    return Draft4Validator(schema(name))


@pytest.mark.parametrize(
    ("name", "status"),
    [(INFERENCE_DEPLOYMENTS, InferenceDeploymentStatus), (GPU_NODES, GPUNodeStatus)],
)
def test_every_field_of_the_status_is_in_the_crd(name: str, status: type[BaseModel]) -> None:
    """A field that the CRD lacks is HTTP 500 under server-side apply (kube-apiserver 1.37.2)."""
    raw = filled(status)
    back = status.model_validate(raw).model_dump(mode="json", by_alias=True)
    assert list(unknown_fields(back, schema(name)["properties"]["status"])) == []
    assert [
        error.message
        for error in validator(name).iter_errors({"spec": {}, "status": back})
        if "status" in error.path
    ] == []


def test_every_field_of_the_spec_is_in_the_crd() -> None:
    raw = filled(InferenceDeploymentSpec)
    assert list(unknown_fields(raw, schema(INFERENCE_DEPLOYMENTS)["properties"]["spec"])) == []


def test_a_status_that_is_too_long_is_cut_to_the_bounds() -> None:
    raw = filled(InferenceDeploymentStatus)
    raw["pools"][0]["message"] = "x" * 10_000
    raw["pools"][0]["plan"]["notes"] = ["note"] * 100
    status = written(InferenceDeploymentStatus.model_validate(raw))
    assert [
        error.message
        for error in validator(INFERENCE_DEPLOYMENTS).iter_errors({"spec": {}, "status": status})
        if "status" in error.path
    ] == []
