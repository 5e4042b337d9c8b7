"""Is a status read whoever wrote it, and written within bounds?"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.v1alpha1 import InferenceDeploymentStatus, PoolStatus, read_status, written
from plimsoll.plan.records import Reason, Refusal

REFUSAL = {"reason": "KvBudgetExceeded", "message": "20 GiB do not fit."}


@pytest.mark.parametrize("raw", [None, {}, "text", [1]])
def test_nothing_is_an_empty_status(raw: object) -> None:
    assert InferenceDeploymentStatus() == read_status(raw)


def test_unknown_fields_are_passed_over_at_any_depth() -> None:
    raw = {
        "since": 1,
        "pools": [{"name": "a", "since": 1, "refusal": REFUSAL | {"since": 1}}],
    }
    expected = Refusal(reason=Reason.KV_BUDGET_EXCEEDED, message="20 GiB do not fit.")
    assert (PoolStatus(name="a", refusal=expected),) == read_status(raw).pools


def test_a_plan_that_cannot_be_read_is_as_good_as_none() -> None:
    raw = {"pools": [{"name": "a", "readyReplicas": 2, "plan": {"engine": "other"}}]}
    assert (PoolStatus(name="a", ready_replicas=2),) == read_status(raw).pools


def test_a_reason_of_another_release_loses_the_refusal_only() -> None:
    raw = {"pools": [{"name": "a", "refusal": REFUSAL | {"reason": "NotYetKnown"}}, {"name": "b"}]}
    assert (PoolStatus(name="a"), PoolStatus(name="b")) == read_status(raw).pools


def test_an_entry_that_cannot_be_read_loses_itself_only() -> None:
    raw = {"pools": [{"replicas": 3}, {"name": "b"}, {}], "readyReplicas": 4}
    status = read_status(raw)
    assert ((PoolStatus(name="b"),), 4) == (status.pools, status.ready_replicas)


def test_a_field_that_cannot_be_read_loses_itself_only() -> None:
    status = read_status({"replicas": "many", "readyReplicas": 4, "conditions": "none"})
    assert (status.replicas, status.ready_replicas, status.conditions) == (0, 4, ())


PIECES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["pools", "name", "plan", "conditions", "type", "replicas", "refusal", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(PIECES)
def test_reading_never_raises(raw: Any) -> None:
    assert isinstance(read_status(raw), InferenceDeploymentStatus)


@given(PIECES)
def test_what_was_read_can_be_written_and_read_again(raw: Any) -> None:
    status = read_status(raw)
    assert status == read_status(written(status))


def test_a_long_text_is_cut() -> None:
    status = InferenceDeploymentStatus(pools=(PoolStatus(name="a", message="x" * 5000),))
    assert len(written(status)["pools"][0]["message"]) == 4096
