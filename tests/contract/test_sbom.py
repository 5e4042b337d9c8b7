"""Does the bill of materials name everything that the image installs, and nothing else?

CycloneDX's own library judges the form (e2e/stories/test_chart.py, where it is installed beside checkov).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from plimsoll import __version__
from write_sbom import LOCK, sbom, text

ROOT: Final = Path(__file__).parents[2]
LINE: Final = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


def test_every_locked_package_is_a_component_and_every_component_is_locked() -> None:
    locked = {(name, version) for name, version in LINE.findall(LOCK.read_text(encoding="utf-8"))}
    parts = json.loads(text())["components"]
    assert len(locked) > 20
    assert locked == {(each["name"], each["version"]) for each in parts}
    assert len({each["bom-ref"] for each in parts}) == len(parts)


def test_equal_locks_give_equal_bytes_and_another_one_another_number() -> None:
    assert text() == text()
    lock = (
        "a==1.0 \\\n    --hash=sha256:0\nb==2.0 ; sys_platform == 'win32' \\\n    --hash=sha256:1\n"
    )
    one, other = sbom(lock, "1.0.0"), sbom(lock.replace("a==1.0", "a==1.1"), "1.0.0")
    assert one["serialNumber"] != other["serialNumber"]
    assert [None, [{"name": "plimsoll:marker", "value": "sys_platform == 'win32'"}]] == [
        each.get("properties") for each in one["components"]
    ]


def test_it_is_of_this_version() -> None:
    assert __version__ == json.loads(text())["metadata"]["component"]["version"]
