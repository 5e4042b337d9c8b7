"""Folders of nodes by namespace, on a real API server: who may write them, and what stays as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from controlplane.cluster import API_ONLY, CommandError, ControlPlane
from installation import REPOSITORY, Installation
from patience import Patience, eventually

EXAMPLE = REPOSITORY / "docs" / "examples" / "edge-assistant.yaml"
LABEL = "plimsoll.dev/host-path"
OPEN, SHUT = "with-folders", "without-folders"
FOLDER = "hostPath:///srv/models/Meta-Llama-3-8B-Instruct"


def manifest(namespace: str, uri: str, *, gguf: str | None = None, replicas: int = 1) -> str:
    raw = yaml.safe_load(EXAMPLE.read_text())
    raw["metadata"]["namespace"] = namespace
    raw["spec"]["replicas"] = replicas
    raw["spec"]["model"]["uri"] = uri
    if gguf is not None:
        raw["spec"]["model"]["gguf"] = {"uri": gguf}
    return yaml.safe_dump(raw)


def apply(cluster: ControlPlane, text: str, *words: str) -> None:
    cluster.kubectl("apply", *words, "-f", "-", input=text)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    """etcd and API server, two namespaces, one of them labelled; an object that is older than the policy."""
    with ControlPlane(parts=API_ONLY) as started:
        Installation(started, "security.hostPath=true")
        for namespace in (OPEN, SHUT):
            started.ensure_namespace(namespace)
        started.kubectl("label", "namespace", OPEN, f"{LABEL}=allowed")
        apply(started, manifest(SHUT, FOLDER))
        Installation(started, "security.hostPath=true", "security.hostPathByNamespace=true")

        def is_in_force() -> bool:
            try:
                apply(started, manifest(SHUT, FOLDER + "-2"), "--dry-run=server")
            except CommandError:
                return True
            return False

        eventually(is_in_force, within=Patience.CRD_SERVED, says="the policy is in force")
        yield started


def test_a_namespace_without_the_label_gets_no_folder_and_hears_why(cluster: ControlPlane) -> None:
    with pytest.raises(CommandError) as refused:
        apply(cluster, manifest(SHUT, "hostPath:///etc/models"), "--dry-run=server")
    said = str(refused.value)
    assert "hostPath:///etc/models is a folder of a node" in said
    assert f"namespace {SHUT} may not have" in said
    assert f"labelled {LABEL}=allowed" in said


def test_the_other_address_is_looked_at_too(cluster: ControlPlane) -> None:
    text = manifest(SHUT, "pvc://models/a", gguf="hostPath:///etc/a.gguf")
    with pytest.raises(CommandError, match=r"hostPath:///etc/a\.gguf"):
        apply(cluster, text, "--dry-run=server")


def test_the_labelled_namespace_may_and_other_addresses_may_anywhere(cluster: ControlPlane) -> None:
    apply(cluster, manifest(OPEN, FOLDER), "--dry-run=server")
    for uri in ("pvc://models/a", "hf://org/name", "oci://registry.example.com/model:1"):
        apply(cluster, manifest(SHUT, uri), "--dry-run=server")


def test_what_was_there_before_can_be_changed_and_deleted(cluster: ControlPlane) -> None:
    apply(cluster, manifest(SHUT, FOLDER, replicas=2))
    cluster.kubectl("annotate", "infd", "plant-assistant", "-n", SHUT, "example.com/a=b")
    cluster.kubectl("delete", "infd", "plant-assistant", "-n", SHUT, "--timeout=20s")
    with pytest.raises(CommandError, match="is a folder of a node"):
        apply(cluster, manifest(SHUT, FOLDER))
