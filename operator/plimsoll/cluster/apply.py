"""How do we make it so, with no request more than needed?

Children first, in the order of kinds.CHILDREN, then the status, then what it says is to be done to
workers, then the events: what is told is already true. Nothing is written where nothing differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import Field

from plimsoll.api.news import Announcement
from plimsoll.cluster.client import CHILD_MANAGER, Client
from plimsoll.cluster.difference import (
    POD_SPEC,
    Difference,
    found,
    has_own_updates,
    leftovers,
)
from plimsoll.cluster.errors import ApiError, Conflict, Invalid, NotFound, NotLeading, Unavailable
from plimsoll.cluster.events import announce
from plimsoll.cluster.evict import carry_out
from plimsoll.cluster.gate import tell_gates
from plimsoll.cluster.inspection import keep_facts, make_job, wanted_of
from plimsoll.cluster.kinds import CHILDREN, DEPLOYMENT, JOB, POD, Kind, child_kind
from plimsoll.cluster.settled import Settled
from plimsoll.cluster.status import write_status
from plimsoll.decide import ChildRef, Desired, Manifest, Observed, after_block
from plimsoll.facts.record import Record

_ORDER: Final = {kind.kind: place for place, kind in enumerate(CHILDREN)}
_POD_SPEC_POINTER: Final = "/" + "/".join(POD_SPEC)

OnWrite = Callable[[str, str, tuple[Difference, ...]], None]
"""Told kind, name and the differences of each child that is put right; none when it is new."""


class Failure(Record):
    """A child that could not be made so; the others and the status were."""

    kind: str
    """For example Deployment."""
    name: str
    """Its name."""
    reason: str
    """PascalCase fact."""
    message: str
    """What the API server said, or what stands in the way."""


class ApplyReport(Record):
    """What was written."""

    applied: tuple[str, ...] = ()
    """Children created or put right, as Kind/name."""
    deleted: tuple[str, ...] = ()
    """Children removed, as Kind/name."""
    versions: Mapping[str, str] = Field(default_factory=dict)
    """By kind, the resourceVersion that our last write to such a child, or to a gate's pod, led to."""
    status_version: str | None = None
    """The object's resourceVersion after our write to its status; None when there was none."""
    announced: int = 0
    """Events posted."""
    failures: tuple[Failure, ...] = ()
    """Children that could not be made so."""

    @property
    def writes(self) -> int:
        """Objects that changed."""
        return len(self.applied) + len(self.deleted) + (self.status_version is not None)


async def make_so(
    client: Client,
    desired: Desired,
    observed: Observed,
    *,
    settled: Settled,
    now_seconds: float,
    reporter: str = "plimsoll",
    on_write: OnWrite | None = None,
) -> ApplyReport:
    """Carry out what `decide` wants.

    A child that the API server refuses is a Failure in the report, and the rest goes on. Raises
    Unavailable and NotLeading at once: then nothing else would work either.
    """
    applied: list[str] = []
    deleted: list[str] = []
    failures: list[Failure] = []
    written: dict[str, str] = {}
    for wanted in sorted(desired.apply, key=_in_order):
        try:
            live = await _make_child_so(client, wanted, observed, settled, on_write)
            if live is not None:
                applied.append(_title(wanted))
                written[wanted["kind"]] = live["metadata"]["resourceVersion"]
        except (Unavailable, NotLeading):
            raise
        except ApiError as error:
            failures.append(_failure(wanted["kind"], wanted["metadata"]["name"], error))
    for ref in desired.delete:
        try:
            if await _delete_child(client, ref, observed):
                deleted.append(f"{ref.kind}/{ref.name}")
        except (Unavailable, NotLeading):
            raise
        except ApiError as error:
            failures.append(_failure(ref.kind, ref.name, error))
    applied += await _carry_on(client, desired, observed, failures)
    status_version = None
    if desired.status is not None:
        status_version = await write_status(client, observed.deployment, desired.status, settled)
    told = await tell_gates(client, desired.words, observed.deployment["metadata"]["namespace"])
    for name, version in told.items():
        applied.append(f"{POD.kind}/{name}")
        written[POD.kind] = version
    blocked = await _act(client, desired, observed, settled, now_seconds)
    if blocked is not None:
        status_version = blocked.status_version or status_version
    announced = await announce(
        client,
        observed.deployment,
        desired.events
        + (() if blocked is None else (blocked.event,))
        + _news(failures, observed, settled),
        reporter=reporter,
        now_seconds=now_seconds,
    )
    return ApplyReport(
        applied=tuple(applied),
        deleted=tuple(deleted),
        versions=written,
        status_version=status_version,
        announced=announced,
        failures=tuple(failures),
    )


