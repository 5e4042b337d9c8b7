"""Is prefix caching advised against, or turned off, only where both sides of it were seen?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import scenes
from plimsoll.api.judged import UNSEEN, Judged, Watched, judged_of
from plimsoll.api.prefix_caching import ADVICE_HOURS, OFF_HOURS
from plimsoll.decide import Desired, Manifest
from plimsoll.diagnose.prefix import PrefixUse
from plimsoll.facts.series import ContainerLife, EngineSample, WorkerHistory
from plimsoll.facts.worker import WorkerFacts

GRANITE = "ibm-granite/granite-4.0-h-small"
PLAIN = "Qwen/Qwen3-8B"
POOL = "h100"
HOUR = 3600.0
LITTLE = PrefixUse(3e6, 3e4)
MUCH = PrefixUse(3e6, 1e6)


def states(model: str = GRANITE, *, release: str = "0.33.0", **kv_cache: Any) -> Manifest:
    """One worker with recurrent states beside attention."""
    raw = scenes.example("mixed-fleet", replicas=1, kvCache=kv_cache)
    spec = raw["spec"]
    spec["model"] = {"name": "m", "id": model, "uri": "pvc://models/m"}
    spec["pools"] = [
        {
            "name": POOL,
            "gpu": {"product": "NVIDIA-H100-80GB-HBM3", "perWorker": 1},
            "engine": "vllm",
        }
    ]
    spec["engines"] = {"vllm": {"image": f"vllm/vllm-openai:v{release}"}}
    spec.pop("traffic")
    spec["limits"] = {"maxModelLen": 8192}
    return raw


def worker() -> WorkerFacts:
    """The one worker."""
    return scenes.worker(POOL, node="h100-0")


class Story:
    """One object, visited again and again."""

    def __init__(self, raw: Manifest) -> None:
        self.raw = raw
        self.children: tuple[Manifest, ...] = ()
        self.visit(None)

    def visit(
        self, use: PrefixUse | None, hours: float = 0.0, *, is_watched: bool = True
    ) -> Desired:
        """One visit, so many hours after noon."""
        watched = Watched(judged=(Judged(worker().uid, prefix=use),)) if is_watched else None
        desired = scenes.think(
            self.raw,
            children=self.children,
            workers=(worker(),) if self.children else (),
            watched=watched,
            now=scenes.NOON + hours * HOUR,
        )
        self.raw, self.children = scenes.applied(self.raw, desired)
        self.children = scenes.with_ready(self.children)
        return desired

    @property
    def pool(self) -> Mapping[str, Any]:
        """What the status says of the pool."""
        found: Mapping[str, Any] = self.raw["status"]["pools"][0]
        return found

    @property
    def state(self) -> str | None:
        """What it says of its prefix cache."""
        held = self.pool.get("prefixCaching")
        return held["state"] if held else None

    @property
    def args(self) -> list[str]:
        """The worker's arguments."""
        deployment = next(each for each in self.children if each["kind"] == "Deployment")
        found: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        return found


def reasons(desired: Desired) -> list[str]:
    """Events about the prefix cache."""
    return [event.reason for event in desired.events if event.reason.startswith("Prefix")]


def test_advice_comes_after_hours_of_little_and_once() -> None:
    story = Story(states())
    assert [] == reasons(story.visit(LITTLE))
    assert "Watching" == story.state
    assert [] == reasons(story.visit(LITTLE, ADVICE_HOURS - 0.1))
    assert ["PrefixCachingFindsLittle"] == reasons(story.visit(LITTLE, ADVICE_HOURS))
    assert "Advised" == story.state
    message = story.pool["prefixCaching"]["message"]
    assert "finds 1.0% of the prompt tokens" in message
    tokens = story.pool["plan"]["kv"]["poolTokens"]
    assert f"rather than {tokens:,}" in message
    assert [] == reasons(story.visit(LITTLE, ADVICE_HOURS + 1))


def test_a_second_visit_writes_the_same_status() -> None:
    story = Story(states())
    for hours, again in ((0.0, 0.01), (ADVICE_HOURS, ADVICE_HOURS + 0.01)):
        story.visit(LITTLE, hours)
        before = story.raw["status"]
        other = LITTLE._replace(found_tokens=2e4)
        assert before == story.visit(other, again).status


def test_without_being_asked_it_is_never_turned_off() -> None:
    story = Story(states())
    for hours in (0, ADVICE_HOURS, OFF_HOURS, 10 * OFF_HOURS):
        story.visit(LITTLE, hours)
    assert "Advised" == story.state
    assert "--enable-prefix-caching" in story.args


def test_auto_turns_it_off_and_plans_the_other_layout() -> None:
    story = Story(states(prefixCaching="Auto"))
    cached = story.pool["plan"]["kv"]["poolTokens"]
    for hours in (0, ADVICE_HOURS, OFF_HOURS - 0.1):
        assert "--enable-prefix-caching" in story.args
        story.visit(LITTLE, hours)
    assert ["PrefixCachingTurnedOff"] == reasons(story.visit(LITTLE, OFF_HOURS))
    assert "Off" == story.state
    story.visit(LITTLE, OFF_HOURS + 0.01)
    assert "--no-enable-prefix-caching" in story.args
    assert "--enable-prefix-caching" not in story.args
    plan = story.pool["plan"]
    assert plan["kv"]["poolTokens"] > 1.3 * cached
    assert any("finds 1.0%" in note and "turned off" in note for note in plan["notes"])
    settled = story.raw["status"]
    assert settled == story.visit(None, OFF_HOURS + 1).status
    story.visit(None, 20 * OFF_HOURS, is_watched=False)
    assert settled["pools"] == story.raw["status"]["pools"]


