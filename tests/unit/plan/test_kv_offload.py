"""Do the three parties of KV offloading agree, and is it said by name where they do not?"""

from __future__ import annotations

import json
from typing import Any

import pytest

import kv_rows
import worlds
from plimsoll.engines.base import EngineName, Release
from plimsoll.engines.vllm import memory
from plimsoll.engines.vllm.kv import LayerGroup, PagedLayout
from plimsoll.engines.vllm.pool import PoolGroup
from plimsoll.engines.vllm.specs import Demand, SpecKind
from plimsoll.facts.gpu import GpuVendor
from plimsoll.facts.model import ModelFacts, Weights
from plimsoll.plan.kv_offload import Agreement, agree
from plimsoll.plan.planner import plan
from plimsoll.plan.records import KvOffloadAsk, Plan, PlanRequest, Reason, Refusal
from plimsoll.units import GIB

LLAMA = "hf_configs/llama-3.1-8b.json"
GEMMA_3 = "hf_configs/gemma-3-27b.json"
GEMMA_4 = "hf_configs/gemma-4-31b-nvfp4.json"
QWEN3_NEXT = "hf_configs/qwen3-next-80b-a3b.json"
REFUSED = [
    row
    for row in json.loads((kv_rows.DATA / "vllm_kv_offload.json").read_text(encoding="utf-8"))[
        "rows"
    ]
    if "refused" in row
]


def model(config: str) -> ModelFacts:
    """The model of a config, with some weights."""
    return kv_rows.model_of(config).model_copy(update={"weights": Weights(total_bytes=20 * GIB)})


def request(config: str = LLAMA, *, release: str = "0.33.0", **changes: Any) -> PlanRequest:
    """64 GiB of host memory for one model over two H100."""
    asked = PlanRequest(
        engine=EngineName.VLLM,
        release=release,
        gpu=worlds.card("NVIDIA-H100-80GB-HBM3"),
        cards=2,
        model=model(config),
        max_model_len=8192,
        kv_offload=KvOffloadAsk(64 * GIB),
    )
    return asked._replace(**changes)


def planned(asked: PlanRequest) -> Plan:
    """Its plan."""
    outcome = plan(asked)
    assert isinstance(outcome, Plan), outcome
    return outcome


def refused(asked: PlanRequest) -> str:
    """Why there is none."""
    outcome = plan(asked)
    assert isinstance(outcome, Refusal), outcome
    assert Reason.KV_OFFLOAD_CANNOT_WORK is outcome.reason
    return outcome.message


def named(found: Plan) -> set[str]:
    """Names of what comes of it."""
    return {
        note.partition("(")[2].partition(")")[0]
        for note in found.notes
        if note.startswith("kvCache.offload (")
    }


def extra(found: Plan) -> dict[str, int]:
    """What the connector is told."""
    args = found.args()
    config = json.loads(args[args.index("--kv-transfer-config") + 1])
    told: dict[str, int] = config["kv_connector_extra_config"]
    return told


def test_without_the_field_nothing_is_said_of_it() -> None:
    found = planned(request(kv_offload=None))
    assert found.kv_offload is None
    assert "--kv-transfer-config" not in found.args()
    assert memory.host_memory_bytes(2) == found.host_memory_bytes


def test_the_pool_on_the_card_stays_as_it_is() -> None:
    with_, without = planned(request()), planned(request(kv_offload=None))
    assert without.ledger == with_.ledger
    assert without.concurrency == with_.concurrency


def test_what_is_kept_is_told_in_tokens() -> None:
    found = planned(request())
    assert found.kv_offload is not None
    assert 64 * GIB // (32 * 2 * 8 * 128 * 2) == found.kv_offload.tokens == 524_288
    assert {"cpu_bytes_to_use": 64 * GIB} == extra(found)
    assert set() == named(found)


@pytest.mark.parametrize("release", ["0.11.2", "0.13.0"])
def test_before_0_14_nobody_can_say_how_much(release: str) -> None:
    message = refused(request(release=release))
    assert "kvCache.offload (EngineStops)" in message
    assert "use 0.14 or newer" in message
    planned(request(release="0.14.0"))


def test_pinned_memory_is_in_the_containers_limit_twice() -> None:
    found = planned(request(release="0.26.0"))
    assert found.kv_offload is not None
    assert 0 == found.kv_offload.shared_memory_bytes
    assert memory.host_memory_bytes(2) + 128 * GIB == found.host_memory_bytes
    assert {"HostMemoryDoubled"} == named(found)


def test_shared_memory_is_left_to_dev_shm() -> None:
    found = planned(request(release="0.27.0"))
    assert found.kv_offload is not None
    assert 64 * GIB == found.kv_offload.shared_memory_bytes
    assert memory.host_memory_bytes(2) == found.host_memory_bytes


