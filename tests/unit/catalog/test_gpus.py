"""Does the catalogue know a card by every name, and is each number one that somebody printed?"""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from plimsoll.catalog.gpus import (
    RESERVED_BOUNDS_MIB,
    SLICE_RESERVED_BOUND_MIB,
    GpuType,
    find_gpu,
    find_type,
    fp8_of,
    gpu_types,
    label_form,
    nearest,
    reserved_bytes,
    split_slice,
)
from plimsoll.facts.gpu import Fp8, GpuVendor
from plimsoll.facts.source import Confidence, FactSource
from plimsoll.units import MIB

ALL = gpu_types()
NVIDIA = [each for each in ALL if each.vendor is GpuVendor.NVIDIA]


def by_key(each: GpuType) -> str:
    return each.key


@pytest.mark.parametrize("each", ALL, ids=by_key)
def test_every_column_holds_what_its_name_says(each: GpuType) -> None:
    assert each == TypeAdapter(GpuType).validate_python(each, strict=True)


def test_the_table_holds_the_fleet() -> None:
    assert 57 == len(ALL)
    assert len(ALL) == len({each.key for each in ALL})


@pytest.mark.parametrize("each", ALL, ids=by_key)
def test_every_name_finds_its_own_row(each: GpuType) -> None:
    names = (each.key, each.product, each.nvml_name, *each.aliases)
    assert {each.key} == {
        found.key for name in names if name and (found := find_type(name)) is not None
    }


@pytest.mark.parametrize("each", ALL, ids=by_key)
def test_every_number_says_where_it_was_printed(each: GpuType) -> None:
    assert (each.total_mib is None) or each.total_ref
    assert (each.reserved_mib is None) or each.reserved_ref
    assert (each.compute_capability is None) or each.capability_ref
    assert each.fp8_ref
    assert all(bool(profile.ref) == (profile.memory_mib is not None) for profile in each.mig)


@pytest.mark.parametrize("each", NVIDIA, ids=by_key)
def test_fp8_and_bf16_follow_the_compute_capability(each: GpuType) -> None:
    assert each.compute_capability is not None
    major, minor = (int(part) for part in each.compute_capability.split("."))
    assert fp8_of((major, minor)) is each.fp8
    assert ((major, minor) >= (8, 0)) is each.bf16


@pytest.mark.parametrize("each", ALL, ids=by_key)
def test_a_label_in_use_is_the_total_or_near_it(each: GpuType) -> None:
    if each.total_mib is None or each.total_is_cuda:
        return
    assert each.total_mib in each.label_mib
    assert all(0.9 < label / each.total_mib < 1.1 for label in each.label_mib)


@pytest.mark.parametrize("each", NVIDIA, ids=by_key)
def test_no_reading_of_the_reserve_is_above_the_bound(each: GpuType) -> None:
    if each.total_mib is None or each.reserved_mib is None:
        return
    total_mib = each.total_mib
    bound = next(mib for up_to, mib in RESERVED_BOUNDS_MIB if up_to is None or total_mib <= up_to)
    assert 0 < each.reserved_mib <= bound


@pytest.mark.parametrize("each", NVIDIA, ids=by_key)
def test_a_slice_has_less_than_its_name_says(each: GpuType) -> None:
    for profile in each.mig:
        if profile.memory_mib is not None:
            named_gb = int(profile.profile.split(".")[1].split("gb")[0])
            assert 0.88 < profile.memory_mib / 1024 / named_gb < 1.0


@pytest.mark.parametrize(
    ("name", "product", "total_mib", "reserved_mib", "resource"),
    [
        ("rtx-a6000", "NVIDIA-RTX-A6000", 49140, 464, "nvidia.com/gpu"),
        ("NVIDIA-RTX-A6000", "NVIDIA-RTX-A6000", 49140, 464, "nvidia.com/gpu"),
        ("NVIDIA RTX A6000", "NVIDIA-RTX-A6000", 49140, 464, "nvidia.com/gpu"),
        ("Nvidia-Geforce-RTX-4090", "NVIDIA-GeForce-RTX-4090", 24564, 354, "nvidia.com/gpu"),
        ("h100-sxm", "NVIDIA-H100-80GB-HBM3", 81559, 480, "nvidia.com/gpu"),
        ("L40S", "NVIDIA-L40S", 46068, 609, "nvidia.com/gpu"),
        ("A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB", 40960, 621, "nvidia.com/gpu"),
        ("mi300x", "Instinct_MI300X", 196592, 0, "amd.com/gpu"),
        (
            "h100-sxm/1g.10gb",
            "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
            9984,
            SLICE_RESERVED_BOUND_MIB,
            "nvidia.com/mig-1g.10gb",
        ),
        (
            "nvidia-a100-sxm4-40gb-mig-3g.20gb",
            "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb",
            19968,
            SLICE_RESERVED_BOUND_MIB,
            "nvidia.com/mig-3g.20gb",
        ),
        (
            "a100-40gb-sxm/1g.5gb+me",
            "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me",
            4864,
            SLICE_RESERVED_BOUND_MIB,
            "nvidia.com/mig-1g.5gb.me",
        ),
    ],
)
def test_a_card_is_found_by_any_name(
    name: str, product: str, total_mib: int, reserved_mib: int, resource: str
) -> None:
    found = find_gpu(name)
    assert found is not None
    assert (product, total_mib * MIB, reserved_mib * MIB, resource) == (
        found.product,
        found.total_bytes,
        found.reserved_bytes,
        found.resource,
    )
    assert FactSource.CATALOGUE is found.provenance.source


