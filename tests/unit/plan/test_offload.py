"""Layers on the card, slots and the ledger, held against llama.cpp's own fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_models import facts
from plimsoll.catalog.models import find_gguf
from plimsoll.engines.base import ByteOwner, EngineName
from plimsoll.engines.llama_cpp.blocks import PADDING_BYTES
from plimsoll.engines.llama_cpp.caches import slot_state_bytes
from plimsoll.engines.llama_cpp.memory import (
    CUDA_CONTEXT_BYTES,
    POOL_RESERVE_BYTES,
    held_bytes,
)
from plimsoll.engines.llama_cpp.placement import place
from plimsoll.facts.gpu import GpuFacts
from plimsoll.facts.model import GgufFacts
from plimsoll.facts.source import Confidence, FactSource, Provenance
from plimsoll.plan.offload import plan_llama_cpp
from plimsoll.plan.offload_ask import Offload, OffloadAsk, prepare
from plimsoll.plan.records import (
    Guarantee,
    Lane,
    Overrides,
    Plan,
    PlanRequest,
    Reason,
    Refusal,
    TokenQuantiles,
)
from plimsoll.units import GIB, KIB, MIB

ORACLE = json.loads((Path(__file__).parents[2] / "data" / "llamacpp_offload.json").read_text())
LLAMA_70B = "meta-llama/Llama-3.3-70B-Instruct"
LLAMA_8B = "meta-llama/Meta-Llama-3-8B-Instruct"


def gguf(quantization: str, model: str = LLAMA_70B) -> GgufFacts:
    found = find_gguf(model, quantization)
    assert found is not None
    return found


def card(total_mib: int, reserved_mib: int = 0, **others: Any) -> GpuFacts:
    return GpuFacts(
        product="NVIDIA-RTX-A6000",
        total_bytes=total_mib * MIB,
        reserved_bytes=reserved_mib * MIB,
        provenance=Provenance(source=FactSource.CATALOGUE, confidence=Confidence.TABLE),
        **others,
    )


A6000 = card(49140, 464)
RTX4090 = card(24564, 484)


def room(mib: int) -> GpuFacts:
    """A card on which weights, KV and compute have exactly so many MiB."""
    return card(mib + (CUDA_CONTEXT_BYTES + POOL_RESERVE_BYTES) // MIB)


def asked_of(file: GgufFacts, gpu: GpuFacts, **more: Any) -> PlanRequest:
    return asked("Q4_K_M", gpu, **more)._replace(gguf=file)


def asked(quantization: str, gpu: GpuFacts, **more: Any) -> PlanRequest:
    return PlanRequest(
        engine=EngineName.LLAMA_CPP,
        release=more.pop("release", "b11669"),
        gpu=gpu,
        cards=more.pop("cards", 1),
        gguf=gguf(quantization, more.pop("model", LLAMA_70B)),
        **more,
    )


def fits(request: PlanRequest) -> Plan:
    outcome = plan_llama_cpp(request)
    assert isinstance(outcome, Plan), outcome
    return outcome


def refused(request: PlanRequest) -> Refusal:
    outcome = plan_llama_cpp(request)
    assert isinstance(outcome, Refusal), outcome
    return outcome


def layers(request: PlanRequest) -> int:
    outcome = plan_llama_cpp(request)
    return 0 if isinstance(outcome, Refusal) else outcome.gpu_layers or 0


# -- against the oracle ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row", ORACLE["rows"], ids=lambda r: f"{r['quant']}-{r['ctx']}-{r['cacheType']}"
)
def test_the_cap_is_the_largest_that_fits(row: dict[str, Any]) -> None:
    for budget_mib, most in row["maxLayers"].items():
        request = asked(
            row["quant"],
            room(int(budget_mib)),
            max_model_len=row["ctx"] // row["slots"],
            concurrency=row["slots"],
            kv_dtype=row["cacheType"],
        )
        assert most == layers(request)


@pytest.mark.parametrize(
    "row", ORACLE["fits"], ids=lambda r: f"{r['quant']}-{r['ctx']}-{r['card']}-{r['margin']}"
)
def test_llama_cpps_own_fit_chooses_as_many(row: dict[str, Any]) -> None:
    request = asked(
        row["quant"],
        room(row["card"] - row["margin"]),
        max_model_len=row["ctx"],
        concurrency=1,
        kv_dtype=row["cacheType"],
    )
    assert row["layers"] == layers(request)


@pytest.mark.parametrize(
    "row", ORACLE["rows"], ids=lambda r: f"{r['quant']}-{r['ctx']}-{r['cacheType']}"
)
def test_weights_and_kv_of_the_ledger_are_exact(row: dict[str, Any]) -> None:
    for count, weights in row["weights"].items():
        plan = fits(
            asked(
                row["quant"],
                room(200_000),
                max_model_len=row["ctx"] // row["slots"],
                concurrency=row["slots"],
                kv_dtype=row["cacheType"],
                overrides=Overrides(gpu_layers=int(count)),
            )
        )
        assert plan.line(ByteOwner.KV_CACHE) == row["kv"][count]
        assert 0 <= plan.line(ByteOwner.WEIGHTS) - weights <= PADDING_BYTES


# -- the 70B on one 48 GB card ----------------------------------------------------------------------


def test_the_70b_at_q6_k_on_one_a6000_has_a_cap_below_80() -> None:
    """llama.cpp's own fit says 64 on 48,540 MiB with 1 GiB of margin and no CUDA context counted."""
    plan = fits(asked("Q6_K", A6000, max_model_len=16384))
    assert (plan.gpu_layers, plan.layers, plan.concurrency.max_num_seqs) == (63, 81, 1)
    assert "63 of 81 layers stay on the card: 64 would need 312 MiB more" in plan.explanation
    assert plan.kv.bytes_per_token_per_replica == 320 * KIB


