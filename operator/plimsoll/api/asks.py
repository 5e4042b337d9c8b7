"""What is one pool's question to the planner?"""

import hashlib
import json
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from plimsoll.api.lanes import counted_from, lanes_of
from plimsoll.api.model_facts import KnownModel
from plimsoll.api.pool import EngineSpec, Pool
from plimsoll.api.spec import InferenceDeploymentSpec
from plimsoll.catalog.gpus import find_gpu, nearest
from plimsoll.engines.base import EngineName
from plimsoll.engines.guard import shadowed_flags
from plimsoll.facts.gpu import GpuFacts, GpuProblem, Inventory, UnplannableNode
from plimsoll.plan.records import (
    Guarantee,
    Lane,
    Overrides,
    Plan,
    PlanRequest,
    Reason,
    Refusal,
)
from plimsoll.render.source import parse_source, source_problem

if TYPE_CHECKING:
    from plimsoll.api.status_types import PoolStatus

DEFAULT_PREEMPTION_RISK: Final = 0.001
"""Accepted chance that live tokens exceed the pool, where limits.preemptionRisk is left out."""
SHARED_SUFFIX: Final = "-SHARED"
"""Ends the product label of time-sliced cards (NVIDIA/k8s-device-plugin: internal/lm/resource.go)."""
_TAG: Final = re.compile(r"(?:^|[^0-9a-z])(?P<release>v?\d+\.\d+(?:\.\d+)?|b\d{4,})(?:$|[^0-9.])")


class PoolAsk(NamedTuple):
    """One pool's question, or why it cannot even be put."""

    pool: str
    """Name of the pool."""
    engine: EngineName
    """Which engine."""
    gpu_product: str
    """GPU type."""
    cards: int
    """Cards of one worker."""
    spec: Pool
    """The pool as the user wrote it, or as we would have written it."""
    digest: str
    """Digest of everything the user said that a plan depends on."""
    wanted: int | None = None
    """Workers that the user wants in this pool, if they said so."""
    room: int | None = None
    """Workers for which there are cards in reach; None when no node is in reach."""
    request: PlanRequest | None = None
    """The question."""
    refusal: Refusal | None = None
    """Why there is no question."""
    answer: Plan | None = None
    """The question's plan, where it was made already to choose."""


class Reach(NamedTuple):
    """Everything that the asks of one object share."""

    spec: InferenceDeploymentSpec
    """What the user wrote."""
    known: KnownModel
    """Facts of the model."""
    inventory: Inventory
    """Cards in reach."""
    facts_text: str | None = None
    """Content of the facts ConfigMap."""
    made_before: "tuple[PoolStatus, ...]" = ()
    """Pools of the last status."""
    measured: tuple[Lane, ...] = ()
    """The traffic as an engine counted it, in place of what the user wrote."""


def release_of(spec: InferenceDeploymentSpec, pool: Pool) -> str | None:
    """The engine's release: as written, else as the image's tag says; None when nobody says."""
    written = spec.release_of(pool)
    image = spec.image_of(pool)
    if written is not None or image is None:
        return written
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    match = _TAG.search(tag)
    return match["release"].removeprefix("v") if match else None


def ask_of(reach: Reach, pool: Pool) -> PoolAsk:
    """The question for one pool, or why it cannot be put."""
    spec, inventory = reach.spec, reach.inventory
    found = _gpu(pool, inventory)
    product = found.product if isinstance(found, GpuFacts) else pool.gpu.product
    refusal = (
        _cannot_ask(spec, pool, reach.known)
        or (found if isinstance(found, Refusal) else None)
        or _too_few_cards(pool, product, inventory)
    )
    ask = PoolAsk(
        pool=pool.name,
        engine=pool.engine,
        gpu_product=product,
        cards=pool.gpu.per_worker,
        wanted=pool.replicas,
        room=_room(inventory, product, pool.gpu.per_worker),
        spec=pool,
        digest=ask_digest(spec, pool, reach.facts_text),
        refusal=refusal,
    )
    if refusal is not None or isinstance(found, Refusal):
        return ask
    return ask._replace(request=_request(reach, pool, found))


def _request(reach: Reach, pool: Pool, gpu: GpuFacts) -> PlanRequest:
    spec, known = reach.spec, reach.known
    limits = spec.limits
    lanes = reach.measured or lanes_of(spec)
    guarantee = limits.guarantee or (Guarantee.EXPECTED if lanes else Guarantee.WORST_CASE)
    return PlanRequest(
        engine=pool.engine,
        release=release_of(spec, pool),
        gpu=gpu,
        cards=pool.gpu.per_worker,
        model=known.model,
        gguf=known.gguf,
        lanes=lanes,
        max_model_len=limits.max_model_len,
        concurrency=limits.concurrency,
        guarantee=guarantee,
        preemption_risk=limits.preemption_risk or DEFAULT_PREEMPTION_RISK,
        kv_dtype=spec.kv_cache_dtype_of(pool).value,
        overrides=Overrides(
            max_model_len=pool.max_model_len,
            max_num_seqs=pool.max_num_seqs,
            max_num_batched_tokens=pool.max_num_batched_tokens,
            gpu_memory_utilization=pool.gpu_memory_utilization,
            block_size=pool.block_size,
            gpu_layers=pool.gpu_layers,
            ubatch_size=pool.ubatch_size,
            cache_ram_bytes=pool.cache_ram_bytes,
        ),
        notes=(*known.notes, *counted_from(reach.measured)),
    )


