"""The chart says what the code says, and its values say what they mean."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from plimsoll import __version__
from plimsoll.api.v1alpha1 import InferenceDeployment
from plimsoll.catalog.profiles import GpuProfile, read_profiles
from plimsoll.cli.generate import generated
from plimsoll.controller.settings import PREFIX, Settings
from plimsoll.render.chart import render_chart_crd, render_chart_rbac, render_chart_watched_rbac
from plimsoll.render.chart_readme import render_chart_readme

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "plimsoll"
TEMPLATES = sorted(path for path in (CHART / "templates").rglob("*") if path.is_file())
WRITTEN_BY_HAND = [path for path in TEMPLATES if path.parent.name != "crds"]
VALUE = re.compile(r"\.Values\.([A-Za-z.]+)")
OPEN = {"resources", "affinity", "nodeSelector", "tolerations", "labels", "podLabels"}
"""Values that are passed on as they are: their own fields are Kubernetes' to judge."""


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read(CHART / "values.schema.json"))
    return found


def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(read(CHART / "values.yaml"))
    return found


def leaves(tree: dict[str, Any], path: str = "") -> Iterator[str]:
    """Dotted names of all values; what is passed on as it is counts as one."""
    for name, value in tree.items():
        dotted = f"{path}.{name}" if path else name
        if isinstance(value, dict) and value and name not in OPEN:
            yield from leaves(value, dotted)
        else:
            yield dotted


def problems(changed: dict[str, Any]) -> list[str]:
    validator = jsonschema.Draft7Validator(schema())
    return [error.message for error in validator.iter_errors(changed)]


def test_the_charts_crds_are_copies_of_the_crds() -> None:
    copies = {path.name: read(path) for path in (CHART / "templates" / "crds").iterdir()}
    assert copies == {
        path.name: render_chart_crd(read(path)) for path in (ROOT / "crds").glob("*.yaml")
    }
    assert len(copies) > 0


def test_the_charts_roles_are_the_verbs_that_the_code_uses() -> None:
    from plimsoll.cluster.grants import cluster_role_rules, own_role_rules, watched_role_rules

    templates = CHART / "templates"
    without_namespace = cluster_role_rules(watches_all_namespaces=False)
    assert read(templates / "clusterrole.yaml") == render_chart_rbac(
        cluster_role_rules(), elsewhere=without_namespace
    )
    assert read(templates / "watched-role.yaml") == render_chart_watched_rbac(watched_role_rules())
    assert read(templates / "role.yaml") == render_chart_rbac(own_role_rules(), namespaced=True)


def test_the_plain_manifests_have_the_same_roles_and_version() -> None:
    """`make generate` prints them with Helm; e2e/stories/test_chart.py holds the whole text against it."""
    from plimsoll.cluster.grants import cluster_role_rules, own_role_rules

    objects = list(yaml.safe_load_all(read(ROOT / "deploy" / "plimsoll.yaml")))
    rules = {
        each["kind"]: each["rules"]
        for each in objects
        if each["kind"] in ("ClusterRole", "Role") and each["metadata"]["name"] == "plimsoll"
    }
    expected = {"ClusterRole": list(cluster_role_rules()), "Role": list(own_role_rules())}
    assert json.loads(json.dumps(expected)) == rules
    (operator,) = [each for each in objects if each["kind"] == "Deployment"]
    image = operator["spec"]["template"]["spec"]["containers"][0]["image"]
    assert f"{values()['image']['repository']}:{__version__}" == image


def test_the_readme_is_printed_from_the_values() -> None:
    page = read(CHART / "README.md")
    assert (
        page
        == render_chart_readme(values(), schema())
        == generated(ROOT)["charts/plimsoll/README.md"]
    )
    rows = re.findall(r"^\| `(.+?)` \| .+ \| (.*) \|$", page, re.MULTILINE)
    assert set(leaves(values())) == {name for name, _ in rows}
    assert [name for name, text in rows if not text] == []


def test_settings_that_the_chart_makes_are_the_operators() -> None:
    """A name that the operator does not read would be a value that does nothing."""
    names = {PREFIX + name.upper() for name in Settings.model_fields}
    made = set(re.findall(PREFIX + "[A-Z_]+", read(CHART / "templates" / "_helpers.tpl")))
    made |= set(re.findall(PREFIX + "[A-Z_]+", read(CHART / "templates" / "operator.yaml")))
    assert len(made) >= 10
    assert made - names == set()


def test_defaults_of_values_are_the_operators_own() -> None:
    """Who sets nothing gets what `plimsoll run` does by itself."""
    made = values()
    own = Settings(identity="a")
    assert own.watch_seconds == made["watching"]["everySeconds"]
    assert own.stale_seconds == made["watching"]["staleSeconds"]
    assert own.history_hours == made["watching"]["historyHours"]
    assert own.settle_seconds == made["recycling"]["settleSeconds"]
    assert own.kubelet_insecure_tls == made["watching"]["kubelet"]["insecureTLS"]
    assert own.namespaces == tuple(made["operator"]["namespaces"])


