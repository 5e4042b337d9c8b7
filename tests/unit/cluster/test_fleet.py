"""The cards in reach, with few questions."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from api_box import StandIn, connected
from plimsoll.catalog.profiles import GpuProfile
from plimsoll.cluster.client import Client
from plimsoll.cluster.fleet import Fleet, cards_of_pod, cards_requested, essence, kubelet_address
from plimsoll.cluster.kinds import GPU_NODE, NODE, POD, RESOURCE_SLICE
from plimsoll.facts.source import FactSource
from plimsoll.units import GIB, MIB

GPU = "nvidia.com/gpu"


def node(name: str = "n", *, product: str = "NVIDIA-RTX-A6000", **labels: str) -> dict[str, Any]:
    """A node with four cards, and all that a kubelet says besides."""
    return {
        "metadata": {
            "name": name,
            "labels": {
                "nvidia.com/gpu.product": product,
                "nvidia.com/gpu.memory": "49140",
                "nvidia.com/gpu.count": "4",
            }
            | labels,
            "annotations": {"a": "b"},
        },
        "spec": {},
        "status": {
            "allocatable": {GPU: "4", "memory": "256Gi", "cpu": "64"},
            "images": [{"names": ["x"]}],
            "conditions": [{"type": "Ready", "lastHeartbeatTime": "now"}],
        },
    }


def pod(name: str, on: str | None, cards: int, phase: str = "Running") -> dict[str, Any]:
    """A pod that asks for cards."""
    container = {"name": "c", "resources": {"limits": {GPU: str(cards)}}}
    return {
        "metadata": {"name": name, "namespace": "x"},
        "spec": {"containers": [container]} | ({"nodeName": on} if on else {}),
        "status": {"phase": phase},
    }


class Clock:
    """Stands still until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def with_fleet(work: Any, **options: Any) -> Any:
    """Run the work with a box, a fleet in it and its clock."""

    async def run() -> Any:
        box, clock = StandIn(), Clock()
        async with connected(box) as client:
            return await work(_fleet(client, clock, options), box, clock)

    return asyncio.run(run())


def _fleet(client: Client, clock: Clock, options: Any) -> Fleet:
    return Fleet(client, clock=clock, **({"max_age_seconds": 30.0} | options))


def lists(box: StandIn) -> int:
    """How often nodes were listed."""
    return sum(path == "/api/v1/nodes" for _, path in box.requests)


def test_cards_that_pods_hold_are_not_free() -> None:
    async def work(fleet: Fleet, box: StandIn, clock: Clock) -> Any:
        box.put(NODE, node())
        box.put(POD, pod("a", "n", 1))
        box.put(POD, pod("b", "n", 2))
        box.put(POD, pod("waits", None, 4))
        box.put(POD, pod("ended", "n", 4, phase="Succeeded"))
        return await fleet.inventory()

    (cards,) = with_fleet(work).nodes
    assert (4, 1) == (cards.count, cards.free)


def test_a_hundred_visits_share_one_look() -> None:
    async def work(fleet: Fleet, box: StandIn, clock: Clock) -> int:
        box.put(NODE, node())
        seen = await asyncio.gather(*(fleet.inventory() for _ in range(100)))
        assert all(each is seen[0] for each in seen)
        return lists(box)

    assert 1 == with_fleet(work)


def test_what_was_seen_ages() -> None:
    async def work(fleet: Fleet, box: StandIn, clock: Clock) -> list[int]:
        counts = []
        for now in (0.0, 29.0, 31.0):
            clock.now = now
            await fleet.inventory()
            counts.append(lists(box))
        return counts

    assert [1, 1, 2] == with_fleet(work)


def test_a_heartbeat_is_no_news_and_a_new_label_of_a_card_is() -> None:
    async def work(fleet: Fleet, box: StandIn, clock: Clock) -> None:
        box.put(NODE, node())
        await fleet.inventory()
        beat = node()
        beat["status"]["conditions"][0]["lastHeartbeatTime"] = "later"
        beat["metadata"]["labels"]["team"] = "a"
        assert not fleet.node_seen(beat)
        await fleet.inventory()
        assert 1 == lists(box)
        assert fleet.node_seen(node(product="NVIDIA-H200"))
        await fleet.inventory()
        assert 2 == lists(box)

    with_fleet(work)


def test_nodes_that_come_and_go_are_news_only_with_cards() -> None:
    async def work(fleet: Fleet, box: StandIn, clock: Clock) -> None:
        await fleet.inventory()
        plain = {"metadata": {"name": "plain"}, "status": {"allocatable": {"cpu": "4"}}}
        assert not fleet.node_seen(plain)
        assert not fleet.node_seen(plain, is_gone=True)
        assert fleet.node_seen(node())
        assert not fleet.node_seen(node())
        assert fleet.node_seen(node(), is_gone=True)

    with_fleet(work)