def test_facts_carry_what_the_engine_decides_by() -> None:
    found = find_gpu("rtx-a6000")
    assert found is not None
    assert ((8, 6), Fp8.WEIGHT_ONLY, True, False) == (
        found.capability,
        found.fp8,
        found.bf16,
        found.unified_memory,
    )


def test_a_card_that_shares_the_hosts_memory_says_so() -> None:
    found = find_gpu("NVIDIA-GB10")
    assert found is not None
    assert found.unified_memory
    assert 122_502 * MIB == found.total_bytes


@pytest.mark.parametrize("name", ["jetson-agx-orin-64gb", "mi325x", "h100-sxm/1g.20gb"])
def test_memory_that_nobody_published_is_unknown_and_not_zero(name: str) -> None:
    assert find_gpu(name) is None
    assert find_type(name) is not None


@pytest.mark.parametrize("name", ["h100", "", "rtx", "NVIDIA-H900", "h100-sxm/9g.99gb", "/"])
def test_a_name_that_is_not_exactly_one_type_finds_nothing(name: str) -> None:
    assert find_gpu(name) is None


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("h100", "h100-sxm"),
        ("RTX4090", "rtx-4090"),
        ("rtx-a600", "rtx-a6000"),
        ("NVIDIA-RTX-A6001", "rtx-a6000"),
        ("a100", "a100-80gb-sxm"),
        ("mi300", "mi300x"),
        ("h100-sxn/1g.10gb", "h100-sxm"),
    ],
)
def test_a_slip_of_the_finger_gets_the_right_suggestion(typed: str, meant: str) -> None:
    assert meant in nearest(typed)
    assert len(nearest(typed)) <= 5


def test_nothing_is_suggested_for_nothing() -> None:
    assert () == nearest("")
    assert () == nearest("zzzzzzzzzz")


def test_a_reading_holds_at_its_own_total_only() -> None:
    assert (464 * MIB, Confidence.TABLE) == reserved_bytes("NVIDIA-RTX-A6000", 49140 * MIB)[:2]
    with_ecc = reserved_bytes("NVIDIA-RTX-A6000", 46068 * MIB)
    assert (640 * MIB, Confidence.BOUND) == with_ecc[:2]


@pytest.mark.parametrize(
    ("total_mib", "bound_mib"), [(8192, 640), (49140, 640), (81920, 800), (183_359, 960)]
)
def test_an_unknown_card_gets_the_bound_of_its_class(total_mib: int, bound_mib: int) -> None:
    found = reserved_bytes("Some-New-Card", total_mib * MIB)
    assert (bound_mib * MIB, Confidence.BOUND) == found[:2]
    assert str(bound_mib) in found[2]


def test_what_the_label_counts_beyond_hip_is_the_drivers() -> None:
    assert (16 * MIB, Confidence.TABLE) == reserved_bytes("Instinct_MI210", 65536 * MIB)[:2]


def test_names_become_labels_by_the_rule_of_the_device_plugin() -> None:
    assert "NVIDIA-GeForce-RTX-4070-Ti-SUPER" == label_form("NVIDIA GeForce RTX  4070 Ti SUPER")
    assert "NVIDIA-H100-80GB-HBM3" == label_form("NVIDIA H100 80GB HBM3 ")
    for each in NVIDIA:
        if each.product and each.nvml_name:
            assert each.product == label_form(each.nvml_name)


def test_a_slice_is_told_from_a_card() -> None:
    assert ("NVIDIA-A30", "1g.6gb") == split_slice("NVIDIA-A30-MIG-1g.6gb")
    assert ("h100-sxm", "1g.10gb.me") == split_slice("h100-sxm/1g.10gb+me")
    assert split_slice("NVIDIA-A30") is None
    assert split_slice("NVIDIA-A30-MIG-INVALID") is None
