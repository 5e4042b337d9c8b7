"""The chart on a real API server: linted, held against schemas, installed, upgraded, rolled back, taken out."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

import write_sbom
from controlplane import apart
from controlplane.cluster import API_ONLY, OUR_NAMESPACE, CommandError, ControlPlane
from controlplane.conformance import PLACE, kubeconform, write_schemas
from controlplane.fetch import prometheus_programs
from controlplane.plain import FILE, plain
from installation import CHART, RELEASE, REPOSITORY, USER, Installation
from patience import Patience, eventually
from prometheus_server import why_not

EXAMPLES: Final = REPOSITORY / "docs" / "examples"
EXAMPLE: Final = EXAMPLES / "edge-assistant.yaml"
FOREIGN_CRDS: Final = REPOSITORY / "tests" / "data" / "prometheus_operator_crds.yaml"
EVERYTHING: Final[dict[str, Any]] = {
    "operator": {
        "replicas": 2,
        "namespaces": ["team-a", "team-b"],
        "extraEnv": [{"name": "PLIMSOLL_WATCH_SECONDS", "value": "15"}],
    },
    "image": {"registry": "registry.example:5000", "digest": f"sha256:{'0' * 64}"},
    "imagePullSecrets": ["our-registry"],
    "gpuTypes": [{"product": "NVIDIA-L40S", "total": "40Gi"}],
    "watching": {
        "kubelet": {"caConfigMap": "kubelet-ca", "insecureTLS": True},
        "prometheus": {
            "url": "http://prometheus.monitoring:9090",
            "tokenSecret": "prometheus-token",
            "caConfigMap": "prometheus-ca",
        },
    },
    "monitoring": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True, "disabled": ["PlimsollOftenRecycled"]},
        "dashboard": {"enabled": True, "annotations": {"grafana_folder": "Inference"}},
    },
    "networkPolicy": {
        "enabled": True,
        "apiServer": {"cidrs": ["10.0.0.1/32"]},
        "nodes": {"cidrs": ["10.1.0.0/16"]},
        "metricsFrom": [{"namespaceSelector": {}}],
        "extraEgress": [{"ports": [{"port": 9090, "protocol": "TCP"}]}],
        "gates": {
            "namespaces": ["team-a", "team-b"],
            "clientsFrom": [{"podSelector": {}}],
            "onlyDoor": True,
        },
    },
    "priorityClass": {"create": True},
}
"""Values that make every object that the chart has."""
VALUE_SETS: Final[dict[str, dict[str, Any]]] = {"defaults": {}, "everything": EVERYTHING}
FOLDERS_OF_NODES: Final[dict[str, Any]] = {
    "security": {"hostPath": True, "hostPathByNamespace": True},
    "agent": {"driverPath": "/usr/lib64"},
    "image": {"pullPolicy": "Always"},
}
"""What no namespace that enforces `restricted` takes, and its admission policy."""
ALL_SETS: Final = VALUE_SETS | {"folders": FOLDERS_OF_NODES}


@pytest.fixture(scope="module")
def bare() -> Iterator[ControlPlane]:
    """etcd and API server: enough to hold objects."""
    with ControlPlane(parts=API_ONLY) as started:
        yield started


@pytest.fixture(scope="module")
def schemas(bare: ControlPlane) -> Path:
    """A folder of schemas for every kind that the chart or an example has."""
    folder = bare.dir / "schemas"
    index = json.loads(bare.kubectl("get", "--raw", "/openapi/v3").stdout)
    paths = [
        entry["serverRelativeURL"]
        for path, entry in index["paths"].items()
        if re.fullmatch(r"api/v1|apis/[^/]+/v1", path)
    ]
    published = [json.loads(bare.kubectl("get", "--raw", path).stdout) for path in paths]
    crds = [
        crd
        for path in (*(REPOSITORY / "crds").glob("*.yaml"), FOREIGN_CRDS)
        for crd in yaml.safe_load_all(path.read_text())
    ]
    assert write_schemas(folder, published=published, crds=crds) > 100
    return folder


def rendered(cluster: ControlPlane, values: Mapping[str, Any] | None = None, *words: str) -> str:
    """`helm template`, as GitOps tools do it: without a cluster."""
    command: tuple[str | Path, ...] = ("template", RELEASE, CHART, "-n", OUR_NAMESPACE, "-f", "-")
    return cluster.helm(*command, *words, input=yaml.safe_dump(values or {})).stdout


def objects(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


def conforms(schemas: Path, text: str) -> subprocess.CompletedProcess[str]:
    """What kubeconform says, which knows no kind but those in the folder."""
    return subprocess.run(
        [kubeconform(), "-strict", "-summary", "-schema-location", f"{schemas}/{PLACE}", "-"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_chart_passes_helms_lint(bare: ControlPlane) -> None:
    for values in ALL_SETS.values():
        bare.helm("lint", "--strict", CHART, "-f", "-", input=yaml.safe_dump(values))


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_rendering_twice_gives_the_same_bytes(bare: ControlPlane, values: dict[str, Any]) -> None:
    assert rendered(bare, values) == rendered(bare, values)


def test_a_mistyped_value_is_refused_by_name(bare: ControlPlane) -> None:
    with pytest.raises(CommandError, match="replica"):
        rendered(bare, None, "--set", "operator.replica=2")


def test_crds_are_left_out_where_somebody_else_installs_them(bare: ControlPlane) -> None:
    kinds = {each["kind"] for each in objects(rendered(bare, {"crds": {"install": False}}))}
    assert "Deployment" in kinds
    assert "CustomResourceDefinition" not in kinds


def test_a_service_monitor_without_its_service_is_refused_with_the_way_out(
    bare: ControlPlane,
) -> None:
    values = {"metrics": {"service": False}, "monitoring": {"serviceMonitor": {"enabled": True}}}
    with pytest.raises(CommandError, match=r"set metrics\.service to true"):
        rendered(bare, values)


def test_an_api_server_that_is_too_old_is_refused(bare: ControlPlane) -> None:
    with pytest.raises(CommandError, match="kubeVersion"):
        rendered(bare, None, "--kube-version", "1.29.0")


@pytest.mark.parametrize("values", ALL_SETS.values(), ids=ALL_SETS)
def test_every_rendered_object_conforms_to_its_schema(
    bare: ControlPlane, schemas: Path, values: dict[str, Any]
) -> None:
    said = conforms(schemas, rendered(bare, values))
    assert said.returncode == 0, said.stdout + said.stderr
    assert "Skipped: 0" in said.stdout


def test_yamllint_has_nothing_to_say_of_what_is_rendered(
    bare: ControlPlane, tmp_path: Path
) -> None:
    """By the rules of every file, but for the looks of what a program printed."""
    folder = renderings(bare, tmp_path)
    looks = "indentation: {spaces: consistent, indent-sequences: whatever}, line-length: disable"
    rules = f"{{extends: {REPOSITORY / '.yamllint.yaml'}, rules: {{{looks}}}}}"
    said = subprocess.run(
        [sys.executable, "-m", "yamllint", "--strict", "-f", "parsable", "-d", rules, folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stdout + said.stderr


def renderings(cluster: ControlPlane, place: Path) -> Path:
    """A folder with the chart rendered for every set of values."""
    folder = place / "rendered"
    folder.mkdir()
    for name, values in ALL_SETS.items():
        (folder / f"{name}.yaml").write_text(rendered(cluster, values).rstrip("\n") + "\n")
    return folder


def test_the_plain_manifests_are_what_helm_renders() -> None:
    assert plain() == FILE.read_text(encoding="utf-8"), "run make generate"


def test_checkov_finds_nothing_but_a_mistake(bare: ControlPlane, tmp_path: Path) -> None:
    """Chart and Containerfile, in one run; what we mean otherwise is said on the object, each with its reason."""
    try:
        python = apart.python("checkov")
    except apart.CannotBeHadError as error:
        pytest.skip(str(error))
    folder = renderings(bare, tmp_path)
    shutil.copy(REPOSITORY / "Containerfile", folder / "Dockerfile")
    made = next(e for e in objects(rendered(bare)) if e["kind"] == "Deployment")
    made["spec"]["template"]["spec"]["containers"][0]["securityContext"]["privileged"] = True
    (folder / "mistake.yaml").write_text(yaml.safe_dump(made))
    said = subprocess.run(
        [
            *(python, "-m", "checkov.main", "--directory", folder, "--output", "json"),
            *("--framework", "kubernetes", "dockerfile", "--skip-download"),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    reports = {each["check_type"]: each for each in json.loads(said.stdout)}
    results = {kind: report["results"] for kind, report in reports.items()}
    assert {"kubernetes", "dockerfile"} == set(results), said.stderr
    assert all(found["parsing_errors"] == [] for found in results.values())
    failed = [each for found in results.values() for each in found["failed_checks"]]
    found = {(each["file_path"], each["check_id"], each["resource"]) for each in failed}
    assert {("/mistake.yaml", "CKV_K8S_16", "Deployment.plimsoll-system.plimsoll")} == found
    assert len(results["kubernetes"]["passed_checks"]) > 600
    assert len(results["dockerfile"]["passed_checks"]) > 50
    skipped = [each for found in results.values() for each in found["skipped_checks"]]
    assert {each["resource"].split(".")[0] for each in skipped} == {
        "DaemonSet",
        "Deployment",
        "Pod",
    }
    assert [e["check_id"] for e in skipped if not e["check_result"]["suppress_comment"]] == []


JUDGE: Final = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
sys.exit(str(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read()) or "") or None)
"""