class _BlockedAct(Record):
    """An eviction that was not allowed, as told and recorded."""

    event: Announcement
    status_version: str | None


async def _act(
    client: Client, desired: Desired, observed: Observed, settled: Settled, now_seconds: float
) -> _BlockedAct | None:
    """Do what the status, written by now, says is to be done; and record when it was not allowed."""
    if not desired.acts or desired.status is None:
        return None
    owner = observed.deployment
    blocked = await carry_out(client, desired.acts, owner["metadata"]["namespace"])
    if blocked is None:
        return None
    status, event = after_block(desired.status, blocked.uid, blocked.why, now_seconds=now_seconds)
    written = await write_status(client, owner | {"status": desired.status}, status, settled)
    return _BlockedAct(event=event, status_version=written)


async def _carry_on(
    client: Client, desired: Desired, observed: Observed, failures: list[Failure]
) -> list[str]:
    """The reading of the model's files: begin it, or keep what it found. What was written."""
    written: list[str] = []
    for wanted in wanted_of(desired):
        try:
            if wanted["kind"] == JOB.kind:
                is_new = await make_job(client, wanted)
            else:
                await keep_facts(client, wanted, observed)
                is_new = True
        except (Unavailable, NotLeading):
            raise
        except ApiError as error:
            failures.append(_failure(wanted["kind"], wanted["metadata"]["name"], error))
        else:
            written += [_title(wanted)] if is_new else []
    return written


async def _make_child_so(
    client: Client,
    wanted: Manifest,
    observed: Observed,
    settled: Settled,
    on_write: OnWrite | None,
) -> Manifest | None:
    """Create the child or put it right, and give it as it is now; None when it was so already."""
    kind, name = child_kind(wanted), wanted["metadata"]["name"]
    live = next((c for c in observed.children if _is_named(c, kind, name)), None)
    if live is None:
        try:
            # Without force: creates what is missing and takes nothing from anybody.
            made = await client.apply(kind, wanted, force=False)
        except Conflict:
            # It exists after all: ours with its label gone, or somebody else's.
            live = await _namesake(client, kind, wanted, observed)
        else:
            _tell(on_write, kind, name, ())
            return made
    if not _is_ours(live, observed):
        raise _NotOurs(kind, name)
    uid = live["metadata"]["uid"]
    differences = found(wanted, live, manager=CHILD_MANAGER)
    if not differences or settled.is_as_good_as_it_gets(uid, wanted, live):
        return None
    _tell(on_write, kind, name, differences)
    live = await _repair(client, kind, wanted, live, differences)
    if found(wanted, live, manager=CHILD_MANAGER):
        settled.remember(uid, wanted, live)
    return live


async def _namesake(client: Client, kind: Kind, wanted: Manifest, observed: Observed) -> Manifest:
    """The object that has the name we need. Raises Conflict when it is not ours."""
    metadata = wanted["metadata"]
    namesakes = await client.list_all(
        kind, metadata["namespace"], fields=f"metadata.name={metadata['name']}"
    )
    for live in namesakes.items:
        if _is_ours(live, observed):
            return live
    raise _NotOurs(kind, metadata["name"])