def test_what_the_agent_says_is_news_but_not_its_heartbeat() -> None:
    def told(heartbeat: str, used: int) -> dict[str, Any]:
        card = {
            "uuid": "GPU-1",
            "product": "NVIDIA-RTX-A6000",
            "totalBytes": 51_527_024_640,
            "reservedBytes": 500_000_000,
            "heldByOthersBytes": used,
        }
        return {"metadata": {"name": "n"}, "status": {"heartbeat": heartbeat, "cards": [card]}}

    async def work(fleet: Fleet, box: StandIn, clock: Clock) -> None:
        box.put(NODE, node())
        box.put(GPU_NODE, told("12:00", 0))
        await fleet.inventory()
        assert not fleet.gpu_node_seen(told("12:01", 0))
        assert fleet.gpu_node_seen(told("12:02", 2**30))
        assert fleet.gpu_node_seen(told("12:02", 0), is_gone=True)

    with_fleet(work)


def resource_slice(mib: int, *, driver: str = "gpu.nvidia.com") -> dict[str, Any]:
    """A DRA driver's word on node n."""
    device = {
        "name": "gpu-0",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": "GPU-1"},
            "productName": {"string": "NVIDIA RTX A6000"},
        },
        "capacity": {"memory": {"value": f"{mib}Mi"}},
    }
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": "n", "pool": pool, "devices": [device]}
    return {"metadata": {"name": f"n-{driver}"}, "spec": spec}


def test_resource_slices_are_read_where_they_are_served() -> None:
    async def work(fleet: Fleet, box: StandIn, clock: Clock) -> Any:
        box.put(NODE, node())
        box.put(RESOURCE_SLICE, resource_slice(46068))
        box.put(RESOURCE_SLICE, resource_slice(1, driver="dra.example.com"))
        found = await fleet.inventory()
        assert fleet.has_slices
        return found

    (cards,) = with_fleet(work).nodes
    assert (FactSource.DRA, 46068 * MIB) == (
        cards.gpu.provenance.source,
        cards.gpu.total_bytes,
    )


def test_a_cluster_without_resource_slices_is_none_the_worse() -> None:
    async def work(fleet: Fleet, box: StandIn, clock: Clock) -> Any:
        box.missing.add("resourceslices")
        box.put(NODE, node())
        found = await fleet.inventory()
        assert not fleet.has_slices
        return found

    assert 49140 * MIB == with_fleet(work).nodes[0].gpu.total_bytes


def test_a_changed_slice_is_news_and_its_echo_is_not() -> None:
    async def work(fleet: Fleet, box: StandIn, clock: Clock) -> None:
        box.put(NODE, node())
        box.put(RESOURCE_SLICE, resource_slice(49140))
        await fleet.inventory()
        assert not fleet.slice_seen(resource_slice(49140))
        assert not fleet.slice_seen(resource_slice(1, driver="dra.example.com"))
        assert fleet.slice_seen(resource_slice(46068))
        await fleet.inventory()
        assert 2 == lists(box)
        assert fleet.slice_seen(resource_slice(49140), is_gone=True)

    with_fleet(work)


def test_the_users_table_reaches_the_inventory() -> None:
    async def work(fleet: Fleet, box: StandIn, clock: Clock) -> Any:
        box.put(NODE, node())
        return await fleet.inventory()

    profiles = (GpuProfile(product="NVIDIA-RTX-A6000", total=40 * GIB),)
    (cards,) = with_fleet(work, profiles=profiles).nodes
    assert 40 * GIB == cards.gpu.total_bytes


def test_an_agent_that_fell_silent_is_noticed_and_its_return_is_news() -> None:
    def told(heartbeat: str) -> dict[str, Any]:
        card = {"uuid": "GPU-1", "product": "NVIDIA-RTX-A6000", "totalBytes": 49140 * MIB}
        return {"metadata": {"name": "n"}, "status": {"heartbeat": heartbeat, "cards": [card] * 4}}

    beat = 1_780_000_000.0

    async def work(fleet: Fleet, box: StandIn, clock: Clock) -> None:
        wall.now = beat
        box.put(NODE, node())
        box.put(GPU_NODE, told("2026-05-28T20:26:40Z"))
        (fresh,) = (await fleet.inventory()).nodes
        wall.now, clock.now = beat + 61, 31.0
        (old,) = (await fleet.inventory()).nodes
        assert (None, 4, 0) == (fresh.stale, fresh.free, old.free)
        assert old.stale is not None
        assert fleet.gpu_node_seen(told("2026-05-28T20:27:40Z"))
        box.put(GPU_NODE, told("2026-05-28T20:27:40Z"))
        assert (await fleet.inventory()).nodes[0].stale is None

    wall = Clock()
    with_fleet(work, wall_clock=wall, stale_seconds=60.0)


