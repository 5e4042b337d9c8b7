"""Do shares add up, and go where the user pointed?"""

from __future__ import annotations

from plimsoll.api.replicas import Share, share_out

TWO_AND_ONE = (Share(pool="tp4", wanted=2), Share(pool="single", wanted=1))


def test_numbers_that_add_up_are_taken_as_they_are() -> None:
    assert share_out(3, TWO_AND_ONE) == {"tp4": 2, "single": 1}


def test_after_scaling_the_numbers_are_the_proportion() -> None:
    assert share_out(6, TWO_AND_ONE) == {"tp4": 4, "single": 2}
    assert share_out(5, TWO_AND_ONE) == {"tp4": 3, "single": 2}
    assert share_out(2, TWO_AND_ONE) == {"tp4": 1, "single": 1}
    assert share_out(1, TWO_AND_ONE) == {"tp4": 1, "single": 0}
    assert share_out(0, TWO_AND_ONE) == {"tp4": 0, "single": 0}


def test_pools_without_a_number_share_what_is_left() -> None:
    pools = (Share(pool="a", wanted=1), Share(pool="b"), Share(pool="c"))
    assert share_out(4, pools) == {"a": 1, "b": 2, "c": 1}


def test_the_best_pool_takes_what_has_no_card_anywhere() -> None:
    pools = (Share(pool="best", room=2), Share(pool="next", room=1))
    assert share_out(2, pools) == {"best": 1, "next": 1}
    assert share_out(5, pools) == {"best": 4, "next": 1}


def test_one_pool_takes_all() -> None:
    assert share_out(7, (Share(pool="only"),)) == {"only": 7}
    assert share_out(7, (Share(pool="only", wanted=2),)) == {"only": 7}


def test_no_pool_means_no_share() -> None:
    assert share_out(3, ()) == {}


def test_pools_that_want_none_get_none_while_another_is_there() -> None:
    assert share_out(2, (Share(pool="a", wanted=0), Share(pool="b"))) == {"a": 0, "b": 2}