def test_another_word_of_the_user_begins_anew() -> None:
    story = Story(states(prefixCaching="Auto"))
    for hours in (0, ADVICE_HOURS, OFF_HOURS, OFF_HOURS + 0.01):
        story.visit(LITTLE, hours)
    assert "--no-enable-prefix-caching" in story.args
    story.raw["spec"]["limits"] = {"maxModelLen": 16_384}
    story.visit(None, OFF_HOURS + 1)
    assert story.state is None
    assert "--enable-prefix-caching" in story.args


def test_a_cache_that_costs_nothing_is_left_on() -> None:
    story = Story(states(PLAIN, prefixCaching="Auto"))
    for hours in (0, ADVICE_HOURS, OFF_HOURS, 10 * OFF_HOURS):
        assert [] == reasons(story.visit(LITTLE, hours))
    assert "NothingToGain" == story.state
    assert "--enable-prefix-caching" in story.args


@pytest.mark.parametrize("use", [None, PrefixUse(10.0, 0.0), MUCH], ids=["unknown", "idle", "used"])
def test_without_evidence_there_is_no_advice(use: PrefixUse | None) -> None:
    story = Story(states(prefixCaching="Auto"))
    for hours in (0, ADVICE_HOURS, OFF_HOURS, 10 * OFF_HOURS):
        assert [] == reasons(story.visit(use, hours))
    assert story.state is None


@pytest.mark.parametrize("use", [None, MUCH], ids=["unknown", "used"])
def test_the_clock_begins_anew_when_the_evidence_ends(use: PrefixUse | None) -> None:
    story = Story(states())
    story.visit(LITTLE)
    story.visit(use, 1)
    assert story.state is None
    story.visit(LITTLE, ADVICE_HOURS)
    assert "Watching" == story.state
    assert [] == reasons(story.visit(LITTLE, ADVICE_HOURS + 1))


def test_advice_ends_when_the_cache_is_used() -> None:
    story = Story(states())
    for hours in (0, ADVICE_HOURS):
        story.visit(LITTLE, hours)
    story.visit(MUCH, ADVICE_HOURS + 1)
    assert story.state is None


@pytest.mark.parametrize(
    "kv_cache",
    [{"prefixCaching": "On"}, {"prefixCaching": "Off"}, {"offload": {"hostMemory": "64Gi"}}],
    ids=["on", "off", "offloaded"],
)
def test_who_has_decided_is_not_advised(kv_cache: dict[str, Any]) -> None:
    story = Story(states(**kv_cache))
    for hours in (0, ADVICE_HOURS, OFF_HOURS):
        assert [] == reasons(story.visit(LITTLE, hours))
    assert story.state is None


def test_off_in_the_spec_is_off_at_once_with_the_other_layout() -> None:
    on, off = Story(states(prefixCaching="On")), Story(states(prefixCaching="Off"))
    assert "--no-enable-prefix-caching" in off.args
    assert "--enable-prefix-caching" in on.args
    assert off.pool["plan"]["kv"]["poolTokens"] > on.pool["plan"]["kv"]["poolTokens"]


def test_on_where_the_release_would_keep_a_state_in_every_block_asks_for_less() -> None:
    story = Story(states(release="0.22.1", prefixCaching="On"))
    assert "align" == story.args[story.args.index("--mamba-cache-mode") + 1]


def test_on_in_a_release_that_cannot_is_refused() -> None:
    story = Story(states(release="0.14.1", prefixCaching="On"))
    refusal = story.pool["refusal"]
    assert "OverrideCannotWork" == refusal["reason"]
    assert "use 0.15 or newer" in refusal["message"]


def test_without_the_field_the_question_and_the_plan_are_as_they_were() -> None:
    story = Story(states())
    before = (story.pool["planDigest"], story.pool["plan"], story.args)
    story.visit(LITTLE)
    story.visit(LITTLE, ADVICE_HOURS)
    assert before == (story.pool["planDigest"], story.pool["plan"], story.args)


def test_a_pool_that_we_made_keeps_its_cards_when_it_is_turned_off() -> None:
    raw = states(prefixCaching="Auto")
    raw["spec"]["pools"] = []
    story = Story(raw)
    pool = next(
        each
        for each in story.raw["status"]["pools"]
        if each["gpuProduct"].startswith("NVIDIA-H100")
    )
    uid = worker().uid
    watched = Watched(judged=(Judged(uid, prefix=LITTLE),))
    mine = worker().model_copy(update={"pool": pool["name"]})
    for hours in (0, ADVICE_HOURS, OFF_HOURS, OFF_HOURS + 0.01):
        desired = scenes.think(
            story.raw,
            children=story.children,
            workers=(mine,),
            watched=watched,
            now=scenes.NOON + hours * HOUR,
        )
        story.raw, story.children = scenes.applied(story.raw, desired)
    after = {each["name"]: each for each in story.raw["status"]["pools"]}
    assert "Off" == after[pool["name"]]["prefixCaching"]["state"]
    assert pool["plan"]["cards"] == after[pool["name"]]["plan"]["cards"]
    flags = [flag["name"] for flag in after[pool["name"]]["plan"]["flags"]]
    assert "--no-enable-prefix-caching" in flags


def test_what_is_judged_has_the_counters_of_the_history() -> None:
    history = WorkerHistory(
        life=ContainerLife("uid", "engine", 0.0),
        pod="a",
        engine=(
            EngineSample(0.0, prefix_queries=10.0, prefix_hits=1.0),
            EngineSample(60.0, prefix_queries=40.0, prefix_hits=4.0),
        ),
    )
    assert PrefixUse(30.0, 3.0) == judged_of(history, UNSEEN).prefix
    assert judged_of(history._replace(engine=()), UNSEEN).prefix is None
