"""Which GPU types do we know before looking, and what does each call its own?

The table is data/gpus.json; a row is read when it is asked for. What was never published is absent.
"""

import json
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from plimsoll.facts.gpu import Fp8, GpuFacts, GpuVendor
from plimsoll.facts.source import Confidence, FactSource, Provenance
from plimsoll.units import MIB

RESERVED_BOUNDS_MIB: Final = ((50_000, 640), (100_000, 800), (None, 960))
"""(cards up to this total, the driver's part at most): the largest Linux reading of data/gpus.json in
each class is 621 (A100 40 GB), 769 (A100 80 GB) and 947 (GB300), rounded up to the next 32."""
SLICE_RESERVED_BOUND_MIB: Final = 384
"""The driver's part of a MIG slice at most. The one published pair is 16384 in NVML and 16032 in the
process (1g.16gb of an RTX PRO 4500, KosinskiLab/AlphaPulldownSnakemake#52): 352, rounded up."""

_TABLE: Final = Path(__file__).with_name("data") / "gpus.json"
_OUTSIDE_LABEL: Final = re.compile(r"[^A-Za-z0-9\-_. ]")
_CAPITAL: Final = re.compile(r"[A-Z]")
_SLICE: Final = re.compile(
    r"^(?P<card>.+?)(?:-MIG-|/)(?P<profile>(?:\d+c[.])?\d+g[.]\d+gb(?:[.+-](?:me|gfx)(?:[.]all)?)?)$",
    re.IGNORECASE,
)
_RESOURCES: Final = {
    GpuVendor.NVIDIA: "nvidia.com/gpu",
    GpuVendor.AMD: "amd.com/gpu",
    GpuVendor.INTEL: "gpu.intel.com/xe",
}


class MigProfile(NamedTuple):
    """One way to slice a card."""

    profile: str
    """As nvidia-smi names it: 1g.10gb, 1g.24gb+gfx."""
    memory_mib: int | None = None
    """What a slice really has, below what its name says; None where nobody published it."""
    ref: str = ""
    """Where the number was printed."""


class GpuType(NamedTuple):
    """One row of the table. Sizes in MiB, as the sources print them."""

    key: str
    """Our short name: rtx-a6000, h100-sxm."""
    vendor: GpuVendor
    """Maker of the card."""
    aliases: tuple[str, ...] = ()
    """Other names that mean this type."""
    nvml_name: str | None = None
    """The name the driver gives, with blanks."""
    product: str | None = None
    """The node label's spelling; None where no labeller is known to label such nodes."""
    total_mib: int | None = None
    """What the driver reports for the whole card; None where nobody published it."""
    total_ref: str = ""
    """Where that was printed."""
    total_is_cuda: bool = False
    """Whether the total is what CUDA or HIP reports, so that the driver's part is already out."""
    ecc_on_total_mib: int | None = None
    """The total with ECC on, where it differs."""
    ecc_off_total_mib: int | None = None
    """The total with ECC off, where it differs."""
    label_mib: tuple[int, ...] = ()
    """Values of the memory label seen or following from a total, over driver generations."""
    reserved_mib: int | None = None
    """The driver's part, largest reading on Linux; None where the bound holds."""
    reserved_ref: str = ""
    """Where that was printed."""
    compute_capability: str | None = None
    """For example 8.6."""
    capability_ref: str = ""
    """Where that was printed."""
    fp8: Fp8 = Fp8.UNKNOWN
    """How the card takes fp8."""
    fp8_ref: str = ""
    """Where that was read."""
    bf16: bool | None = None
    """Whether the card computes in bfloat16."""
    unified_memory: bool = False
    """Whether card and host share one memory."""
    sizes_share_name: bool = False
    """Whether cards of another size go by the same name, so that the name does not tell the memory."""
    mig: tuple[MigProfile, ...] = ()
    """The ways to slice it."""


@cache
def gpu_types() -> tuple[GpuType, ...]:
    """Every type of the table, in its order."""
    return tuple(_type_of(row) for row in _rows())


@lru_cache(maxsize=1024)
def find_type(name: str) -> GpuType | None:
    """The row for a key, an alias, a product in the label's spelling or the driver's name.

    Letter case, blanks and underscores do not matter. A MIG name gives the row of its card.
    """
    card = match["card"] if (match := _SLICE.match(name.strip())) else name
    row = _index().get(_plain(card))
    return None if row is None else _type_of(row)


