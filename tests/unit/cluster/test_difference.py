"""What counts as a difference, held to what a real API server made of our children."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.cluster.difference import (
    differences,
    found,
    has_own_updates,
    is_so,
    leftovers,
    same_amount,
)

DATA = Path(__file__).parents[2] / "data" / "applied_children.json"
APPLIED = {each["wanted"]["kind"]: each for each in json.loads(DATA.read_text())}
OURS = "plimsoll"


def deployment() -> tuple[Any, Any]:
    """A pool's Deployment as we want it and as it lives."""
    pair = deepcopy(APPLIED["Deployment"])
    return pair["wanted"], pair["live"]


def pod(thing: Any) -> Any:
    """The pod spec of a Deployment."""
    return thing["spec"]["template"]["spec"]


def told(wanted: Any, live: Any) -> list[str]:
    """The differences as they are logged."""
    return [str(each) for each in differences(wanted, live)]


CONTAINER = (
    "spec.template.spec.containers." + pod(APPLIED["Deployment"]["wanted"])["containers"][0]["name"]
)


@pytest.mark.parametrize("kind", sorted(APPLIED))
def test_what_the_api_server_gives_back_is_what_we_applied(kind: str) -> None:
    wanted, live = APPLIED[kind]["wanted"], APPLIED[kind]["live"]
    assert () == found(wanted, live, manager=OURS)
    assert is_so(wanted, live, manager=OURS)


def test_what_others_add_to_labels_and_annotations_is_left_alone() -> None:
    wanted, live = deployment()
    live["metadata"]["labels"]["team"] = "a"
    live["spec"]["template"]["metadata"].setdefault("annotations", {})[
        "kubectl.kubernetes.io/restartedAt"
    ] = "2026-11-29T12:00:00Z"
    assert [] == told(wanted, live)


def test_replicas_that_somebody_scaled_are_a_difference() -> None:
    wanted, live = deployment()
    live["spec"]["replicas"] += 1
    assert ["spec.replicas"] == told(wanted, live)


def test_replicas_that_we_leave_out_belong_to_whoever_sets_them() -> None:
    wanted, live = deployment()
    del wanted["spec"]["replicas"]
    live["spec"]["replicas"] = 7
    assert [] == told(wanted, live)


def test_arguments_are_compared_in_order_and_in_full() -> None:
    wanted, live = deployment()
    arguments = pod(live)["containers"][0]["args"]
    arguments[0], arguments[1] = arguments[1], arguments[0]
    assert [f"{CONTAINER}.args"] == told(wanted, live)
    wanted, live = deployment()
    pod(live)["containers"][0]["args"].append("--enforce-eager")
    assert [f"{CONTAINER}.args"] == told(wanted, live)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("envFrom", [{"configMapRef": {"name": "x"}}]),
        ("lifecycle", {"postStart": {"exec": {"command": ["true"]}}}),
        ("workingDir", "/elsewhere"),
    ],
)
def test_a_field_that_we_never_set_on_a_container_is_foreign(field: str, value: object) -> None:
    wanted, live = deployment()
    pod(wanted)["containers"][0].pop(field, None)
    pod(live)["containers"][0][field] = value
    assert [f"{CONTAINER}.{field} (foreign)"] == told(wanted, live)


def test_a_hook_beside_ours_is_foreign() -> None:
    wanted, live = deployment()
    pod(live)["containers"][0]["lifecycle"]["postStart"] = {"exec": {"command": ["true"]}}
    assert [f"{CONTAINER}.lifecycle.postStart (foreign)"] == told(wanted, live)


def test_an_environment_variable_added_by_hand_is_foreign() -> None:
    wanted, live = deployment()
    container = pod(live)["containers"][0]
    container["env"] = [*container.get("env", ()), {"name": "VLLM_USE_V1", "value": "0"}]
    pod(wanted)["containers"][0].setdefault("env", [])
    assert [f"{CONTAINER}.env.VLLM_USE_V1 (foreign)"] == told(wanted, live)


def test_a_variable_that_now_comes_from_elsewhere_has_two_differences() -> None:
    wanted, live = deployment()
    pod(wanted)["containers"][0]["env"] = [{"name": "A", "value": "1"}]
    pod(live)["containers"][0]["env"] = [
        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    ]
    assert [f"{CONTAINER}.env.A.value", f"{CONTAINER}.env.A.valueFrom (foreign)"] == told(
        wanted, live
    )


def test_an_empty_value_is_the_same_as_none() -> None:
    wanted, live = deployment()
    pod(wanted)["containers"][0]["env"] = [{"name": "A", "value": ""}]
    pod(live)["containers"][0]["env"] = [{"name": "A"}]
    assert [] == told(wanted, live)


def test_false_is_not_the_same_as_nothing() -> None:
    wanted, live = deployment()
    assert pod(wanted)["automountServiceAccountToken"] is False
    del pod(live)["automountServiceAccountToken"]
    assert ["spec.template.spec.automountServiceAccountToken"] == told(wanted, live)


def test_a_container_of_others_is_foreign_and_ours_missing_is_not() -> None:
    wanted, live = deployment()
    pod(live)["containers"].append({"name": "sidecar", "image": "x"})
    assert ["spec.template.spec.containers.sidecar (foreign)"] == told(wanted, live)
    pod(live)["containers"] = [{"name": "sidecar", "image": "x"}]
    assert {CONTAINER, "spec.template.spec.containers.sidecar (foreign)"} == set(told(wanted, live))


