"""Do the documents make a whole site: every page in the navigation, every link with an end?

What mkdocs itself finds is found by `make site`; all this runs without it.
"""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import jsonschema
import pytest
import yaml

from build_site import BUILD

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = sorted(DOCS.rglob("*.md"))
LINK: Final = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s#:]*)(?:#(?P<anchor>[^)\s]*))?\)")
FENCE: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
HEADING: Final = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
ID: Final = re.compile(r'<a id="([^"]+)"></a>')


def site() -> dict[str, Any]:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    settings: dict[str, Any] = yaml.safe_load(text)
    return settings


def entries(nav: Any) -> Iterator[str]:
    """Every page that the navigation names, in order."""
    match nav:
        case str():
            yield nav
        case list():
            for each in nav:
                yield from entries(each)
        case dict():
            for each in nav.values():
                yield from entries(each)


def anchors(page: Path) -> set[str]:
    """Words after # that lead somewhere on the page, as Python-Markdown makes them of headings."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found = set(ID.findall(text))
    for heading in HEADING.findall(text):
        plain = re.sub(r"[^\w\s-]", "", heading).strip().lower()
        found.add(re.sub(r"[-\s]+", "-", plain))
    return found


def dead_links(page: Path) -> list[str]:
    """Links of the page to files of this repository that are not there, or to no place on them."""
    dead = []
    for match in LINK.finditer(FENCE.sub("", page.read_text(encoding="utf-8"))):
        target = (page.parent / match["target"]).resolve() if match["target"] else page
        is_there = target.exists()
        if is_there and match["anchor"] and target.suffix == ".md":
            is_there = match["anchor"] in anchors(target)
        if not is_there:
            dead.append(match[0])
    return dead


def test_every_page_is_in_the_navigation_once_and_every_entry_is_a_page() -> None:
    named = sorted(entries(site()["nav"]))
    assert sorted(page.relative_to(DOCS).as_posix() for page in PAGES) == named


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_links_lead_to_files_and_to_places_on_them(page: Path) -> None:
    assert dead_links(page) == []


def test_a_link_without_an_end_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[a](#here) [b](#there) [c](page.md#here) [d](other.md)\n[e](page.md#x)\n"
    )
    assert dead_links(page) == ["[b](#there)", "[d](other.md)", "[e](page.md#x)"]


def test_the_site_is_built_strictly_and_fetches_nothing() -> None:
    settings = site()
    assert settings["strict"] is True
    assert settings["theme"]["font"] is False
    assert {"warn"} == {word for part in settings["validation"].values() for word in part.values()}
    assert ("-m", "mkdocs", "build", "--strict") == BUILD  # and no --quiet
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nsite:")[2].splitlines()[1]
    assert "tests/build_site.py" in recipe


def test_links_that_leave_the_site_become_words() -> None:
    spec = importlib.util.spec_from_file_location("site_hook", ROOT / site()["hooks"][0])
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    page = SimpleNamespace(file=SimpleNamespace(src_uri="adr/0001.md"))
    given = "[a](../limits.md#x) [b](../../SECURITY.md) [c](https://example.com/../../x) [d](#here)"
    shown = "[a](../limits.md#x) b [c](https://example.com/../../x) [d](#here)"
    assert shown == hook.on_page_markdown(given, page=page)


def locked(name: str) -> dict[str, str]:
    """Packages of a lock file, each with the lines that belong to it."""
    text = (ROOT / name).read_text(encoding="utf-8")
    parts = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)
    return {part.partition("==")[0]: part for part in parts if "==" in part}


@pytest.mark.parametrize("group", ["docs", "checkov"])
def test_what_tools_need_is_locked_apart_with_hashes(group: str) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = {re.split(r"[<>=]", each)[0] for each in settings["dependency-groups"][group]}
    packages = locked(f"requirements.{group}.lock")
    assert asked <= packages.keys()
    assert {name for name, lines in packages.items() if "--hash=sha256:" not in lines} == set()
    others = locked("requirements.lock").keys() | locked("requirements.runtime.lock").keys()
    assert {name for name in others if name.startswith(("mkdocs", "checkov"))} == set()


def test_the_values_of_a_site_without_internet_are_values_of_the_chart() -> None:
    schema = json.loads((ROOT / "charts/plimsoll/values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((DOCS / "air-gapped" / "values.yaml").read_text(encoding="utf-8"))
    jsonschema.validate(values, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values | {"imageRegistry": "registry.example.com"}, schema)