@lru_cache(maxsize=1024)
def find_gpu(name: str) -> GpuFacts | None:
    """The facts of a card or MIG slice by name, or None when the type or its memory is not known.

    Accepts what `find_type` accepts, NVIDIA-H100-80GB-HBM3-MIG-1g.10gb and h100-sxm/1g.10gb. A slice
    asks for the resource of the mixed MIG strategy, nvidia.com/mig-1g.10gb.
    """
    found = find_type(name)
    if found is None or found.total_mib is None:
        return None
    if (match := _SLICE.match(name.strip())) is None:
        return _whole_card(found, found.total_mib)
    profile = find_profile(found, match["profile"])
    if profile is None or profile.memory_mib is None:
        return None
    return _slice(found, profile, profile.memory_mib)


def find_profile(of: GpuType, name: str) -> MigProfile | None:
    """The profile of a card by name, in nvidia-smi's (1g.5gb+me) or the resource's (1g.5gb.me) form.

    A media-extension profile (+me) has the memory of the plain one (NVIDIA/gpu-operator#1303 prints
    both), so it falls back to that row.
    """
    wanted = _resource_form(name)
    rows = {_resource_form(profile.profile): profile for profile in of.mig}
    plain = re.sub(r"[.-]me(?:[.]all)?$", "", wanted)
    found = rows.get(wanted) or rows.get(plain)
    return None if found is None else found._replace(profile=wanted)


def reserved_bytes(product: str, total_bytes: int) -> tuple[int, Confidence, str]:
    """The driver's own part of a card of this product and total, how sure that is, and why.

    A published reading holds for the total at which it was taken; otherwise the largest reading of
    the card's class is the bound.
    """
    if _SLICE.match(product.strip()):
        why = f"at most {SLICE_RESERVED_BOUND_MIB} MiB of a MIG slice"
        return SLICE_RESERVED_BOUND_MIB * MIB, Confidence.BOUND, why
    found = find_type(product)
    total_mib = total_bytes // MIB
    if found is not None and found.total_mib is not None:
        missing_mib = total_mib - found.total_mib
        if found.total_is_cuda and -1 <= missing_mib <= RESERVED_BOUNDS_MIB[-1][1]:
            why = f"what {found.total_ref} leaves: {found.total_mib} MiB"
            return max(missing_mib, 0) * MIB, Confidence.TABLE, why
        if found.reserved_mib is not None and abs(missing_mib) <= 1:
            return found.reserved_mib * MIB, Confidence.TABLE, found.reserved_ref
    bound_mib = next(
        bound for up_to, bound in RESERVED_BOUNDS_MIB if up_to is None or total_mib <= up_to
    )
    why = (
        f"no reading for this total; the largest of any card of its class is below {bound_mib} MiB"
    )
    return bound_mib * MIB, Confidence.BOUND, why


def known_totals_mib(product: str) -> tuple[int, ...]:
    """Every total in MiB that drivers and labels have shown for this card or slice; empty where none was
    published."""
    found = find_type(product)
    if found is None:
        return ()
    if (parts := split_slice(product)) is not None:
        profile = find_profile(found, parts[1])
        return () if profile is None or profile.memory_mib is None else (profile.memory_mib,)
    seen = (found.total_mib, found.ecc_on_total_mib, found.ecc_off_total_mib, *found.label_mib)
    return tuple(sorted({each for each in seen if each}))


def nearest(name: str) -> tuple[str, ...]:
    """Keys that somebody who typed `name` may have meant, best first, at most five."""
    import difflib  # noqa: PLC0415 - only when something is wrong

    typed = _plain(name.partition("/")[0])
    keys = {spelling: str(row["key"]) for spelling, row in _index().items()}
    inside = sorted((s for s in keys if typed and (typed in s or s in typed)), key=len)
    alike = difflib.get_close_matches(typed, keys, n=8, cutoff=0.6)
    return tuple(dict.fromkeys(keys[spelling] for spelling in (*inside, *alike)))[:5]


def split_slice(product: str) -> tuple[str, str] | None:
    """A MIG product as card and profile: ("NVIDIA-A30", "1g.6gb"); None for a whole card."""
    match = _SLICE.match(product.strip())
    return None if match is None else (match["card"], _resource_form(match["profile"]))


def same_product(one: str, other: str) -> bool:
    """Whether two names mean the same card or slice: spelled alike, or one type of the table (the driver
    gave an A100 two names over its generations)."""
    if _plain(one) == _plain(other):
        return True
    mine, theirs = split_slice(one), split_slice(other)
    if mine is not None and theirs is not None:
        return mine[1] == theirs[1] and same_product(mine[0], theirs[0])
    if mine is not None or theirs is not None:
        return False
    found = find_type(one)
    return found is not None and found == find_type(other)


