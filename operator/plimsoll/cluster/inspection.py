"""How do we look at the reading of a model's files, and carry on with it?

A Job is made once and never changed; its pod comes with the workers' list. The ConfigMap is applied whole.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from plimsoll.api.inspection import settled_by
from plimsoll.api.inspection_ask import InspectionSeen, inspection_ask
from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import Conflict, NotFound
from plimsoll.cluster.kinds import CONFIG_MAP, JOB, Kind
from plimsoll.decide import Desired, Manifest, Observed
from plimsoll.render.labels import COMPONENT_LABEL, INSPECTION_COMPONENT

ALREADY_EXISTS: Final = "AlreadyExists"


class Inspector(NamedTuple):
    """With what files are read."""

    image: str = ""
    """Plimsoll's own image; empty reads none."""
    image_pull_policy: str | None = None
    """None leaves it to Kubernetes."""


NO_INSPECTOR: Final = Inspector()
"""Facts that were read before still count."""


async def look_at_inspection(
    client: Client, deployment: Manifest, inspector: Inspector
) -> InspectionSeen:
    """The ConfigMap and, where it does not answer the question, the Job that will. Without pods."""
    seen = InspectionSeen(image=inspector.image, image_pull_policy=inspector.image_pull_policy)
    ask = inspection_ask(deployment)
    if ask is None:
        return seen
    namespace = deployment["metadata"]["namespace"]
    cache = await _get(client, CONFIG_MAP, namespace, ask.cache_name)
    if cache is not None and not _is_of(cache, deployment):
        cache = None
    seen = seen.model_copy(update={"cache": cache})
    if not inspector.image or settled_by(cache, ask, inspector.image):
        return seen
    job = await _get(client, JOB, namespace, ask.job_name(inspector.image))
    return seen.model_copy(update={"job": job})


def is_inspection(pod: Manifest) -> bool:
    """Whether the pod reads files, and is no worker."""
    labels = pod["metadata"].get("labels") or {}
    return bool(labels.get(COMPONENT_LABEL) == INSPECTION_COMPONENT)


async def make_job(client: Client, job: Manifest) -> bool:
    """Make it; False when it was made already."""
    try:
        await client.create(JOB, job["metadata"]["namespace"], job)
    except Conflict as error:
        if error.reason != ALREADY_EXISTS:
            raise
        return False
    return True


async def keep_facts(client: Client, wanted: Manifest, observed: Observed) -> None:
    """Write the ConfigMap. Raises Conflict when the name is somebody else's."""
    metadata = wanted["metadata"]
    seen = (observed.inspection.cache, observed.probe.cache)
    if not any(c is not None and c["metadata"]["name"] == metadata["name"] for c in seen):
        there = await _get(client, CONFIG_MAP, metadata["namespace"], metadata["name"])
        if there is not None and not _is_of(there, observed.deployment):
            raise Conflict(
                f"ConfigMap {metadata['name']} exists and does not belong to this InferenceDeployment; "
                f"rename or delete one of the two",
                status=409,
                reason="NotOurs",
            )
    await client.apply(CONFIG_MAP, wanted, force=True)


def wanted_of(desired: Desired) -> tuple[Manifest, ...]:
    """What is to be written, Jobs first."""
    wanted = (desired.read_files, desired.probe, desired.keep_facts, desired.keep_probes)
    return tuple(each for each in wanted if each is not None)


async def _get(client: Client, kind: Kind, namespace: str, name: str) -> Manifest | None:
    try:
        return await client.get(kind, namespace, name)
    except NotFound:
        return None


def _is_of(thing: Manifest, deployment: Manifest) -> bool:
    """Whether this very InferenceDeployment owns it."""
    uid = deployment["metadata"]["uid"]
    return any(ref.get("uid") == uid for ref in thing["metadata"].get("ownerReferences") or ())