def test_80_of_the_70b_at_q6_k_is_refused_with_the_cap() -> None:
    refusal = refused(asked("Q6_K", A6000, max_model_len=16384, overrides=Overrides(gpu_layers=80)))
    assert refusal.reason is Reason.LAYERS_DO_NOT_FIT
    assert "11.8 GiB more than the 46.0 GiB" in refusal.message
    assert "at most 63 fit" in refusal.message
    assert ("pools[].gpuLayers", "63") == (refusal.offers[0].change, refusal.offers[0].value)
    assert ["2"] == [offer.value for offer in refusal.offers if offer.change == "gpu.perWorker"]


@pytest.mark.parametrize("reserve_mib", [583, 1024])
def test_80_at_q5_k_m_loads_and_dies_so_it_is_refused(reserve_mib: int) -> None:
    """47,958 of 48,540 MiB: it loads, and the first 4k prompt has 582 MiB for all that grows."""
    request = asked(
        "Q5_K_M",
        room(48540 - reserve_mib),
        max_model_len=4096,
        overrides=Overrides(gpu_layers=80),
    )
    assert refused(request).reason is Reason.LAYERS_DO_NOT_FIT


def test_60_at_q5_k_m_is_accepted_as_asked() -> None:
    plan = fits(asked("Q5_K_M", A6000, max_model_len=4096, overrides=Overrides(gpu_layers=60)))
    assert plan.gpu_layers == 60
    assert ["--n-gpu-layers"] == [flag.name for flag in plan.flags if flag.override]
    assert any("60; 78 of 81 would fit" in note for note in plan.notes)


def test_79_at_q5_k_m_is_accepted_with_a_margin_of_1_gib() -> None:
    request = asked("Q5_K_M", room(48540 - 1024), max_model_len=4096)
    assert fits(request).gpu_layers in (78, 79)


def test_more_layers_than_there_are_mean_all() -> None:
    plan = fits(asked("Q4_K_M", A6000, max_model_len=4096, overrides=Overrides(gpu_layers=999)))
    assert (plan.gpu_layers, plan.layers) == (81, 81)
    assert any("999 means all" in note for note in plan.notes)


# -- slots --------------------------------------------------------------------------------------------


def test_without_a_number_as_many_slots_as_fit_with_every_layer() -> None:
    plan = fits(asked("Q4_K_M", RTX4090, model=LLAMA_8B, max_model_len=8192))
    assert plan.gpu_layers == 33
    assert plan.concurrency.max_num_seqs == 8
    assert "more slots were not asked for" in plan.explanation