def test_a_change_during_the_look_is_not_lost() -> None:
    async def work(fleet: Fleet, box: StandIn, clock: Clock) -> int:
        looking = asyncio.create_task(fleet.inventory())
        while not box.requests:
            await asyncio.sleep(0)
        fleet.forget()
        await looking
        await fleet.inventory()
        return lists(box)

    assert 2 == with_fleet(work)


def test_where_the_kind_of_the_agent_is_not_installed_labels_do() -> None:
    async def work(fleet: Fleet, box: StandIn, clock: Clock) -> int:
        box.put(NODE, node())
        empty = {"metadata": {}, "items": [node()]}
        box.answers = [(200, {}, empty), (404, {}, {"reason": "NotFound"})]
        return len((await fleet.inventory()).nodes)

    assert 1 == with_fleet(work)


def test_pods_are_listed_only_where_that_is_allowed() -> None:
    async def work(fleet: Fleet, box: StandIn, clock: Clock) -> set[str]:
        await fleet.inventory()
        return {path for _, path in box.requests if path.endswith("/pods")}

    assert {"/api/v1/namespaces/a/pods", "/api/v1/namespaces/b/pods"} == with_fleet(
        work, namespaces=("a", "b")
    )


def test_a_node_is_kept_without_what_is_heavy() -> None:
    kept = essence(node())
    assert {"allocatable", "capacity", "kubelet"} == kept["status"].keys()
    assert {"name", "labels"} == kept["metadata"].keys()


def test_a_kubelet_is_found_by_the_nodes_internal_address_and_published_port() -> None:
    internal = {"type": "InternalIP", "address": "10.0.0.7"}
    hostname = {"type": "Hostname", "address": "gpu-7"}
    published = {"kubeletEndpoint": {"Port": 12250}}
    assert "10.0.0.7:10250" == kubelet_address({"addresses": [hostname, internal]})
    assert "10.0.0.7:12250" == kubelet_address(
        {"addresses": [internal], "daemonEndpoints": published}
    )
    six = {"type": "InternalIP", "address": "fd00::7"}
    assert "[fd00::7]:10250" == kubelet_address({"addresses": [six]})
    assert "" == kubelet_address({"addresses": [hostname]})
    assert "" == kubelet_address({})


def test_the_fleet_knows_each_nodes_kubelet_and_memory() -> None:
    seen = node()
    seen["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.7"}]
    seen["status"]["allocatable"]["memory"] = "512Gi"

    async def work(fleet: Fleet, _: StandIn, __: Clock) -> tuple[Any, ...]:
        fleet.node_seen(seen)
        name = seen["metadata"]["name"]
        return (
            fleet.kubelet(name), fleet.allocatable_bytes(name),
            fleet.kubelet("other"), fleet.allocatable_bytes("other"),
        )  # fmt: skip

    assert ("10.0.0.7:10250", 512 << 30, "", None) == with_fleet(work)


def test_init_containers_count_when_they_ask_for_more_and_sidecars_always() -> None:
    def container(cards: int, **more: str) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": {GPU: str(cards)}}} | more

    spec = {"containers": [container(1), container(1)], "initContainers": [container(3)]}
    assert {GPU: 3} == cards_of_pod({"spec": spec})
    spec["initContainers"] = [container(1, restartPolicy="Always"), container(1)]
    assert {GPU: 3} == cards_of_pod({"spec": spec})
    assert {} == cards_of_pod({"spec": {"containers": [{"name": "c"}]}})


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 8)), max_size=8))
def test_cards_add_up_by_node(pods: list[tuple[str, int]]) -> None:
    requested = cards_requested(pod(str(i), on, cards) for i, (on, cards) in enumerate(pods))
    assert sum(requested.values()) == sum(cards for _, cards in pods)


def test_cordoned_nodes_are_on_their_way_out() -> None:
    async def work(fleet: Fleet, box: StandIn, _: Clock) -> frozenset[str]:
        box.put(NODE, node("stays"))
        box.put(NODE, node("goes") | {"spec": {"unschedulable": True}})
        await fleet.inventory()
        return fleet.leaving()

    assert frozenset({"goes"}) == with_fleet(work)
