from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.render.labels import (
    label_value,
    pool_object_name,
    service_name,
    worker_selector,
    worker_selector_labels,
)

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
pool_names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
object_names = st.lists(pool_names, min_size=1, max_size=3).map(".".join)


def test_a_pool_is_called_after_its_deployment_and_itself() -> None:
    assert pool_object_name("llama-70b", "a6000-tp4") == "llama-70b-a6000-tp4"


def test_a_long_name_is_shortened_and_ends_in_a_hash_of_both() -> None:
    name = pool_object_name("l" * 40, "a" * 40)
    assert len(name) == 52
    assert f"{'l' * 40}-" == name[:41]
    assert name != pool_object_name("l" * 40, "a" * 41)


@pytest.mark.parametrize("length", [51, 52, 53, 200])
def test_names_that_differ_only_past_the_cut_stay_apart(length: int) -> None:
    assert pool_object_name("d" * length, "x") != pool_object_name("d" * (length + 1), "x")


@given(object_names, pool_names)
def test_every_pool_name_leaves_room_for_the_replica_set(deployment: str, pool: str) -> None:
    name = pool_object_name(deployment, pool)
    assert len(name) + len("-5d8f7c9b6d") <= 63
    assert all(DNS_LABEL.fullmatch(part) for part in name.split("."))


@given(object_names)
def test_every_service_name_is_one_that_dns_takes(deployment: str) -> None:
    name = service_name(deployment)
    assert SERVICE_NAME.fullmatch(name)
    assert len(name) <= 63


@given(st.text(min_size=1, max_size=300))
def test_every_label_value_is_one_that_the_api_server_takes(text: str) -> None:
    value = label_value(text)
    assert LABEL_VALUE.fullmatch(value)
    assert len(value) <= 63


def test_a_service_keeps_the_deployments_name_where_dns_allows() -> None:
    assert service_name("llama-70b") == "llama-70b"
    assert service_name("3.3-chat").startswith("infd-3-3-chat-")


def test_the_selector_string_says_what_the_labels_say() -> None:
    assert (
        worker_selector("llama-70b")
        == "app.kubernetes.io/component=worker,plimsoll.dev/deployment=llama-70b"
    )
    assert set(worker_selector("x").split(",")) == {
        f"{name}={value}" for name, value in worker_selector_labels("x").items()
    }
