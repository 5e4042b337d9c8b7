"""Who is judged when, so that a visit neither waits for arithmetic nor does it twice?

A verdict costs milliseconds and its figures come once a minute at most: within a minute the same worker
has the same verdict. The arithmetic runs beside the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from plimsoll.api.judged import UNSEEN, Judged, Watched, judged_of
from plimsoll.controller.settings import Settings
from plimsoll.decide import Key, Manifest, Observed
from plimsoll.diagnose.records import Verdict
from plimsoll.diagnose.settings import DEFAULT, SlopeSettings
from plimsoll.facts.series import ContainerLife, WorkerHistory
from plimsoll.units import parse_bytes

log = logging.getLogger(__name__)

MISTAKEN: Final = UNSEEN.model_copy(
    update={"sentence": "It could not be judged, by a mistake of ours; the operator's log has it."}
)


class JudgeOne(Protocol):
    """plimsoll.diagnose.verdict.verdict, or a stand-in that a test gives."""

    def __call__(
        self,
        history: WorkerHistory,
        peers: Sequence[WorkerHistory],
        /,
        *,
        now_seconds: float,
        settings: SlopeSettings,
    ) -> Verdict: ...


class _Mark(NamedTuple):
    """What a verdict was made from, as far as it can differ."""

    life: ContainerLife
    minute: int
    settings: SlopeSettings


class Judge:
    """Verdicts of all workers, kept for a minute."""

    def __init__(
        self,
        settings: Settings,
        *,
        histories: Callable[[Key], tuple[WorkerHistory, ...]],
        judge: JudgeOne,
        started_seconds: float,
    ) -> None:
        self._settings = settings
        self._histories = histories
        self._judge = judge
        self._started_seconds = started_seconds
        self._base = slope_settings(settings)
        self._kept: dict[Key, dict[str, tuple[_Mark, Verdict]]] = {}

    async def watched(self, key: Key, observed: Observed, *, now_seconds: float) -> Watched:
        """What is known of the workers of one InferenceDeployment."""
        return Watched(
            judged=tuple(await self._judged(key, observed, now_seconds)),
            operator_started_seconds=self._started_seconds,
            settle_seconds=self._settings.settle_seconds,
            stale_seconds=self._settings.stale_seconds,
            hour_seconds=self._settings.hour_seconds,
        )

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._kept.pop(key, None)

    async def _judged(self, key: Key, observed: Observed, now_seconds: float) -> list[Judged]:
        histories = self._histories(key)
        settings = self._base._replace(
            slope_bytes_per_hour=slope_of(observed.deployment, self._base.slope_bytes_per_hour)
        )
        minute = int(now_seconds // (self._settings.hour_seconds / 60))
        marks = {each.life.pod_uid: _Mark(each.life, minute, settings) for each in histories}
        kept = self._kept.get(key, {})
        due = [
            each
            for each in histories
            if each.life.pod_uid not in kept
            or kept[each.life.pod_uid][0] != marks[each.life.pod_uid]
        ]
        fresh: Mapping[str, Verdict] = {}
        if due:
            fresh = await asyncio.to_thread(
                _judge_all, self._judge, due, histories, now_seconds, settings
            )
        now = {uid: (marks[uid], fresh[uid]) if uid in fresh else kept[uid] for uid in marks}
        self._kept[key] = now
        newest = {each.life.pod_uid: each for each in histories}
        return [judged_of(newest[uid], verdict) for uid, (_, verdict) in now.items()]


def _judge_all(
    judge: JudgeOne,
    due: Sequence[WorkerHistory],
    everyone: Sequence[WorkerHistory],
    now_seconds: float,
    settings: SlopeSettings,
) -> dict[str, Verdict]:
    pools: dict[str, list[WorkerHistory]] = defaultdict(list)
    for each in everyone:
        pools[each.pool].append(each)

    def one(history: WorkerHistory) -> Verdict:
        peers = [peer for peer in pools[history.pool] if peer is not history]
        try:
            return judge(history, peers, now_seconds=now_seconds, settings=settings)
        except Exception:
            # a mistake of ours about one worker must not keep plans from the others
            log.exception("verdict failed on a mistake of ours", extra={"pod": history.pod})
            return MISTAKEN

    return {each.life.pod_uid: one(each) for each in due}


def slope_settings(settings: Settings) -> SlopeSettings:
    """The detector's settings; shortened where the operator's hour is."""
    found = DEFAULT
    if settings.hour_seconds != DEFAULT.hour_seconds or settings.growth_share != 1:
        found = DEFAULT.shortened(settings.hour_seconds, settings.growth_share)
    return found._replace(stale_hours=settings.stale_seconds / settings.hour_seconds)


def slope_of(deployment: Manifest, default: float) -> float:
    """spec.recycling.slope in bytes per hour. What cannot be read is `decide`'s to tell; till then the
    default holds."""
    spec: Any = deployment.get("spec")
    recycling = spec.get("recycling") if isinstance(spec, dict) else None
    written = recycling.get("slope") if isinstance(recycling, dict) else None
    try:
        return default if written is None else float(parse_bytes(written))
    except (ValueError, AttributeError, TypeError):
        return default