def test_slots_end_where_the_card_does() -> None:
    plan = fits(asked("Q8_0", card(16376, 400), model=LLAMA_8B, max_model_len=8192))
    assert (plan.gpu_layers, plan.concurrency.max_num_seqs) == (33, 6)
    assert "one slot more would need" in plan.explanation


def test_an_asked_number_of_slots_each_has_its_whole_length() -> None:
    plan = fits(asked("Q4_K_M", RTX4090, model=LLAMA_8B, max_model_len=8192, concurrency=20))
    assert plan.concurrency.max_num_seqs == plan.concurrency.worst_case == 20
    assert "--ctx-size 163840 --parallel 20" in " ".join(plan.args())
    assert (plan.gpu_layers or 0) < 33
    assert any("all 33 layers would fit with 20 slots of" in note for note in plan.notes)


def test_slots_own_their_cells_so_expected_is_not_a_number() -> None:
    plan = fits(
        asked("Q4_K_M", A6000, max_model_len=4096, guarantee=Guarantee.EXPECTED, concurrency=2)
    )
    assert plan.concurrency.expected is None
    assert plan.concurrency.worst_case == 2
    assert any("owns its cells" in note for note in plan.notes)


def test_the_length_follows_the_traffic() -> None:
    lane = Lane(
        name="all",
        prompt_tokens=TokenQuantiles(p50=1800, p99=11000),
        output_tokens=TokenQuantiles(p50=350, p99=1500),
    )
    plan = fits(asked("Q6_K", A6000, lanes=(lane,)))
    assert (plan.max_model_len, plan.gpu_layers) == (16384, 63)


def test_without_traffic_and_length_8192_is_planned_and_said() -> None:
    plan = fits(asked("Q6_K", A6000))
    assert plan.max_model_len == 8192
    assert any("8,192 tokens" in note for note in plan.notes)


# -- several cards, old builds, cache types -----------------------------------------------------------


def test_two_cards_share_the_layers_and_the_fullest_is_in_the_ledger() -> None:
    plan = fits(asked("Q4_K_M", RTX4090, cards=2, max_model_len=8192))
    assert plan.gpu_layers == 81
    assert "--split-mode layer --tensor-split 1,1" in " ".join(plan.args())
    assert 39 * 8192 * 4 * KIB <= plan.line(ByteOwner.KV_CACHE) <= 41 * 8192 * 4 * KIB
    assert plan.kv.bytes_per_token_per_card * 2 <= plan.kv.bytes_per_token_per_replica * 1.03


def test_an_unnamed_release_gets_the_newest_row_and_a_note() -> None:
    plan = fits(asked("Q6_K", A6000, release=None, max_model_len=4096))
    assert plan.release == "b11669"
    assert any("b11669" in note for note in plan.notes)


def test_an_old_build_keeps_fewer_layers_or_as_many() -> None:
    old, new = (
        layers(asked("Q6_K", A6000, release=release, max_model_len=16384))
        for release in ("b7410", "b11669")
    )
    assert old <= new


def test_q8_0_keeps_more_layers_and_halves_the_cells() -> None:
    plan = fits(asked("Q6_K", A6000, max_model_len=16384, kv_dtype="q8_0"))
    assert plan.kv.bytes_per_token_per_replica == 170 * KIB
    assert (plan.gpu_layers or 0) > 63
    assert "--cache-type-k q8_0 --cache-type-v q8_0" in " ".join(plan.args())


def test_fp8_is_refused_by_name_and_q8_0_is_offered() -> None:
    refusal = refused(asked("Q6_K", A6000, max_model_len=16384, kv_dtype="fp8_e4m3"))
    assert refusal.reason is Reason.KV_DTYPE_UNSUPPORTED
    assert "fp8_e4m3" in refusal.message
    assert ["q8_0"] == [offer.value for offer in refusal.offers]


def test_windowed_models_get_checkpoints_with_a_bound() -> None:
    plan = fits(asked("Q4_K_M", RTX4090, model="google/gemma-3-270m", max_model_len=16384))
    assert "--ctx-checkpoints 2" in " ".join(plan.args())


def test_cache_ram_is_a_number_and_can_be_set() -> None:
    plan = fits(asked("Q6_K", A6000, max_model_len=16384, overrides=Overrides(cache_ram_bytes=GIB)))
    assert "--cache-ram 1024" in " ".join(plan.args())
    assert (
        plan.host_memory_bytes < fits(asked("Q6_K", A6000, max_model_len=16384)).host_memory_bytes
    )


