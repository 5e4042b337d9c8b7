"""Mistakes that people make, told by the API server itself: field, value and way out."""

from __future__ import annotations

import pytest
import yaml

from bad_input import BAD_INPUT, GOOD, BadInput
from controlplane.cluster import ControlPlane
from installation import Installation


@pytest.fixture(scope="module")
def served(plimsoll: Installation) -> ControlPlane:
    """A cluster with our CRDs."""
    return plimsoll.cluster


def test_there_are_many_kinds() -> None:
    assert len({bad.name for bad in BAD_INPUT}) >= 15


def test_the_object_that_mistakes_are_made_in_is_fine(served: ControlPlane) -> None:
    served.kubectl("apply", "--dry-run=server", "-f", "-", input=GOOD)


@pytest.mark.parametrize("bad", BAD_INPUT, ids=lambda bad: bad.name)
def test_the_answer_names_field_value_and_way_out(served: ControlPlane, bad: BadInput) -> None:
    said = served.kubectl(
        "apply", "--dry-run=server", "-f", "-", input=yaml.safe_dump(bad.manifest()), check=False
    )
    assert said.returncode != 0
    text = said.stderr
    assert bad.field.rpartition(".")[2].split("[")[0] in text
    for words in [bad.server_says] if bad.server_says else [bad.value, bad.way_out]:
        assert words in text
