"""Which questions does an InferenceDeployment put to the planner? One for each pool.

With `pools` the user names GPU type and engine; without, every GPU type in reach gets a pool if
something fits there, best capacity first. Engine, cards of one worker and length are then free, and
plan/choose.py chooses; what it gave up stands among the plan's notes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from plimsoll.api.allowed import Allowed
from plimsoll.api.asks import PoolAsk, Reach, ask_of
from plimsoll.api.manifest import DeploymentManifest
from plimsoll.api.model_facts import ReadFacts, known_model
from plimsoll.api.pool import Pool
from plimsoll.engines.base import EngineName
from plimsoll.facts.gpu import GpuFacts, Inventory
from plimsoll.plan.calibration import Measurement
from plimsoll.plan.choose import choose
from plimsoll.plan.held import still_fits
from plimsoll.plan.planner import plan
from plimsoll.plan.records import Lane, Plan, Refusal

if TYPE_CHECKING:
    from plimsoll.api.kv_gate_records import ProbeRecord
    from plimsoll.api.status_types import PoolStatus

CARDS_TO_TRY: Final = (1, 2, 4, 8)
"""Cards of one worker, for pools that we make ourselves."""
GGUF_CARDS_TO_TRY: Final = (1, 2)
"""The same with llama.cpp, whose layers take turns: more cards hold more and are no faster."""
MOST_POOLS: Final = 16
"""As many as the CRD lets a user write."""
_NOT_DNS: Final = re.compile(r"[^a-z0-9]+")


def pool_asks(
    deployment: DeploymentManifest,
    inventory: Inventory,
    *,
    facts_text: str | None = None,
    made_before: Sequence[PoolStatus] = (),
    read: ReadFacts | None = None,
    measured: Sequence[Lane] = (),
    calibration: Sequence[Measurement] = (),
    probes: Sequence[ProbeRecord] = (),
    allowed: Allowed = Allowed(),  # noqa: B008 - it is frozen
) -> tuple[PoolAsk, ...]:
    """One ask per pool, in the order of the spec, or of capacity where Plimsoll makes the pools.

    Facts that were `read` from the files count in a digest only where they are heavier than those that
    went before: else a plan that is held stays, whoever told its facts.

    `made_before` are the pools of the last status: one that we made is tried first for its GPU type,
    so that it keeps its shape while it fits. `measured` lengths stand in for the spec's traffic;
    `calibration` is what engines took before, `probes` what probes of KV cache dtypes found.
    """
    reach = Reach(
        spec=deployment.spec,
        known=known_model(deployment.spec, facts_text, read),
        inventory=inventory,
        facts_text=facts_text or (read and read.weighs) or None,
        made_before=tuple(made_before),
        measured=tuple(measured),
        calibration=tuple(calibration),
        probes=tuple(probes),
        allowed=allowed,
        again=deployment.metadata.annotations.get("plimsoll.dev/probe", "") if probes else "",
    )
    if deployment.spec.pools:
        return tuple(ask_of(reach, pool) for pool in deployment.spec.pools)
    found = [_best_ask(reach, gpu) for gpu in inventory.types()]
    ranked = sorted(found, key=lambda each: (-each[1], each[0].pool))
    return tuple(ask for ask, _ in ranked[:MOST_POOLS])


def _best_ask(reach: Reach, gpu: GpuFacts) -> tuple[PoolAsk, int]:
    """The pool that this GPU type has, else the best choice, with its KV tokens.

    When nothing fits it is the first candidate, refused, with -1.
    """
    kept = _kept(reach, gpu)
    if kept is not None:
        return kept
    asks = [ask_of(reach, pool) for pool in _candidates(reach, gpu)]
    puttable = [(ask, ask.request) for ask in asks if ask.request is not None]
    if not puttable:
        return (asks or [ask_of(reach, _pool(gpu.product, EngineName.VLLM, 1))])[0], -1
    found = choose(
        [request for _, request in puttable],
        rooms=[ask.room or 0 for ask, _ in puttable],
        wanted=reach.spec.replicas,
    )
    if isinstance(found, Refusal):
        return puttable[0][0]._replace(request=None, refusal=found), -1
    ask, _ = puttable[found.best.at]
    return ask._replace(request=found.request, answer=found.plan), found.plan.kv.pool_tokens


def _kept(reach: Reach, gpu: GpuFacts) -> tuple[PoolAsk, int] | None:
    """The pool that we made for this type before, while the user says the same and its shape fits.

    A question that cannot be put, say because its larger nodes are out of sight, replaces no pool:
    then it is refused, and its workers are left alone.
    """
    for had in reach.made_before:
        if had.plan is None or had.gpu_product != gpu.product:
            continue
        ask = ask_of(reach, _pool(gpu.product, had.plan.engine, had.plan.cards))
        is_same = (
            had.plan_digest in (ask.digest, ask.said) or ask.digest != ask.question
        )  # only lowered since, or without prefix caching
        if is_same and _holds(ask, had.plan):
            return ask, had.plan.kv.pool_tokens
    return None


def _holds(ask: PoolAsk, held: Plan) -> bool:
    """Whether the pool may keep its shape: its plan fits as it is, or another of that shape does."""
    if ask.request is None or still_fits(held, ask.request.gpu):
        return True
    return isinstance(plan(ask.request), Plan)


def _candidates(reach: Reach, gpu: GpuFacts) -> Iterator[Pool]:
    """The ways to run it on nodes of this type: vLLM first."""
    spec = reach.spec
    most = max(node.count for node in reach.inventory.of_type(gpu.product))
    if spec.engines.vllm is not None and spec.model.uri is not None:
        for cards in CARDS_TO_TRY:
            if cards <= most:
                yield _pool(gpu.product, EngineName.VLLM, cards)
    if spec.engines.llama_cpp is not None and spec.model.gguf is not None:
        for cards in GGUF_CARDS_TO_TRY:
            if cards <= most:
                yield _pool(gpu.product, EngineName.LLAMA_CPP, cards)


def _pool(product: str, engine: EngineName, cards: int) -> Pool:
    return Pool.model_validate(
        {
            "name": pool_name(product, engine, cards),
            "gpu": {"product": product, "perWorker": cards},
            "engine": engine.value,
        }
    )


def pool_name(product: str, engine: EngineName, cards: int) -> str:
    """A name for a pool that nobody named.

    NVIDIA-RTX-A6000 over four cards is rtx-a6000-x4, with llama.cpp on one rtx-a6000-gguf.
    """
    plain = _NOT_DNS.sub("-", product.lower()).strip("-")
    for prefix in ("nvidia-", "geforce-", "tesla-"):
        plain = plain.removeprefix(prefix)
    kind = "-gguf" if engine is EngineName.LLAMA_CPP else ""
    name = plain + kind + ("" if cards == 1 else f"-x{cards}")
    return (
        name if len(name) <= 40 else f"{name[:31]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    )
