"""What is one pool's question to the planner?"""

import hashlib
import json
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from plimsoll.api.allowed import Allowed, not_allowed
from plimsoll.api.deaths_taught import steps_taught
from plimsoll.api.kv_offload import offload_ask, offload_problem, way_out
from plimsoll.api.lanes import at_the_gate, counted_from, gate_words, lanes_of
from plimsoll.api.model_facts import KnownModel
from plimsoll.api.pool import EngineSpec, Pool
from plimsoll.api.prefix_ask import digest_of, prefix_caching, why_off
from plimsoll.api.spec import InferenceDeploymentSpec
from plimsoll.catalog.gpus import find_gpu, nearest, same_product
from plimsoll.engines.base import EngineName
from plimsoll.engines.guard import shadowed_flags
from plimsoll.facts.gpu import GpuFacts, GpuProblem, Inventory, UnplannableNode
from plimsoll.facts.source import FactSource, Provenance
from plimsoll.plan.calibration import Measurement
from plimsoll.plan.records import (
    Guarantee,
    Lane,
    Overrides,
    Plan,
    PlanRequest,
    Reason,
    Refusal,
)
from plimsoll.plan.reported import Ceiling
from plimsoll.plan.steps import Steps, settings_of
from plimsoll.render.source import parse_source, source_problem

if TYPE_CHECKING:
    from plimsoll.api.kv_gate_records import ProbeRecord
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
    """Digest of everything that a plan depends on: what the user said, and what came of earlier plans."""
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
    question: str = ""
    """Digest of what the user said alone."""
    said: str = ""
    """The same, whatever was seen of the prefix cache since."""
    stale: str | None = None
    """Why nothing is made or started from the card's facts; what is held stays."""


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
    calibration: tuple[Measurement, ...] = ()
    """What engines took before."""
    probes: "tuple[ProbeRecord, ...]" = ()
    """What probes of KV cache dtypes found, where the spec tries one."""
    again: str = ""
    """The annotation plimsoll.dev/probe."""
    allowed: Allowed = Allowed()
    """What the site allows."""


def release_of(spec: InferenceDeploymentSpec, pool: Pool) -> str | None:
    """The engine's release: as written, else as the image's tag says; None when nobody says."""
    written = spec.release_of(pool)
    image = spec.image_of(pool)
    if written is not None or image is None:
        return written
    return release_in(image)


def release_in(image: str) -> str | None:
    """The release that an image's tag names; None when it names none."""
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    match = _TAG.search(tag)
    return match["release"].removeprefix("v") if match else None


def ask_of(reach: Reach, pool: Pool) -> PoolAsk:
    """The question for one pool, or why it cannot be put."""
    spec, inventory = reach.spec, reach.inventory
    found = _as_visible(_gpu(pool, inventory), pool)
    product = found.product if isinstance(found, GpuFacts) else pool.gpu.product
    refusal = (
        _cannot_ask(spec, pool, reach.known, reach.allowed)
        or (found if isinstance(found, Refusal) else None)
        or _too_few_cards(pool, product, inventory)
    )
    dtype = _opened(reach, pool, None if refusal else found)
    said = _with_dtype(ask_digest(spec, pool, reach.facts_text), dtype)
    before = _before(reach, pool)
    cached = prefix_caching(spec, pool, said, before)
    question = digest_of(said, spec, cached=cached)
    ceiling = _ceiling(reach, pool, question)
    steps = steps_taught(before.taught if before is not None else None, question)
    ask = PoolAsk(
        pool=pool.name,
        engine=pool.engine,
        gpu_product=product,
        cards=pool.gpu.per_worker,
        wanted=pool.replicas,
        room=_room(inventory, product, pool.gpu.per_worker),
        spec=pool,
        digest=with_steps(digest_with(question, ceiling), steps),
        question=question,
        said=said,
        refusal=refusal,
        stale=inventory.stale(product),
    )
    if refusal is not None or isinstance(found, Refusal):
        return ask
    request = _request(reach, pool, found)
    return ask._replace(
        request=request._replace(
            kv_dtype=dtype or request.kv_dtype,
            ceiling=ceiling,
            calibration=_measured(reach, pool),
            prefix_caching=cached,
            steps=steps,
            notes=(*request.notes, *why_off(said, before, cached=cached)),
        )
    )


def _opened(reach: Reach, pool: Pool, gpu: GpuFacts | Refusal | None) -> str | None:
    """The KV cache dtype that `auto` becomes in this pool, after a probe; None while it stays 16 bit."""
    if not reach.probes:
        return None
    from plimsoll.api.kv_gate_opened import opened_dtype, probed_of, tried_dtype  # noqa: PLC0415

    spec, dtype = reach.spec, tried_dtype(reach.spec, pool)
    source, release = model_uri(spec, pool.engine), release_of(spec, pool)
    return opened_dtype(
        probed_of(source, pool.engine, release, dtype, reach.again),
        reach.probes,
        _request(reach, pool, gpu) if isinstance(gpu, GpuFacts) else None,
        _before(reach, pool),
    )


def _with_dtype(question: str, dtype: str | None) -> str:
    """The question's digest where a probe let the dtype in: another one; as it is while none did."""
    if dtype is None:
        return question
    return f"sha256:{hashlib.sha256(f'{question} kv {dtype}'.encode()).hexdigest()[:16]}"


