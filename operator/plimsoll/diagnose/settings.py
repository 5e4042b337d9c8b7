"""What can be turned about the detector of growth, and what holds when nobody turns it?

Windows are in hours of `hour_seconds` each: one field shortens them all together. How the numbers were
chosen and what they cost: measured: docs/measured/slope.md.
"""

from typing import Final, NamedTuple

from plimsoll.units import GIB, MIB


class Horizon(NamedTuple):
    """Over so many hours, so much growth."""

    hours: float
    growth_bytes: int


HORIZONS: Final = tuple(
    Horizon(hours, mebibytes * MIB)
    for hours, mebibytes in (
        (4, 1400),
        (6, 820),
        (8, 590),
        (10, 530),
        (12, 530),
        (16, 550),
        (24, 600),
        (36, 620),
        (48, 660),
    )
)
"""measured: docs/measured/slope.md."""


class SlopeSettings(NamedTuple):
    """All that can be turned; windows are in hours of `hour_seconds` each."""

    slope_bytes_per_hour: float = 10 * MIB
    """spec.recycling.slope: least growth per hour (a real one) that counts."""
    horizons: tuple[Horizon, ...] = HORIZONS
    hour_seconds: float = 3600.0
    """Length of an hour; a shorter one shortens every window below together."""
    bin_hours: float = 1 / 6
    warm_up_hours: float = 1.0
    """After Ready; what happens before is warming up."""
    looks: int = 4
    """In a row that must agree, over an hour in all."""
    look_hours: float = 1 / 3
    """From one look to the next."""
    stale_hours: float = 1 / 30
    """2 min: the newest bin may be older than its own length by this."""
    gap_hours: float = 2.0
    """A hole longer than this, as recent as the looks reach, starts the looks anew."""
    skew_hours: float = 1 / 30
    coverage: float = 0.7
    """Least part of a horizon's bins."""
    minimum_hours: float = 2.0
    """The floor of a sawtooth of up to this period is seen."""
    step_sigmas: float = 3.5
    step_hours: float = 4.0
    """A step takes no longer."""
    step_noise_bytes: float = 40 * MIB
    """Least scatter that is believed, of what two hours gain."""
    lower_share: float = 0.6
    """Part of the demanded slope that the lower bound must reach."""
    third_share: float = 0.3
    """Part of the growth that the middle and the last third each must add."""
    last_share: float = 0.5
    """Part of the slope that the last third must have by itself."""
    scatter_times: float = 4.0
    """Growth stands this far above its own scatter."""
    flat_share: float = 0.25
    """Below this part of the slope a stretch is flat."""
    flat_hours: float = 6.0
    before_share: float = 0.5
    """A flat stretch counts when it ended before this part of the horizon."""
    ended_share: float = 0.1
    """Below this part of the slope the newest stretch shows that the rise has ended."""
    steps_share: float = 0.5
    """A window with a step larger than this part of the growth says too little."""
    long_steps_share: float = 1.5
    """The same for horizons of more than a day."""
    straight_hours: float = 8.0
    steep_times: float = 3.0
    """Growth of so many times what the horizon demands should have been seen by a shorter one."""
    bend_share: float = 0.16
    """Up to that horizon, and for growth that steep, no point lies farther off the line than this part of
    the growth."""
    loaded_share: float = 0.1
    """By this part more growth is demanded over up to a day while the load doubles, and so on in
    proportion."""
    loaded_most: float = 2.0
    """More than this many times what the horizon demands is never asked."""
    risen_load: float = 1.2
    """A load of so many times what it was has risen."""
    young_times: float = 1.2
    """Growth must be so many times what the horizon demands in a life younger than `young_hours`."""
    alone_share: float = 0.5
    """Part of the demanded slope that must be left when the load has explained all that it can."""
    new_peak: float = 1.4
    """A load this many times the highest before the horizon explains a rise by itself."""
    peak_hours: float = 50.0
    """In a life younger than this: two days, and some hours to see that they are over."""
    young_hours: float = 30.0
    """A life younger than this has not seen a whole day of load and its end."""
    plain_share: float = 0.2
    """Part of the growth that must be there before the load is taken out, and above all that was held
    before it where the load is not known."""
    settled_hours: float = 60.0
    """A rise that has gone on this long since the start is no cache any more."""
    settled_tail_hours: float = 12.0
    largest_cache_bytes: int = 8 * GIB
    """The largest cache in host memory that an engine keeps unasked: llama-server's --cache-ram of 8192 MiB
    (ggml-org/llama.cpp#16391)."""
    cache_margin: float = 1.25
    near_hours: float = 6.0
    """A limit nearer than this settles a doubt."""
    seen_hours: float = 2.0
    """A rise that shows is too young to tell, rather than flat, until so long after the shortest horizon."""
    clean_hours: tuple[float, ...] = (3.0, 6.0, 12.0)
    clean_growth_bytes: int = 32 * MIB
    clean_times: float = 30.0
    """A clean line's growth stands this far above its scatter."""
    load_step_sigmas: float = 5.0
    """Steps this far out are taken away before load and memory are compared."""
    fine_hours: float = 0.5
    """From one minimum to the next."""
    coarse_hours: float = 16.0
    """Longer horizons look at every second minimum."""
    tide_hours: float = 24.0
    """Where the load is not known, shorter horizons cannot tell growth from a day's tide."""
    work_points: int = 10
    """Least steps of work to take a slope over."""
    work_most_points: int = 48
    work_growth_bytes: int = 512 * MIB
    work_bound_share: float = 0.7
    """Part of the slope per work that its lower bound must reach."""
    work_times: float = 8.0
    """Growth per work stands this far above its scatter."""
    idle_share: float = 0.1
    """Part of the bins without work, from which on growth is looked for per work."""
    overrun_growth_bytes: int = GIB
    """Beyond the caps, before an overrun is one."""
    overrun_hours: float = 0.5
    """A cap's overrun must be seen for so long, and still go on."""
    overrun_times: float = 2.0
    """Growth beyond this many times the declared caps is an overrun."""
    overrun_limit_hours: float = 2.0
    """A limit that comes sooner is not waited for."""

    def shortened(self, hour_seconds: float, growth_share: float) -> "SlopeSettings":
        """The same detector with every window and every demanded growth scaled down, for trials."""
        return self._replace(
            hour_seconds=hour_seconds,
            horizons=tuple(
                Horizon(h.hours, round(h.growth_bytes * growth_share)) for h in self.horizons
            ),
            step_noise_bytes=self.step_noise_bytes * growth_share,
            clean_growth_bytes=round(self.clean_growth_bytes * growth_share),
            work_growth_bytes=round(self.work_growth_bytes * growth_share),
            overrun_growth_bytes=round(self.overrun_growth_bytes * growth_share),
            largest_cache_bytes=round(self.largest_cache_bytes * growth_share),
        )


DEFAULT: Final = SlopeSettings()
