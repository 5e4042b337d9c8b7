"""An operator upgrade moves no pods: a plan that was accepted is kept while it fits."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

import scenes
import worlds
from plimsoll.decide import Desired
from plimsoll.facts.gpu import Inventory
from plimsoll.plan.records import Reason, Refusal
from plimsoll.units import MIB

EXAMPLES = ("mixed-fleet", "chat-and-batch")


def _as_an_older_planner_left_it(name: str) -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    """The object and its children after a planner that chose fewer sequences and other words."""
    raw = scenes.example(name)
    desired = scenes.think(raw)
    assert desired.status is not None
    for pool in desired.status["pools"]:
        pool["plan"]["explanation"] = "An older planner's words."
        pool["plan"]["notes"] = []
        for flag in pool["plan"]["flags"]:
            if flag["name"] in ("--max-num-seqs", "--cache-ram"):
                flag["value"] = "3"
        pool["plan"]["concurrency"]["maxNumSeqs"] = 3
    raw["status"] = desired.status
    second = scenes.think(raw)
    return scenes.applied(raw, second)


def _templates(desired: Desired) -> dict[str, Any]:
    return {pool: d["spec"]["template"] for pool, d in scenes.deployments(desired).items()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_accepted_plan_is_kept_by_a_newer_planner(name: str) -> None:
    raw, children = _as_an_older_planner_left_it(name)
    desired = scenes.think(raw, children=children)
    live = {
        child["metadata"]["labels"]["plimsoll.dev/pool"]: child["spec"]["template"]
        for child in children
        if child["kind"] == "Deployment"
    }
    assert _templates(desired) == live
    fresh = deepcopy(raw)
    del fresh["status"]
    assert _templates(scenes.think(fresh)) != live


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_changed_spec_replaces_it(name: str) -> None:
    raw, children = _as_an_older_planner_left_it(name)
    raw["spec"]["kvCache"] = {"dtype": "auto"}
    raw["spec"]["traffic"] = {
        "promptTokens": {"p50": 100, "p99": 200},
        "outputTokens": {"p50": 100, "p99": 200},
    }
    before = _templates(scenes.think(scenes.example(name)))
    assert _templates(scenes.think(raw, children=children)) != before


def test_facts_under_which_it_does_not_fit_replace_it() -> None:
    raw, children = _as_an_older_planner_left_it("mixed-fleet")
    taken = _with_held(scenes.MIXED, 4000 * MIB)
    desired = scenes.think(raw, taken, children=children)
    assert desired.status is not None
    assert desired.status["pools"][0]["plan"]["explanation"] != "An older planner's words."


def test_facts_under_which_it_still_fits_do_not() -> None:
    raw, children = _as_an_older_planner_left_it("mixed-fleet")
    desired = scenes.think(raw, _with_held(scenes.MIXED, 100 * MIB), children=children)
    assert desired.status is not None
    assert desired.status["pools"][0]["plan"]["explanation"] == "An older planner's words."


def _with_held(inventory: Inventory, held_bytes: int) -> Inventory:
    return inventory.model_copy(
        update={
            "nodes": tuple(
                node.model_copy(
                    update={"gpu": node.gpu.model_copy(update={"held_by_others_bytes": held_bytes})}
                )
                for node in inventory.nodes
            )
        }
    )


def test_a_status_that_cannot_be_read_is_as_good_as_none() -> None:
    raw = scenes.example("mixed-fleet")
    raw["status"] = {"pools": [{"name": "a6000-tp4", "plan": {"engine": "vllm"}}], "new": 1}
    assert scenes.think(raw).status == scenes.think(scenes.example("mixed-fleet")).status


def test_the_fleet_has_the_cards_of_the_story() -> None:
    assert worlds.card("rtx-a6000").product in {gpu.product for gpu in scenes.MIXED.types()}


def test_a_pool_that_we_made_keeps_its_shape_when_a_newer_planner_would_refuse_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = scenes.example("mixed-fleet", pools=[])
    raw, children = scenes.applied(raw, scenes.think(raw))
    refusal = Refusal(reason=Reason.WEIGHTS_DO_NOT_FIT, message="A newer planner's opinion.")
    monkeypatch.setattr("plimsoll.api.requests.plan", lambda _: refusal)
    desired = scenes.think(raw, children=children)
    assert desired.delete == ()
    live = {c["metadata"]["name"] for c in children if c["kind"] == "Deployment"}
    assert {d["metadata"]["name"] for d in scenes.deployments(desired).values()} == live
