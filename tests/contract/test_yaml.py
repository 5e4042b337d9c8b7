"""Is every YAML file well written, by one set of rules?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).parents[2]
TEMPLATES: Final = ROOT / "charts" / "plimsoll" / "templates"
FOLDERS: Final = ("charts", "crds", "deploy", "docs", "e2e", "tests")


def documents() -> list[Path]:
    """Every YAML file of the checkout but templates."""
    found = [
        path
        for folder in FOLDERS
        for ending in ("*.yaml", "*.yml")
        for path in (ROOT / folder).rglob(ending)
        if not path.is_relative_to(TEMPLATES)
    ]
    return sorted([*found, ROOT / ".yamllint.yaml"])


def test_yamllint_has_nothing_to_say() -> None:
    assert len(documents()) > 20
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "yamllint", "--strict"),
            *("--config-file", ROOT / ".yamllint.yaml", "--format", "parsable"),
            *(path.relative_to(ROOT) for path in documents()),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_no_rule_but_the_length_of_lines_spares_a_file() -> None:
    """A blanket ignore would make the check above say nothing."""
    rules = yaml.safe_load((ROOT / ".yamllint.yaml").read_text(encoding="utf-8"))
    assert "ignore" not in rules
    sparing = [
        name for name, rule in rules["rules"].items() if isinstance(rule, dict) and "ignore" in rule
    ]
    assert ["line-length"] == sparing
