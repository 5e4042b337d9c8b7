"""Where does a deployment's Service lead, which gates stand there, and what is each of them told?

With `spec.gateway.enabled` the Service leads to the gates from the moment that one is ready and knows its
workers, and stays so, whatever becomes of the gates: past them there would be no limit. Switched off, it leads
to the workers again, and only when that is so do the gates go. A gate stays as it is while the user asks the
same, so that an upgrade of the operator replaces none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from plimsoll.api.gateway import problems_of, rooms_of, text_of
from plimsoll.api.gateway_words import GateSeen, GateWord, Message, knows, words_for
from plimsoll.api.prefix_ask import OFF
from plimsoll.api.prefix_caching import ADVISED, NOTHING_TO_GAIN
from plimsoll.api.settle import Settled
from plimsoll.api.status_types import GatewayStatus
from plimsoll.api.traffic import PrefixCaching
from plimsoll.api.v1alpha1 import InferenceDeployment
from plimsoll.api.workload import owner_of
from plimsoll.engines.base import EngineName
from plimsoll.facts.record import Record
from plimsoll.facts.worker import WorkerFacts
from plimsoll.gate.allocate import slots_of
from plimsoll.plan.records import Plan
from plimsoll.render.gateway import HEADER_BYTES, haproxy_text, most_connections
from plimsoll.render.gateway_objects import (
    GATE_ANNOTATION,
    GATE_COMPONENT,
    HAPROXY,
    KEEPER,
    MOST_TEXT_BYTES,
    TEXT_ANNOTATION,
    GateObjects,
    gate_manifests,
    gate_name,
    gate_selector,
    gate_service,
)
from plimsoll.render.gateway_records import GateText
from plimsoll.render.labels import COMPONENT_LABEL, short_hash
from plimsoll.render.records import Manifest
from plimsoll.render.service import service_manifest

LONGEST_MESSAGE: Final = 512


class Door(NamedTuple):
    """What follows for the cluster."""

    service: Manifest
    """The Service under which the deployment is reached."""
    manifests: tuple[Manifest, ...] = ()
    """The gate's own objects."""
    unwanted: tuple[Manifest, ...] = ()
    """Live objects of a gate that is no longer wanted."""
    words: tuple[GateWord, ...] = ()
    """What is told to whom; those who know it already are left out."""
    status: GatewayStatus | None = None
    """None where no gate is asked for and none is left."""


def door_of(
    deployment: InferenceDeployment,
    settled: Sequence[Settled],
    children: Iterable[Manifest],
    gates: Sequence[GateSeen],
    workers: Sequence[WorkerFacts],
    *,
    keeper: tuple[str, str | None],
    now_seconds: float,
) -> Door:
    """The gate of one deployment, given what stands there. `keeper` is our own image, empty where nobody named
    it, and how it is pulled."""
    keeper_image, keeper_pull_policy = keeper
    owner = owner_of(deployment)
    live = list(children)
    own = [each for each in live if _is_gates(each)]
    leads_to_gate = _leads_to_gate(live, deployment.metadata.name)
    to_workers = service_manifest(owner)
    if not deployment.spec.gateway.enabled:
        unwanted = () if leads_to_gate else tuple(own)
        status = _status(deployment, gates, is_door=False, said=LEAVES) if own else None
        return Door(to_workers, unwanted=unwanted, status=status)
    plans = {each.ask.pool: each.plan for each in settled if each.plan is not None}
    running = next((each for each in own if each["kind"] == "Deployment"), None)
    text = _text(deployment, plans, running)
    problem = _problem(deployment, plans, keeper_image, text)
    if problem or text is None:  # what stands there stays
        service = gate_service(owner) if leads_to_gate else to_workers
        status = _status(deployment, gates, is_door=leads_to_gate is True, said=problem)
        return Door(service, status=status)
    rooms = rooms_of(deployment.spec, plans)
    if deployment.spec.gateway.affinity is not None and not _are_found(deployment, plans):
        rooms = rooms.model_copy(update={"spreads_sessions": True})
    question = _question(deployment, plans)
    objects = GateObjects(
        owner=owner,
        question=question,
        text=text.text,
        image=deployment.spec.gateway.image or "",
        keeper_image=keeper_image,
        keeper_pull_policy=keeper_pull_policy,
        replicas=deployment.spec.gateway.replicas or 1,
        buffers_bytes=text.buffers_bytes,
        keys_secret=deployment.spec.gateway.keys_secret,
        image_pull_secrets=tuple(each.name for each in deployment.spec.worker.image_pull_secrets),
        tolerations=tuple(each.to_json() for each in deployment.spec.worker.tolerations),
    )
    if text.is_held and running is not None:
        objects = _as_it_runs(objects, running)
    may_lead = leads_to_gate is None or leads_to_gate or any(knows(each) for each in gates)
    return Door(
        gate_service(owner) if may_lead else to_workers,
        manifests=gate_manifests(objects),
        words=tuple(
            words_for(
                gates, Message(rooms, workers, question, objects.replicas), now_seconds=now_seconds
            )
        ),
        status=_status(
            deployment, gates, is_door=bool(may_lead), said=" ".join(problems_of(rooms))
        ),
    )