# -- experts, states, unequal cards --------------------------------------------------------------------


def test_a_mixture_of_experts_leaves_experts_behind_and_no_layer() -> None:
    moe = facts("qwen3moe")
    whole = fits(asked_of(moe, room(4000), max_model_len=4096, concurrency=1))
    assert (13, None) == (whole.gpu_layers, value_of(whole, "--n-cpu-moe"))
    plan = fits(asked_of(moe, room(260), max_model_len=4096, concurrency=1))
    assert (13, "4") == (plan.gpu_layers, value_of(plan, "--n-cpu-moe"))
    assert "the experts of 4 of 12 blocks do not" in plan.explanation
    assert any("computed by the host" in note for note in plan.notes)
    assert plan.host_memory_bytes > whole.host_memory_bytes


def value_of(plan: Plan, name: str) -> str | None:
    return next((flag.value for flag in plan.flags if flag.name == name), None)


@settings(max_examples=40, deadline=None)
@given(mib=st.integers(120, 500), length=st.integers(1, 16384))
def test_no_fewer_experts_would_have_fitted(mib: int, length: int) -> None:
    ask = prepare(asked_of(facts("qwen3moe"), room(mib), max_model_len=length, concurrency=1))
    assert isinstance(ask, OffloadAsk)
    found = ask.best(1)
    if found is not None and found.host_experts and found.gpu_layers == ask.layers:
        assert ask.fits(1, found)
        assert not ask.fits(1, Offload(ask.layers, found.host_experts - 1))


def test_where_not_even_attention_fits_layers_stay_behind_too() -> None:
    moe = facts("qwen3moe")
    plan = fits(asked_of(moe, room(230), max_model_len=65536, concurrency=1))
    assert (plan.gpu_layers or 0) < 13
    assert "12" == value_of(plan, "--n-cpu-moe")


