"""What is a worker, as the cluster shows it?"""

from __future__ import annotations

from plimsoll.facts.record import Record


class WorkerFacts(Record):
    """One pod of a pool."""

    name: str
    """Name of the pod."""
    uid: str
    """UID of the pod."""
    pool: str
    """Name of the pool it belongs to."""
    node: str | None = None
    """The node it runs on; None while it waits for one."""
    phase: str = "Unknown"
    """Pod phase."""
    is_ready: bool = False
    """Whether the pod is Ready."""
    template_hash: str = ""
    """The pod-template-hash label: which revision of the pool it runs."""
    is_terminating: bool = False
    """Whether it is being deleted."""
    message: str = ""
    """Why it is not running, as the scheduler or the container says."""
