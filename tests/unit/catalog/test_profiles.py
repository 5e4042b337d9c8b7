"""Is the user's own table read as written, and refused by row, field and value where it cannot be?"""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.catalog.profiles import GpuProfile, find_profile_of, read_profiles
from plimsoll.facts.gpu import Fp8
from plimsoll.units import GIB, MIB

ROW = {"product": "NVIDIA-L40S", "total": "40Gi", "reserved": "512Mi", "fp8": "Native"}


def test_a_row_is_read() -> None:
    (found,) = read_profiles([ROW])
    assert ("NVIDIA-L40S", 40 * GIB, 512 * MIB, Fp8.NATIVE, None) == (
        found.product,
        found.total,
        found.reserved,
        found.fp8,
        found.bf16,
    )


def test_the_charts_values_are_a_table_too() -> None:
    assert read_profiles([ROW]) == read_profiles({"gpuTypes": [ROW], "operator": {"replicas": 1}})


@pytest.mark.parametrize("nothing", [None, [], {"gpuTypes": []}, {"gpuTypes": None}])
def test_no_table_is_a_table_without_rows(nothing: Any) -> None:
    assert () == read_profiles(nothing)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"product": ""}, ["gpuTypes[0].product"]),
        ({"total": "40 gigs"}, ["gpuTypes[0].total", "40 gigs", "Gi"]),
        ({"total": 0}, ["gpuTypes[0].total", "0"]),
        ({"total": True}, ["gpuTypes[0].total"]),
        ({"reserved": "41Gi"}, ["gpuTypes[0]", "leaves nothing"]),
        ({"computeCapability": "sm_89"}, ["gpuTypes[0].computeCapability", "sm_89"]),
        ({"fp8": "Yes"}, ["gpuTypes[0].fp8", "Yes"]),
        ({"totl": "40Gi"}, ["gpuTypes[0].totl"]),
    ],
    ids=str,
)
def test_an_error_has_an_address(changed: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError, match="gpuTypes") as caught:
        read_profiles([ROW | changed])
    assert [] == [word for word in words if word not in str(caught.value)]


@pytest.mark.parametrize("raw", [3, "NVIDIA-L40S", {"product": "NVIDIA-L40S"}])
def test_what_is_no_list_is_refused(raw: Any) -> None:
    with pytest.raises(ValueError, match="gpuTypes"):
        read_profiles(raw)


def test_the_first_row_that_fits_counts() -> None:
    rows = read_profiles(
        [
            {"product": "NVIDIA-L40S", "nodeSelector": {"rack": "7"}, "total": "30Gi"},
            {"product": "NVIDIA L40S", "total": "40Gi"},
        ]
    )

    def total(labels: dict[str, str], product: str) -> int | None:
        found = find_profile_of(rows, labels, product)
        return found.total if found else None

    assert 30 * GIB == total({"rack": "7"}, "NVIDIA-L40S")
    assert 40 * GIB == total({"rack": "8"}, "NVIDIA-L40S")
    assert total({"rack": "7"}, "NVIDIA-L40") is None


def test_only_a_row_with_a_selector_names_what_nobody_names() -> None:
    anywhere = GpuProfile(product="Orin", total=8 * GIB)
    here = GpuProfile(product="Orin", total=8 * GIB, node_selector={"board": "nano"})
    assert find_profile_of([anywhere], {"board": "nano"}, None) is None
    assert here == find_profile_of([anywhere, here], {"board": "nano"}, None)
    assert find_profile_of([here], {"board": "other"}, None) is None


def test_a_slice_is_not_its_card() -> None:
    rows = [GpuProfile(product="NVIDIA-A30", total=24 * GIB)]
    assert find_profile_of(rows, {}, "NVIDIA-A30-MIG-1g.6gb") is None
    assert find_profile_of(rows, {}, "NVIDIA-A30") is not None