def test_init_containers_where_we_have_none_are_foreign() -> None:
    wanted, live = deployment()
    pod(wanted).pop("initContainers", None)
    pod(live)["initContainers"] = [{"name": "first", "image": "x"}]
    assert ["spec.template.spec.initContainers (foreign)"] == told(wanted, live)


def test_another_source_for_our_volume_is_foreign() -> None:
    wanted, live = deployment()
    name = pod(wanted)["volumes"][0]["name"]
    volume = next(v for v in pod(live)["volumes"] if v["name"] == name)
    for key in set(volume) - {"name"}:
        del volume[key]
    volume["hostPath"] = {"path": "/"}
    if "hostPath" in pod(wanted)["volumes"][0]:
        pytest.skip("the example's first volume is a hostPath")
    assert f"spec.template.spec.volumes.{name}.hostPath (foreign)" in told(wanted, live)


def test_ports_of_others_on_the_service_are_left_alone() -> None:
    wanted, live = deepcopy(APPLIED["Service"]["wanted"]), deepcopy(APPLIED["Service"]["live"])
    live["spec"]["ports"].append({"name": "other", "port": 1234, "targetPort": 1234})
    assert [] == told(wanted, live)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "1000m"),
        ("1Gi", "1024Mi"),
        (2, "2"),
        ("0.5", "500m"),
        ("1e3", "1k"),
        ("128974848", "123Mi"),
    ],
)
def test_one_amount_has_many_spellings(one: str | int, other: str | int) -> None:
    assert same_amount(one, other)


@pytest.mark.parametrize(
    ("one", "other"), [("1", "2"), ("1Gi", "1G"), ("1", "x"), ("x", "x"), (True, 1)]
)
def test_what_is_no_amount_is_not_the_same(one: str | int, other: str | int) -> None:
    assert not same_amount(one, other)


@given(st.integers(min_value=0, max_value=2**50))
def test_mebibytes_and_bytes_agree(mebibytes: int) -> None:
    assert same_amount(f"{mebibytes}Mi", mebibytes * 2**20)


def test_spelling_of_an_amount_is_no_difference_but_elsewhere_text_is_text() -> None:
    wanted, live = deployment()
    pod(wanted)["containers"][0]["resources"]["requests"] = {"cpu": "1000m"}
    pod(live)["containers"][0]["resources"]["requests"]["cpu"] = "1"
    assert [] == told(wanted, live)
    pod(wanted)["containers"][0]["args"][-1] = "1Gi"
    pod(live)["containers"][0]["args"][-1] = "1024Mi"
    assert [f"{CONTAINER}.args"] == told(wanted, live)


def test_what_we_set_once_and_no_longer_want_is_left_over() -> None:
    wanted, live = deployment()
    key = next(iter(wanted["metadata"]["labels"]))
    del wanted["metadata"]["labels"][key]
    left = [str(each) for each in leftovers(wanted, live, manager=OURS)]
    assert [f"metadata.labels.{key}"] == left


def test_a_variable_that_we_drop_is_left_over_and_foreign() -> None:
    wanted, live = deployment()
    container = pod(wanted)["containers"][0]
    if not container.get("env"):
        pytest.skip("the example sets no variables")
    gone = container["env"].pop()["name"]
    assert [f"{CONTAINER}.env.{gone} (foreign)"] == told(wanted, live)
    assert any(gone in str(each) for each in leftovers(wanted, live, manager=OURS))


def test_an_object_that_we_never_applied_is_not_so() -> None:
    wanted, live = deployment()
    live["metadata"]["managedFields"] = [
        entry for entry in live["metadata"]["managedFields"] if entry["manager"] != OURS
    ]
    assert [] == told(wanted, live)
    assert not is_so(wanted, live, manager=OURS)


def test_our_own_json_patch_shows_in_managed_fields() -> None:
    _, live = deployment()
    assert not has_own_updates(live, manager=OURS)
    live["metadata"]["managedFields"].append(
        {"manager": OURS, "operation": "Update", "fieldsV1": {}}
    )
    assert has_own_updates(live, manager=OURS)


def test_another_type_is_a_difference() -> None:
    wanted, live = deployment()
    wanted["spec"]["replicas"] = str(live["spec"]["replicas"])
    assert ["spec.replicas"] == told(wanted, live)
    wanted, live = deployment()
    live["spec"]["strategy"] = "Recreate"
    assert ["spec.strategy"] == told(wanted, live)


def test_entries_without_names_are_compared_by_position() -> None:
    wanted = {"spec": {"tolerations": [{"key": "a"}, {"key": "b"}]}}
    assert [] == told(wanted, {"spec": {"tolerations": [{"key": "a"}, {"key": "b"}]}})
    assert ["spec.tolerations.1.key"] == told(
        wanted, {"spec": {"tolerations": [{"key": "a"}, {"key": "c"}]}}
    )
    assert ["spec.tolerations"] == told(wanted, {"spec": {"tolerations": [{"key": "a"}]}})


WORD = st.text("abc", min_size=1, max_size=3)
JSON = st.recursive(
    WORD | st.integers(-3, 3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(WORD, JSON, max_size=4))
def test_a_thing_does_not_differ_from_itself(thing: dict[str, Any]) -> None:
    assert () == differences(thing, deepcopy(thing))


@given(st.dictionaries(WORD, JSON, max_size=4), st.dictionaries(WORD, JSON, max_size=4))
def test_more_outside_the_pod_never_makes_a_difference(
    wanted: dict[str, Any], more: dict[str, Any]
) -> None:
    assert () == differences(wanted, more | wanted)
