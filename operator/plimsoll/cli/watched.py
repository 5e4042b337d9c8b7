"""Which workers are there in a cluster, and what has Plimsoll written of each?

Only what is in the InferenceDeployments' status, and the floors beside it: no right is needed beyond
reading them.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from plimsoll.api.v1alpha1 import InferenceDeploymentStatus, WorkerStatus, read_status
from plimsoll.cli.exits import BadInputError

T = TypeVar("T")


class Seen(NamedTuple):
    """One InferenceDeployment, as far as recycling goes."""

    namespace: str
    name: str
    uid: str
    mode: str
    """spec.recycling.mode; Auto when left out."""
    status: InferenceDeploymentStatus


class Row(NamedTuple):
    """One worker of it."""

    seen: Seen
    worker: WorkerStatus


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Which cluster and which part of it."""
    parser.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        help="look in this namespace only; in all when left out",
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="credentials; $KUBECONFIG or ~/.kube/config when left out",
    )


def with_client(kubeconfig: str | None, work: Callable[[Any], Awaitable[T]]) -> T:
    """Do something with a client of the cluster. Raises BadInputError where it does not answer."""
    from plimsoll.cluster.client import Client  # noqa: PLC0415 - a second to import
    from plimsoll.cluster.errors import ApiError  # noqa: PLC0415

    async def run() -> T:
        client = await Client.connect(kubeconfig)
        client.may_write = lambda: False
        try:
            return await work(client)
        finally:
            await client.close()

    try:
        return asyncio.run(run())
    except ApiError as error:
        raise BadInputError(f"the cluster does not answer as hoped: {error.message}") from error


async def look(client: Any, namespace: str | None) -> tuple[Seen, ...]:
    """Every InferenceDeployment in reach, in the order of their names."""
    from plimsoll.cluster.kinds import INFERENCE_DEPLOYMENT  # noqa: PLC0415

    listing = await client.list_all(INFERENCE_DEPLOYMENT, namespace)
    found = (seen_of(raw) for raw in listing.items)
    return tuple(sorted(found, key=lambda seen: (seen.namespace, seen.name)))


def seen_of(raw: dict[str, Any]) -> Seen:
    """An InferenceDeployment as the API server gives it."""
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    recycling = spec.get("recycling") or {}
    return Seen(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        mode=recycling.get("mode") or "Auto",
        status=read_status(raw.get("status")),
    )


def rows_of(everyone: Sequence[Seen]) -> tuple[Row, ...]:
    """Their workers, those in trouble first within each."""
    return tuple(Row(seen, worker) for seen in everyone for worker in seen.status.workers)
