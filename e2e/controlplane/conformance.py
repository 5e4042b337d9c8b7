"""kubeconform, and the schemas that it compares manifests with.

    python e2e/controlplane/conformance.py        builds it once per recipe and prints where it lies

The schemas of Kubernetes' own kinds are the API server's, those of custom kinds the CRDs'. Both are made
strict: a field that a schema does not name is a mistake. A cold build takes half a minute.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from controlplane.cache import cache_dir, key_of, made_once

HERE: Final = Path(__file__).resolve().parent / "kubeconform"
PACKAGE: Final = "github.com/yannh/kubeconform/cmd/kubeconform"
FLAGS: Final = ("-trimpath", "-ldflags", "-s -w")
PLACE: Final = "{{.Group}}/{{.ResourceAPIVersion}}/{{.ResourceKind}}.json"
"""Below the folder of schemas; the core group's folder is called by its version."""
DEFINED: Final = "#/components/schemas/"

Schema = dict[str, Any]


def kubeconform() -> Path:
    """The program; built when the cache lacks it."""
    key = key_of((HERE / "go.mod").read_bytes(), (HERE / "go.sum").read_bytes(), *FLAGS)
    return made_once("kubeconform", key, _build_into) / "kubeconform"


def _build_into(folder: Path) -> None:
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-buildvcs=false",
        "GOCACHE": str(cache_dir() / "go-build"),
    }
    built = subprocess.run(
        ["nice", "go", "build", *FLAGS, "-o", folder / "kubeconform", PACKAGE],
        cwd=HERE,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0:
        raise RuntimeError(f"go build ended with {built.returncode}:\n{built.stderr[-2000:]}")


def write_schemas(
    folder: Path, *, published: Iterable[Mapping[str, Any]], crds: Iterable[Mapping[str, Any]]
) -> int:
    """One file for each kind; gives their number. `published` are documents of the API server's /openapi/v3."""
    written = 0
    for document in published:
        schemas: dict[str, Schema] = document["components"]["schemas"]
        for name, schema in schemas.items():
            for kind in schema.get("x-kubernetes-group-version-kind", ()):
                whole = {"$ref": f"#/definitions/{name}", "definitions": _reached(name, schemas)}
                group = kind["group"] or kind["version"]
                written += _write(folder, group, kind["version"], kind["kind"], whole)
    for crd in crds:
        spec = crd["spec"]
        for version in spec["versions"]:
            schema = _strict(version["schema"]["openAPIV3Schema"])
            # The API server adds its own fields to those that the CRD says more about.
            schema["properties"].get("metadata", {}).pop("additionalProperties", None)
            names = (spec["group"], version["name"], spec["names"]["kind"])
            written += _write(folder, *names, schema)
    return written


def _write(folder: Path, group: str, version: str, kind: str, schema: Schema) -> int:
    path = folder / group / version / f"{kind.lower()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(schema))
    return 1


def _reached(name: str, schemas: Mapping[str, Schema]) -> dict[str, Schema]:
    """A definition and all that it points to."""
    found: dict[str, Schema] = {}
    wanted = [name]
    while wanted:
        each = wanted.pop()
        if each not in found:
            found[each] = _strict(schemas[each])
            text = json.dumps(schemas[each])
            wanted += [part.partition('"')[0] for part in text.split(f'"$ref": "{DEFINED}')[1:]]
    return found


def _strict(schema: Any) -> Any:
    """The same as JSON Schema that takes no field beyond those it names."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: {name: _strict(each) for name, each in value.items()}
        if key == "properties"
        else _strict(value)
        for key, value in schema.items()
        if not key.startswith("x-kubernetes-")
    }
    if isinstance(reference := made.get("$ref"), str):
        made["$ref"] = reference.replace(DEFINED, "#/definitions/")
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("format", None)
    is_open = schema.get("x-kubernetes-preserve-unknown-fields", False)
    if "properties" in made and "additionalProperties" not in made and not is_open:
        made["additionalProperties"] = False
    return made


if __name__ == "__main__":
    print(kubeconform())