def test_cyclonedx_takes_the_bill_of_materials_and_no_mistake() -> None:
    """Its own library judges, which checkov brings along."""
    try:
        python = apart.python("checkov")
    except apart.CannotBeHadError as error:
        pytest.skip(str(error))
    for bill, code in (
        (write_sbom.text(), 0),
        (write_sbom.text().replace('"library"', '"lib"'), 1),
    ):
        said = subprocess.run(
            [python, "-c", JUDGE], input=bill, capture_output=True, text=True, check=False
        )
        assert said.returncode == code, said.stderr


def test_every_example_conforms_to_the_crd(schemas: Path) -> None:
    """Argo's own objects are another project's, and one of its test data is broken on purpose."""
    paths = sorted((REPOSITORY / "docs").rglob("*.yaml"))
    texts = [path.read_text() for path in paths if path.name != "unreadable.yaml"]
    ours = [
        each
        for text in texts
        for each in objects(text)
        if each.get("apiVersion", "").startswith("plimsoll.dev/")
    ]
    assert len(ours) > 5
    said = conforms(schemas, yaml.safe_dump_all(ours))
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Deployment", ("spec", "replica"), 1),
        ("Deployment", ("spec", "replicas"), "one"),
        ("NetworkPolicy", ("spec", "egres"), []),
        ("ServiceMonitor", ("spec", "endpoint"), []),
        ("PrometheusRule", ("spec", "groups"), [{"name": "a", "rules": [{"alert": "A"}]}]),
    ],
)
def test_a_mistake_does_not_conform(
    bare: ControlPlane, schemas: Path, kind: str, path: tuple[str, str], value: Any
) -> None:
    """Without this the check above could say yes to all."""
    found = next(each for each in objects(rendered(bare, EVERYTHING)) if each["kind"] == kind)
    found[path[0]][path[1]] = value
    said = conforms(schemas, yaml.safe_dump(found))
    assert said.returncode == 1, said.stdout
    assert "Invalid: 1" in said.stdout


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_every_rendered_object_is_taken_by_the_api_server(
    bare: ControlPlane, values: dict[str, Any]
) -> None:
    for namespace in (OUR_NAMESPACE, "team-a", "team-b"):
        bare.ensure_namespace(namespace)
    make_account(bare, OUR_NAMESPACE, "default")
    bare.kubectl("apply", "--server-side", "-f", FOREIGN_CRDS)
    eventually(
        lambda: bare.kubectl("get", "prometheusrules", "-A", check=False).returncode == 0,
        within=Patience.CRD_SERVED,
        says="the API server serves the kinds of Prometheus' operator",
    )
    bare.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"),
        input=rendered(bare, values),
    )


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_every_pod_passes_restricted(bare: ControlPlane, values: dict[str, Any]) -> None:
    """The API server's own admission judges, where the namespace enforces it."""
    namespace = "restricted"
    bare.ensure_namespace(namespace)
    bare.kubectl(
        *("label", "namespace", namespace, "--overwrite"),
        "pod-security.kubernetes.io/enforce=restricted",
    )
    pods = [pod for each in objects(rendered(bare, values)) for pod in pods_of(each)]
    assert len(pods) == 3
    for name in {pod["spec"].get("serviceAccountName", "default") for pod in pods}:
        make_account(bare, namespace, name)
    for pod in pods:
        pod["metadata"]["namespace"] = namespace
        pod["spec"].pop("priorityClassName", None)
        bare.kubectl("create", "--dry-run=server", "-f", "-", input=yaml.safe_dump(pod))
    pods[0]["spec"]["hostNetwork"] = True
    with pytest.raises(CommandError, match="violates PodSecurity"):
        bare.kubectl("create", "--dry-run=server", "-f", "-", input=yaml.safe_dump(pods[0]))


