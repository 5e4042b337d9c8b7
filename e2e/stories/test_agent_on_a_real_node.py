"""The chart's DaemonSet on a real kubelet: our own image, a pod without privileges, a library from the host.

The library is the stand-in of NVML; everything above it is as shipped, token and policy included.
"""

from __future__ import annotations

import http.client
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from agents import ACCOUNT, GPU_NODES, MIB, card
from controlplane import fleet
from controlplane.cluster import OUR_NAMESPACE, ControlPlane
from controlplane.node import RealNode, real_node_possible
from installation import Installation
from own_image import IMAGE_PATH, IMAGE_TAG, own_image
from patience import Patience, eventually
from stand_ins.nvml import build, compiler, write_answers
from stand_ins.service_address import ServiceAddress

REASON = real_node_possible() or (None if compiler() else "the stand-in of NVML needs a C compiler")
pytestmark = [
    pytest.mark.real_node,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]
PODS: Final = f"/api/v1/namespaces/{OUR_NAMESPACE}/pods"
SELECTOR: Final = "app.kubernetes.io/component=agent"
RESTRICTED: Final = "pod-security.kubernetes.io/enforce=restricted"


@pytest.fixture(scope="module")
def driver() -> Iterator[Path]:
    """What the node has of a driver: the library, and what it will say."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # the agent is not root
        build(folder)
        say(folder, card("GPU-a"), card("GPU-b"))
        yield folder


def say(folder: Path, *cards: dict[str, Any], **node: Any) -> None:
    write_answers(folder / "answers", {"driver": "580.95.05", **node}, cards).chmod(0o644)


@pytest.fixture(scope="module")
def node(driver: Path) -> Iterator[RealNode]:
    """A node with two cards, Plimsoll installed, agents on."""
    labels = fleet.card_labels(fleet.A6000, count=2)
    with ControlPlane() as cluster:
        image = own_image(cluster.dir / "plimsoll.tar")
        real = RealNode(cluster, labels=labels, gpus=2)
        real.images = (real.parts.pause_image, image)
        with real, ServiceAddress(cluster):
            image.unlink()
            Installation(
                cluster,
                "agent.enabled=true",
                f"image.repository={IMAGE_PATH},image.tag={IMAGE_TAG},image.pullPolicy=Never",
                f"agent.driverPath={driver},agent.rescanSeconds=10",
                "agent.extraEnv[0].name=PLIMSOLL_NVML_ANSWERS",
                "agent.extraEnv[0].value=/driver/answers",
            )
            yield real


def the_pod(node: RealNode) -> Any:
    """The agent's pod; LookupError while there is none."""
    return node.cluster.get(f"{PODS}?labelSelector={SELECTOR}")["items"][0]


def told(node: RealNode) -> Any:
    """The status of the node's GPUNode."""
    return node.cluster.get(f"{GPU_NODES}/{node.name}")["status"]


def test_the_pod_tells_of_the_nodes_cards(node: RealNode) -> None:
    def seen() -> Any:
        pod = the_pod(node)
        try:
            return told(node)
        except LookupError as error:
            raise LookupError(json.dumps(pod["status"])[:3000]) from error

    status = eventually(seen, within=Patience.REAL_POD_READY, says="the agent has told")
    assert ["GPU-a", "GPU-b"] == [each["uuid"] for each in status["cards"]]
    assert {48676 * MIB} == {each["usableBytes"] for each in status["cards"]}
    owner = node.cluster.get(f"{GPU_NODES}/{node.name}")["metadata"]["ownerReferences"][0]
    assert node.cluster.get(f"/api/v1/nodes/{node.name}")["metadata"]["uid"] == owner["uid"]


def test_it_holds_no_privilege(node: RealNode) -> None:
    """As the kubelet runs it, and as pod security would judge it but for the library's folder."""
    spec = the_pod(node)["spec"]
    assert not {"hostPID", "hostNetwork", "hostIPC"} & {key for key, value in spec.items() if value}
    security = spec["containers"][0]["securityContext"]
    assert (False, True, {"drop": ["ALL"]}) == (
        security["allowPrivilegeEscalation"],
        security["readOnlyRootFilesystem"],
        security["capabilities"],
    )
    assert (True, 65532) == (
        spec["securityContext"]["runAsNonRoot"],
        spec["securityContext"]["runAsUser"],
    )
    assert ACCOUNT == spec["serviceAccountName"]
    resources = spec["containers"][0]["resources"]
    assert not [name for name in resources["limits"] if "gpu" in name]


def test_a_card_that_is_lost_is_told_from_the_pod(node: RealNode, driver: Path) -> None:
    say(driver, card("GPU-a"), {"handle.error": 15}, event=79)
    eventually(
        lambda: [each["lost"] for each in told(node)["cards"]] == [False, True],
        within=Patience.CONDITION_SEEN,
        says="the lost card is told",
    )


def test_without_a_library_of_the_hosts_it_fits_restricted_pod_security(node: RealNode) -> None:
    """NVIDIA's runtime brings the library there; the API server is asked whether such pods may be."""
    cluster = node.cluster
    cluster.ensure_namespace("restricted")
    cluster.kubectl("label", "namespace", "restricted", RESTRICTED)
    pod = the_pod(node)
    spec = pod["spec"]
    volumes = [each for each in spec["volumes"] if "hostPath" not in each]
    (container,) = spec["containers"]
    mounts = [each for each in container["volumeMounts"] if each["name"] != "driver"]
    plain: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "agent", "namespace": "restricted"},
        "spec": spec
        | {
            "volumes": volumes,
            "containers": [container | {"volumeMounts": mounts}],
            "serviceAccountName": "default",
            "serviceAccount": "default",
        },
    }
    path = "/api/v1/namespaces/restricted/pods?dryRun=All"
    status, answer = cluster.request("POST", path, plain)
    assert http.client.CREATED == status, answer
    held = [each for each in spec["volumes"] if "hostPath" in each]
    plain["spec"]["volumes"] = volumes + held
    assert http.client.FORBIDDEN == cluster.request("POST", path, plain)[0]
