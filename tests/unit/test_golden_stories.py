"""The three stories, whole: what users write, what is planned, which objects and arguments follow.

`make golden` rewrites the files; the diff is the review of a changed plan.
"""

from __future__ import annotations

import json

import pytest

import scenes
from goldens import assert_golden
from plimsoll.render.text import to_yaml

STORIES = ("mixed-fleet", "edge-assistant", "chat-and-batch")


@pytest.mark.parametrize("story", STORIES)
def test_golden_status(story: str) -> None:
    desired = scenes.think(scenes.example(story))
    text = json.dumps(desired.status, indent=1, ensure_ascii=False) + "\n"
    assert_golden(f"{story}/status.json", text)


@pytest.mark.parametrize("story", STORIES)
def test_golden_manifests(story: str) -> None:
    desired = scenes.think(scenes.example(story))
    assert_golden(f"{story}/manifests.yaml", to_yaml(desired.apply))


@pytest.mark.parametrize("story", STORIES)
def test_golden_arguments(story: str) -> None:
    found = scenes.deployments(scenes.think(scenes.example(story)))
    lines = [
        f"{pool}: {' '.join(deployment['spec']['template']['spec']['containers'][0]['args'])}"
        for pool, deployment in found.items()
    ]
    assert_golden(f"{story}/argv.txt", "\n".join(lines) + "\n")