def fp8_of(capability: tuple[int, int]) -> Fp8:
    """How vLLM 0.32.0 treats fp8 on a compute capability (vllm/platforms/cuda.py): in the arithmetic
    from 8.9, in stored weights only (Marlin) from 7.5."""
    if capability >= (8, 9):
        return Fp8.NATIVE
    return Fp8.WEIGHT_ONLY if capability >= (7, 5) else Fp8.NONE


def label_form(name: str) -> str:
    """A driver's name as the node label spells it: "NVIDIA RTX A6000" is NVIDIA-RTX-A6000.

    The rule of NVIDIA/k8s-device-plugin internal/lm/resource.go: characters outside A-Z a-z 0-9 - _ .
    go, runs of blanks become one dash.
    """
    return re.sub(r" +", "-", _OUTSIDE_LABEL.sub("", name).strip())


def _whole_card(of: GpuType, total_mib: int) -> GpuFacts:
    product = of.product or label_form(of.nvml_name or of.key)
    reserved, confidence, why = reserved_bytes(of.key, total_mib * MIB)
    return GpuFacts(
        product=product,
        vendor=of.vendor,
        total_bytes=total_mib * MIB,
        reserved_bytes=reserved,
        compute_capability=of.compute_capability,
        fp8=of.fp8,
        bf16=of.bf16,
        unified_memory=of.unified_memory,
        resource=_RESOURCES[of.vendor],
        provenance=Provenance(
            source=FactSource.CATALOGUE,
            confidence=confidence,
            detail=f"{of.key}: {total_mib} MiB ({of.total_ref}); driver {reserved // MIB} MiB ({why})",
        ),
    )


def _slice(of: GpuType, profile: MigProfile, memory_mib: int) -> GpuFacts:
    card = of.product or label_form(of.nvml_name or of.key)
    product = f"{card}-MIG-{profile.profile}"
    reserved, confidence, why = reserved_bytes(product, memory_mib * MIB)
    detail = f"{of.key}/{profile.profile}: {memory_mib} MiB ({profile.ref}); {why}"
    return GpuFacts(
        product=product,
        vendor=of.vendor,
        total_bytes=memory_mib * MIB,
        reserved_bytes=reserved,
        compute_capability=of.compute_capability,
        fp8=of.fp8,
        bf16=of.bf16,
        resource=f"nvidia.com/mig-{profile.profile}",
        provenance=Provenance(source=FactSource.CATALOGUE, confidence=confidence, detail=detail),
    )


def _plain(name: str) -> str:
    return label_form(name).replace("_", "-").lower()


def _resource_form(profile: str) -> str:
    """NVIDIA/k8s-device-plugin internal/resource/nvml-mig-device.go turns the plus into a dot."""
    return profile.lower().replace("+", ".")


def _type_of(row: Mapping[str, Any]) -> GpuType:
    columns = {_CAPITAL.sub(r"_\g<0>", name).lower(): value for name, value in row.items()}
    profiles = row.get("mig", ())
    return GpuType(
        **columns
        | {
            "vendor": GpuVendor(row["vendor"]),
            "fp8": Fp8(row.get("fp8", Fp8.UNKNOWN)),
            "aliases": tuple(row.get("aliases", ())),
            "label_mib": tuple(row.get("labelMib", ())),
            "mig": tuple(
                MigProfile(each["profile"], each.get("memoryMib"), each.get("ref", ""))
                for each in profiles
            ),
        }
    )


@cache
def _rows() -> tuple[Mapping[str, Any], ...]:
    text = _TABLE.read_text(encoding="utf-8")
    return tuple(json.loads(text)["gpus"])


@cache
def _index() -> dict[str, Mapping[str, Any]]:
    """Every spelling of every type; the first row that uses a spelling owns it."""
    index: dict[str, Mapping[str, Any]] = {}
    for row in _rows():
        names = (row["key"], row.get("product"), row.get("nvmlName"), *row.get("aliases", ()))
        for name in names:
            if name:
                index.setdefault(_plain(name), row)
    # Some tools leave the maker or the line out: NVIDIA RTX 4090, GeForce RTX 4090.
    for spelling, row in tuple(index.items()):
        if spelling.startswith("nvidia-geforce-"):
            rest = spelling.removeprefix("nvidia-geforce-")
            index.setdefault(f"nvidia-{rest}", row)
            index.setdefault(f"geforce-{rest}", row)
        elif spelling.startswith("amd-"):
            # Labellers differ in the maker, the form factor and the virtual function (pci.ids 1002:74b5).
            rest = spelling.removeprefix("amd-")
            for name in (spelling, rest):
                for suffix in ("", "-oam", "-vf"):
                    index.setdefault(f"{name}{suffix}", row)
    return index
