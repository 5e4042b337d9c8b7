"""`make demo`: one object in, the right workers out, on a real Kubernetes API server.

    python e2e/demo.py              show it and clean up
    python e2e/demo.py --keep       leave it running until Ctrl-C, and say how to look around

Nodes of the fleet are played by kwok: their pods are objects and no processes. The last worker is real:
a kubelet and containerd run Debian's llama-server on a real model, and it answers. That part needs
root, cgroups and a network namespace; where they are missing the rest is shown all the same.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import real_worker
from controlplane import fleet, netns
from controlplane.build import programs
from controlplane.cluster import ControlPlane, Manifest, sweep_folders
from controlplane.fetch import MODEL_FILE, node_parts
from controlplane.node import RealNode, processes_naming, real_node_possible, sweep_cgroups
from entrance import entrance
from installation import RELEASE, Installation
from patience import Patience, eventually
from real_worker import Worker
from teller import Teller
from views import show_nodes, show_plan, show_pods
from world import EXAMPLES, World

NAMESPACE: Final = "inference"
REAL_NAMESPACE: Final = "real"
QUESTION: Final = "What is the capital of France?"
FAILED: Final = 1
INTERRUPTED: Final = 130
TERMINATED: Final = 143


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", action="store_true", help="leave it running until Ctrl-C")
    parser.add_argument("--since", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    tell = Teller(arguments.since)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    missing: str | None = None
    if arguments.since is None:
        try:
            missing = prepare(tell)
        except (Exception, KeyboardInterrupt) as error:
            return complain(tell, error)
        if missing is None and not netns.inside():
            return show_inside(tell, words)
    return show(tell, missing or real_node_possible(), keep=arguments.keep)


def show_inside(tell: Teller, words: Sequence[str]) -> int:
    """The same program in a network namespace of its own, where a real node fits in."""
    tell.done()
    command = (sys.executable, str(Path(__file__).resolve()), *words)
    try:
        return netns.run_inside([*command, "--since", str(tell.started_seconds)])
    finally:
        sweep_folders()
        sweep_cgroups()


# ---- what it needs ------------------------------------------------------------------------------


def prepare(tell: Teller) -> str | None:
    """Build and fetch what the cache lacks; why there can be no real node, None when there can."""
    tell.step("Programs: etcd, Kubernetes, kwok and Helm, built from the Go module proxy")
    tell.say("The first time this takes about ten minutes on two cores; then the cache has them.")
    tell.named("there", str(programs()))
    if reason := netns.why_not():
        return reason
    tell.step("Parts of a real node: containerd and runc, Debian's llama-server, Gemma 3 270M")
    tell.say("The first time this fetches about 300 MB; nothing is installed.")
    try:
        parts = node_parts()
    except (RuntimeError, LookupError, OSError, ValueError) as error:
        tell.named("not there", str(error))
        return f"its parts could not be fetched: {str(error).splitlines()[0]}"
    tell.named("there", str(parts.model))
    return None


def mixed_fleet() -> tuple[Manifest, ...]:
    """Four cards to a node, one to a node, eight, and slices of one."""
    return (
        fleet.a6000_x4("a6000-0"),
        fleet.a6000_x4("a6000-1"),
        fleet.a6000_x1("a6000-2"),
        fleet.rtx4090_x1("rtx4090-0"),
        fleet.h100_x8("h100-0"),
        fleet.h100_mig_mixed("h100-mig-0"),
    )


# ---- the show -----------------------------------------------------------------------------------


def show(tell: Teller, no_real_node: str | None, *, keep: bool) -> int:
    """All of it, and then nothing is left; the exit status."""
    status = 0
    with ExitStack() as stack:
        try:
            cluster = show_all(tell, stack, no_real_node)
            if keep:
                wait_for_visitors(tell, cluster)
        except (Exception, KeyboardInterrupt) as error:
            status = complain(tell, error)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            tell.step("Cleaning up: every process, mount, cgroup and file of this demo")
    print("\nWhat took how long:")
    tell.times()
    print("\nAll steps worked." if status == 0 else "\nNot all steps worked.")
    return status


def complain(tell: Teller, error: BaseException) -> int:
    """What went wrong, where; the exit status that follows."""
    if isinstance(error, KeyboardInterrupt):
        print(f"\ndemo: interrupted at: {tell.at}", file=sys.stderr)
        return INTERRUPTED
    print(f"\ndemo: FAILED at: {tell.at}\n{error}", file=sys.stderr)
    for note in getattr(error, "__notes__", ()):
        print(note, file=sys.stderr)
    return FAILED


def show_all(tell: Teller, stack: ExitStack, no_real_node: str | None) -> ControlPlane:
    """Step by step; the cluster as it stands then."""
    cluster = show_cluster(tell, stack)
    installed = show_installation(tell, stack, cluster)
    world = World(installed, NAMESPACE)
    show_mixed_fleet(tell, world)
    show_refusal(tell, world)
    if no_real_node is None:
        node = show_real_node(tell, stack, cluster)
        show_real_worker(tell, World(installed, REAL_NAMESPACE), node)
    else:
        tell.step("A real worker: left out on this machine")
        tell.say(f"{no_real_node}. All else was shown.")
    return cluster


def show_cluster(tell: Teller, stack: ExitStack) -> ControlPlane:
    tell.step("A control plane: etcd, API server, controller-manager, scheduler, kwok")
    cluster = ControlPlane()
    stack.callback(nothing_is_left, cluster)
    stack.enter_context(cluster)
    version = cluster.kubectl_json("version")["serverVersion"]["gitVersion"]
    tell.say(f"Kubernetes {version} answers on {cluster.api_url}.")
    tell.step("A mixed fleet joins: fake nodes with the labels of real ones")
    nodes = mixed_fleet()
    cluster.add_nodes(*nodes)
    show_nodes(tell, nodes)
    return cluster


def nothing_is_left(cluster: ControlPlane) -> None:
    """Last of all: the folder is gone, and no process speaks of it."""
    left = [str(pid) for pid in processes_naming(str(cluster.dir))]
    if left or cluster.dir.exists():
        raise RuntimeError(f"left behind: {cluster.dir}, processes {', '.join(left) or 'none'}")


def show_installation(tell: Teller, stack: ExitStack, cluster: ControlPlane) -> Installation:
    tell.step("Plimsoll: helm install")
    installed = Installation(cluster)
    stack.callback(installed.stop)
    tell.shell(
        f"helm upgrade --install {RELEASE} charts/plimsoll --set operator.replicas=0",
        "Here the operator is a process beside the cluster, under its service account's token.",
    )
    installed.start()
    tell.say("It leads and has seen the cluster.")
    return installed


def show_mixed_fleet(tell: Teller, world: World) -> None:
    tell.step("One object: a 70B model for the A6000s, by vLLM on four cards and llama.cpp on one")
    apply_example(tell, world, "mixed-fleet")
    world.await_condition("llama-70b", "Planned", "True", within=Patience.PLAN_WRITTEN)
    for pool in world.object("llama-70b")["status"]["pools"]:
        tell.say()
        show_plan(tell, pool)
    tell.step("Its workers land")
    world.await_ready("llama-70b", 3)
    show_pods(tell, world, "llama-70b")
    tell.say()
    tell.shell(f"kubectl -n {world.namespace} get infd", world.kubectl("get", "infd"))


def apply_example(tell: Teller, world: World, name: str) -> None:
    """The file as it is: the examples live in this very namespace."""
    said = world.cluster.kubectl("apply", "-f", EXAMPLES / f"{name}.yaml").stdout
    tell.shell(f"kubectl apply -f docs/examples/{name}.yaml", said)


def show_refusal(tell: Teller, world: World) -> None:
    tell.step("One object that does not fit: twenty people at 8192 tokens on a 24 GB card")
    apply_example(tell, world, "edge-assistant")
    planned = world.await_condition("plant-assistant", "Planned", "False")
    tell.named("Planned", f"{planned['status']}, {planned['reason']}")
    tell.named("why", planned["message"])
    if world.pods("plant-assistant"):
        raise AssertionError("a refused plan has made pods")
    tell.say("It has no worker: a refusal starts nothing.")


# ---- the real worker ----------------------------------------------------------------------------


def show_real_node(tell: Teller, stack: ExitStack, cluster: ControlPlane) -> RealNode:
    tell.step("A real node joins: kubelet, containerd and runc")
    node = stack.enter_context(real_worker.node_for(cluster))
    tell.say(
        f"{node.name} says that it has one {real_worker.CARD.product}. It has none: the plan is made for "
        "that card, and llama-server, which finds no device, runs on the CPU."
    )
    return node


def show_real_worker(tell: Teller, world: World, node: RealNode) -> None:
    tell.step(f"One object for the real file {MODEL_FILE}")
    world.apply(real_worker.deployment(world.namespace, node.parts.model))
    world.await_condition(real_worker.NAME, "Planned", "True", within=Patience.PLAN_WRITTEN)
    (pool,) = world.object(real_worker.NAME)["status"]["pools"]
    show_plan(tell, pool)
    tell.step("Its worker starts: llama-server in a container, as a user without a name")
    ready_or_why(world)
    show_pods(tell, world, real_worker.NAME)
    tell.say()
    tell.shell(f"kubectl -n {world.namespace} get infd", world.kubectl("get", "infd"))
    (pod,) = world.pods(real_worker.NAME)
    worker = Worker(pod)
    show_agreement(tell, world, worker, pool["plan"])
    tell.step("The worker is asked")
    answer = worker.chat(QUESTION)
    tell.named("question", QUESTION)
    tell.named("answer", answer.text)
    tell.say(f"{answer.prompt_tokens} tokens read, {answer.tokens} written.")
    if not answer.text:
        raise AssertionError("the worker answered with nothing")


def ready_or_why(world: World) -> None:
    """Wait until the worker is Ready; where that fails, its log says why."""
    try:
        world.await_condition(real_worker.NAME, "Ready", "True", within=Patience.REAL_POD_READY)
    except AssertionError as error:
        for pod in world.pods(real_worker.NAME):
            log = world.cluster.kubectl(
                "-n", world.namespace, "logs", "--tail=20", pod["metadata"]["name"], check=False
            )
            error.add_note(f"the worker's log ends:\n{log.stdout or log.stderr}")
        raise


def show_agreement(tell: Teller, world: World, worker: Worker, plan: dict[str, Any]) -> None:
    """What was pinned is what runs, and takes what was planned."""
    pinned = real_worker.pinned(plan)
    if worker.args[-len(pinned) :] != pinned:
        raise AssertionError(f"pinned {pinned}, but the container has {worker.args}")
    tell.say("Its arguments end in exactly the pinned flags.")
    name = worker.pod["metadata"]["name"]
    told = eventually(
        lambda: real_worker.kv_bytes_told(world.kubectl("logs", name)),
        within=Patience.CONDITION_SEEN,
        says="the worker's log tells the size of its KV buffers",
    )
    planned = real_worker.kv_bytes(plan)
    tell.say(
        f"KV cache: planned {planned / real_worker.MIB:.2f} MiB, allocated {told / real_worker.MIB:.2f} MiB."
    )
    if told != planned:
        raise AssertionError(f"planned {planned} bytes of KV cache, allocated {told}")


# ---- looking around -----------------------------------------------------------------------------


def wait_for_visitors(tell: Teller, cluster: ControlPlane) -> None:
    """Until Ctrl-C."""
    enter = entrance(cluster)
    tell.step("It goes on running; Ctrl-C here ends it and cleans up")
    tell.say("In another terminal, as the same user:")
    for words in ("kubectl get infd -A", "kubectl -n inference get pods -o wide", "bash"):
        tell.say(f"  {enter} {words}")
    try:
        signal.pause()
    except KeyboardInterrupt:
        print(flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
