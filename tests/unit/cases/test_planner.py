"""Public reports of plans that were wrong: the right value, or the right no, of each.

The ids are those of the table of reports; what each asks for stands in the docstring.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kv_rows
import worlds
from plimsoll.api.inventory import inventory
from plimsoll.diagnose.death import classify
from plimsoll.diagnose.death_texts import DeathKind
from plimsoll.engines.base import ByteOwner, EngineName, Release
from plimsoll.engines.llama_cpp.memory import CUDA_CONTEXT_BYTES, POOL_RESERVE_BYTES
from plimsoll.engines.llama_cpp.placement import place
from plimsoll.engines.vllm import kv
from plimsoll.engines.vllm.memory import graphs_are_inside_share
from plimsoll.engines.vllm.specs import SpecKind
from plimsoll.facts.hf_config import model_facts
from plimsoll.facts.model import GgufFacts, KvGroup, KvKind, ModelFacts, UnknownLayout, Weights
from plimsoll.facts.worker import ContainerEnd
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Overrides, Plan, PlanRequest, Reason, Refusal
from plimsoll.units import GB, GIB, KIB, MIB

DATA = Path(__file__).parents[2] / "data"


def fits(request: PlanRequest) -> Plan:
    found = plan(request)
    assert isinstance(found, Plan), found
    return found


def refused(request: PlanRequest) -> Refusal:
    found = plan(request)
    assert isinstance(found, Refusal), found
    return found


def flags(found: Plan) -> dict[str, str | None]:
    return {each.name: each.value for each in found.flags}


def model(config: str, weights_gib: float) -> ModelFacts:
    """A public shape with weights as somebody measured them."""
    return kv_rows.model_of(config).model_copy(
        update={"weights": Weights(total_bytes=int(weights_gib * GIB))}
    )


def asked(card: str, of: ModelFacts, **more: Any) -> PlanRequest:
    return worlds.eight_b_on_a_4090(gpu=worlds.card(card), model=of, **more)


def layout(of: ModelFacts, release: str = "0.20.0", **more: Any) -> kv.PagedLayout:
    usual: dict[str, Any] = {
        "cards": 1,
        "kv_dtype": "auto",
        "max_model_len": 131_072,
        "max_num_batched_tokens": 2048,
        "capability": (9, 0),
    }
    found = kv.layout(of, release=Release.of(release), **usual | more)
    assert isinstance(found, kv.PagedLayout), found
    return found


# ---- what the release changes --------------------------------------------------------------------


@pytest.mark.parametrize("release", ["0.8.5", "0.9.2", "0.11.0", "0.17.1", "0.18.0", "0.33.0"])
def test_q002_graphs_are_outside_the_share_where_the_profile_runs_before_them(
    release: str,
) -> None:
    """At 0.99 the pool is taken first and the capture dies; so they are kept free beside the share."""
    found = fits(worlds.eight_b_on_a_4090(release=release))
    card = worlds.card("rtx-4090")
    assert found.gpu_memory_utilization is not None
    share = found.gpu_memory_utilization * card.usable_bytes
    outside = card.usable_bytes - share - found.line(ByteOwner.CONTEXT)
    if graphs_are_inside_share(Release.of(release)):
        assert not Release.of(release).is_before("0.18")
    else:
        assert outside >= found.line(ByteOwner.GRAPHS) > 0
    at_0_99 = worlds.eight_b_on_a_4090(
        release=release, overrides=Overrides(gpu_memory_utilization=0.99)
    )
    assert Reason.OVERRIDE_CANNOT_WORK is refused(at_0_99).reason


def test_q003_the_same_fraction_gives_another_pool_when_graphs_are_charged_to_it() -> None:
    """0.92 equals 0.9143 of old, because 0.13 GiB of graphs of a 22.8 GiB card are in it."""
    old, new = (
        fits(
            worlds.eight_b_on_a_4090(
                release=release, overrides=Overrides(gpu_memory_utilization=0.92)
            )
        )
        for release in ("0.17.1", "0.21.0")
    )
    less = old.kv.pool_bytes_per_card - new.kv.pool_bytes_per_card
    assert abs(less - new.line(ByteOwner.GRAPHS)) <= 2 * 2 * MIB  # whole blocks of 2 MiB
    assert 0.9143 == round(0.92 - 0.13 / 22.8, 4)


@pytest.mark.parametrize(
    ("release", "is_there"),
    [
        *((f"0.{minor}.0", True) for minor in (15, 16, 17)),
        ("0.17.1", True),
        *((f"0.{minor}.0", False) for minor in range(18, 30)),
    ],
)
def test_q004_swap_space_is_pinned_only_below_0_18(release: str, is_there: bool) -> None:
    """Above it the flag would break the start."""
    found = flags(fits(worlds.eight_b_on_a_4090(release=release)))
    assert is_there is ("--swap-space" in found)
    assert found.get("--swap-space", "0") == "0"


def test_q007_what_a_release_prints_of_windows_is_no_capacity_and_the_plan_says_which() -> None:
    """Gemma 4 31B, 50 GB of KV: about 55k tokens by blocks over groups, about 525k by whole sequences."""
    gemma = worlds.model("google/gemma-4-31B-it")
    paged = layout(gemma, max_model_len=262_144, capability=(8, 0))
    blocks = 50 * GB // paged.block_bytes
    printed = blocks // sum(kind.groups for kind in paged.kinds) * paged.block_tokens
    whole = blocks * 262_144 // kv.blocks_of_sequence(paged, 262_144)
    assert printed == pytest.approx(55_000, rel=0.1)
    assert whole == pytest.approx(525_000, rel=0.05)
    small = gemma.model_copy(update={"weights": Weights(total_bytes=int(19.5 * GIB))})
    for release in ("0.20.0", "0.21.0", "0.33.0"):
        found = fits(asked("a100-80gb-sxm", small, release=release, max_model_len=50_000))
        assert any(f"as vLLM {release} counts" in note for note in found.notes)


# ---- models with states --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        "hf_configs_more/nemotron-nano-9b-v2.json",
        "hf_configs_more/nemotron-3-nano-30b.json",
        "hf_configs_more/nemotron-3-super.json",
    ],
)
@pytest.mark.parametrize("aligned", [False, True])
@given(tokens=st.integers(1, 131_072))
def test_q011_a_hybrids_sequence_takes_attention_and_state_blocks(
    config: str, aligned: bool, tokens: int
) -> None:
    """Attention groups x ceil(length / block) + state groups x state blocks, two of them when aligned."""
    paged = layout(kv_rows.model_of(config), release="0.25.0", has_prefix_caching=aligned)
    attention = sum(k.groups for k in paged.kinds if SpecKind.RECURRENT not in k.kinds)
    states = sum(k.groups for k in paged.kinds if SpecKind.RECURRENT in k.kinds)
    expected = attention * -(-tokens // paged.block_tokens) + states * (2 if aligned else 1)
    assert expected == kv.blocks_of_sequence(paged, tokens)
    assert (1, True) == (attention, states > 1)


@pytest.mark.parametrize("weights_gib", [18.0, 28.5, 54.0])
def test_q012_sequences_are_never_more_than_the_pools_state_blocks(weights_gib: float) -> None:
    """A 27B hybrid on 96 GB: the default of 1024 is refused where the pool has fewer blocks."""
    hybrid = model("hf_configs/qwen3.5-27b.json", weights_gib)
    card = "rtx-pro-6000-blackwell-server"
    found = fits(asked(card, hybrid, release="0.25.0", max_model_len=32_768))
    paged = layout(hybrid, release="0.25.0", capability=(12, 0), max_model_len=32_768)
    blocks = found.kv.pool_bytes_per_card // paged.block_bytes
    assert paged.state_blocks * found.concurrency.max_num_seqs <= blocks
    assert str(found.concurrency.max_num_seqs) == flags(found)["--max-num-seqs"]


@pytest.mark.parametrize("utilization", [0.9, 0.92, 0.95, 0.97])
def test_q012_in_bf16_no_fraction_rescues_1024_sequences(utilization: float) -> None:
    """556 blocks were seen at 0.95; with 54 GiB of weights it is 612."""
    answer = refused(
        asked(
            "rtx-pro-6000-blackwell-server",
            model("hf_configs/qwen3.5-27b.json", 54.0),
            release="0.25.0",
            max_model_len=32_768,
            overrides=Overrides(max_num_seqs=1024, gpu_memory_utilization=utilization),
        )
    )
    assert Reason.OVERRIDE_CANNOT_WORK is answer.reason
    if utilization == 0.95:
        most = int(answer.message.split("At most ")[1].split(" ")[0].replace(",", ""))
        assert most == pytest.approx(556, rel=0.12)


# ---- lengths and steps ---------------------------------------------------------------------------


def test_q014_a_longer_length_never_fits_where_a_shorter_does_not() -> None:
    """Chunked prefill is pinned, so the activation peak does not fall again above 32k."""
    llama = model("hf_configs/llama-3.1-8b.json", 14.96)
    outcomes = []
    for length in (20_000, 29_000, 35_000, 46_000, 60_000, 100_000):
        request = asked("rtx-3090", llama, release="0.8.5", max_model_len=length)
        found = plan(request._replace(overrides=Overrides(gpu_memory_utilization=0.9)))
        outcomes.append(isinstance(found, Plan))
        if isinstance(found, Plan):
            assert "--enable-chunked-prefill" in flags(found)
    assert outcomes == sorted(outcomes, reverse=True)
    assert {True, False} == set(outcomes)


def test_q017_800_000_tokens_on_eight_h200_are_a_sum_and_not_a_recipe() -> None:
    """DeepSeek-V4-Pro on cards of 143,771 MiB: what is promised adds up on each card."""
    pro = worlds.model("deepseek-ai/DeepSeek-V4-Pro")
    request = asked("h200", pro, cards=8, release="0.33.0", max_model_len=800_000)
    found = fits(request)
    assert 143_771 * MIB == found.card_bytes == sum(line.bytes for line in found.ledger)
    assert found.concurrency.worst_case * 800_000 <= found.kv.pool_tokens
    more = found.concurrency.max_num_seqs + 1
    answer = refused(request._replace(concurrency=more))
    assert Reason.KV_BUDGET_EXCEEDED is answer.reason
    assert Reason.WEIGHTS_DO_NOT_FIT is refused(request._replace(cards=4)).reason


def test_q018_the_activation_peak_follows_the_tokens_of_a_step() -> None:
    """No constant serves: 1.7 GiB is too much for one setting and too little for another."""
    qwen = model("hf_configs/qwen2.5-7b.json", 14.2)

    def peak(tokens: int) -> int:
        request = asked("h100-sxm", qwen, overrides=Overrides(max_num_batched_tokens=tokens))
        return fits(request).line(ByteOwner.ACTIVATION)

    small, large = peak(2048), peak(32_768)
    assert small < 1.7 * GIB < large
    assert large > 8 * small


def test_q031_batched_tokens_are_chosen_before_the_pool_and_are_a_few_thousand() -> None:
    """Kimi-Linear AWQ on two 3090 at 0.95: with 64,000 there are 2.30 GiB of KV, with more none."""
    kimi = model("hf_configs_more/kimi-linear.json", 26.0)

    def request(tokens: int | None) -> PlanRequest:
        chosen = Overrides(gpu_memory_utilization=0.95, max_num_batched_tokens=tokens)
        return asked(
            "rtx-3090", kimi, cards=2, release="0.12.0", max_model_len=120_000, overrides=chosen
        )

    by_itself = fits(request(None))
    assert int(flags(by_itself)["--max-num-batched-tokens"] or 0) <= 8192
    eaten = fits(request(64_000)).kv.pool_bytes_per_card
    assert 1.5 * GIB < eaten < 2.6 * GIB < by_itself.kv.pool_bytes_per_card
    assert isinstance(plan(request(120_000)), Refusal)


# ---- dtypes, kinds and cards ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "config", ["hf_configs_more/qwen3-32b.json", "hf_configs_more/qwen3-32b-fp8.json"]
)
@pytest.mark.parametrize(("kv_dtype", "value_bytes"), [("auto", 2), ("fp8", 1)])
def test_q019_the_caches_dtype_is_an_input_of_its_own(
    config: str, kv_dtype: str, value_bytes: int
) -> None:
    """Weights in fp8 make no smaller cache: 64 layers of 8 heads, 128 wide."""
    found = fits(asked("h100-sxm", model(config, 31.0), kv_dtype=kv_dtype))
    assert 64 * 8 * 128 * 2 * value_bytes == found.kv.bytes_per_token_per_card


@pytest.mark.parametrize(
    ("architecture", "says"),
    [
        ("BertModel", "embeds"),
        ("XLMRobertaModel", "embeds"),
        ("Qwen3ForSequenceClassification", "ranks or rewards"),
        ("Qwen2ForRewardModel", "ranks or rewards"),
    ],
)
def test_q023_a_model_that_does_not_generate_is_told_by_its_kind(
    architecture: str, says: str
) -> None:
    """For an embedding model a fraction books 90 % of a card that it does not use."""
    config = json.loads((DATA / "hf_configs_more" / "qwen3-8b.json").read_text(encoding="utf-8"))
    found = model_facts(
        config | {"architectures": [architecture]},
        id="a-model",
        weights=Weights(total_bytes=GIB),
        provenance=kv_rows.BY_HAND,
    )
    assert isinstance(found, UnknownLayout)
    assert [] == [word for word in (architecture, says) if word not in found.message]


def test_q024_of_unequal_cards_the_smallest_decides_and_two_types_are_never_one_group() -> None:
    """Cards of one product with and without ECC: a plan must hold on each."""
    nodes = [
        {
            "metadata": {
                "name": f"node-{mib}",
                "labels": {
                    "nvidia.com/gpu.product": "NVIDIA-RTX-A6000",
                    "nvidia.com/gpu.memory": str(mib),
                },
            },
            "status": {"allocatable": {"nvidia.com/gpu": "2"}},
        }
        for mib in (49140, 46068)
    ]
    (gpu,) = inventory(nodes, [], {}).types()
    assert 46068 * MIB == gpu.total_bytes
    found = fits(worlds.seventy_b_on_four_a6000(gpu=gpu))
    assert gpu.total_bytes == found.card_bytes == sum(line.bytes for line in found.ledger)
    both = {"cards": [{"uuid": "a", "product": "NVIDIA-GeForce-RTX-4090", "totalBytes": 24 * GIB}]}
    both["cards"].append(
        {"uuid": "b", "product": "NVIDIA-GeForce-RTX-4080", "totalBytes": 16 * GIB}
    )
    mixed = inventory(nodes[:1], [{"metadata": {"name": "node-49140"}, "status": both}], {})
    assert () == mixed.nodes


# ---- llama.cpp -----------------------------------------------------------------------------------


def layers(quantization: str, card: str, cards: int, **more: Any) -> PlanRequest:
    """Llama 3.3 70B by layers on some cards."""
    return PlanRequest(
        engine=EngineName.LLAMA_CPP,
        release="b11669",
        gpu=worlds.card(card),
        cards=cards,
        gguf=worlds.gguf(worlds.SEVENTY_B, quantization),
        **{"max_model_len": 8192, "concurrency": 4} | more,
    )


@pytest.mark.parametrize("quantization", ["Q4_K_M", "Q5_K_S", "Q6_K", "Q8_0"])
@pytest.mark.parametrize("cards", [1, 2, 3, 8])
def test_q020_no_device_is_given_more_than_it_has(quantization: str, cards: int) -> None:
    """27,908 MiB were given to the first of eight 24 GB cards. The ledger is the fullest card's."""
    request = layers(quantization, "rtx-3090", cards)
    found = fits(request)
    assert found.card_bytes == sum(line.bytes for line in found.ledger)
    assert all(line.bytes >= 0 for line in found.ledger)
    file, told = request.gguf, flags(found).get("--tensor-split") or "1"
    assert file is not None
    shares = tuple(int(part) for part in told.split(","))
    assert cards == len(shares)
    placed = place(file, gpu_layers=found.gpu_layers or 0, shares=shares)
    cells = 4 * found.max_model_len * 4 * KIB
    for card in range(cards):
        blocks = placed.blocks_on(card)
        weights = sum(file.block_bytes[at] for at in blocks)
        weights += file.output_bytes if placed.output == card else 0
        assert weights + len(blocks) * cells <= request.gpu.usable_bytes - POOL_RESERVE_BYTES


