"""What does a reconcile make of what sources say of the cards: their age, and where they differ?"""

from __future__ import annotations

from typing import Any

import pytest

import scenes
from plimsoll.facts.gpu import Inventory

OLD = "the agent was last heard of at 2026-05-28T20:26:40Z"


def aged(inventory: Inventory, *, but: str = "") -> Inventory:
    """The same cards, of which no agent has told anything for long."""
    return inventory.model_copy(
        update={
            "nodes": tuple(
                node
                if node.node == but
                else node.model_copy(update={"stale": OLD, "notes": (OLD,), "free": 0})
                for node in inventory.nodes
            )
        }
    )


def counts(desired: Any) -> dict[str, int]:
    return {p: d["spec"]["replicas"] for p, d in scenes.deployments(desired).items()}


def running() -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    """The mixed fleet's object with two workers, its plan held."""
    raw = scenes.example("mixed-fleet")
    raw, children = scenes.applied(raw, scenes.think(raw))
    children = scenes.with_ready(children)
    raw, children = scenes.applied(raw, scenes.think(raw, children=children))
    return raw, scenes.with_ready(children)


def test_old_facts_keep_the_plan_and_the_workers() -> None:
    raw, children = running()
    fresh = scenes.think(raw, children=children)
    old = scenes.think(raw, aged(scenes.MIXED), children=children)
    assert counts(fresh) == counts(old)
    assert () == old.delete
    assert fresh.status is not None
    assert old.status is not None
    assert [p["plan"] for p in fresh.status["pools"]] == [p["plan"] for p in old.status["pools"]]
    planned = scenes.condition(old, "Planned")
    assert planned is not None
    assert ("True", True) == (planned["status"], "last heard of" in planned["message"])


def test_old_facts_keep_a_plan_that_would_no_longer_fit_them() -> None:
    """They are old: whether it fits, nobody knows."""
    raw, children = running()
    tight = scenes.MIXED.model_copy(
        update={
            "nodes": tuple(
                node.model_copy(
                    update={"gpu": node.gpu.model_copy(update={"held_by_others_bytes": 40 * 2**30})}
                )
                for node in scenes.MIXED.nodes
            )
        }
    )
    assert "a6000-tp4" not in counts(scenes.think(raw, tight, children=children))
    assert counts(scenes.think(raw, children=children)) == counts(
        scenes.think(raw, aged(tight), children=children)
    )


@pytest.mark.parametrize("replicas", [3, 6, 20])
def test_old_facts_start_no_worker(replicas: int) -> None:
    raw, children = running()
    before = counts(scenes.think(raw, children=children))
    raw["spec"]["replicas"] = replicas
    assert sum(counts(scenes.think(raw, children=children)).values()) == replicas
    after = counts(scenes.think(raw, aged(scenes.MIXED), children=children))
    assert all(after[pool] <= before[pool] for pool in before)


def test_fewer_workers_are_taken_down_all_the_same() -> None:
    raw, children = running()
    raw["spec"]["replicas"] = 1
    assert 1 == sum(counts(scenes.think(raw, aged(scenes.MIXED), children=children)).values())


def test_old_facts_make_no_plan_and_say_why() -> None:
    desired = scenes.think(scenes.example("mixed-fleet"), aged(scenes.MIXED))
    assert {} == counts(desired)
    planned = scenes.condition(desired, "Planned")
    assert planned is not None
    assert ("False", "GpuFactsStale") == (planned["status"], planned["reason"])
    assert OLD in planned["message"]


def test_a_changed_question_waits_and_what_runs_is_left_alone() -> None:
    raw, children = running()
    raw["spec"]["limits"] = {"maxModelLen": 4096}
    workers = [scenes.worker("a6000-tp4")]
    desired = scenes.think(raw, aged(scenes.MIXED), children=children, workers=workers)
    assert ({}, ()) == (counts(desired), desired.delete)
    planned = scenes.condition(desired, "Planned")
    assert planned is not None
    assert "1 running worker(s) are left alone" in planned["message"]


def test_one_node_with_fresh_facts_is_enough() -> None:
    desired = scenes.think(scenes.example("mixed-fleet"), aged(scenes.MIXED, but="a6000-0"))
    assert {"a6000-tp4": 1, "a6000-single": 1} == counts(desired)


def test_deciding_twice_on_old_facts_changes_nothing() -> None:
    raw, children = running()
    once = scenes.think(raw, aged(scenes.MIXED), children=children)
    raw, children = scenes.applied(raw, once)
    twice = scenes.think(raw, aged(scenes.MIXED), children=scenes.with_ready(children))
    assert (once.status, once.apply) == (twice.status, twice.apply)


def test_where_sources_differ_the_condition_says_it_and_the_plan_is_the_same() -> None:
    noted = scenes.MIXED.model_copy(
        update={
            "nodes": tuple(
                node.model_copy(update={"notes": (f"its labels say {node.node}, others not",)})
                for node in scenes.MIXED.nodes
            )
        }
    )
    raw = scenes.example("mixed-fleet")
    plain, told = scenes.think(raw), scenes.think(raw, noted)
    assert plain.apply == told.apply
    planned = scenes.condition(told, "Planned")
    assert planned is not None
    assert "Node a6000-0: its labels say a6000-0, others not." in planned["message"]
    assert "4090-0" not in planned["message"]  # of no pool of this object


def test_a_hundred_notes_are_a_few_and_a_number() -> None:
    node = scenes.MIXED.nodes[0]
    many = scenes.MIXED.model_copy(
        update={
            "nodes": tuple(
                node.model_copy(update={"node": f"n{at}", "notes": ("x",)}) for at in range(100)
            )
        }
    )
    planned = scenes.condition(scenes.think(scenes.example("mixed-fleet"), many), "Planned")
    assert planned is not None
    assert "92 more" in planned["message"]
