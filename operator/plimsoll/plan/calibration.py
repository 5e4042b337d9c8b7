"""What did engines take beside weights and pool, and how do later plans use it?

vLLM sizes its pool as requested - weights - the rest, where the rest is the profile's activation peak, growth
outside torch and, from 0.18 with the flag that we pin, the estimate of CUDA graphs. Share, weights and the
pool's blocks are known, so the rest is: at most requested - weights - blocks x block bytes, and less than one
block less. It is one number: how the three lines share it cannot be seen, so they are scaled together.

llama-server teaches nothing: its slots and their length are what was asked for, whatever memory it took.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from plimsoll.engines.base import ByteOwner, LedgerLine
from plimsoll.facts.source import Confidence
from plimsoll.units import ceil_div

LEAST_SHARE: Final = 0.75
"""A calibrated plan keeps at least this part of the bound lines, whatever was measured: the bounds are the
largest figures seen on such cards, and what one start-up did not show (another driver, prompts with images,
a longer first step) must not take all of the difference away. The headroom stays whole besides."""
PLAUSIBLE: Final = (0.2, 3.0)
"""Part of the bound lines that a measurement may be. Below it the pool ate what weights or steps need, above
it the lines are not what was wrong; either way the facts are, and nothing is learnt. Seen: 0.39 to 0.98 in
the start-ups whose model, share and pool are stated (tests/data/vllm_readings.json)."""
MOST_BYTES: Final = 256 << 30
"""No card of the catalogue holds more; a larger figure is no measurement."""


class CalibrationKey(NamedTuple):
    """What has to be the same for a measurement to count."""

    engine: str
    """vllm."""
    release: str
    """As the spec or the image says, without the v."""
    gpu: str
    """The GPU type."""
    architecture: str
    """As config.json names it."""
    shape: str
    """Layers, width, bytes of weights and of a block on one card: models of one architecture differ in size,
    and facts that lie about weights or cache then teach nobody but themselves."""
    cards: int
    """Tensor-parallel size."""
    flags: str
    """What moves the lines and does not scale them: dtypes and tokens of a step."""
    extras: str = ""
    """Digest of arguments and environment that the user added; empty without."""


class Measurement(NamedTuple):
    """What workers of one key took."""

    key: CalibrationKey
    measured_bytes: int
    """Activation, collectives and graphs of the worker that took most."""
    bound_bytes: int
    """The bound lines of that worker's plan."""
    plans: int = 1
    """Plans of which a worker was read."""
    since: str = ""
    """First reading, RFC 3339 in UTC."""
    until: str = ""
    """Last reading."""

    @property
    def share(self) -> float:
        """Part of the bound lines."""
        return self.measured_bytes / self.bound_bytes


def problem_of(one: Measurement) -> str | None:
    """Why it cannot be believed; None when it can. Bounds stand beside the constants."""
    if one.plans < 1:
        return f"plans is {one.plans}, and at least one worker must have been read"
    if not 0 < one.bound_bytes <= MOST_BYTES or not 0 < one.measured_bytes <= MOST_BYTES:
        return (
            f"measuredBytes {one.measured_bytes:,} and boundBytes {one.bound_bytes:,} must both lie between 1 "
            f"and {MOST_BYTES:,}"
        )
    least, most = PLAUSIBLE
    if not least <= one.share <= most:
        return (
            f"measuredBytes {one.measured_bytes:,} is {one.share:.2f} of boundBytes {one.bound_bytes:,}; "
            f"{least:g} to {most:g} can be believed"
        )
    return None


def believable(measured: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """Those within the bounds."""
    return tuple(one for one in measured if problem_of(one) is None)


def calibrated(
    lines: Sequence[LedgerLine], one: Measurement, owners: Sequence[ByteOwner]
) -> tuple[LedgerLine, ...]:
    """The lines with those of `owners` scaled together to what was measured, never below LEAST_SHARE."""
    is_kept = one.share < LEAST_SHARE
    part, of = (round(LEAST_SHARE * 100), 100) if is_kept else (one.measured_bytes, one.bound_bytes)
    bound = sum(line.bytes for line in lines if line.owner in owners)
    left = ceil_div(bound * part, of)
    last = max((at for at, line in enumerate(lines) if line.owner in owners), default=-1)
    floor = f", kept at {LEAST_SHARE:.0%}" if is_kept else ""
    scaled = []
    for at, line in enumerate(lines):
        if line.owner not in owners:
            scaled.append(line)
            continue
        size = left if at == last else line.bytes * part // of
        left -= size
        scaled.append(
            line.model_copy(
                update={
                    "bytes": size,
                    "confidence": Confidence.MEASURED,
                    "source": f"measured: {one.share:.0%} of the bound in {one.plans} plan(s) until "
                    f"{one.until[:10] or 'an unknown day'}{floor}",
                }
            )
        )
    return tuple(scaled)


def merged(old: Iterable[Measurement], new: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """Both together: of each key the largest share, numbers of plans added, sorted by key."""
    kept: dict[CalibrationKey, Measurement] = {}
    for one in (*old, *new):
        had = kept.get(one.key)
        if had is None:
            kept[one.key] = one
            continue
        most = one if one.share > had.share else had
        days = [day for day in (had.since, one.since) if day]
        kept[one.key] = most._replace(
            plans=had.plans + one.plans,
            since=min(days, default=""),
            until=max(had.until, one.until),
        )
    return tuple(kept[key] for key in sorted(kept))
