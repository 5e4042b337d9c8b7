"""Which card does a workload run on, and who says so?"""

from collections.abc import Mapping
from typing import NamedTuple

from plimsoll.api.advise_pod import Workload, card_of, gpu_request
from plimsoll.api.advise_records import CardTold, Finding, Level
from plimsoll.catalog.gpus import find_gpu, nearest
from plimsoll.facts.gpu import GpuFacts, Inventory


class CardFound(NamedTuple):
    """The card, as far as it can be told."""

    gpu: GpuFacts | None
    """Its facts; None where nothing tells the type."""
    told: CardTold
    """What is said of it."""
    finding: Finding | None = None
    """What is worth a word."""


def find_card(workload: Workload, given: GpuFacts | None, inventory: Inventory) -> CardFound:
    """The card: as the user says, as the pod's labels say, or the only type of the cluster."""
    request = gpu_request(workload.container)
    count = workload.gpu_count if request is None else request[1]
    if given is not None:
        return CardFound(given, CardTold(product=given.product, count=count, told_by="--gpu"))
    seen = {gpu.product: gpu for gpu in inventory.types()}
    profile = (
        request[0].removeprefix("nvidia.com/mig-") if request and "/mig-" in request[0] else None
    )
    named = card_of(workload)
    if named is None:
        fitting = [gpu for gpu in seen.values() if request is None or gpu.resource == request[0]]
        if len(fitting) == 1:
            told = CardTold(
                product=fitting[0].product, count=count, told_by="the only type in --facts"
            )
            return CardFound(fitting[0], told)
        there = f"; in --facts are {', '.join(sorted(seen))}" if seen else ""
        return _not_found(
            CardTold(count=count),
            f"nothing in the manifest says which GPU type it runs on{there}; say it with --gpu, e.g. --gpu l40s, "
            "or give the nodes with --facts.",
        )
    cards = [found for name in named.products if (found := _find(name, profile, seen)) is not None]
    if not cards:
        near = ", ".join(each for name in named.products for each in nearest(name))
        return _not_found(
            CardTold(count=count, told_by=named.where),
            f"{', '.join(named.products)} ({named.where}) is no GPU type whose memory is known"
            f"{f'; near to it: {near}' if near else ''}; say it with --gpu.",
        )
    least = min(cards, key=lambda gpu: gpu.usable_bytes)
    told = CardTold(product=least.product, count=count, told_by=named.where)
    if len(named.products) == 1:
        return CardFound(least, told)
    sentence = (
        f"{named.where} allows {', '.join(named.products)} under one set of flags; judged for the smallest, "
        f"{least.product}. Plimsoll plans each type by itself."
    )
    return CardFound(least, told, Finding(level=Level.ADVICE, about="gpu", message=sentence))


def _not_found(told: CardTold, message: str) -> CardFound:
    return CardFound(None, told, Finding(level=Level.UNKNOWN, about="gpu", message=message))


def _find(name: str, profile: str | None, seen: Mapping[str, GpuFacts]) -> GpuFacts | None:
    plain = name.lower().removeprefix("nvidia-").removeprefix("tesla-")
    names = [name, plain] if profile is None else [f"{name}-MIG-{profile}", f"{plain}/{profile}"]
    for each in names:
        if each in seen:
            return seen[each]
        found = find_gpu(each)
        if found is not None:
            return seen.get(found.product, found)
    return None
