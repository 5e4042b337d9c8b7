"""`make sbom`: what the image holds of Python, as CycloneDX, in build/plimsoll.cdx.json.

Read from requirements.runtime.lock, which is all that the image installs (docs/release.md). Equal locks give equal
bytes: no time, and a serial number that follows from the lock. What the base image holds, the builder's own SBOM says.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
LOCK: Final = ROOT / "requirements.runtime.lock"
FILE: Final = ROOT / "build" / "plimsoll.cdx.json"
PINNED: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(?:\s*;\s*(.+?))?\s*\\?$", re.MULTILINE)
NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "plimsoll.dev")


def sbom(lock: str, version: str) -> dict[str, Any]:
    """The document; packages of other platforms are named with the marker under which they are installed."""
    product = {
        "type": "application",
        "bom-ref": f"pkg:pypi/plimsoll@{version}",
        "name": "plimsoll",
        "version": version,
        "purl": f"pkg:pypi/plimsoll@{version}",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    parts = [_component(*found) for found in PINNED.findall(lock)]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(NAMESPACE, lock + version).urn,
        "version": 1,
        "metadata": {"component": product},
        "components": parts,
        "dependencies": [
            {"ref": product["bom-ref"], "dependsOn": sorted(each["bom-ref"] for each in parts)}
        ],
    }


def _component(name: str, version: str, marker: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{name.lower()}@{version}"
    # two versions of one package, each for some platforms, are two components
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    }
    if expression := _license(name):
        made["licenses"] = [{"expression": expression}]
    if marker:
        made["properties"] = [{"name": "plimsoll:marker", "value": marker}]
    return made


def _license(name: str) -> str:
    """The SPDX expression that the package gives itself (PEP 639); nothing is read into other words."""
    try:
        told = metadata(name)
    except PackageNotFoundError:
        return ""
    return str(told["License-Expression"]) if "License-Expression" in told else ""


def text() -> str:
    found = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None, "pyproject.toml has a version"
    document = sbom(LOCK.read_text(encoding="utf-8"), found[1])
    return json.dumps(document, indent=2) + "\n"


def main() -> int:
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text(), encoding="utf-8")
    print(FILE.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
