"""Can a config change what the engine keeps without our noticing?

Changes of one field, judged by vLLM itself (tests/data/vllm_config_changes.json), and laws that
hypothesis searches: what we do not know is refused by name, what does not matter is let through.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_layers import as_recorded, in_engine_words
from plimsoll.facts.hf_config import model_facts
from plimsoll.facts.model import ModelFacts, UnknownLayout, Weights
from plimsoll.facts.source import Confidence, FactSource, Provenance

DATA: Final = Path(__file__).parents[1] / "data"
READ: Final = Provenance(source=FactSource.FILES, confidence=Confidence.EXACT)
CONFIGS: Final[dict[str, dict[str, Any]]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((DATA / "hf_configs").glob("*.json"))
}
JUDGED: Final[dict[str, dict[str, Any]]] = json.loads(
    (DATA / "vllm_config_changes.json").read_text(encoding="utf-8")
)["models"]
EVERY: Final = st.sampled_from(sorted(CONFIGS))
PARTS: Final = ("text_config", "llm_config")


def facts_of(config: Mapping[str, Any]) -> ModelFacts | UnknownLayout:
    return model_facts(config, id="a/model", weights=Weights(total_bytes=1), provenance=READ)


def part_of(config: dict[str, Any]) -> dict[str, Any]:
    """The part that describes the language model, to be changed in place."""
    part: dict[str, Any] = next((config[name] for name in PARTS if name in config), config)
    return part


def copy_of(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    config = json.loads(json.dumps(CONFIGS[name]))
    return config, part_of(config)


# --- judged by the engine ---------------------------------------------------------------------------


@pytest.mark.parametrize("model", sorted(JUDGED))
def test_every_published_config_is_laid_out_as_the_engine_does(model: str) -> None:
    config = JUDGED[model].get("config") or CONFIGS[model]
    found = facts_of(config)
    assert isinstance(found, ModelFacts), found
    assert as_recorded(JUDGED[model]["layers"]) == in_engine_words(found.kv_groups)


@pytest.mark.parametrize("model", sorted(JUDGED))
def test_no_change_of_a_field_is_passed_over_that_changes_the_engines_layout(model: str) -> None:
    judged = JUDGED[model]
    wrong = []
    for change in judged["changes"]:
        if change["engine"] == "refused":
            continue  # there is no layout to compare with
        config = json.loads(json.dumps(judged.get("config") or CONFIGS[model]))
        part = config[judged["part"]] if judged["part"] else config
        if change.get("removed"):
            part.pop(change["field"], None)
        else:
            part[change["field"]] = change["value"]
        found = facts_of(config)
        if isinstance(found, UnknownLayout):
            continue  # refused by name is never wrong
        layers = judged["layers"] if change["engine"] == "same" else change["engine"]
        if as_recorded(layers) != in_engine_words(found.kv_groups):
            wrong.append(change)
    assert [] == wrong


@pytest.mark.parametrize("model", sorted(JUDGED))
def test_numbers_that_the_engine_follows_are_followed_and_not_refused(model: str) -> None:
    """Changing a size that a file carries is no reason to refuse where the engine runs the model.

    But for the number of layers: lists in the same file may not name as many.
    """
    judged = JUDGED[model]
    config = judged.get("config") or CONFIGS[model]
    base = config[judged["part"]] if judged["part"] else config
    refused = []
    for change in judged["changes"]:
        field, value = change["field"], change.get("value")
        is_a_size = type(value) is int and type(base.get(field)) is int
        if field == "num_hidden_layers" or not is_a_size or not isinstance(change["engine"], list):
            continue
        changed = json.loads(json.dumps(config))
        (changed[judged["part"]] if judged["part"] else changed)[field] = value
        if isinstance(found := facts_of(changed), UnknownLayout):
            refused.append((field, value, found.message))
    assert [] == refused


# --- laws -------------------------------------------------------------------------------------------

CACHE_WORDS: Final = (
    *("attention", "attn", "kv", "cache", "window", "sliding", "chunk", "layer", "block", "latent"),
    *("mamba", "ssm", "state", "linear", "recurrent", "compress", "sparse", "index", "shared_kv"),
    *("cross", "memory", "head", "pattern", "lora_rank", "conv", "delta", "mla", "local"),
)
NEW_VALUES: Final = st.one_of(
    st.integers(1, 4096),
    st.just(True),
    st.just("novel"),
    st.just([1, 2]),
    st.just({"kind": "novel"}),
)


@settings(max_examples=150, deadline=None)
@given(
    model=EVERY,
    words=st.tuples(
        st.sampled_from(CACHE_WORDS), st.sampled_from(("kind", "v9", "mode", "ratio_x"))
    ),
    value=NEW_VALUES,
    is_first=st.booleans(),
    is_outside=st.booleans(),
)
def test_a_new_field_that_speaks_of_the_cache_is_refused_by_name(
    model: str, words: tuple[str, str], value: object, is_first: bool, is_outside: bool
) -> None:
    config, part = copy_of(model)
    name = "_".join(words if is_first else reversed(words))
    (config if is_outside else part)[name] = value
    found = facts_of(config)
    assert isinstance(found, UnknownLayout)
    assert name in found.message


@settings(max_examples=60, deadline=None)
@given(
    model=EVERY,
    name=st.sampled_from(("my_note", "team", "licence", "trained_on", "author_email", "colour")),
    value=st.one_of(st.integers(1, 9), st.just("yes"), st.booleans()),
)
def test_a_new_field_about_something_else_is_let_through_and_told(
    model: str, name: str, value: object
) -> None:
    config, part = copy_of(model)
    part[name] = value
    before, after = facts_of(CONFIGS[model]), facts_of(config)
    assert isinstance(before, ModelFacts)
    assert isinstance(after, ModelFacts)
    assert before.kv_groups == after.kv_groups
    assert (value is not False) == any(told.endswith(name) for told in after.unread)


@settings(max_examples=60, deadline=None)
@given(model=EVERY, name=st.sampled_from(("Novel", "Llama9", "Gemma5", "Transformer")))
def test_an_architecture_or_a_type_that_we_do_not_know_is_refused_by_name(
    model: str, name: str
) -> None:
    config, _ = copy_of(model)
    config["architectures"] = [f"{name}ForCausalLM"]
    found = facts_of(config)
    assert isinstance(found, UnknownLayout)
    assert f"{name}ForCausalLM" in found.message
    config, part = copy_of(model)
    part["model_type"] = name
    found = facts_of(config)
    assert isinstance(found, UnknownLayout)
    assert repr(name) in found.message


LISTS: Final = ("layer_types", "layers_block_type", "compress_ratios", "hybrid_override_pattern")


@settings(max_examples=80, deadline=None)
@given(
    model=st.sampled_from(
        [name for name in sorted(CONFIGS) if set(LISTS) & part_of(dict(CONFIGS[name])).keys()]
    ),
    where=st.integers(0, 500),
    novel=st.sampled_from(("novel_attention", "Sliding_Attention", "retention", "full")),
)
def test_a_new_kind_of_layer_is_refused_by_name(model: str, where: int, novel: str) -> None:
    config, part = copy_of(model)
    name = next(each for each in LISTS if each in part)
    listed = part[name]
    at = where % part["num_hidden_layers"]
    strange: object = novel
    if isinstance(listed, str):
        strange = "#"
        part[name] = f"{listed[:at]}#{listed[at + 1 :]}"
    else:
        strange = 16 if name == "compress_ratios" else novel
        listed[at] = strange
    found = facts_of(config)
    assert isinstance(found, UnknownLayout)
    assert str(strange) in found.message
    assert name.split("_")[0] in found.message


SIZES: Final = (
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size"),
    *("sliding_window", "kv_lora_rank", "qk_rope_head_dim", "index_head_dim", "mamba_d_state"),
    *("mamba_n_heads", "linear_num_value_heads", "linear_key_head_dim", "ssm_state_size"),
    *("mamba_expand", "conv_kernel", "attention_chunk_size", "global_head_dim", "mamba_d_conv"),
)


@settings(max_examples=150, deadline=None)
@given(
    model=EVERY,
    field=st.sampled_from(SIZES),
    value=st.sampled_from(("8", 8.5, -1, [8], {"a": 8}, True)),
)
def test_a_size_of_another_type_is_refused_or_does_not_matter(
    model: str, field: str, value: object
) -> None:
    config, part = copy_of(model)
    if field not in part:
        return
    part[field] = value
    found, before = facts_of(config), facts_of(CONFIGS[model])
    if isinstance(found, UnknownLayout):
        assert field in found.message
    else:
        assert isinstance(before, ModelFacts)
        assert before.kv_groups == found.kv_groups


@settings(max_examples=100, deadline=None)
@given(model=EVERY, shift=st.integers(0, 60))
def test_more_layers_than_are_listed_is_refused_or_lays_out_as_many(model: str, shift: int) -> None:
    config, part = copy_of(model)
    if "num_hidden_layers" not in part:
        return
    layers = part["num_hidden_layers"] + shift
    part["num_hidden_layers"] = layers
    found = facts_of(config)
    if isinstance(found, ModelFacts) and found.architecture != "NemotronHForCausalLM":
        assert layers == found.layers
        named = {index for group in found.kv_groups for index in group.at or range(group.layers)}
        assert set(range(layers)) == named


@pytest.mark.parametrize("model", sorted(CONFIGS))
def test_published_files_are_read_with_nothing_left_over(model: str) -> None:
    found = facts_of(CONFIGS[model])
    assert isinstance(found, ModelFacts), found
    assert () == found.unread


@pytest.mark.parametrize("model", sorted(CONFIGS))
def test_reading_does_not_depend_on_the_order_of_fields(model: str) -> None:
    config = CONFIGS[model]
    turned = {name: config[name] for name in reversed(config)}
    assert facts_of(config) == facts_of(turned)
