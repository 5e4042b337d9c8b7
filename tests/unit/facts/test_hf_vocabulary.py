"""Is what may matter told apart from what does not?"""

from __future__ import annotations

import pytest

from plimsoll.facts.hf_fields import Fields, NotUnderstoodError
from plimsoll.facts.hf_vocabulary import unread


@pytest.mark.parametrize(
    "given",
    [
        {"hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 1e6, "bos_token_id": 1},
        {"vision_config": {"num_attention_heads": 16}, "image_token_id": 7},
        {"attention_dropout": 0.1, "attention_bias": True, "initializer_range": 0.02},
        {"quantization_config": {"quant_method": "fp8"}, "transformers_version": "5.20.2"},
    ],
)
def test_what_changes_nothing_about_the_cache_is_passed_over(given: dict[str, object]) -> None:
    assert () == unread(Fields(given))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"attention_kind": "novel"}, "attention_kind = 'novel'"),
        ({"kv_compression": 4}, "kv_compression = 4"),
        ({"rope_kv_window": 128}, "rope_kv_window = 128"),
        ({"mode": "linear_attention"}, "mode = 'linear_attention'"),
        ({"plan": {"window": 128}}, "plan = {'window': 128}"),
        ({"order": [0, 1] * 20}, "order = "),
        ({"use_nsa": True}, "use_nsa = True"),
    ],
)
def test_what_may_change_it_is_refused_by_name_and_value(
    given: dict[str, object], words: str
) -> None:
    with pytest.raises(NotUnderstoodError) as refusal:
        unread(Fields(given, where="text_config."))
    assert f"text_config.{words}" in str(refusal.value)


@pytest.mark.parametrize("off", [None, False, 0, "", [], {}, 0.0])
def test_what_is_switched_off_says_nothing(off: object) -> None:
    assert () == unread(Fields({"use_kv_sharing": off}))


def test_what_is_about_something_else_is_told() -> None:
    assert ("my_note", "team") == unread(Fields({"my_note": 5, "team": "north"}))
