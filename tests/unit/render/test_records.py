from __future__ import annotations

import pytest

from plimsoll.render.records import EnvVar, SecretKey


def test_a_value_and_a_secret_look_as_a_container_wants_them() -> None:
    assert EnvVar(name="A", value="").to_manifest() == {"name": "A", "value": ""}
    secret = EnvVar(name="B", secret=SecretKey(name="hub", key="token"))
    assert secret.to_manifest() == {
        "name": "B",
        "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}},
    }


def test_an_env_entry_has_exactly_one_origin() -> None:
    with pytest.raises(ValueError, match="either a value or a secret"):
        EnvVar(name="A")
    with pytest.raises(ValueError, match="either a value or a secret"):
        EnvVar(name="A", value="x", secret=SecretKey(name="hub", key="token"))
