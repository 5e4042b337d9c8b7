"""Does a worker that really dies on a real node come to run with other arguments, and is each death known?

Two nodes start once. Beside one real llama-server with a flag that it does not know, a stand-in dies in five
ways: of the kernel, while it loads and while it serves; of its own exit codes; of a probe.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

import real_worker
from controlplane import fleet, netns
from controlplane.cluster import ControlPlane, Manifest, condition
from controlplane.node import REAL_LABEL, RealNode, real_node_possible
from installation import USER, Installation
from objects import small
from patience import Patience, eventually
from plimsoll.cluster.observe import worker_of
from plimsoll.diagnose.death import classify
from plimsoll.diagnose.death_texts import DeathKind
from stand_ins import dying
from world import World, args_of

REASON = real_node_possible()
pytestmark = [
    pytest.mark.real_node,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]

PORT = 8000
EATS_LOADING_MIB, EATS_SERVING_MIB = 1500, 2200
"""Above a limit of 1218 MiB; the first below half as much again."""
LOADING, SERVING, ENDS, FLAG, REFUSES = "loading", "serving", "ends", "flag", "refuses"


@dataclass(frozen=True)
class Ward:
    """Where they die."""

    world: World

    def pool(self, name: str) -> Manifest:
        """The one pool of an object's status."""
        (pool,) = self.world.object(name)["status"]["pools"]
        found: Manifest = pool
        return found

    def await_death(self, name: str, kind: str, outcome: str) -> Manifest:
        """Wait until the newest death is of this kind with this outcome."""

        def there() -> Manifest:
            deaths = self.pool(name).get("taught", {}).get("deaths", ())
            for death in deaths:
                if (death["kind"], death["outcome"]) == (kind, outcome):
                    found: Manifest = death
                    return found
            raise LookupError(deaths)

        return eventually(
            there, within=Patience.REAL_POD_READY, says=f"{name} died: {kind}, {outcome}"
        )

    def events(self, name: str, reason: str) -> list[str]:
        """What was told of an object."""
        fields = f"involvedObject.name={name},reason={reason}"
        found = self.world.get(f":events?fieldSelector={fields}")["items"]
        return [each["message"] for each in found]


def stand_in(world: World, model: Any, name: str, dies: str, **spec: Any) -> Manifest:
    """A worker of a small GGUF model whose engine is the stand-in: its memory limit is 1218 MiB."""
    raw: dict[str, Any] = real_worker.deployment(world.namespace, model)
    raw["metadata"]["name"] = name
    raw["spec"] |= {
        "worker": {"cpu": "100m"},
        "limits": {"maxModelLen": 512, "concurrency": 1},
        "engines": {
            "llamaCpp": {
                "image": dying.IMAGE,
                "release": real_worker.RELEASE,
                "env": dying.how(dies, **spec),
            }
        },
    }
    raw["spec"]["pools"][0]["cacheRam"] = "0"
    return raw


def refusing(world: World, folder: str) -> Manifest:
    """A vLLM worker that says that its length does not fit, until its share is larger than 0.95."""
    raw = small(world, name=REFUSES, workers=1, worker={"cpu": "100m"})
    raw["spec"]["model"]["uri"] = f"hostPath://{folder}"
    raw["spec"]["pools"][0] = {
        "name": "l40s",
        "engine": "vllm",
        "gpu": {"product": real_worker.CARD.product, "perWorker": 1},
    }
    env = dying.how("refuses")
    raw["spec"]["engines"] = {"vllm": {"image": dying.IMAGE, "release": "0.33.0", "env": env}}
    return raw


def hanging(namespace: str) -> Manifest:
    """A pod whose probes are quicker than ours, so that a hang is short."""
    get = {"httpGet": {"path": "/health", "port": PORT}, "periodSeconds": 1, "timeoutSeconds": 1}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "hangs", "namespace": namespace},
        "spec": {
            "nodeSelector": {REAL_LABEL: "true"},
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "engine",
                    "image": dying.IMAGE,
                    "imagePullPolicy": "Never",
                    "env": dying.how("hangs"),
                    "readinessProbe": get | {"failureThreshold": 1},
                    "livenessProbe": get | {"failureThreshold": 12},
                }
            ],
        },
    }


def await_both_bound(world: World) -> None:
    """Wait until the worker that refuses and its successor have each a node."""

    def bound() -> bool:
        return 2 == sum("nodeName" in pod["spec"] for pod in world.pods(REFUSES))

    eventually(bound, within=Patience.REAL_POD_READY, says="both workers that refuse have a node")


