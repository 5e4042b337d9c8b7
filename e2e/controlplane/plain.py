"""The chart as plain manifests, for those who install with kubectl alone.

    python e2e/controlplane/plain.py          writes deploy/plimsoll.yaml (part of `make generate`)

What Helm renders of the chart's defaults for namespace plimsoll-system, but the CRDs, which are in crds/, and the pod
of `helm test`; before it the namespace, which must let the objects in.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import yaml

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from controlplane.build import is_built, programs

REPOSITORY: Final = Path(__file__).resolve().parents[2]
FILE: Final = REPOSITORY / "deploy" / "plimsoll.yaml"
NAMESPACE: Final = "plimsoll-system"
HEAD: Final = """\
# Printed by `make generate` from charts/plimsoll with its default values, for kubectl alone:
#     kubectl apply --server-side -f crds/ -f deploy/
"""
LONGEST_LINE: Final = 110


def plain() -> str:
    """The text of the file."""
    rendered = subprocess.run(
        [
            *(programs() / "helm", "template", "plimsoll", REPOSITORY / "charts" / "plimsoll"),
            *("-n", NAMESPACE, "--skip-tests", "--set", "crds.install=false"),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    namespace: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": NAMESPACE,
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        },
    }
    objects = [namespace, *(each for each in yaml.safe_load_all(rendered) if each)]
    return HEAD + yaml.safe_dump_all(
        objects, sort_keys=False, width=LONGEST_LINE, explicit_start=True
    )


def main() -> int:
    if not is_built():
        print(f"{FILE.name} is left as it is: Helm is not built yet; `make e2e` builds it")
        return 0
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(plain(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
