"""What a container runtime does with an inspection's pod on a fake node: run it, and keep its last words.

    run_inspection(world, claims={"models": folder})

A stand-in for kubelet and runtime only. The program is the real `plimsoll facts` with the arguments that the
pod was given; a mounted claim becomes a folder here, the termination message becomes a file here, and the
pod's status is written as a kubelet writes it.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from patience import Patience, eventually
from stand_ins.kubelet import stamp
from world import World

SELECTOR: Final = "app.kubernetes.io/component=inspection"
MESSAGE_BYTES: Final = 4096  # what a kubelet keeps
ENDED: Final = ("Succeeded", "Failed")


def inspection_pods(world: World) -> list[dict[str, Any]]:
    """Pods that read files, ended or not."""
    return world.items(":pods", SELECTOR)


def run_inspection(world: World, *, claims: Mapping[str, Path]) -> dict[str, Any]:
    """Wait for the pod of an inspection that runs, run its containers, end it; the pod as it was."""

    def running() -> dict[str, Any] | None:
        pods = [p for p in inspection_pods(world) if p["status"].get("phase") == "Running"]
        return pods[0] if pods else None

    pod = eventually(running, within=Patience.POOL_ROLLOUT, says="an inspection's pod runs")
    assert pod is not None
    ended = [_run(pod, container, claims) for container in pod["spec"]["containers"]]
    end(world, pod, ended)
    return pod


def end(world: World, pod: Mapping[str, Any], ended: list[tuple[int, str]]) -> None:
    """Write what a kubelet writes when all containers have ended: exit code and message of each."""
    now = stamp()
    statuses = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "fake",
            "ready": False,
            "restartCount": 0,
            "state": {
                "terminated": {
                    "exitCode": code,
                    "reason": "Error" if code else "Completed",
                    "message": message,
                    "startedAt": now,
                    "finishedAt": now,
                }
            },
        }
        for container, (code, message) in zip(pod["spec"]["containers"], ended, strict=True)
    ]
    phase = "Failed" if any(code for code, _ in ended) else "Succeeded"
    name = pod["metadata"]["name"]
    code, answer = world.cluster.request(
        "PATCH",
        f"/api/v1/namespaces/{world.namespace}/pods/{name}/status",
        {"status": {"phase": phase, "containerStatuses": statuses}},
        content_type="application/merge-patch+json",
    )
    assert code == http.client.OK, answer


def _run(
    pod: Mapping[str, Any], container: Mapping[str, Any], claims: Mapping[str, Path]
) -> tuple[int, str]:
    """Exit code and termination message of one container."""
    folders = {
        volume["name"]: claims[volume["persistentVolumeClaim"]["claimName"]]
        for volume in pod["spec"]["volumes"]
    }
    with tempfile.TemporaryDirectory() as folder:
        message = Path(folder) / "message"
        message.touch()
        paths = {m["mountPath"]: str(folders[m["name"]]) for m in container["volumeMounts"]}
        paths[container["terminationMessagePath"]] = str(message)
        words = [_inside(word, paths) for word in container["args"]]
        ran = subprocess.run(
            [Path(sys.executable).with_name("plimsoll"), *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=Patience.REAL_POD_READY,
        )
        said = message.read_text()
    outside = {there: here for here, there in paths.items()}
    text = said or (ran.stderr if ran.returncode else "")
    return ran.returncode, _inside_text(text, outside)[:MESSAGE_BYTES]


def _inside(word: str, paths: Mapping[str, str]) -> str:
    """A path in the container as a path here."""
    for there, here in paths.items():
        if word == there or word.startswith(f"{there}/"):
            return here + word.removeprefix(there)
    return word


def _inside_text(text: str, paths: Mapping[str, str]) -> str:
    for here, there in paths.items():
        text = text.replace(here, there)
    return text