@pytest.fixture(scope="module")
def ward() -> Iterator[Ward]:
    """All of them applied at once, but for one that comes first: its two workers need most of both nodes'
    memory while one follows the other."""
    with ExitStack() as stack:
        cluster = stack.enter_context(ControlPlane())
        labels = fleet.card_labels(real_worker.CARD, count=4)
        nodes = tuple(
            RealNode(
                cluster, name=f"l40s-{at}", address=netns.NODE_ADDRESSES[at], labels=labels, gpus=4
            )
            for at in range(2)
        )
        for each in nodes:
            each.images = (*each.images, dying.image())
            stack.enter_context(each)
        installed = Installation(cluster)
        installed.start()
        world = World(installed, "real-deaths")
        folder = cluster.dir / "model"
        folder.mkdir()
        model = nodes[0].parts.model
        flagged = real_worker.deployment(world.namespace, model)
        flagged["metadata"]["name"] = FLAG
        flagged["spec"]["pools"][0]["extraArgs"] = ["--no-such-flag"]
        flagged["spec"]["worker"] = {"cpu": "100m"}
        world.apply(refusing(world, str(folder)))
        await_both_bound(world)
        world.apply(
            stand_in(world, model, LOADING, "eats-loading", eat_mib=EATS_LOADING_MIB),
            stand_in(world, model, SERVING, "eats-serving", eat_mib=EATS_SERVING_MIB),
            stand_in(world, model, ENDS, "ends-well"),
            flagged,
            hanging(world.namespace),
        )
        yield Ward(world)
        installed.stop()
        denied = installed.log.denied(USER)
        assert not denied, f"the chart's RBAC refused {sorted(denied)}"


def test_killed_while_it_loads_it_gets_more_memory_and_runs(ward: Ward) -> None:
    death = ward.await_death(LOADING, "HostOutOfMemoryBeforeReady", "Stepped")
    assert "MoreHostMemory" == death["move"]
    assert "exitCode=137" in death["numbers"]
    ward.world.await_ready(LOADING, 1)
    (pod,) = (p for p in ward.world.pods(LOADING) if condition(p, "Ready") == "True")
    assert "1827Mi" == pod["spec"]["containers"][0]["resources"]["limits"]["memory"]
    assert 0 == pod["status"]["containerStatuses"][0]["restartCount"]
    assert ["step 1 of 4" in told for told in ward.events(LOADING, "PlanStepped")] == [True]


def test_words_that_the_servers_own_hide_reach_the_status_and_the_share_grows(ward: Ward) -> None:
    death = ward.await_death(REFUSES, "LengthTooLong", "Stepped")
    assert "MoreBudget" == death["move"]
    assert "estimatedMaxModelLen=7360" in death["numbers"]
    ward.world.await_ready(REFUSES, 1)
    args = args_of(ward.world.deployments()[f"{REFUSES}-l40s"])
    assert float(args[args.index("--gpu-memory-utilization") + 1]) > 0.95
    assert "8192" == args[args.index("--max-model-len") + 1]


def test_a_flag_that_a_real_llama_server_does_not_know_waits_for_a_person(ward: Ward) -> None:
    death = ward.await_death(FLAG, "BadFlag", "NothingToChange")
    assert "--no-such-flag" in death["message"]
    stalled = ward.world.await_condition(FLAG, "Stalled", "True", reason="BadFlag")
    assert "extraArgs" in stalled["message"]
    assert "Reconciling" not in {
        each["type"] for each in ward.world.object(FLAG)["status"]["conditions"]
    }


def test_an_end_with_exit_code_0_is_known_by_its_words(ward: Ward) -> None:
    death = ward.await_death(ENDS, "CudaOutOfMemoryServing", "Watched")
    assert "triedBytes=1073741824" in death["numbers"]
    assert "exitCode=0" in death["numbers"]


def test_killed_twice_while_it_serves_it_is_moved_for_and_once_it_is_not(ward: Ward) -> None:
    second = ward.await_death(SERVING, "HostOutOfMemoryServing", "Stepped")
    deaths = ward.pool(SERVING)["taught"]["deaths"]
    mine = [death for death in deaths if death["plan"] == second["plan"]]
    assert ["Stepped", "Watched"] == [death["outcome"] for death in mine]
    assert 1 == len({death["uid"] for death in mine})  # one pod, in two lives
    assert "MoreHostMemory" == second["move"]  # a prompt cache of 0 is the pool's own


def test_a_real_kubelets_liveness_kill_is_told_from_its_status(ward: Ward) -> None:
    def ended() -> Manifest:
        pod: Manifest = ward.world.get(":pods/hangs")
        if "terminated" not in pod["status"]["containerStatuses"][0]["state"]:
            raise LookupError(pod["status"])
        return pod

    pod = eventually(ended, within=Patience.REAL_POD_READY, says="the kubelet has killed it")
    end = worker_of(pod).end
    assert end is not None
    assert (137, True) == (end.exit_code, end.was_ready), end
    assert DeathKind.LIVENESS_KILL is classify(end).kind