def _ceiling(reach: Reach, pool: Pool, question: str) -> Ceiling | None:
    """What the engine held where an earlier plan of this very question had promised more."""
    before = _before(reach, pool)
    verified = before.verified if before is not None else None
    found = verified.ceiling if verified is not None else None
    if found is None or found.question != question:
        return None
    return Ceiling(tokens=found.tokens, length=found.length, sequences=found.sequences)


def digest_with(question: str, ceiling: Ceiling | None) -> str:
    """The question's digest with the ceiling in it; as it is without one."""
    if ceiling is None:
        return question
    text = f"{question} ceiling {ceiling.tokens} {ceiling.length} {ceiling.sequences}"
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def with_steps(question: str, steps: Steps) -> str:
    """The question's digest with what deaths taught in it; as it is where they taught nothing."""
    if steps.is_nothing:
        return question
    text = f"{question} steps {json.dumps(settings_of(steps), sort_keys=True)}"
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def extras_digest(spec: InferenceDeploymentSpec, pool: Pool) -> str:
    """Digest of the arguments and variables that the user added to the engine's; empty without any."""
    engine = spec.engines.of(pool.engine)
    names = sorted({variable.name for variable in (*engine.env, *pool.env)})
    words = [*engine.extra_args, *pool.extra_args]
    if not words and not names:
        return ""
    return hashlib.sha256(json.dumps([words, names]).encode()).hexdigest()[:8]


def _measured(reach: Reach, pool: Pool) -> tuple[Measurement, ...]:
    """What engines with the same additions took before."""
    if not reach.calibration:
        return ()
    extras = extras_digest(reach.spec, pool)
    return tuple(one for one in reach.calibration if one.key.extras == extras)


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
        kv_offload=offload_ask(spec, pool),
        gate=at_the_gate(spec, pool),
    )


def _before(reach: Reach, pool: Pool) -> "PoolStatus | None":
    return next((had for had in reach.made_before if had.name == pool.name), None)


def _gpu(pool: Pool, inventory: Inventory) -> GpuFacts | Refusal:
    """Facts of the pool's GPU type: from the nodes in reach, else from the catalogue."""
    types = {gpu.product: gpu for gpu in inventory.types()}
    asked = pool.gpu.product
    catalogued = find_gpu(asked)
    names = {asked, catalogued.product if catalogued else asked}
    for product in (*sorted(names & types.keys()), *sorted(types)):
        if product in names or same_product(product, asked):
            return types[product]
    named = _unplannable(inventory, names)
    if named is not None:
        return Refusal(reason=Reason(named.problem.value), message=named.message)
    for gpu in inventory.told:
        if same_product(gpu.product, asked):
            return gpu
    if catalogued is not None:
        return catalogued
    there = ", ".join(sorted(types)) or "none with GPUs"
    near = ", ".join(nearest(asked))
    return Refusal(
        reason=Reason.GPU_TYPE_UNKNOWN,
        message=f"gpu.product {asked!r} is neither on a node in reach (there: {there}) nor in the "
        f"catalogue{f'; near to it: {near}' if near else ''}.",
    )


def _as_visible(found: GpuFacts | Refusal, pool: Pool) -> GpuFacts | Refusal:
    """The card as a container sees it, where the user says that this is less. More than the card is not
    believed: a clamp takes away, it never gives."""
    visible = pool.gpu.visible_memory_bytes
    if isinstance(found, Refusal) or visible is None or visible >= found.usable_bytes:
        return found
    detail = f"gpu.visibleMemory {pool.gpu.visible_memory}; {found.provenance.detail}"
    return found.model_copy(
        update={
            "total_bytes": visible,
            "reserved_bytes": 0,
            "provenance": Provenance(
                source=FactSource.SPEC, confidence=found.provenance.confidence, detail=detail
            ),
        }
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
    counts = [node.count for node in inventory.of_type(product)]
    if not counts or max(counts) >= pool.gpu.per_worker:
        return None
    return Refusal(
        reason=Reason.NO_GPU_IN_REACH,
        message=f"gpu.perWorker is {pool.gpu.per_worker}, but no node has more than {max(counts)} x "
        f"{product}; lower perWorker, or add a node.",
    )


def _room(inventory: Inventory, product: str, cards: int) -> int | None:
    counts = [node.count // cards for node in inventory.of_type(product)]
    return sum(counts) if counts else None


def _cannot_ask(
    spec: InferenceDeploymentSpec, pool: Pool, known: KnownModel, allowed: Allowed
) -> Refusal | None:
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
            f"the plan decides; take it out, or use {way_out(shadowed)}.",
        )
    forbidden = not_allowed(spec, pool, allowed)
    if forbidden is not None:
        return forbidden
    stops = offload_problem(spec, pool, release_of(spec, pool))
    if stops is not None:
        return Refusal(reason=Reason.KV_OFFLOAD_CANNOT_WORK, message=f"pool {pool.name}: {stops}.")
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
        "kv": spec.kv_cache.model_dump(mode="json", exclude_unset=True, exclude={"try_dtype"}),
        "facts": facts_text,
    }
    if (gate := gate_words(spec, pool)) is not None:
        said["gate"] = gate
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}"