def test_the_chart_needs_no_cluster_and_no_luck_to_be_rendered() -> None:
    """GitOps tools render without a cluster, and twice must give the same text."""
    forbidden = re.compile(r"\b(lookup|rand[A-Z]\w*|genCA|genSelfSignedCert|uuidv4|now)\b")
    found = {
        path.name: match[0]
        for path in WRITTEN_BY_HAND
        for action in re.findall(r"\{\{.*?\}\}", read(path), re.DOTALL)
        if (match := forbidden.search(action))
    }
    assert found == {}


def test_the_values_are_what_the_schema_allows() -> None:
    jsonschema.Draft7Validator.check_schema(schema())
    assert problems(values()) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"crd": {"install": True}},
        {"crds": {"kep": True}},
        {"operator": {"replicas": "1"}},
        {"operator": {"replicas": 3}},
        {"operator": {"runAsUser": 0}},
        {"operator": {"logLevel": "verbose"}},
        {"image": {"digest": "latest"}},
        {"fullnameOverride": "Not_A_Name"},
        {"operator": {"namespaces": ["Team A"]}},
        {"watching": {"everySeconds": 0}},
        {"watching": {"prometheus": {"url": "prometheus:9090"}}},
        {"watching": {"kubelet": {"insecureTls": True}}},
        {"monitoring": {"serviceMonitor": {"interval": "often"}}},
        {"monitoring": {"prometheusRule": {"runbookUrl": "docs/alerts.md"}}},
        {"networkPolicy": {"apiServer": {"cidrs": ["10.0.0.1"]}}},
        {"networkPolicy": {"nodes": {"port": 0}}},
        {"networkPolicy": {"gates": {"namespaces": ["Team A"]}}},
        {"networkPolicy": {"gates": {"clientFrom": []}}},
        {"priorityClass": {"value": 2000000000}},
        {"gpuTypes": [{"total": "40Gi"}]},
        {"gpuTypes": [{"product": "NVIDIA-L40S", "total": "40 gigs"}]},
        {"gpuTypes": [{"product": "NVIDIA-L40S", "memory": "40Gi"}]},
    ],
    ids=str,
)
def test_a_typing_error_in_values_is_refused(changed: dict[str, Any]) -> None:
    assert len(problems(changed)) == 1


def test_the_schema_of_the_users_table_is_that_of_the_code() -> None:
    row = schema()["properties"]["gpuTypes"]["items"]
    fields = {field.alias or name for name, field in GpuProfile.model_fields.items()}
    assert fields == set(row["properties"])
    whole = {
        "product": "NVIDIA-L40S",
        "nodeSelector": {"rack": "7"},
        "total": "40Gi",
        "reserved": 0,
        "computeCapability": "8.9",
        "fp8": "Native",
        "bf16": True,
        "unifiedMemory": False,
    }
    assert problems({"gpuTypes": [whole]}) == []
    assert len(read_profiles([whole])) == 1


def test_the_operator_may_run_elsewhere() -> None:
    assert problems({"operator": {"replicas": 0}, "serviceAccount": {"create": True}}) == []


def test_every_value_is_used_and_every_used_value_has_a_default() -> None:
    used = {name for path in WRITTEN_BY_HAND for name in VALUE.findall(read(path))}
    used |= {f"crds.{name}" for name in ("install", "keep")}  # in the copies and a helper
    assert set(leaves(values())) == used


def test_every_value_is_described() -> None:
    def undescribed(tree: dict[str, Any], path: str) -> Iterator[str]:
        for name, value in tree.get("properties", {}).items():
            dotted = f"{path}.{name}" if path else name
            if "description" not in value:
                yield dotted
            if value.get("additionalProperties") is False and name not in OPEN:
                yield from undescribed(value, dotted)

    assert list(undescribed(schema(), "")) == []


def test_the_operator_does_not_read_a_service_as_a_setting() -> None:
    """A Service plimsoll-metrics would set PLIMSOLL_METRICS_PORT to an address."""
    assert "\n      enableServiceLinks: false\n" in read(CHART / "templates" / "operator.yaml")


def test_the_chart_is_of_the_operators_version() -> None:
    chart = yaml.safe_load(read(CHART / "Chart.yaml"))
    assert chart["appVersion"] == __version__
    assert chart["version"] == __version__


def test_what_the_chart_says_of_itself_is_so() -> None:
    chart = yaml.safe_load(read(CHART / "Chart.yaml"))
    told = {
        name: yaml.safe_load(chart["annotations"][f"artifacthub.io/{name}"])
        for name in ("crds", "images")
    }
    made = [yaml.safe_load(read(path)) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    assert {(each["name"], each["kind"], each["version"]) for each in told["crds"]} == {
        (crd["metadata"]["name"], crd["spec"]["names"]["kind"], version["name"])
        for crd in made
        for version in crd["spec"]["versions"]
    }
    repository = values()["image"]["repository"]
    assert [f"{repository}:{__version__}"] == [each["image"] for each in told["images"]]
    examples = yaml.safe_load(chart["annotations"]["artifacthub.io/crdsExamples"])
    assert {InferenceDeployment.model_validate(each).metadata.name for each in examples} == {"chat"}
    changes = yaml.safe_load(chart["annotations"]["artifacthub.io/changes"])
    assert {"security", "changed", "added"} == {each["kind"] for each in changes}
    assert all(set(each) == {"kind", "description"} for each in changes)