@pytest.mark.parametrize("cards", [1, 2])
def test_q021_a_stated_reserve_stays_on_each_card(cards: int) -> None:
    """70B Q5_K_S on 4090s: a reserve of 0 ran out of memory. Ours is stated beside the plan."""
    found = fits(layers("Q5_K_S", "rtx-4090", cards))
    assert GIB == POOL_RESERVE_BYTES <= found.line(ByteOwner.HEADROOM)
    assert CUDA_CONTEXT_BYTES == found.line(ByteOwner.CONTEXT)


def gemma_27b() -> GgufFacts:
    """Gemma 3 27B QAT (Q4_0, 15.6 GiB): 62 blocks, every sixth looks at everything, the others at 1,024."""
    blocks = 62
    whole = tuple(at for at in range(blocks) if at % 6 == 5)
    sliding = tuple(at for at in range(blocks) if at % 6 != 5)
    heads: dict[str, Any] = {"kv_heads": 16, "key_dim": 128, "value_dim": 128}
    return GgufFacts(
        id="gemma-3-27b-it-qat",
        architecture="gemma3",
        quantization="Q4_0",
        block_bytes=(int(14.2 * GIB) // blocks,) * blocks,
        output_bytes=int(1.4 * GIB),
        embedding_bytes=int(1.4 * GIB),
        tied_output=True,
        embedding_length=5376,
        feed_forward_length=21504,
        head_count=32,
        vocab_size=262_144,
        context_length=131_072,
        kv_groups=(
            KvGroup(kind=KvKind.FULL, layers=len(whole), at=whole, **heads),
            KvGroup(
                kind=KvKind.SLIDING, layers=len(sliding), at=sliding, window_tokens=1024, **heads
            ),
        ),
        sliding_blocks=sliding,
        provenance=kv_rows.BY_HAND,
    )


@pytest.mark.parametrize("length", [85_000, 128_000])
def test_q022_layers_with_a_window_are_bounded_by_it(length: int) -> None:
    """139 GB was the estimate at 128,000; 85,000 take about 32 GB."""
    request = PlanRequest(
        engine=EngineName.LLAMA_CPP,
        release="b11669",
        gpu=worlds.card("h100-sxm"),
        cards=1,
        gguf=gemma_27b(),
        max_model_len=length,
        concurrency=1,
        kv_dtype="q8_0",
    )
    found = fits(request)
    owners = (ByteOwner.WEIGHTS, ByteOwner.KV_CACHE, ByteOwner.ACTIVATION, ByteOwner.CONTEXT)
    taken = sum(found.line(owner) for owner in owners)
    every_layer_whole = 62 * 16 * 128 * 2 * length * 34 // 32
    assert found.line(ByteOwner.KV_CACHE) < every_layer_whole / 4
    assert 16 * GB < taken < 36 * GB


def test_q027_the_cap_is_found_by_ones_and_the_first_that_fails_is_told() -> None:
    """51 layers of a mixture failed in cudaMalloc, 50 ran."""
    found = fits(layers("Q6_K", "rtx-4090", 2))
    assert found.gpu_layers is not None
    assert f"{found.gpu_layers + 1} would need" in found.explanation
    at_cap = layers("Q6_K", "rtx-4090", 2, overrides=Overrides(gpu_layers=found.gpu_layers))
    assert found.gpu_layers == fits(at_cap).gpu_layers
    above = layers("Q6_K", "rtx-4090", 2, overrides=Overrides(gpu_layers=found.gpu_layers + 1))
    assert Reason.LAYERS_DO_NOT_FIT is refused(above).reason


# ---- texts and the two seeds ---------------------------------------------------------------------

NEEDED = (
    "ValueError: To serve at least one request with the models's max seq len (1048576), (24.00 GiB KV "
    "cache is needed, which is larger than the available KV cache memory (9.97 GiB). "
)
TRY = (
    "Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the "
    "engine."
)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (NEEDED + TRY, (1_048_576, 24 * GIB, None)),
        (NEEDED.replace("models's", "model's") + TRY, (1_048_576, 24 * GIB, None)),
        (
            NEEDED
            + "Based on the available memory, the estimated maximum model length is 435520. "
            + TRY,
            (1_048_576, 24 * GIB, 435_520),
        ),
        (
            "ValueError: The model's max seq len (29000) is larger than the maximum number of tokens that "
            f"can be stored in KV cache (23648). {TRY}",
            (29_000, None, 23_648),
        ),
    ],
    ids=["misspelt", "spelt", "with an estimate", "older"],
)
def test_q028_both_shapes_of_the_engines_refusal_are_read(
    text: str, numbers: tuple[int, int | None, int | None]
) -> None:
    death = classify(ContainerEnd(exit_code=1, message=text, engine="vllm"))
    assert DeathKind.LENGTH_TOO_LONG is death.kind
    assert numbers == (
        death.numbers["maxModelLen"],
        death.numbers.get("neededBytes"),
        death.numbers.get("estimatedMaxModelLen"),
    )