def test_cards_get_as_many_layers_as_they_hold() -> None:
    """The output weighs more than a block: with equal numbers one card would be above its room."""
    file = facts("qwen3")
    ask = prepare(asked_of(file, room(4000), cards=2, max_model_len=16384, concurrency=1))
    assert isinstance(ask, OffloadAsk)
    equal = ask.need(1, ask.whole).total_bytes
    tight = asked_of(file, room(equal // MIB - 4), cards=2, max_model_len=16384, concurrency=1)
    plan = fits(tight)
    assert 13 == plan.gpu_layers
    shares = [int(share) for share in (value_of(plan, "--tensor-split") or "").split(",")]
    assert 13 == sum(shares)
    assert shares[0] != shares[1] + 1


@pytest.mark.parametrize(
    "name", ["mamba2", "qwen3next", "jamba", "lfm2", "falcon-h1", "nemotron_h"]
)
def test_recurrent_models_are_planned_with_their_states(name: str) -> None:
    file = facts(name)
    plan = fits(asked_of(file, room(4000), max_model_len=4096, concurrency=2))
    assert 13 == plan.gpu_layers
    assert plan.line(ByteOwner.KV_CACHE) >= 2 * slot_state_bytes(file)
    assert "1" == value_of(plan, "--ctx-checkpoints")


def test_a_build_before_b7500_is_planned_for_either_order_of_layers() -> None:
    request = asked("Q6_K", A6000, release="b7410", max_model_len=4096)
    ask = prepare(request)
    assert isinstance(ask, OffloadAsk)
    held = {
        order: max(
            held_bytes(
                ask.gguf,
                ask.context(1),
                place(ask.gguf, gpu_layers=60, output_first=order),
            )
        )
        for order in (True, False)
    }
    need = ask.need(1, Offload(60))
    assert max(held.values()) == need.weights_bytes + need.kv_bytes


# -- refusals --------------------------------------------------------------------------------------------


def test_without_facts_of_a_gguf_there_is_no_plan() -> None:
    request = asked("Q6_K", A6000)._replace(gguf=None)
    assert refused(request).reason is Reason.MODEL_UNKNOWN


def test_a_length_beyond_the_model_is_refused() -> None:
    refusal = refused(asked("Q4_K_M", RTX4090, model=LLAMA_8B, max_model_len=16384))
    assert refusal.reason is Reason.LENGTH_BEYOND_MODEL
    assert "8,192" in refusal.message


def test_a_card_without_room_for_one_block_is_refused_for_its_weights() -> None:
    refusal = refused(asked("Q6_K", card(2600), max_model_len=4096))
    assert refusal.reason is Reason.WEIGHTS_DO_NOT_FIT


def test_cells_that_do_not_fit_are_refused_with_what_would() -> None:
    refusal = refused(asked("Q4_K_M", card(6000), max_model_len=131072, concurrency=8))
    assert refusal.reason is Reason.KV_BUDGET_EXCEEDED
    changes = [offer.change for offer in refusal.offers]
    assert ["limits.concurrency", "limits.maxModelLen"] == changes[:2]
    for offer in refusal.offers[:2]:
        field = offer.change.removeprefix("limits.").replace("maxModelLen", "max_model_len")
        update: dict[str, Any] = {field: int(offer.value)}
        again = asked("Q4_K_M", card(6000), max_model_len=131072, concurrency=8)
        assert isinstance(plan_llama_cpp(again._replace(**update)), Plan)


def test_what_others_hold_is_not_ours() -> None:
    shared = card(49140, 464, held_by_others_bytes=10 * GIB)
    plan = fits(asked("Q6_K", shared, max_model_len=16384))
    assert plan.line(ByteOwner.OTHERS) == 10 * GIB
    assert (plan.gpu_layers or 0) < 50


# -- laws ------------------------------------------------------------------------------------------------

QUANTIZATIONS = st.sampled_from(["Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0"])
CARDS = st.integers(min_value=4000, max_value=82_000)
LENGTHS = st.integers(min_value=1, max_value=131_072)


@settings(max_examples=60, deadline=None)
@given(
    quantization=QUANTIZATIONS,
    mib=CARDS,
    length=LENGTHS,
    slots=st.integers(1, 16),
    cards=st.integers(1, 4),
)
def test_the_ledger_sums_to_the_card_and_keeps_the_reserve(
    quantization: str, mib: int, length: int, slots: int, cards: int
) -> None:
    request = asked(
        quantization, card(mib, 100), max_model_len=length, concurrency=slots, cards=cards
    )
    outcome = plan_llama_cpp(request)
    if isinstance(outcome, Plan):
        assert outcome.card_bytes == sum(line.bytes for line in outcome.ledger) == mib * MIB
        assert outcome.line(ByteOwner.HEADROOM) >= POOL_RESERVE_BYTES
        assert [line.owner for line in outcome.ledger] == sorted(
            (line.owner for line in outcome.ledger), key=list(ByteOwner).index
        )


@settings(max_examples=60, deadline=None)
@given(mib=CARDS, length=LENGTHS, more=LENGTHS, slots=st.integers(1, 8))
def test_more_context_never_allows_more_layers(
    mib: int, length: int, more: int, slots: int
) -> None:
    short, long = sorted((length, more))
    few, many = (
        layers(asked("Q6_K", card(mib), max_model_len=tokens, concurrency=slots))
        for tokens in (short, long)
    )
    assert many <= few


@settings(max_examples=60, deadline=None)
@given(mib=CARDS, less=st.integers(0, 20_000), length=LENGTHS)
def test_fewer_bytes_never_hold_more(mib: int, less: int, length: int) -> None:
    large, small = (
        layers(asked("Q5_K_M", card(max(1, total)), max_model_len=length, concurrency=1))
        for total in (mib, mib - less)
    )
    assert small <= large


@settings(max_examples=30, deadline=None)
@given(mib=CARDS, length=LENGTHS, slots=st.integers(1, 8))
def test_one_layer_more_than_the_cap_is_refused(mib: int, length: int, slots: int) -> None:
    request = asked("Q6_K", card(mib), max_model_len=length, concurrency=slots)
    outcome = plan_llama_cpp(request)
    if isinstance(outcome, Plan) and (outcome.gpu_layers or 0) < 81:
        one_more = Overrides(gpu_layers=(outcome.gpu_layers or 0) + 1)
        again = plan_llama_cpp(request._replace(overrides=one_more))
        assert isinstance(again, Refusal)
        assert f"at most {outcome.gpu_layers} fit" in again.message