FINDS_LITTLE: Final = frozenset({NOTHING_TO_GAIN, ADVISED, OFF})
"""What is told of a prefix cache that has found little for hours."""


def _are_found(deployment: InferenceDeployment, plans: Mapping[str, Plan]) -> bool:
    """Whether some pool's prefix cache finds what it keeps, as far as is known."""
    asked = deployment.spec.kv_cache.prefix_caching
    if asked is PrefixCaching.ON:
        return True
    little = {
        pool.name
        for pool in deployment.status.pools
        if pool.prefix_caching is not None and pool.prefix_caching.state in FINDS_LITTLE
    }
    return any(
        plan.engine is not EngineName.VLLM
        or (asked is not PrefixCaching.OFF and name not in little)
        for name, plan in plans.items()
    )


LEAVES: Final = "The Service leads to the workers again; the gates go."


# ---- what runs and what is asked -----------------------------------------------------------------


class _Text(NamedTuple):
    text: str
    buffers_bytes: int
    is_held: bool


def _text(
    deployment: InferenceDeployment, plans: Mapping[str, Plan], running: Manifest | None
) -> _Text | None:
    """HAProxy's configuration: the running gate's while it answers the same and has places enough."""
    if not plans:
        return None
    spec = deployment.spec
    rooms = rooms_of(spec, plans)
    longest = max(plan.max_model_len for plan in plans.values())
    asked = text_of(spec, rooms, max_model_len=longest)
    most = max((slots_of(pool, rooms.lanes) for pool in rooms.pools), key=sum)
    full = asked._replace(  # nobody stands there yet, but clients are counted as if
        servers=tuple(
            server._replace(slots=most if place < spec.replicas else ())
            for place, server in enumerate(asked.servers)
        )
    )
    fresh = _Text(haproxy_text(full), _buffers_bytes(full), is_held=False)
    if running is None or _annotation(running, GATE_ANNOTATION) != _question(deployment, plans):
        return fresh
    held = _template_annotation(running, TEXT_ANNOTATION)
    places = held.count(f" track {POOL_TRACKED}") // max(1, len(asked.lanes))
    if places < spec.replicas + SPARE_PLACES:
        return fresh
    return fresh._replace(text=held, is_held=True)


POOL_TRACKED: Final = "pool/"
SPARE_PLACES: Final = 4
"""Places beyond the replicas below which a running gate is replaced by a larger one."""


def _buffers_bytes(text: GateText) -> int:
    """One whole body for each client."""
    return most_connections(text) * (text.most_body_bytes + HEADER_BYTES)