def make_account(cluster: ControlPlane, namespace: str, name: str) -> None:
    """Without controllers nobody makes the default one."""
    metadata = {"name": name, "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})


def pods_of(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The pod that an object is or makes."""
    if manifest["kind"] in ("Deployment", "DaemonSet"):
        made = deepcopy(manifest["spec"]["template"])
        made["metadata"]["name"] = manifest["metadata"]["name"]
        yield {"apiVersion": "v1", "kind": "Pod", **made}
    elif manifest["kind"] == "Pod":
        yield deepcopy(manifest)


def test_every_image_comes_from_the_registry_that_is_named(bare: ControlPlane) -> None:
    found = objects(rendered(bare, EVERYTHING))
    pods = [pod["spec"] for each in found for pod in pods_of(each)]
    images = {container["image"] for spec in pods for container in spec["containers"]}
    inspection = {
        each["value"]
        for spec in pods
        for container in spec["containers"]
        for each in container.get("env", ())
        if each["name"] == "PLIMSOLL_INSPECTION_IMAGE"
    }
    expected = {f"registry.example:5000/plimsoll/plimsoll@sha256:{'0' * 64}"}
    assert (expected, expected) == (images, inspection)
    assert all([{"name": "our-registry"}] == spec["imagePullSecrets"] for spec in pods)


def test_what_is_given_by_hand_goes_before_the_charts_own_setting(bare: ControlPlane) -> None:
    """Server-side apply refuses a name that is there twice."""
    made = next(e for e in objects(rendered(bare, EVERYTHING)) if e["kind"] == "Deployment")
    env = made["spec"]["template"]["spec"]["containers"][0]["env"]
    names = [each["name"] for each in env]
    assert sorted(set(names)) == sorted(names)
    assert {"name": "PLIMSOLL_WATCH_SECONDS", "value": "15"} in env
    assert {"name": "PLIMSOLL_NAMESPACES", "value": "team-a,team-b"} in env


def test_rendered_alerts_are_rules_with_a_link_each(bare: ControlPlane, tmp_path: Path) -> None:
    found = objects(rendered(bare, EVERYTHING))
    spec = next(each for each in found if each["kind"] == "PrometheusRule")["spec"]
    rules = [rule for group in spec["groups"] for rule in group["rules"]]
    for rule in rules:
        link = rule["annotations"]["runbook_url"]
        assert link == f"docs/alerts.md#{rule['alert'].lower()}"
    assert "PlimsollOftenRecycled" not in {rule["alert"] for rule in rules}
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(spec))
    promtool = prometheus_programs() / "promtool"
    said = subprocess.run(
        [promtool, "check", "rules", path], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"{len(rules)} rules found" in said.stdout


def test_some_namespaces_only(bare: ControlPlane) -> None:
    """Roles in the namespaces that are named are enough, and nothing is asked of another one."""
    for namespace in ("team-a", "team-b"):
        bare.ensure_namespace(namespace)
    installed = Installation(bare, "operator.namespaces={team-a}")
    raw = yaml.safe_load(EXAMPLE.read_text())
    for namespace in ("team-a", "team-b"):
        raw["metadata"]["namespace"] = namespace
        bare.kubectl("apply", "-f", "-", input=yaml.safe_dump(raw))
    operator = installed.start(PLIMSOLL_NAMESPACES="team-a")
    try:
        eventually(
            lambda: bool(seen(bare, "team-a")),
            within=Patience.PLAN_WRITTEN,
            says="the InferenceDeployment of the namespace is looked after",
        )
        assert seen(bare, "team-b") is None
        assert installed.log.denied(USER) == frozenset()
        # the command of `helm test`, as it is rendered, asks this operator
        test = next(e for e in objects(rendered(bare)) if e["metadata"]["name"] == "plimsoll-test")
        ports = {"8080": str(operator.metrics_port), "8081": str(operator.health_port)}
        words = [
            re.sub(r"//[^/]+:(\d+)/", lambda found: f"//127.0.0.1:{ports[found[1]]}/", word)
            for word in test["spec"]["containers"][0]["args"]
        ]
        program = Path(sys.executable).with_name("plimsoll")
        said = subprocess.run([program, *words], capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stdout + said.stderr
        assert said.stdout.count(": ok\n") == 3
    finally:
        installed.stop()
        for namespace in ("team-a", "team-b"):
            bare.kubectl("delete", "infd", "--all", "-n", namespace, "--timeout=20s")
        bare.helm("uninstall", RELEASE, "-n", OUR_NAMESPACE)


def seen(cluster: ControlPlane, namespace: str) -> Any:
    """Conditions of the example there; None while nobody wrote any."""
    found = cluster.kubectl_json("get", "infd", "plant-assistant", "-n", namespace)
    return found.get("status", {}).get("conditions")


def test_install_upgrade_rollback_and_uninstall_lose_nothing(bare: ControlPlane) -> None:
    install = ("upgrade", "--install", RELEASE, CHART, "-n", OUR_NAMESPACE, "--create-namespace")
    bare.helm(*install, "--set", "operator.replicas=0")
    eventually(
        lambda: bare.kubectl("get", "infd", "-A", check=False).returncode == 0,
        within=Patience.CRD_SERVED,
        says="the API server serves our kinds",
    )
    raw = yaml.safe_load(EXAMPLE.read_text())
    raw["metadata"]["namespace"] = OUR_NAMESPACE
    bare.kubectl("apply", "-f", "-", input=yaml.safe_dump(raw))
    before = bare.kubectl_json("get", "infd", "plant-assistant", "-n", OUR_NAMESPACE)
    for namespace in ("team-a", "team-b"):
        bare.ensure_namespace(namespace)
    # everything at once, then back: objects that only the upgrade has come and go
    notes = bare.helm(*install, "-f", "-", input=yaml.safe_dump(EVERYTHING)).stdout
    assert "It looks after these namespaces only, which must exist: team-a, team-b." in notes
    assert "watching.kubelet.insecureTLS is true" in notes
    made = "networkpolicy,poddisruptionbudget,prometheusrule,podmonitor,servicemonitor"
    assert len(bare.kubectl_json("get", made, "-n", OUR_NAMESPACE)["items"]) >= 6
    bare.helm("rollback", RELEASE, "1", "-n", OUR_NAMESPACE)
    assert bare.kubectl_json("get", made, "-n", OUR_NAMESPACE)["items"] == []
    bare.helm("uninstall", RELEASE, "-n", OUR_NAMESPACE)
    kept = bare.kubectl_json("get", "infd", "-n", OUR_NAMESPACE)["items"]
    assert [before] == kept
    # a new release takes the CRDs that are there for its own
    bare.helm(*install, "--set", "operator.replicas=0")
    bare.kubectl("delete", "infd", "plant-assistant", "-n", OUR_NAMESPACE, "--timeout=20s")
    bare.helm(*install, "--set", "operator.replicas=0", "--set", "crds.keep=false")
    bare.helm("uninstall", RELEASE, "-n", OUR_NAMESPACE)
    eventually(
        lambda: "plimsoll.dev" not in bare.kubectl("get", "crd", "-o", "name").stdout,
        within=Patience.CRD_SERVED,
        says="the CRDs are gone, as crds.keep=false says",
    )
