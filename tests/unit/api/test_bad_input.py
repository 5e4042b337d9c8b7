"""Does the answer to a mistake name the field, the value and the way out?"""

from __future__ import annotations

import pytest
import yaml
from pydantic import ValidationError

from bad_input import BAD_INPUT, GOOD, BadInput
from plimsoll.api.v1alpha1 import InferenceDeployment, explain_errors


def test_what_the_mistakes_start_from_is_fine() -> None:
    deployment = InferenceDeployment.model_validate(yaml.safe_load(GOOD))
    assert tuple(pool.name for pool in deployment.spec.pools) == ("big", "small")


def test_each_mistake_is_a_kind_of_its_own() -> None:
    assert len(BAD_INPUT) == len({row.name for row in BAD_INPUT})
    assert len(BAD_INPUT) >= 15


@pytest.mark.parametrize("row", BAD_INPUT, ids=lambda row: row.name.replace(" ", "-"))
def test_the_answer_names_field_value_and_way_out(row: BadInput) -> None:
    with pytest.raises(ValidationError) as caught:
        InferenceDeployment.model_validate(row.manifest())
    lines = explain_errors(caught.value)
    assert [
        line
        for line in lines
        if line.startswith(row.field) and row.value in line and row.way_out in line
    ] != [], "\n".join(lines)
