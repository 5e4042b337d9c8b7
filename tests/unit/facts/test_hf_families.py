"""Is the right part of a config read by the right row of the table?"""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.facts.hf_config import kv_groups
from plimsoll.facts.hf_families import FAMILIES, known, text_config
from plimsoll.facts.hf_fields import NotUnderstoodError
from plimsoll.facts.hf_wrappers import REFUSED, WRAPPERS
from plimsoll.facts.model import KvKind

SIZES: dict[str, Any] = {
    "num_hidden_layers": 4,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
}


def test_no_architecture_stands_in_two_tables() -> None:
    assert set() == FAMILIES.keys() & WRAPPERS.keys()
    assert set() == (FAMILIES.keys() | WRAPPERS.keys()) & REFUSED.keys()


@pytest.mark.parametrize("architecture", sorted(WRAPPERS))
def test_every_model_that_holds_another_names_one_that_we_know(architecture: str) -> None:
    assert WRAPPERS[architecture].inner in FAMILIES


@pytest.mark.parametrize("name", ["text_config", "llm_config", "language_config"])
def test_the_language_model_is_found_inside(name: str) -> None:
    config = {"architectures": ["InternVLChatModel"], name: {**SIZES, "model_type": "qwen2"}}
    assert config[name] == text_config(config)
    (group,) = kv_groups(config)
    assert (4, 4, 64) == (group.layers, group.kv_heads, group.key_dim)


def test_a_thinker_holds_it_two_deep() -> None:
    text = {**SIZES, "model_type": "qwen2_5_omni_text"}
    config = {
        "architectures": ["Qwen2_5OmniForConditionalGeneration"],
        "model_type": "qwen2_5_omni",
        "thinker_config": {"text_config": text, "audio_config": {"num_attention_heads": 20}},
        "talker_config": {"num_hidden_layers": 24},
    }
    assert text == text_config(config)
    (group,) = kv_groups(config)
    assert 4 == group.layers


def test_the_inner_architecture_decides_where_the_file_names_it() -> None:
    inner = {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        **SIZES,
        "sliding_window": 256,
    }
    config = {"architectures": ["LlavaForConditionalGeneration"], "text_config": inner}
    (group,) = kv_groups(config)
    assert (KvKind.SLIDING, 256) == (group.kind, group.window_tokens)
    with pytest.raises(NotUnderstoodError, match=r"text_config\.architectures names NovelLM"):
        kv_groups({**config, "text_config": {**inner, "architectures": ["NovelLM"]}})


def test_what_is_said_around_the_language_model_must_be_what_it_says() -> None:
    config = {"architectures": ["LlavaForConditionalGeneration"], "text_config": SIZES}
    assert kv_groups(config) == kv_groups({**config, "hidden_size": 1024})
    with pytest.raises(NotUnderstoodError, match="num_key_value_heads = 8"):
        kv_groups({**config, "num_key_value_heads": 8})


def test_a_language_model_alone_does_not_hold_another() -> None:
    with pytest.raises(NotUnderstoodError, match="text_config holds another inside"):
        known({"architectures": ["LlamaForCausalLM"], **SIZES, "text_config": SIZES})


def test_another_model_type_is_refused_with_those_we_know() -> None:
    with pytest.raises(NotUnderstoodError, match="model_type is 'novel'; MixtralForCausalLM"):
        known({"architectures": ["MixtralForCausalLM"], "model_type": "novel", **SIZES})


@pytest.mark.parametrize(
    ("architecture", "words"),
    [
        ("BertModel", "it embeds"),
        ("LlamaForSequenceClassification", "it ranks"),
        ("NemotronHPuzzleForCausalLM", "block_configs"),
        ("SomethingNewForCausalLM", "not in our table"),
    ],
)
def test_what_we_do_not_count_is_refused_by_name(architecture: str, words: str) -> None:
    with pytest.raises(NotUnderstoodError, match=f"{architecture}.*{words}"):
        known({"architectures": [architecture], **SIZES})