def _question(deployment: InferenceDeployment, plans: Mapping[str, Plan]) -> str:
    """Digest of what a gate is made from, as the user says it; what follows from a plan alone is told."""
    spec = deployment.spec
    lanes = spec.traffic.lanes if spec.traffic else ()
    answer = spec.traffic.output_tokens if spec.traffic else None
    asked = {
        "gateway": _said(spec.gateway, HEARD),
        "lanes": [_said(each, exclude=TOLD_LATER) for each in lanes],
        "answer": answer.p99 if answer else 0,
        "longest": max((plan.max_model_len for plan in plans.values()), default=0),
        "secrets": [each.name for each in spec.worker.image_pull_secrets],
        "tolerations": [each.to_json() for each in spec.worker.tolerations],
    }
    return short_hash(json.dumps(asked, sort_keys=True))


HEARD: Final = {"queue", "replicas", "keys_secret", "affinity", "image"}
"""What the gate itself is made from; other members of `gateway` are for the engines."""


TOLD_LATER: Final = {"bytes_per_token"}
"""What a keeper can change at a gate that runs."""


def _said(
    part: Record, include: set[str] | None = None, exclude: set[str] | None = None
) -> dict[str, Any]:
    """Only what somebody wrote: a default that comes or changes is no new question."""
    return part.model_dump(mode="json", exclude_defaults=True, include=include, exclude=exclude)


def _as_it_runs(asked: GateObjects, running: Manifest) -> GateObjects:
    """The same gate with what a newer operator would write otherwise: its own image, and sizes."""
    pod = running["spec"]["template"]["spec"]
    containers = {each["name"]: each for each in pod.get("containers") or ()}
    keeper, haproxy = containers.get(KEEPER) or {}, containers.get(HAPROXY) or {}
    limit = ((haproxy.get("resources") or {}).get("limits") or {}).get("memory")
    return asked._replace(
        keeper_image=keeper.get("image") or asked.keeper_image,
        keeper_pull_policy=keeper.get("imagePullPolicy")
        if asked.keeper_pull_policy is not None
        else None,
        memory_limit=limit,
    )


def _problem(
    deployment: InferenceDeployment,
    plans: Mapping[str, Plan],
    keeper_image: str,
    text: _Text | None,
) -> str:
    """Why there can be no gate, with the way out; empty when there can."""
    if deployment.spec.gateway.image is None:
        return "No gate: gateway.image is not set; name an image of HAProxy 2.6 or newer."
    if not keeper_image:
        return (
            "No gate: the operator does not know its own image, in which the keeper runs; set "
            "PLIMSOLL_INSPECTION_IMAGE, as the chart does."
        )
    if not plans:
        return "No gate yet: no pool has a plan."
    size = len(text.text) if text is not None else 0
    if size > MOST_TEXT_BYTES:
        return (
            f"No gate: HAProxy's configuration for {deployment.spec.replicas} workers has {size} bytes, at most "
            f"{MOST_TEXT_BYTES} can be kept; split the deployment, or use fewer lanes."
        )
    return ""


def _is_gates(child: Manifest) -> bool:
    labels = child["metadata"].get("labels") or {}
    return bool(labels.get(COMPONENT_LABEL) == GATE_COMPONENT)


def _leads_to_gate(children: Iterable[Manifest], name: str) -> bool | None:
    """Whether the live Service leads to the gates; None where there is no Service yet."""
    for child in children:
        if child["kind"] == "Service":
            selector = (child.get("spec") or {}).get("selector") or {}
            return bool(selector == gate_selector(name))
    return None


def _annotation(thing: Manifest, name: str) -> str:
    return str((thing["metadata"].get("annotations") or {}).get(name, ""))


def _template_annotation(thing: Manifest, name: str) -> str:
    return _annotation(thing["spec"]["template"], name)


def _status(
    deployment: InferenceDeployment, gates: Sequence[GateSeen], *, is_door: bool, said: str
) -> GatewayStatus:
    return GatewayStatus(
        gates=deployment.spec.gateway.replicas or 1 if deployment.spec.gateway.enabled else 0,
        ready_gates=sum(knows(each) for each in gates),
        is_door=is_door,
        name=gate_name(deployment.metadata.name),
        message=said[:LONGEST_MESSAGE],
    )
