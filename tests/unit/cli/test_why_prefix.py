"""Does `plimsoll why` tell of a prefix cache that finds little?"""

from __future__ import annotations

from plimsoll.api.status_types import (
    InferenceDeploymentStatus,
    PoolStatus,
    PrefixCachingStatus,
    WorkerStatus,
)
from plimsoll.cli.text import Page
from plimsoll.cli.watched import Row, Seen
from plimsoll.cli.why import told

PAGE = Page(width=200, colour=False)
SENTENCE = "Prefix caching finds 1.0% of the prompt tokens, and keeps states for that."


def page(prefix: PrefixCachingStatus | None) -> str:
    """The worker's page."""
    status = InferenceDeploymentStatus(pools=(PoolStatus(name="h100", prefix_caching=prefix),))
    worker = WorkerStatus(pod="a", uid="uid-a", pool="h100", verdict="Steady")
    seen = Seen(namespace="team", name="chat", uid="uid-chat", mode="Auto", status=status)
    return "\n".join(told(Row(seen=seen, worker=worker), (), PAGE))


def test_what_was_found_stands_among_the_evidence() -> None:
    held = PrefixCachingStatus(state="Advised", since="2026-11-28T12:00:00Z", message=SENTENCE)
    assert f"prefixes    {SENTENCE}" in page(held)


def test_while_it_is_watched_it_says_since_when() -> None:
    held = PrefixCachingStatus(state="Watching", since="2026-11-28T12:00:00Z")
    assert "little is found since 2026-11-28T12:00:00Z" in page(held)


def test_a_cache_that_is_used_is_no_news() -> None:
    assert "prefixes" not in page(None)
