from __future__ import annotations

from plimsoll.diagnose.engine import Engine, engine_of, gain, seconds_without_tokens
from plimsoll.facts.series import EngineSample


def samples(count: int, **counters: float) -> list[EngineSample]:
    """A sample a minute; counters gain so much in each."""
    return [
        EngineSample(
            60.0 * at,
            running=4.0,
            waiting=1.0,
            healthy=True,
            **{name: each * at for name, each in counters.items()},
        )
        for at in range(count)
    ]


def test_nothing_seen_says_nothing() -> None:
    assert Engine() == engine_of([])
    assert None is Engine().tokens_per_second_per_request


def test_rates_are_of_the_time_between_first_and_last() -> None:
    found = engine_of(
        samples(61, generated_tokens=2400, requests=3, preemptions=1, prompt_tokens=900)
    )
    assert (4.0, 1.0, 40.0) == (found.running, found.waiting, found.tokens_per_second)
    assert 10.0 == found.tokens_per_second_per_request
    assert (60.0, 1 / 3, 300.0) == (
        found.preemptions_per_hour,
        found.preempted_share,
        found.prompt_tokens_per_request,
    )


def test_a_counter_that_falls_has_begun_at_nought() -> None:
    assert 12.0 == gain([5.0, 10.0, None, 3.0, 7.0])
    assert None is gain([5.0, None])


def test_no_token_while_requests_are_there_is_counted_in_seconds() -> None:
    stuck = samples(10, generated_tokens=0)
    assert 540.0 == seconds_without_tokens(stuck)


def test_tokens_prompts_or_finished_requests_are_progress() -> None:
    for name in ("generated_tokens", "prompt_tokens", "requests"):
        counters = {"generated_tokens": 0.0, name: 1.0}
        assert 0.0 == seconds_without_tokens(samples(10, **counters))


def test_an_idle_engine_is_not_stuck() -> None:
    idle = [each._replace(running=0.0, waiting=0.0) for each in samples(10, generated_tokens=0)]
    assert None is seconds_without_tokens(idle)


def test_an_engine_that_says_it_is_ill_is_the_kubelets() -> None:
    ill = [each._replace(healthy=False) for each in samples(10, generated_tokens=0)]
    assert None is seconds_without_tokens(ill)
    assert None is seconds_without_tokens(samples(10))  # counts no tokens
