"""`plimsoll render`: the manifests that the operator would apply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.cli.exits import Exit
from plimsoll.cli.inputs import inventory_for, read_cases
from plimsoll.cli.main import main
from plimsoll.decide import Observed, decide

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
EDGE = str(EXAMPLES / "edge-assistant.yaml")
MIXED = str(EXAMPLES / "mixed-fleet.yaml")

Capture = pytest.CaptureFixture[str]


def rendered(capsys: Capture, *words: str) -> list[dict[str, Any]]:
    assert main(["render", *words]) == Exit.FITS
    return list(yaml.safe_load_all(capsys.readouterr().out))


def workers(objects: list[dict[str, Any]]) -> dict[str, int]:
    return {
        one["metadata"]["name"]: one["spec"]["replicas"]
        for one in objects
        if one["kind"] == "Deployment"
    }


def test_they_are_what_decide_says(capsys: Capture) -> None:
    import argparse

    (case,) = read_cases([MIXED])
    inventory = inventory_for(case, argparse.Namespace(facts=[], gpu=None, gpu_types=None))
    desired = decide(Observed(deployment=case.body, inventory=inventory), now_seconds=0.0)
    ready = {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}
    started = Observed(
        deployment=case.body | {"status": desired.status},
        inventory=inventory,
        children=tuple(child | {"status": ready} for child in desired.apply),
    )
    assert rendered(capsys, "-f", MIXED) == list(decide(started, now_seconds=0.0).apply)


def test_flags_are_those_of_the_plan(capsys: Capture) -> None:
    main(["plan", "-f", MIXED, "--pool", "a6000-tp4", "-o", "json"])
    (answer,) = json.loads(capsys.readouterr().out)
    pinned = [word for f in answer["outcome"]["flags"] for word in (f["name"], f.get("value"))]
    (deployment,) = [
        one
        for one in rendered(capsys, "-f", MIXED, "--pool", "a6000-tp4")
        if one["kind"] == "Deployment"
    ]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    words = [word for word in pinned if word is not None]
    assert container["args"][-len(words) :] == words


def test_replicas_are_shared_out_as_by_kubectl_scale(capsys: Capture) -> None:
    assert sum(workers(rendered(capsys, "-f", MIXED)).values()) == 3
    assert sum(workers(rendered(capsys, "-f", MIXED, "--replicas", "6")).values()) == 6


def test_json_is_a_list_that_kubectl_reads(capsys: Capture) -> None:
    assert main(["render", "-f", MIXED, "-o", "json"]) == Exit.FITS
    read = json.loads(capsys.readouterr().out)
    assert (read["apiVersion"], read["kind"]) == ("v1", "List")
    assert read["items"] == rendered(capsys, "-f", MIXED)


def test_offline_objects_have_no_owner_that_does_not_exist(capsys: Capture) -> None:
    references = [
        reference
        for one in rendered(capsys, "-f", MIXED)
        for reference in one["metadata"].get("ownerReferences", ())
    ]
    assert references == []


def test_a_refused_pool_is_left_out_and_told(capsys: Capture) -> None:
    assert main(["render", "-f", EDGE]) == Exit.REFUSED
    out, err = capsys.readouterr()
    assert workers(list(yaml.safe_load_all(out))) == {}
    assert "pool rtx4090: refused: KvBudgetExceeded" in err


def test_equal_files_give_equal_bytes(capsys: Capture) -> None:
    main(["render", "-f", MIXED])
    first = capsys.readouterr().out
    main(["render", "-f", MIXED])
    assert capsys.readouterr().out == first


def test_replicas_out_of_range_are_bad_input(capsys: Capture) -> None:
    assert main(["render", "-f", MIXED, "--replicas", "1001"]) == Exit.BAD_INPUT
    assert "--replicas: 1001 is not between 0 and 1000" in capsys.readouterr().err