# --- chunks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "told"),
    [("0.25.1", {"block_size": 256}), ("0.26.0", {"blocks_per_chunk": 16})],
)
@pytest.mark.parametrize(
    "chunk", [KvOffloadAsk(64 * GIB, chunk_tokens=256), KvOffloadAsk(64 * GIB, blocks_per_chunk=16)]
)
def test_tokens_and_blocks_are_one_chunk_where_groups_are_alike(
    release: str, told: dict[str, int], chunk: KvOffloadAsk
) -> None:
    found = planned(request(release=release, kv_offload=chunk))
    assert {"cpu_bytes_to_use": 64 * GIB} | told == extra(found)


@pytest.mark.parametrize("release", ["0.22.1", "0.25.1"])
@pytest.mark.parametrize(
    "chunk", [KvOffloadAsk(64 * GIB, chunk_tokens=512), KvOffloadAsk(64 * GIB, blocks_per_chunk=8)]
)
def test_up_to_0_25_a_chunk_over_unequal_blocks_stops_the_engine(
    release: str, chunk: KvOffloadAsk
) -> None:
    message = refused(request(GEMMA_4, release=release, kv_offload=chunk))
    assert "(EngineStops)" in message
    assert "and" in message.partition("blocks of ")[2]
    assert "use 0.26 or newer" in message


def test_both_ways_out_of_that_work() -> None:
    one_block = planned(request(GEMMA_4, release="0.25.1"))
    assert {"cpu_bytes_to_use": 64 * GIB} == extra(one_block)
    in_blocks = KvOffloadAsk(64 * GIB, blocks_per_chunk=8)
    newer = planned(request(GEMMA_4, release="0.26.0", kv_offload=in_blocks))
    assert {"cpu_bytes_to_use": 64 * GIB, "blocks_per_chunk": 8} == extra(newer)


def test_in_tokens_it_stops_newer_engines_as_well() -> None:
    asked = KvOffloadAsk(64 * GIB, chunk_tokens=512)
    assert "write blocksPerChunk instead" in refused(request(GEMMA_4, kv_offload=asked))


@pytest.mark.parametrize(("tokens", "way_out"), [(100, "112"), (8, "16"), (17, "32")])
def test_a_chunk_of_part_blocks_is_refused_with_the_next_whole_one(
    tokens: int, way_out: str
) -> None:
    asked = request(kv_offload=KvOffloadAsk(64 * GIB, chunk_tokens=tokens))
    assert refused(asked).endswith(f"write {way_out}.")
    planned(request(kv_offload=KvOffloadAsk(64 * GIB, chunk_tokens=int(way_out))))


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: f"{row['config']}-{row['extra']}")
def test_what_vllm_refuses_we_refuse(row: dict[str, Any]) -> None:
    asked = request(
        row["config"],
        cards=row.get("tp", 1),
        max_model_len=row["max_model_len"],
        prefix_caching=row.get("enable_prefix_caching"),
        kv_offload=KvOffloadAsk(row["host_bytes"], chunk_tokens=row["extra"].get("block_size")),
    )
    assert "(EngineStops)" in refused(asked)


# --- models -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["0.15.0", "0.20.2"])
def test_recurrent_layers_do_not_start_without_the_hybrid_manager(release: str) -> None:
    assert "use 0.21 or newer" in refused(request(QWEN3_NEXT, release=release))


@pytest.mark.parametrize(("release", "is_asked"), [("0.21.0", True), ("0.33.0", False)])
def test_states_are_kept_at_the_ends_of_blocks(release: str, is_asked: bool) -> None:
    found = planned(request(QWEN3_NEXT, release=release))
    assert is_asked == ("--mamba-cache-mode" in found.args())
    assert "--enable-prefix-caching" in found.args()
    assert "CapacityDivided" in named(found)


@pytest.mark.parametrize("release", ["0.15.0", "0.22.1", "0.26.0", "0.33.0"])
def test_states_are_counted_with_the_prefix_cache_that_the_flags_turn_on(release: str) -> None:
    silent, on, off = (
        planned(request(QWEN3_NEXT, release=release, kv_offload=None, prefix_caching=said))
        for said in (None, True, False)
    )
    assert "--enable-prefix-caching" in silent.args()
    assert on.concurrency == silent.concurrency
    assert off.concurrency.worst_case > silent.concurrency.worst_case


def test_states_and_no_prefix_caching_stop_the_engine() -> None:
    message = refused(request(QWEN3_NEXT, prefix_caching=False))
    assert "turn kvCache.prefixCaching on" in message


