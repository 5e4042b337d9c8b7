"""The chart on a real API server: linted, rendered alike twice, installed, upgraded, taken out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from controlplane.cluster import API_ONLY, OUR_NAMESPACE, CommandError, ControlPlane
from installation import CHART, RELEASE, REPOSITORY
from patience import Patience, eventually

EXAMPLE = REPOSITORY / "docs" / "examples" / "edge-assistant.yaml"


@pytest.fixture(scope="module")
def bare() -> Iterator[ControlPlane]:
    """etcd and API server: enough to hold objects."""
    with ControlPlane(parts=API_ONLY) as started:
        yield started


def rendered(cluster: ControlPlane, *words: str) -> str:
    """`helm template`, as GitOps tools do it: without a cluster."""
    return cluster.helm("template", RELEASE, CHART, "-n", OUR_NAMESPACE, *words).stdout


def test_the_chart_passes_helms_lint(bare: ControlPlane) -> None:
    bare.helm("lint", "--strict", CHART)


def test_rendering_twice_gives_the_same_bytes(bare: ControlPlane) -> None:
    assert rendered(bare) == rendered(bare)


def test_a_mistyped_value_is_refused_by_name(bare: ControlPlane) -> None:
    with pytest.raises(CommandError, match="replica"):
        rendered(bare, "--set", "operator.replica=2")


def test_an_api_server_that_is_too_old_is_refused(bare: ControlPlane) -> None:
    with pytest.raises(CommandError, match="kubeVersion"):
        rendered(bare, "--kube-version", "1.29.0")


def test_every_rendered_object_is_taken_by_the_api_server(bare: ControlPlane) -> None:
    bare.ensure_namespace(OUR_NAMESPACE)
    bare.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"),
        input=rendered(bare),
    )


def test_install_upgrade_and_uninstall_lose_nothing(bare: ControlPlane) -> None:
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
    bare.helm(*install, "--set", "operator.replicas=0", "--set", "operator.logLevel=debug")
    bare.helm("rollback", RELEASE, "1", "-n", OUR_NAMESPACE)
    bare.helm("uninstall", RELEASE, "-n", OUR_NAMESPACE)
    kept = bare.kubectl_json("get", "infd", "-n", OUR_NAMESPACE)["items"]
    assert [each["metadata"]["name"] for each in kept] == ["plant-assistant"]
    bare.kubectl("delete", "infd", "plant-assistant", "-n", OUR_NAMESPACE, "--timeout=20s")
