"""What happens to a pool whose workers die, step by step, as their statuses tell it?"""

from __future__ import annotations

import time
from typing import Any

from controlplane.cluster import Manifest
from objects import small
from patience import Patience, eventually, steadily
from world import World, args_of

NEVER = {"annotations": {"fake.plimsoll.test/never-ready": "true"}}
CAPTURE = (
    "  File vllm/v1/worker/gpu_worker.py, line 1, in compile_or_warm_up_model\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    "79.18 GiB of which 1.21 GiB is free."
)
MOVES = ["MoreReserve", "MoreReserve", "FewerGraphs", "NoGraphs"]


def die(world: World, pod: Manifest, *, message: str, code: int = 1, reason: str = "Error") -> None:
    """The status that a kubelet writes for an engine that died before it was Ready."""
    now, before = (
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - ago)) for ago in (0, 60)
    )
    ended = {
        "exitCode": code, "reason": reason, "message": message, "startedAt": before, "finishedAt": now,
    }  # fmt: skip
    container = {
        "name": "engine", "image": "x", "imageID": "x", "ready": False, "started": False,
        "restartCount": 1, "lastState": {"terminated": ended},
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    }  # fmt: skip
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": before}
    status, answer = world.cluster.request(
        "PATCH",
        f"/api/v1/namespaces/{world.namespace}/pods/{pod['metadata']['name']}/status",
        {"status": {"conditions": [ready], "containerStatuses": [container]}},
    )
    assert status == 200, answer


def newest_pod(world: World, seen: set[str]) -> Manifest:
    """A pod that has not died yet, once there is one on a node."""

    def there() -> Manifest:
        for pod in world.pods("small"):
            is_new = pod["metadata"]["uid"] not in seen
            if (
                is_new
                and "deletionTimestamp" not in pod["metadata"]
                and pod["spec"].get("nodeName")
            ):
                return pod
        raise LookupError(seen)

    found = eventually(there, within=Patience.POOL_ROLLOUT, says="a worker has the changed plan")
    seen.add(found["metadata"]["uid"])
    return found


def steps(world: World) -> list[Manifest]:
    """Steps so far, oldest first."""
    (pool,) = world.object("small")["status"]["pools"]
    deaths = pool.get("taught", {}).get("deaths", ())
    return [death for death in reversed(deaths) if death.get("move")]


def await_steps(world: World, count: int) -> list[Manifest]:
    """Wait until so many were made."""
    return (
        eventually(
            lambda: found if len(found := steps(world)) == count else None,
            within=Patience.PLAN_WRITTEN,
            says=f"{count} steps were made",
        )
        or []
    )


def test_each_death_changes_one_thing_four_times_and_then_a_person_decides(world: World) -> None:
    world.apply(small(world, workers=1, worker=NEVER))
    seen: set[str] = set()
    lines: list[list[str]] = []
    for count in range(1, 5):
        pod = newest_pod(world, seen)
        lines.append(list(pod["spec"]["containers"][0]["args"]))
        die(world, pod, message=CAPTURE)
        await_steps(world, count)
    last = newest_pod(world, seen)
    lines.append(list(last["spec"]["containers"][0]["args"]))
    assert MOVES == [step["move"] for step in steps(world)]
    assert 5 == len({tuple(line) for line in lines}), "the same arguments were tried twice"
    shares = [float(line[line.index("--gpu-memory-utilization") + 1]) for line in lines]
    assert shares[0] > shares[1] > shares[2]
    assert "--enforce-eager" in lines[-1]
    assert lines[-1] == args_of(world.deployments()["small-h100"])
    die(world, last, message=CAPTURE)
    stalled = world.await_condition("small", "Stalled", "True", reason="OutOfSteps")
    assert "MoreReserve, then MoreReserve, then FewerGraphs, then NoGraphs" in stalled["message"]
    events = _events(world, "PlanStepped")
    assert [f"step {n} of 4" for n in range(1, 5)] == sorted(
        told.rpartition("(")[2].rstrip(".").rstrip(")") for told in events
    )
    written = len(world.quiet_writes())
    steadily(
        lambda: len(world.quiet_writes()) == written,
        during=Patience.NOTHING_HAPPENS,
        says="nothing is written",
    )
    world.apply(small(world, workers=1, worker=NEVER, limits={"maxModelLen": 4096}))
    eventually(
        lambda: not _waits(world), within=Patience.CONDITION_SEEN, says="another spec begins anew"
    )
    fresh = args_of(world.deployments()["small-h100"])
    assert "--enforce-eager" not in fresh
    assert shares[0] == float(fresh[fresh.index("--gpu-memory-utilization") + 1])


def _waits(world: World) -> bool:
    try:
        return bool(world.condition("small", "Stalled"))
    except LookupError as error:
        if "has no condition" in str(error):
            return False
        raise


def _events(world: World, reason: str) -> list[str]:
    found = world.get(f":events?fieldSelector=involvedObject.name=small,reason={reason}")
    return [each["message"] for each in found["items"]]


def test_an_unknown_death_changes_nothing_and_is_told(world: World) -> None:
    world.apply(small(world, workers=1, worker=NEVER))
    pod = newest_pod(world, set())
    before = world.deployments()["small-h100"]["spec"]["template"]
    die(world, pod, message="KeyError: 'rope_scaling'", code=1)
    told = eventually(
        lambda: _events(world, "WorkerDied"), within=Patience.PLAN_WRITTEN, says="it is told"
    )
    assert "KeyError: 'rope_scaling'" in told[0]
    assert [] == steps(world)
    assert before == world.deployments()["small-h100"]["spec"]["template"]


def test_one_of_two_that_cannot_start_moves_nobody_while_the_other_serves(world: World) -> None:
    world.apply(small(world))
    world.await_ready("small", 2)
    victim: dict[str, Any] = world.pods("small")[0]
    before = world.deployments()["small-h100"]["spec"]["template"]
    die(world, victim, message=CAPTURE)

    def outcome() -> str:
        (pool,) = world.object("small")["status"]["pools"]
        deaths = pool["taught"]["deaths"]
        return str(deaths[0]["outcome"]) if deaths else ""

    assert "ServesElsewhere" == eventually(
        outcome, within=Patience.PLAN_WRITTEN, says="the death is known"
    )
    assert before == world.deployments()["small-h100"]["spec"]["template"]
