"""Did a recycle help?"""

from typing import Final

from plimsoll.diagnose.case import Past, Policy, Worker
from plimsoll.diagnose.records import GROWING, VerdictKind


def outcome(past: Past, successor: Worker | None, policy: Policy, now: float) -> bool | None:
    """Did it help? False: the successor needs the same again too soon, or nothing was freed; True:
    it has been well for `relapse_seconds`; None: too early to say, or the successor is not known."""
    if past.helped is not None:
        return past.helped
    if successor is None or successor.ready_seconds is None or past.ended_seconds is None:
        return None
    finding = successor.verdict.finding
    is_warm = now - successor.ready_seconds >= policy.warm_up_seconds
    if past.floor_bytes and finding.floor_bytes is not None and is_warm:
        freed_little = finding.floor_bytes >= FREED_NOTHING * past.floor_bytes
        if freed_little and past.verdict in GROWING:
            return False
    within = now - past.ended_seconds <= policy.relapse_seconds
    kind = successor.verdict.kind
    is_sure = kind is not VerdictKind.QUIET_GROWTH or finding.doubt is None
    if within and kind in TROUBLE and is_sure:
        return False
    return None if within else True


FREED_NOTHING: Final = 0.98
"""Part of the old worker's memory that a warm successor holds when nothing was freed. Real leaks are small
beside what an engine holds anyway: 9 % in 12 h in vllm-project/vllm#44175."""
TROUBLE: Final = GROWING | {VerdictKind.HUNG}
