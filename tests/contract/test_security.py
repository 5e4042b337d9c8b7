"""What nobody of ours may do, and that docs/security.md says what the code does."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.api.allowed import Allowed, bad_entries
from plimsoll.cluster.agent_grants import AGENT_GRANTS
from plimsoll.cluster.grants import GRANTS, Grant
from plimsoll.controller.settings import Settings, read_settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ALL = (*GRANTS, *AGENT_GRANTS)
WRITES = {"create", "update", "patch", "delete", "deletecollection"}
NEVER = (
    "secrets",
    "pods/exec",
    "pods/attach",
    "pods/portforward",
    "pods/ephemeralcontainers",
    "pods/proxy",
    "pods/log",
    "services/proxy",
    "nodes/proxy",
    "serviceaccounts",
    "serviceaccounts/token",
    "namespaces",
    "roles",
    "rolebindings",
    "clusterroles",
    "clusterrolebindings",
    "customresourcedefinitions",
    "validatingadmissionpolicies",
    "persistentvolumes",
    "*",
)


@pytest.mark.parametrize("resource", NEVER)
def test_nobody_of_ours_reaches(resource: str) -> None:
    assert [grant for grant in ALL if resource == grant.resource] == []


@pytest.mark.parametrize("resource", ["nodes", "nodes/stats", "nodes/status", "resourceslices"])
def test_nobody_of_ours_writes(resource: str) -> None:
    assert not WRITES & {grant.verb for grant in ALL if resource == grant.resource}


@pytest.mark.parametrize(
    "verb", ["*", "impersonate", "escalate", "bind", "deletecollection", "approve"]
)
def test_nobody_of_ours_has_the_verb(verb: str) -> None:
    assert [grant for grant in ALL if verb == grant.verb] == []


def test_a_pod_is_neither_made_nor_deleted_by_hand() -> None:
    assert {"list", "watch", "patch"} == {g.verb for g in GRANTS if g.resource == "pods"}


def table(title: str) -> dict[str, list[str]]:
    """Resources and verbs of one of the page's tables."""
    rows = PAGE.partition(f"| {title} | verbs |\n|---|---|\n")[2].partition("\n\n")[0]
    found = re.findall(r"^\| `([a-z/]+)` \| ([a-z, ]+) \|$", rows, re.MULTILINE)
    return {resource: verbs.split(", ") for resource, verbs in found}


def granted(grants: Iterable[Grant]) -> dict[str, list[str]]:
    verbs: dict[str, list[str]] = defaultdict(list)
    for grant in grants:
        verbs[grant.resource].append(grant.verb)
    return {resource: sorted(each) for resource, each in verbs.items()}


@pytest.mark.parametrize(("title", "grants"), [("operator", GRANTS), ("agent", AGENT_GRANTS)])
def test_the_pages_verbs_are_the_codes(title: str, grants: tuple[Grant, ...]) -> None:
    assert granted(grants) == table(title)


def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "charts/plimsoll/values.yaml").read_text())
    security: dict[str, Any] = found["security"]
    return security


def test_the_pages_defaults_are_the_charts_and_the_operators_own() -> None:
    rows = re.findall(r"^\| `security\.([A-Za-z]+)` \| `(.+?)` \|", PAGE, re.MULTILINE)
    assert values() == {name: yaml.safe_load(default) for name, default in rows}
    own = Settings(identity="a").allowed
    assert (
        Allowed(
            host_path=values()["hostPath"],
            images=tuple(values()["images"]),
            foreign_code=values()["trustRemoteCode"],
        )
        == own
    )


def test_what_the_site_allows_is_read_from_the_environment() -> None:
    settings = read_settings(
        {
            "PLIMSOLL_ALLOW_HOST_PATH": "true",
            "PLIMSOLL_ALLOW_FOREIGN_CODE": "true",
            "PLIMSOLL_ALLOWED_IMAGES": "registry.example.com/ml, vllm",
        },
        default_identity="a",
    )
    expected = Allowed(
        host_path=True, images=("registry.example.com/ml", "vllm"), foreign_code=True
    )
    assert expected == settings.allowed


def test_an_image_entry_with_a_typing_error_stops_the_operator() -> None:
    with pytest.raises(ValueError, match="names no registry, repository or image"):
        read_settings(
            {"PLIMSOLL_ALLOWED_IMAGES": "https://registry.example.com"}, default_identity="a"
        )


@pytest.mark.parametrize(
    "entry",
    ["https://r.io", "*", "r.io//a", "r.io/A/b", "r.io/a b", "/a", "-r.io", "r.io/a@sha256:x", ""],
)
def test_the_charts_schema_refuses_what_the_operator_cannot_read(entry: str) -> None:
    text = (ROOT / "charts/plimsoll/values.schema.json").read_text(encoding="utf-8")
    pattern = json.loads(text)["properties"]["security"]["properties"]["images"]["items"]["pattern"]
    assert bad_entries((entry,)) == (entry,)
    assert re.search(pattern, entry) is None
    for good in ("r.io", "r.io:5000", "r.io/*", "r.io/ml/", "vllm", "vllm/a:v1", "localhost/a"):
        assert re.search(pattern, good)
        assert bad_entries((good,)) == ()


def test_the_tenants_role_is_for_our_objects_alone() -> None:
    text = (ROOT / "charts/plimsoll/templates/user-roles.yaml").read_text(encoding="utf-8")
    groups = re.findall(r"apiGroups: \[(.+)\]", text)
    assert {"plimsoll.dev"} == set(groups)
    assert "status" not in text.partition("-edit")[2]
