"""How is one object of a cluster read, with the caller's own rights and nothing but `get`?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from plimsoll.cli.exits import BadInputError
from plimsoll.cli.watched import with_client

RESOURCES: Final = {
    ("deployment", "deployments", "deploy"): ("apps/v1", "Deployment", "deployments"),
    ("statefulset", "statefulsets", "sts"): ("apps/v1", "StatefulSet", "statefulsets"),
    ("daemonset", "daemonsets", "ds"): ("apps/v1", "DaemonSet", "daemonsets"),
    ("replicaset", "replicasets", "rs"): ("apps/v1", "ReplicaSet", "replicasets"),
    ("pod", "pods", "po"): ("v1", "Pod", "pods"),
    ("job", "jobs"): ("batch/v1", "Job", "jobs"),
    ("leaderworkerset", "leaderworkersets", "lws"): (
        "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets",
    ),
    ("inferenceservice", "inferenceservices", "isvc"): (
        "serving.kserve.io/v1beta1", "InferenceService", "inferenceservices",
    ),
    ("llminferenceservice", "llminferenceservices", "llmisvc"): (
        "serving.kserve.io/v1alpha1", "LLMInferenceService", "llminferenceservices",
    ),
    ("model", "models"): ("kubeai.org/v1", "Model", "models"),
}  # fmt: skip
"""Words for a kind, as kubectl takes them: API, kind and the word in the address."""
_BY_WORD: Final = {word: resource for words, resource in RESOURCES.items() for word in words}


def fetch(
    objects: Sequence[str], namespace: str, kubeconfig: str | None
) -> tuple[tuple[str, dict[str, Any]], ...]:
    """The objects by KIND/NAME, each with how it was named. Raises BadInputError."""
    wanted = [(each, *_resource(each)) for each in objects]

    async def work(client: Any) -> tuple[tuple[str, dict[str, Any]], ...]:
        from plimsoll.cluster.errors import Forbidden, NotFound  # noqa: PLC0415 - a second to import
        from plimsoll.cluster.kinds import Kind  # noqa: PLC0415

        found = []
        for named, (version, kind, plural), name in wanted:
            resource = Kind(api_version=version, kind=kind, plural=plural)
            try:
                body = dict(await client.get(resource, namespace, name))
            except NotFound as error:
                raise BadInputError(
                    f"{named}: there is none in namespace {namespace} ({error.message}); say which with -n"
                ) from error
            except Forbidden as error:
                raise BadInputError(
                    f"{named}: your kubeconfig may not get it ({error.message}); give the manifest with -f"
                ) from error
            found.append((named, {"apiVersion": version, "kind": kind, **body}))
        return tuple(found)

    return with_client(kubeconfig, work)


def _resource(named: str) -> tuple[tuple[str, str, str], str]:
    word, slash, name = named.partition("/")
    resource = _BY_WORD.get(word.lower().partition(".")[0])
    if not slash or not name or resource is None:
        kinds = ", ".join(words[0] for words in RESOURCES)
        raise BadInputError(
            f"{named!r} is not KIND/NAME; KIND is one of {kinds}, e.g. deployment/chat"
        )
    return resource, name
