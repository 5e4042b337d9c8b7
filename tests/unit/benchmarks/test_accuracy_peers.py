"""Do the comparisons say what their authors published, and nothing where those say nothing?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from benchmarks.accuracy.peers import PEERS, aiconfigurator, gguf_parser, gpustack
from benchmarks.accuracy.peers.kaito_formula import PEER as KAITO
from benchmarks.accuracy.peers.llm_d_planner_formula import PEER as LLM_D
from benchmarks.accuracy.peers.peer import Quantity, Question, Silent, is_over_promise
from benchmarks.accuracy.peers.probe import asked_of_probe
from benchmarks.accuracy.peers.recorded import key_of, read

GIB: Final = 1 << 30
LLAMA_70B: Final[dict[str, Any]] = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V3: Final[dict[str, Any]] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "torch_dtype": "bfloat16",
}
ON_FOUR_A6000: Final = Question(
    Quantity.POOL,
    architecture="LlamaForCausalLM",
    config=LLAMA_70B,
    card="NVIDIA RTX A6000",
    tp=4,
    max_model_len=32768,
    card_bytes=48 * GIB,
    utilization=0.84,
    weights_bytes_per_card=131.42 * 1.02 * GIB / 4,
)


def figure(says: float | Silent) -> float:
    assert not isinstance(says, Silent), says.reason
    return says


def test_kaito_leaves_2_8_gib_beside_a_70b_on_four_48_gib_cards() -> None:
    assert round(figure(KAITO.says(ON_FOUR_A6000)) / GIB, 1) == 2.8


def test_kaito_reserves_less_on_an_a10() -> None:
    on_a10 = replace(ON_FOUR_A6000, card="NVIDIA A10")
    more = figure(KAITO.says(on_a10)) - figure(KAITO.says(ON_FOUR_A6000))
    assert round(more / GIB, 6) == 0.8


def test_a_card_whose_name_begins_with_a10_is_no_a10() -> None:
    on_a100 = replace(ON_FOUR_A6000, card="NVIDIA A100-SXM4-80GB")
    assert KAITO.says(on_a100) == KAITO.says(ON_FOUR_A6000)


@pytest.mark.parametrize("peer", [KAITO, LLM_D], ids=lambda peer: peer.name)
def test_a_token_of_a_70b_takes_320_kib_over_four_cards(peer: Any) -> None:
    asked = replace(ON_FOUR_A6000, quantity=Quantity.REQUEST, max_model_len=1)
    assert figure(peer.says(asked)) == 320 * 1024 / 4


def test_a_latent_is_shared_out_by_the_llm_d_planner_and_not_by_kaito() -> None:
    asked = Question(Quantity.REQUEST, config=DEEPSEEK_V3, tp=8, max_model_len=1)
    whole = 61 * (512 + 64) * 2
    assert (whole / 8, float(whole)) == (LLM_D.says(asked), KAITO.says(asked))


def test_the_llm_d_planner_counts_one_activation_peak_for_all_cards() -> None:
    left = 48 * 0.84 - 131.42 * 1.02 / 4 - 2.10 - 1.89 / 4
    assert round(figure(LLM_D.says(ON_FOUR_A6000)) / GIB, 6) == round(left, 6)


@pytest.mark.parametrize("peer", [KAITO, LLM_D], ids=lambda peer: peer.name)
def test_a_formula_without_a_kv_type_is_silent_on_fp8_kv(peer: Any) -> None:
    asked = replace(ON_FOUR_A6000, quantity=Quantity.REQUEST, kv_dtype="fp8")
    assert isinstance(peer.says(asked), Silent)


def test_concurrency_is_the_memory_over_one_request() -> None:
    asked = replace(ON_FOUR_A6000, quantity=Quantity.CONCURRENCY, kv_memory_bytes=10 * GIB)
    assert figure(KAITO.says(asked)) == 10 * GIB / (32768 * 320 * 1024 / 4)


def test_a_start_needs_room_for_one_full_request() -> None:
    asked = replace(ON_FOUR_A6000, quantity=Quantity.STARTS)
    starts = [KAITO.says(replace(asked, max_model_len=length)) for length in (32768, 131072)]
    assert [1.0, 0.0] == starts


def test_gpustack_has_no_kv_term() -> None:
    assert isinstance(gpustack.PEER.says(ON_FOUR_A6000), Silent)


PROBE: Final[dict[str, Any]] = {
    "model": "tiny.gguf",
    "devices_mib": [24576, 24576],
    "bytes": {
        "DEV0": {"model": 100, "context": 10, "compute": 3},
        "DEV1": {"model": 200, "context": 20, "compute": 4},
        "HOST_PINNED": {"model": 900, "context": 0, "compute": 2},
        "CPU": {"model": 0, "context": 50, "compute": 0},
    },
    gguf_parser.FIELD: [
        {"weight": 901, "kv": 50, "compute": 7},
        {"weight": 99, "kv": 10, "compute": 8},
        {"weight": 198, "kv": 20, "compute": 9},
    ],
}


@pytest.mark.parametrize(
    ("quantity", "reported", "says"),
    [
        (Quantity.GGUF_WEIGHTS, 200, 198.0),
        (Quantity.GGUF_WEIGHTS, 300, 297.0),
        (Quantity.GGUF_WEIGHTS, 900, 901.0),
        (Quantity.GGUF_KV, 80, 80.0),
        (Quantity.GGUF_COMPUTE, 3, 8.0),
        (Quantity.GGUF_TOTAL, 337, 344.0),
    ],
)
def test_gguf_parser_is_asked_for_the_devices_of_the_reported_figure(
    quantity: Quantity, reported: float, says: float
) -> None:
    asked = asked_of_probe(quantity, PROBE, reported)
    assert asked is not None
    assert gguf_parser.PEER.says(asked) == says


def test_a_figure_of_no_devices_is_not_compared() -> None:
    assert asked_of_probe(Quantity.GGUF_WEIGHTS, PROBE, 123.0) is None


@pytest.mark.parametrize(
    ("card", "system"),
    [
        ("NVIDIA H100 80GB HBM3", "h100_sxm"),
        ("H100 PCIe", "h100_pcie"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA L40S", "l40s"),
        ("A100 40GB", "a100_sxm"),
    ],
)
def test_aiconfigurator_is_asked_for_the_card_of_that_name(card: str, system: str) -> None:
    asked = aiconfigurator.asked_pool(replace(ON_FOUR_A6000, card=card))
    assert isinstance(asked, dict)
    assert asked["system"] == system


@pytest.mark.parametrize("card", ["RTX 4090", "NVIDIA A10", "Tesla V100", ""])
def test_aiconfigurator_is_silent_on_cards_it_lacks(card: str) -> None:
    says = aiconfigurator.PEER.says(replace(ON_FOUR_A6000, card=card))
    assert isinstance(says, Silent)
    assert "no card" in says.reason


def test_what_was_not_asked_is_not_guessed() -> None:
    config = {**LLAMA_70B, "num_hidden_layers": 81}
    says = aiconfigurator.PEER.says(
        replace(ON_FOUR_A6000, quantity=Quantity.REQUEST, config=config)
    )
    assert isinstance(says, Silent)
    assert "not recorded" in says.reason


def test_another_config_is_another_question() -> None:
    asked = {"kind": "request", "config": LLAMA_70B}
    assert key_of(asked) != key_of({**asked, "config": {**LLAMA_70B, "hidden_size": 4096}})


@pytest.mark.parametrize("module", [aiconfigurator, gpustack], ids=lambda module: module.NAME)
def test_a_record_is_of_the_version_that_the_report_names(module: Any) -> None:
    record = read(module.NAME)
    assert record["version"].rpartition("==")[2] == module.VERSION
    assert {"about", "version", "command", "date", "answers"} == set(record)


def test_every_peer_says_how_it_was_asked() -> None:
    assert all(peer.version in peer.how for peer in PEERS)


@pytest.mark.parametrize(
    ("quantity", "planned", "is_over"),
    [
        (Quantity.POOL, 101.0, False),
        (Quantity.POOL, 101.1, True),
        (Quantity.POOL, 50.0, False),
        (Quantity.CONCURRENCY, 100.6, True),
        (Quantity.REQUEST, 99.4, True),
        (Quantity.REQUEST, 200.0, False),
        (Quantity.GGUF_TOTAL, 99.99, True),
        (Quantity.GGUF_TOTAL, 100.0, False),
    ],
)
def test_an_over_promise_is_too_much_room_or_too_little_need(
    quantity: Quantity, planned: float, is_over: bool
) -> None:
    assert is_over_promise(quantity, planned, 100.0) == is_over


def test_a_start_where_the_engine_refused_is_an_over_promise() -> None:
    assert is_over_promise(Quantity.STARTS, 1.0, 0.0)
    assert not is_over_promise(Quantity.STARTS, 0.0, 1.0)
