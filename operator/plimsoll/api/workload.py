"""What does one pool's plan need beside itself to become Kubernetes objects?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from plimsoll.api.asks import model_uri, release_of
from plimsoll.api.settle import Settled
from plimsoll.api.v1alpha1 import EnvVar as EnvSpec
from plimsoll.api.v1alpha1 import InferenceDeployment
from plimsoll.catalog.labels import AMD_PRODUCT, INTEL_PRODUCT
from plimsoll.engines.base import Release
from plimsoll.facts.gpu import GpuFacts, GpuVendor
from plimsoll.facts.record import Named
from plimsoll.render.records import NONROOT_USER, EnvVar, OwnerRef, PoolWorkload, SecretKey
from plimsoll.render.source import parse_source


def workload_of(deployment: InferenceDeployment, settled: Settled) -> PoolWorkload:
    """The pool as the renderer takes it, without workers yet: how many is the rollout's business.

    Raises ValueError when the pool has no plan.
    """
    spec, ask, plan = deployment.spec, settled.ask, settled.plan
    request = ask.request
    if plan is None or request is None:
        raise ValueError(f"pool {ask.pool} has no plan to write down")
    pool, engine, worker = ask.spec, spec.engines.of(ask.engine), spec.worker
    release = release_of(spec, pool)
    token = worker.hf_token_secret
    return PoolWorkload(
        owner=owner_of(deployment),
        pool=ask.pool,
        plan=plan,
        replicas=0,
        image=spec.image_of(pool) or "",
        release=Release.of(release) if release else None,
        model_name=spec.model.name,
        source=parse_source(model_uri(spec, ask.engine) or ""),
        gpu=request.gpu,
        match_labels=match_labels(request.gpu),
        extra_args=(*engine.extra_args, *pool.extra_args),
        env=_environment(engine.env, pool.env),
        hf_token_secret=SecretKey(name=token.name, key=token.key) if token else None,
        cpu_request=None if worker.cpu is None else str(worker.cpu),
        node_selector=_named(worker.node_selector),
        tolerations=tuple(each.to_json() for each in worker.tolerations),
        image_pull_secrets=tuple(secret.name for secret in worker.image_pull_secrets),
        priority_class_name=worker.priority_class_name,
        runtime_class_name=worker.runtime_class_name,
        scheduler_name=worker.scheduler_name,
        pod_labels=_named(worker.labels),
        pod_annotations=_named(worker.annotations),
        template_revision=settled.revision,
        run_as_user=worker.run_as_user or NONROOT_USER,
    )


_PRODUCT_LABELS: Final = {GpuVendor.AMD: AMD_PRODUCT, GpuVendor.INTEL: INTEL_PRODUCT}


def match_labels(gpu: GpuFacts) -> tuple[Named, ...]:
    """The label that picks nodes of this type, from the type alone.

    Not from the nodes in sight: one that comes or goes must not change a pod template.
    """
    if gpu.vendor in _PRODUCT_LABELS:
        return (Named(name=_PRODUCT_LABELS[gpu.vendor], value=gpu.product),)
    label = f"{gpu.resource}.product" if "/mig-" in gpu.resource else "nvidia.com/gpu.product"
    return (Named(name=label, value=gpu.product),)


def _named(pairs: Mapping[str, str]) -> tuple[Named, ...]:
    return tuple(Named(name=name, value=pairs[name]) for name in sorted(pairs))


def _environment(engine: Sequence[EnvSpec], pool: Sequence[EnvSpec]) -> tuple[EnvVar, ...]:
    """The engine's variables, then the pool's; of one name the pool's counts."""
    chosen = {variable.name: variable for variable in (*engine, *pool)}
    return tuple(
        EnvVar(
            name=variable.name,
            value=variable.value,
            secret=SecretKey(
                name=variable.value_from.secret_key_ref.name,
                key=variable.value_from.secret_key_ref.key,
            )
            if variable.value_from
            else None,
        )
        for variable in chosen.values()
    )


def owner_of(deployment: InferenceDeployment) -> OwnerRef:
    """Whose children they are."""
    metadata = deployment.metadata
    return OwnerRef(
        api_version=deployment.api_version,
        kind=deployment.kind,
        name=metadata.name,
        uid=metadata.uid or None,
        namespace=metadata.namespace,
    )
