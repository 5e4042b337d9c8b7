"""Is a mistake told with field, value and way out, whatever its type?"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from plimsoll.api.explain import explain_errors, shown
from plimsoll.api.v1alpha1 import InferenceDeployment


def lines_of(**spec: Any) -> tuple[str, ...]:
    raw = {
        "metadata": {"name": "a"},
        "spec": {
            "model": {"name": "m", "uri": "pvc://models"},
            "engines": {"vllm": {"image": "vllm"}},
        }
        | spec,
    }
    with pytest.raises(ValidationError) as caught:
        InferenceDeployment.model_validate(raw)
    return explain_errors(caught.value)


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ({"replicas": 1.5}, "spec.replicas: 1.5 is not a whole number; write one without"),
        ({"replicas": True}, "spec.replicas: true is not a whole number"),
        ({"replicas": 1001}, "spec.replicas: 1001 is too large; write 1000 or less"),
        ({"limits": {"preemptionRisk": "x"}}, "spec.limits.preemptionRisk: 'x' is not a number"),
        (
            {"limits": {"preemptionRisk": 0}},
            "spec.limits.preemptionRisk: 0 is too small; write a n",
        ),
        (
            {"gateway": {"enabled": "on"}},
            "spec.gateway.enabled: 'on' is not a yes or no; write true",
        ),
        ({"gateway": [1]}, "spec.gateway: [1] is not a block of fields; write its fields below it"),
        ({"pools": {"name": "a"}}, "spec.pools: {name} is not a list; begin each entry with -"),
        ({"model": None}, "spec.model: an empty value is not a block of fields"),
        ({"model": {"name": 7}}, "spec.model.name: 7 is not text; write the name"),
        ({"model": {}}, "spec.model.name: nothing is written here, and it is needed; write name"),
        (
            {"engines": {"vllm": {"extraArgs": [1]}}},
            "spec.engines.vllm.extraArgs[0]: 1 is not text",
        ),
        (
            {"engines": {"vllm": {"extraArgs": ["x" * 1025]}}},
            "spec.engines.vllm.extraArgs[0]: 'xxx",
        ),
        (
            {"engines": {"vlm": {}}},
            "spec.engines.vlm: {} is under a name that is not known here; wr",
        ),
        ({"worker": {"tolerations": [{}] * 17}}, "spec.worker.tolerations: [{}, {}"),
        (
            {"worker": {"labels": "a=b"}},
            "spec.worker.labels: 'a=b' is not a block of keys and values",
        ),
        (
            {"worker": {"zzz": 1}},
            "spec.worker.zzz: 1 is under a name that is not known here; write one",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_line_begins_with_field_and_value(spec: dict[str, Any], line: str) -> None:
    assert [each for each in lines_of(**spec) if each.startswith(line)] != [], lines_of(**spec)


def test_a_typo_is_answered_with_the_nearest_name() -> None:
    line = "spec.limits.concurency: 3 is under a name that is not known here; write concurrency"
    assert (line,) == lines_of(limits={"concurency": 3})


def test_every_mistake_has_its_line() -> None:
    assert len(lines_of(replicas=-1, limits={"concurrency": 0})) == 2


def test_a_long_value_is_shortened() -> None:
    assert len(shown("x" * 500)) == 60
