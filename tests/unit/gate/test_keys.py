"""Does HAProxy learn digests of keys, and never a key?"""

from __future__ import annotations

import hashlib

import pytest

from plimsoll.gate.keys import KeysError, hashed, key_commands, map_text, read_map

KEY = "a-key-that-is-long-enough"
DIGEST = hashlib.sha256(KEY.encode()).hexdigest()


def test_a_key_becomes_its_digest() -> None:
    assert {DIGEST: "nightly"} == hashed({"nightly": KEY + "\n"})
    assert f"{DIGEST} nightly\n" == map_text({DIGEST: "nightly"})


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"nightly": "short"}, "key nightly has 5 characters"),
        ({"a b": KEY}, "'a b' is no name of a key"),
        ({"a": KEY, "b": KEY}, "b and a are the same key"),
    ],
)
def test_keys_that_cannot_be_used_are_named_and_not_shown(
    entries: dict[str, str], says: str
) -> None:
    with pytest.raises(KeysError, match=says) as caught:
        hashed(entries)
    assert KEY not in str(caught.value)


def test_only_what_differs_is_told() -> None:
    wanted = {"aa": "kept", "bb": "renamed", "cc": "new"}
    known = {"aa": "kept", "bb": "old", "dd": "gone"}
    assert ["set map /m bb renamed", "del map /m dd", "add map /m cc new"] == list(
        key_commands("/m", wanted, known)
    )
    assert [] == list(key_commands("/m", wanted, wanted))


def test_the_map_is_read_as_haproxy_shows_it() -> None:
    assert {"aa": "nightly", "bb": "x"} == read_map("0x55d0 aa nightly\n0x55d1 bb x\n\n")