def _gpu(pool: Pool, inventory: Inventory) -> GpuFacts | Refusal:
    """Facts of the pool's GPU type: from the nodes in reach, else from the catalogue."""
    types = {gpu.product: gpu for gpu in inventory.types()}
    asked = pool.gpu.product
    catalogued = find_gpu(asked)
    names = {asked, catalogued.product if catalogued else asked}
    for product in sorted(names & types.keys()):
        return types[product]
    named = _unplannable(inventory, names)
    if named is not None:
        return Refusal(reason=Reason(named.problem.value), message=named.message)
    if catalogued is not None:
        return catalogued
    there = ", ".join(sorted(types)) or "none with GPUs"
    near = ", ".join(nearest(asked))
    return Refusal(
        reason=Reason.GPU_TYPE_UNKNOWN,
        message=f"gpu.product {asked!r} is neither on a node in reach (there: {there}) nor in the "
        f"catalogue{f'; near to it: {near}' if near else ''}.",
    )


def _unplannable(inventory: Inventory, names: Collection[str]) -> UnplannableNode | None:
    """A node with such cards that cannot be planned for; a shared one first, if sharing was named."""
    plain = {name.removesuffix(SHARED_SUFFIX) for name in names}
    found = [
        node for node in inventory.unplannable if node.product.removesuffix(SHARED_SUFFIX) in plain
    ]
    says_shared = any(name.endswith(SHARED_SUFFIX) for name in names)
    found.sort(key=lambda node: (node.problem is GpuProblem.TIME_SLICED) is not says_shared)
    return found[0] if found else None


def _too_few_cards(pool: Pool, product: str, inventory: Inventory) -> Refusal | None:
    counts = [node.count for node in inventory.nodes if node.gpu.product == product]
    if not counts or max(counts) >= pool.gpu.per_worker:
        return None
    return Refusal(
        reason=Reason.NO_GPU_IN_REACH,
        message=f"gpu.perWorker is {pool.gpu.per_worker}, but no node has more than {max(counts)} x "
        f"{product}; lower perWorker, or add a node.",
    )


def _room(inventory: Inventory, product: str, cards: int) -> int | None:
    counts = [node.count // cards for node in inventory.nodes if node.gpu.product == product]
    return sum(counts) if counts else None


def _cannot_ask(spec: InferenceDeploymentSpec, pool: Pool, known: KnownModel) -> Refusal | None:
    """What is missing or forbidden whatever the card."""
    is_vllm = pool.engine is EngineName.VLLM
    field = pool.engine.value
    if spec.image_of(pool) is None:
        return Refusal(
            reason=Reason.ENGINE_IMAGE_MISSING,
            message=f"pool {pool.name} has no image; set spec.engines.{field}.image.",
        )
    if model_uri(spec, pool.engine) is None:
        missing = "spec.model.uri" if is_vllm else "spec.model.gguf"
        return Refusal(
            reason=Reason.MODEL_SOURCE_MISSING,
            message=f"pool {pool.name} runs {field} and needs {missing}.",
        )
    unloadable = _unloadable(spec, pool)
    if unloadable is not None:
        return Refusal(
            reason=Reason.MODEL_SOURCE_UNUSABLE, message=f"pool {pool.name}: {unloadable}."
        )
    shadowed = _shadowed(spec.engines.of(pool.engine), pool)
    if shadowed:
        return Refusal(
            reason=Reason.FLAG_IS_PINNED,
            message=f"pool {pool.name}: extraArgs or env would change {', '.join(shadowed)}, which "
            "the plan decides; take it out, or use the pool's own field for it.",
        )
    return known.model_refusal if is_vllm else known.gguf_refusal


def model_uri(spec: InferenceDeploymentSpec, engine: EngineName) -> str | None:
    """Where this engine's model files are; None when nobody said."""
    if engine is EngineName.VLLM:
        return spec.model.uri
    return spec.model.gguf.uri if spec.model.gguf else None


def _unloadable(spec: InferenceDeploymentSpec, pool: Pool) -> str | None:
    """Why the engine cannot load from the address."""
    try:
        return source_problem(parse_source(model_uri(spec, pool.engine) or ""), pool.engine)
    except ValueError as error:
        return str(error)


def _shadowed(engine: EngineSpec, pool: Pool) -> tuple[str, ...]:
    return shadowed_flags(
        pool.engine,
        extra_args=(*engine.extra_args, *pool.extra_args),
        env_names=tuple(variable.name for variable in (*engine.env, *pool.env)),
    )


def ask_digest(spec: InferenceDeploymentSpec, pool: Pool, facts_text: str | None) -> str:
    """Digest of what the user said that a plan depends on, in their words only.

    Fields that a later version adds are left out until somebody sets them, and the catalogue is not
    in it: so the same spec keeps its plan over an upgrade.
    """
    engine = spec.engines.of(pool.engine)
    said: dict[str, Any] = {
        "pool": pool.model_dump(mode="json", exclude_unset=True, exclude={"name", "replicas"}),
        "release": release_of(spec, pool),
        "args": [*engine.extra_args, *pool.extra_args],
        "model": spec.model.model_dump(mode="json", exclude_unset=True, exclude={"name"}),
        "traffic": spec.traffic.model_dump(mode="json", exclude_unset=True)
        if spec.traffic
        else None,
        "limits": spec.limits.model_dump(mode="json", exclude_unset=True),
        "kv": spec.kv_cache.model_dump(mode="json", exclude_unset=True),
        "facts": facts_text,
    }
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}"
