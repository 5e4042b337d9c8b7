"""How do we look at probes of retrieval?

The ConfigMap, and the Job that the status names; a probe's pod comes with the workers' list. Where the spec tries no
dtype, nothing is asked.
"""

from __future__ import annotations

from plimsoll.api.kv_gate import PROBING, ProbeSeen
from plimsoll.api.kv_gate_opened import tries_of
from plimsoll.api.v1alpha1 import read_status
from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import NotFound
from plimsoll.cluster.inspection import Inspector
from plimsoll.cluster.kinds import CONFIG_MAP, JOB, Kind
from plimsoll.decide import Manifest
from plimsoll.render.labels import COMPONENT_LABEL, PROBE_COMPONENT, retrieval_name


async def look_at_probe(client: Client, deployment: Manifest, inspector: Inspector) -> ProbeSeen:
    """Everything but pods. Raises ApiError."""
    seen = ProbeSeen(image=inspector.image, image_pull_policy=inspector.image_pull_policy)
    if not tries_of(deployment):
        return seen
    metadata = deployment["metadata"]
    namespace = metadata["namespace"]
    cache = await _get(client, CONFIG_MAP, namespace, retrieval_name(metadata["name"]))
    owners = ((cache or {}).get("metadata") or {}).get("ownerReferences") or ()
    is_ours = cache is None or any(ref.get("uid") == metadata["uid"] for ref in owners)
    running = (
        each.job
        for each in read_status(deployment.get("status")).retrieval
        if each.state == PROBING and each.job
    )
    name = next(running, None)
    job = None if name is None else await _get(client, JOB, namespace, name)
    return seen.model_copy(update={"cache": cache, "is_ours": is_ours, "job": job})


def is_probe(pod: Manifest) -> bool:
    """Whether the pod probes, and is no worker."""
    labels = pod["metadata"].get("labels") or {}
    return bool(labels.get(COMPONENT_LABEL) == PROBE_COMPONENT)


async def _get(client: Client, kind: Kind, namespace: str, name: str) -> Manifest | None:
    try:
        return await client.get(kind, namespace, name)
    except NotFound:
        return None
