"""A gate's day for the dashboard: what its keeper's page says, minute by minute.

Limits are set by the gate's own thought, and the page is the keeper's own. Who comes is made up: chat by day, more
than its share holds at its peak, and a batch by night.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from plimsoll.gate.reading import GateSeen
from plimsoll.gate.records import GateRooms, LaneRoom, WorkerRoom
from plimsoll.gate.roster import PodSeen, ServerSeen
from plimsoll.gate.step import LaneSeen
from plimsoll.gate.tally import Line, Tally
from plimsoll.gate.visit import visit
from plimsoll.keeper.loop import Told
from plimsoll.keeper.page import metrics_text

ROOMS: Final = GateRooms(
    lanes=(
        LaneRoom(name="chat", tokens=4096, share_percent=70, borrow=True),
        LaneRoom(name="batch", tokens=32_768, share_percent=30, priority=10, most_per_worker=2),
    ),
    pools=(WorkerRoom(pool="h100", kv_tokens=250_496, max_num_seqs=90, block_tokens=16),),
)
LANES: Final = tuple(lane.name for lane in ROOMS.lanes)
PEAK: Final = (150, 6)
"""Requests of each lane that would like to run at once, at its own peak."""
PEAK_HOUR: Final = (15, 3)
QUEUE: Final = (40, 16)
"""Requests that may wait."""
ENDED_A_MINUTE: Final = (20, 3)
"""Requests of each lane that end in a minute, answered or not."""
LOOKS: Final = 8
"""Looks of the keeper in a minute, at most: enough for limits to come to rest."""


class GateDay:
    """One gate before two workers. Call `minute` once for each minute, in order."""

    def __init__(self, workers: tuple[str, ...]) -> None:
        self._pods = tuple(
            PodSeen(name, f"10.0.0.{place}:8000", "h100", is_ready=True, is_leaving=False)
            for place, name in enumerate(workers)
        )
        self._limits = [[0, 0] for _ in workers]
        self.tally = Tally()
        """What has ended."""
        self.told = Told()
        """What the last look found."""

    def minute(self, hour: float) -> None:
        """What comes, what limits follow from it, and what ends."""
        wanted = [
            max(0, round(peak * math.cos(2 * math.pi * (hour - at) / 24)))
            for peak, at in zip(PEAK, PEAK_HOUR, strict=True)
        ]
        for _ in range(LOOKS):
            seen = self._seen(wanted)
            found = visit(seen, self._pods, ROOMS)
            for change in found.changes:
                self._limits[int(change.server[1:])][change.lane] = change.limit
                self.told.changes += 1
            self.told.seen, self.told.visit = seen, found
            if found.is_done:
                break
        for place, lane in enumerate(LANES):
            for line in self._ended(place, lane, wanted[place]):
                self.tally.add(line)

    def running(self) -> tuple[int, ...]:
        """Requests on each worker."""
        seen = self.told.seen
        return () if seen is None else tuple(each.in_flight for each in seen.servers)

    def samples(self) -> Iterator[tuple[str, str, dict[str, str], float]]:
        """Name, kind, labels and value of all that the page has."""
        text = metrics_text(self.told, self.tally, LANES)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                yield sample.name, family.type, sample.labels, sample.value

    def _seen(self, wanted: list[int]) -> GateSeen:
        """As HAProxy would show it: each lane shared out over the workers, up to the limits."""
        count = len(self._pods)
        running = [
            [
                min(limit, (want + place) // count)
                for want, limit in zip(wanted, limits, strict=True)
            ]
            for place, limits in enumerate(self._limits)
        ]
        return GateSeen(
            servers=tuple(
                ServerSeen(f"s{place}", pod.address or "", is_open=True, in_flight=sum(each))
                for place, (pod, each) in enumerate(zip(self._pods, running, strict=True))
            ),
            lanes={
                f"s{place}": tuple(map(LaneSeen, self._limits[place], each))
                for place, each in enumerate(running)
            },
            queued=tuple(
                min(QUEUE[lane], want - sum(each[lane] for each in running))
                for lane, want in enumerate(wanted)
            ),
        )

    def _ended(self, place: int, lane: str, wanted: int) -> Iterator[Line]:
        seen = self.told.seen
        assert seen is not None
        if not wanted:
            return
        waiting, ended = seen.queued[place], ENDED_A_MINUTE[place]
        running = sum(lanes[place].in_flight for lanes in seen.lanes.values())
        refused = round(ended * max(0, wanted - running - waiting) / wanted)
        gave_up = round(0.1 * ended * waiting / QUEUE[place])
        waited = 0.004 if not waiting else 8.0 * waiting / QUEUE[place]
        for number in range(ended):
            if number < refused:
                yield Line(lane, 429, "queue_full", None, 9000)
            elif number < refused + gave_up:
                yield Line(lane, 429, "queue_wait", 10.0, 9000)
            else:
                yield Line(lane, 200, "", waited * (number + 1) / ended, 9000)
