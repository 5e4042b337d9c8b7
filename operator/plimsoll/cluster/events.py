"""How do we tell the person at kubectl what happened?

Events are few and the caller posts each fact once; losing one must never hold up the work.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from plimsoll.api.news import Announcement
from plimsoll.cluster.client import Client
from plimsoll.cluster.errors import ApiError
from plimsoll.cluster.kinds import EVENT, INFERENCE_DEPLOYMENT
from plimsoll.decide import Manifest

log = logging.getLogger(__name__)

COMPONENT: Final = "plimsoll"
LONGEST_MESSAGE: Final = 1024  # characters; k8s.io/kubernetes pkg/apis/core/validation/events.go
LONGEST_NAME: Final = 200  # characters; leaves room for the suffix of generateName
CUT: Final = " ..."


async def announce(
    client: Client,
    deployment: Manifest,
    announcements: Iterable[Announcement],
    *,
    reporter: str,
    now_seconds: float,
) -> int:
    """Post one Event each. Gives how many were accepted; a refusal goes to the log and no further."""
    namespace = deployment["metadata"]["namespace"]
    posted = 0
    for announcement in announcements:
        body = event_of(deployment, announcement, reporter=reporter, now_seconds=now_seconds)
        try:
            await client.create(EVENT, namespace, body)
            posted += 1
        except ApiError as error:
            log.warning(
                "event not posted",
                extra={
                    "namespace": namespace,
                    "deployment": deployment["metadata"]["name"],
                    "reason": announcement.reason,
                    "error": error.message,
                },
            )
    return posted


def event_of(
    deployment: Manifest, announcement: Announcement, *, reporter: str, now_seconds: float
) -> dict[str, Any]:
    """The Event as the API server takes it."""
    metadata = deployment["metadata"]
    when = datetime.fromtimestamp(now_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    message = announcement.message
    if len(message) > LONGEST_MESSAGE:
        message = message[: LONGEST_MESSAGE - len(CUT)] + CUT
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {
            "generateName": metadata["name"][:LONGEST_NAME] + ".",
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": INFERENCE_DEPLOYMENT.api_version,
            "kind": INFERENCE_DEPLOYMENT.kind,
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
        "type": announcement.type,
        "reason": announcement.reason,
        "message": message,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": reporter,
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
    }