async def _repair(
    client: Client,
    kind: Kind,
    wanted: Manifest,
    live: Manifest,
    differences: tuple[Difference, ...],
) -> Manifest:
    """Put a child of ours right.

    Server-side apply does it, except for what others added to the pod template (it leaves that
    alone) and for what they put in the place of ours (it is refused then). Both are undone by
    replacing the template's pod spec as a whole, which is one change and so one rollout at most.
    """
    is_applied = False
    if not any(difference.is_foreign for difference in differences):
        left = [d for d in leftovers(wanted, live, manager=CHILD_MANAGER) if _is_in_pod(d)]
        try:
            live = await client.apply(kind, wanted, force=True)
            is_applied = True
        except Invalid:
            if kind != DEPLOYMENT:
                raise
        else:
            remaining = found(wanted, live, manager=CHILD_MANAGER)
            may_stay = left and has_own_updates(live, manager=CHILD_MANAGER)
            if not (may_stay or any(_is_in_pod(difference) for difference in remaining)):
                return live
    if kind == DEPLOYMENT:
        metadata = live["metadata"]
        replaced = [
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            {"op": "replace", "path": _POD_SPEC_POINTER, "value": _at(wanted, POD_SPEC)},
        ]
        live = await client.patch_json(kind, metadata["namespace"], metadata["name"], replaced)
        if (
            not is_applied
        ):  # so that each field is ours by apply again, and goes when we leave it out
            live = await client.apply(kind, wanted, force=True)
    return live


def _is_in_pod(difference: Difference) -> bool:
    return difference.path[: len(POD_SPEC)] == POD_SPEC


async def _delete_child(client: Client, ref: ChildRef, observed: Observed) -> bool:
    """Delete a child of ours; False when there is none, or it is somebody else's, or on its way."""
    wanted = {"apiVersion": ref.api_version, "kind": ref.kind}
    kind = child_kind(wanted)
    for live in observed.children:
        metadata = live["metadata"]
        if not (_is_named(live, kind, ref.name) and _is_ours(live, observed)):
            continue
        if "deletionTimestamp" in metadata:
            return False
        try:
            await client.delete(kind, ref.namespace, ref.name, uid=metadata["uid"])
        except NotFound:
            return False
        return True
    return False


class _NotOurs(Conflict):
    """The name is taken."""

    def __init__(self, kind: Kind, name: str) -> None:
        super().__init__(
            f"{kind.kind} {name} exists and does not belong to this InferenceDeployment; "
            f"rename or delete one of the two",
            status=409,
            reason="NotOurs",
        )


def _is_named(child: Manifest, kind: Kind, name: str) -> bool:
    return bool(child["kind"] == kind.kind and child["metadata"]["name"] == name)


def _is_ours(child: Manifest, observed: Observed) -> bool:
    """Whether this very InferenceDeployment, not a namesake before it, owns the child."""
    uid = observed.deployment["metadata"]["uid"]
    return any(ref.get("uid") == uid for ref in child["metadata"].get("ownerReferences") or ())


def _tell(
    on_write: OnWrite | None, kind: Kind, name: str, differences: tuple[Difference, ...]
) -> None:
    if on_write is not None:
        on_write(kind.kind, name, differences)


def _in_order(manifest: Manifest) -> tuple[int, str]:
    return _ORDER.get(manifest["kind"], 0), manifest["metadata"]["name"]


def _title(manifest: Manifest) -> str:
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


def _at(thing: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        thing = thing[part]
    return thing


def _failure(kind: str, name: str, error: ApiError) -> Failure:
    return Failure(kind=kind, name=name, reason=error.reason or "Refused", message=error.message)


def _news(
    failures: list[Failure], observed: Observed, settled: Settled
) -> tuple[Announcement, ...]:
    """The failures as events, unless the same were told last time."""
    told = frozenset((f.reason, f.message) for f in failures)
    if not settled.is_news(observed.deployment["metadata"]["uid"], told):
        return ()
    return tuple(
        Announcement(
            type="Warning",
            reason="ChildNotApplied",
            message=f"{failure.kind} {failure.name} was not applied: {failure.message}",
        )
        for failure in failures
    )