def test_up_to_0_20_windows_are_planned_as_full_attention() -> None:
    older, newer = (
        planned(request(GEMMA_3, release=text, max_model_len=65_536))
        for text in ("0.20.2", "0.21.0")
    )
    assert {"HostMemoryDoubled", "WindowsKeptWhole"} == named(older)
    assert {"HostMemoryDoubled", "CapacityDivided"} == named(newer)
    assert "--disable-hybrid-kv-cache-manager" in older.args()
    assert "--disable-hybrid-kv-cache-manager" not in newer.args()
    assert older.kv.pool_tokens < newer.kv.pool_tokens


def test_what_needs_the_hybrid_manager_is_laid_to_offloading() -> None:
    v4 = request("hf_configs/deepseek-v4-flash.json", release="0.20.2", cards=4)
    assert "windows of latents need the hybrid KV cache manager; use 0.21" in refused(v4)
    without = plan(v4._replace(kv_offload=None))
    assert "kvCache.offload" not in str(without)


def test_in_0_21_blocks_shorter_than_a_hash_stop_the_engine() -> None:
    v4 = request("hf_configs/deepseek-v4-flash.json", release="0.21.0", cards=4)
    assert "blocks of 4, 8 and 64 tokens" in refused(v4)
    planned(v4._replace(release="0.22.0"))


def test_up_to_0_19_pages_of_two_sizes_are_refused() -> None:
    asked = request("hf_configs/deepseek-v3.2.json", release="0.19.1", cards=8)
    assert "to be of one size" in refused(asked)
    planned(asked._replace(release="0.21.0"))


def test_memory_that_the_card_shares_is_no_second_one() -> None:
    card = worlds.card("NVIDIA-H100-80GB-HBM3").model_copy(update={"unified_memory": True})
    assert "(KeepsNothing)" in refused(request(gpu=card))


def test_intels_cards_offload_from_0_23() -> None:
    card = worlds.card("NVIDIA-H100-80GB-HBM3").model_copy(update={"vendor": GpuVendor.INTEL})
    assert "use 0.23 or newer" in refused(request(release="0.22.1", gpu=card))


def test_less_than_a_chunk_keeps_nothing() -> None:
    least = 2 * 2**20
    assert "not one chunk" in refused(request(kv_offload=KvOffloadAsk(least - 1)))
    found = planned(request(kv_offload=KvOffloadAsk(least)))
    assert found.kv_offload is not None
    assert 16 >= found.kv_offload.tokens > 0
    assert {"ShorterThanOneSequence"} == named(found)


def test_a_release_between_two_rows_has_the_older_ones_habits() -> None:
    found = planned(request(release="0.26.5"))
    assert {"HostMemoryDoubled"} == named(found)
    assert any("0.26.5 is not in our table" in note for note in found.notes)


def test_a_release_after_the_last_has_the_newest_ones_habits() -> None:
    found = planned(request(release="0.40.0"))
    assert set() == named(found)
    assert found.kv_offload is not None
    assert found.kv_offload.shared_memory_bytes


# --- rings ------------------------------------------------------------------------------------------


def _with_a_ring(block_tokens: int) -> PagedLayout:
    def group(kind: SpecKind, tokens: int, demand: Demand) -> LayerGroup:
        draws = PoolGroup((kind,), layers=0, block_tokens=tokens, page_bytes=0, demands=(demand,))
        return LayerGroup(kinds=(kind,), groups=1, draws=draws)

    return PagedLayout(
        block_bytes=4096,
        kinds=(
            group(SpecKind.FULL, 64, Demand(64)),
            group(SpecKind.FULL, 128, Demand(128)),
            group(SpecKind.RING, block_tokens, Demand(block_tokens, fixed_blocks=1)),
        ),
        bytes_per_token_per_card=64,
        block_tokens=64,
    )


@pytest.mark.parametrize(
    ("release", "stops"), [("0.28.0", False), ("0.29.0", True), ("0.30.0", True), ("0.31.0", False)]
)
def test_a_ring_shorter_than_a_hash_stops_two_releases(release: str, stops: bool) -> None:
    found = agree(request(), _with_a_ring(4), release=Release.of(release), length=8192)
    assert stops == isinstance(found, Refusal)
    if isinstance(found, Refusal):
        assert "blocks of 4 tokens" in found.message
        assert "use 0.31 or newer" in found.message


@pytest.mark.parametrize(("release", "groups"), [("0.30.0", 3), ("0.31.0", 2)])
def test_rings_are_left_out_from_0_31(release: str, groups: int) -> None:
    found = agree(request(), _with_a_ring(64), release=Release.of(release), length=8192)
    assert isinstance(found, Agreement)
    assert groups == len(found.schedule.group_block_tokens)
