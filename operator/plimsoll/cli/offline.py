"""What can be planned for where there is no cluster: the cards that the file, the catalogue or a dump names?"""

from typing import Any, Final, NamedTuple

from plimsoll.api.asks import PoolAsk
from plimsoll.api.manifest import DeploymentManifest, read
from plimsoll.api.requests import pool_asks
from plimsoll.catalog.gpus import find_gpu, nearest
from plimsoll.cli.answers import Answer
from plimsoll.cli.exits import BadInputError
from plimsoll.facts.gpu import GpuFacts, GpuVendor, Inventory, NodeGpus
from plimsoll.facts.record import Named
from plimsoll.plan.calibration import Measurement
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Lane, Plan, Refusal

Json = dict[str, Any]

CATALOGUE_NODE: Final = "catalogue"
"""Name of the node that stands in for all nodes of a type."""
CARDS_OF_A_NODE: Final = 8
"""Cards that a worker of a pool which nobody wrote may spread over: HGX and DGX nodes hold eight.
A card that shares its memory with the host is alone on its node."""
PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
"""NVIDIA/k8s-device-plugin, gpu-feature-discovery: the label that the workers' affinity asks for."""


class Case(NamedTuple):
    """One InferenceDeployment of a file, with what the file says besides."""

    deployment: DeploymentManifest
    """The object."""
    body: Json
    """The object as plain data, as it stood in the file."""
    facts_text: str | None = None
    """Content of the ConfigMap that model.facts names, where the same file holds it."""
    measured: tuple[Lane, ...] = ()
    """Lengths that an engine counted, in place of the spec's traffic."""
    calibration: tuple[Measurement, ...] = ()
    """What engines took before."""

    @property
    def title(self) -> str:
        """namespace/name."""
        return f"{self.deployment.metadata.namespace}/{self.deployment.metadata.name}"


def catalogue_card(name: str) -> GpuFacts:
    """A card of the catalogue by any of its names. Raises BadInputError with the nearest names."""
    card = find_gpu(name)
    if card is None:
        near = ", ".join(nearest(name))
        way_out = f"near to it: {near}" if near else "--all-gpus lists every type"
        raise BadInputError(
            f"--gpu: {name!r} is not a GPU type of the catalogue whose memory is known; {way_out}"
        )
    return card


def catalogue_inventory(
    deployment: DeploymentManifest, gpu_override: str | None = None
) -> Inventory:
    """One node per GPU type that the spec names, with cards for all its workers; none of them spare.

    With `gpu_override` only that type, by any of its names. Types that the catalogue does not know are
    left out, and refused by name when they are asked for. Raises BadInputError for the override.
    """
    spec = deployment.spec
    if gpu_override is not None:
        cards = [catalogue_card(gpu_override)]
    else:
        found = {card.product: card for p in spec.pools if (card := find_gpu(p.gpu.product))}
        cards = list(found.values())
    widest = max((pool.gpu.per_worker for pool in spec.pools), default=CARDS_OF_A_NODE)
    workers = max(1, spec.replicas, sum(pool.replicas or 0 for pool in spec.pools))
    return Inventory(
        nodes=tuple(
            NodeGpus(
                node=CATALOGUE_NODE,
                gpu=card,
                count=widest * workers if spec.pools or not card.unified_memory else 1,
                free=0,
                match_labels=_match_labels(card),
            )
            for card in cards
        )
    )


def on_card(case: Case, product: str, *, pool: str | None = None) -> Case:
    """The same deployment with its pools (or the one called `pool`) moved to another GPU type."""
    spec = case.body["spec"]
    pools = [
        each
        if pool is not None and each.get("name") != pool
        else {**each, "gpu": {**each.get("gpu", {}), "product": product}}
        for each in spec.get("pools") or ()
    ]
    return changed(case, pools=pools) if pools else case


def changed(case: Case, **fields: Any) -> Case:
    """The same case with some fields of its spec replaced, read anew. Raises ValueError as `read`."""
    body = {**case.body, "spec": {**case.body["spec"], **fields}}
    return case._replace(deployment=read(body), body=body)


def answer(case: Case, inventory: Inventory, *, pool: str | None = None) -> tuple[Answer, ...]:
    """What the planner says to every pool of one deployment, or to the one called `pool`."""
    asks = pool_asks(
        case.deployment,
        inventory,
        facts_text=case.facts_text,
        measured=case.measured,
        calibration=case.calibration,
    )
    return tuple(_answer(case, ask) for ask in asks if pool in (None, ask.pool))


def _answer(case: Case, ask: PoolAsk) -> Answer:
    model = case.deployment.spec.model
    return Answer(
        deployment=case.title,
        pool=ask.pool,
        model=model.id or model.name,
        gpu=ask.gpu_product,
        request=ask.request,
        outcome=_outcome(ask),
    )


def _outcome(ask: PoolAsk) -> Plan | Refusal:
    if ask.answer is not None:
        return ask.answer
    if ask.request is not None:
        return plan(ask.request)
    if ask.refusal is not None:
        return ask.refusal
    raise ValueError(f"pool {ask.pool} has neither a question nor a refusal")


def _match_labels(card: GpuFacts) -> tuple[Named, ...]:
    if card.vendor is not GpuVendor.NVIDIA:
        return ()
    return (Named(name=PRODUCT_LABEL, value=card.product),)