def test_q030_the_70b_takes_320_kib_a_token_and_10_7_gb_at_32k() -> None:
    """On four cards each holds a quarter: two long sequences and no third beside the weights, where 24 GB
    cards are what there is."""
    found = fits(worlds.seventy_b_on_four_a6000(max_model_len=32_768))
    assert 327_680 == 320 * KIB == found.kv.bytes_per_token_per_replica
    assert 10.7 == round(327_680 * 32_768 / GB, 1)
    assert 4 * found.kv.bytes_per_token_per_card == found.kv.bytes_per_token_per_replica


def test_q030_twenty_whole_sequences_of_the_8b_are_20_gib_and_refused_with_both_ways_out() -> None:
    """15 GB of weights on 24 GB: a shorter length and a cap on what is let in."""
    request = worlds.eight_b_on_a_4090(concurrency=20)
    answer = refused(request)
    assert 20 * GIB == 131_072 * 8192 * 20
    assert "20.0 GiB" in answer.message
    offers = {offer.change: int(offer.value) for offer in answer.offers}
    assert 4 <= offers["limits.concurrency"] < 20
    assert 0 < offers["limits.maxModelLen"] <= 4096
    capped = fits(request._replace(concurrency=offers["limits.concurrency"]))
    assert 131_072 == capped.kv.bytes_per_token_per_replica
    shorter = fits(request._replace(concurrency=10, max_model_len=4096))
    assert 4096 == shorter.max_model_len
