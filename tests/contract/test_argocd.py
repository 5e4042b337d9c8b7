"""What does Argo CD make of an InferenceDeployment? Its script, run on the Lua that Argo runs.

The layout is Argo's own (argoproj/argo-cd, resource_customizations/), so that the folder can be taken over
as it is. The statuses are those of `decide`; `make golden` rewrites them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaRuntime

import growing
import scenes
from goldens import assert_same_file
from plimsoll.api.judged import Watched
from plimsoll.decide import Manifest
from plimsoll.diagnose.records import VerdictKind
from plimsoll.facts.worker import WorkerFacts

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/argocd/resource_customizations/plimsoll.dev/InferenceDeployment"
CASES = yaml.safe_load((FOLDER / "health_test.yaml").read_text())["tests"]
POOL = "a6000-single"
STRIPPED = frozenset(("io", "os", "require", "package", "dofile", "loadfile", "debug"))
"""What Argo's Lua has not got."""


def chat(replicas: int = 1) -> Manifest:
    """One pool of single-card workers."""
    raw = scenes.example("mixed-fleet", replicas=replicas)
    raw["spec"]["pools"] = [pool for pool in raw["spec"]["pools"] if pool["name"] == POOL]
    return raw


def serving(raw: Manifest, *pods: WorkerFacts, watched: Watched | None = None) -> Manifest:
    """The object when these pods serve."""
    after, children = scenes.applied(raw, scenes.think(raw))
    children = scenes.with_ready(children, len(pods))
    desired = scenes.think(after, children=children, workers=pods, watched=watched)
    return scenes.applied(after, desired)[0]


def judged(*uids: str, kind: VerdictKind) -> Watched:
    return Watched(
        judged=tuple(growing.judged(uid, kind) for uid in uids),
        operator_started_seconds=growing.NOON - growing.HOUR,
    )


def healthy() -> Manifest:
    return serving(chat(), growing.pod("a", pool=POOL))


def moments() -> dict[str, Manifest]:
    """An object at each moment of its life, as the API server would hand it out."""
    two = growing.pod("a", pool=POOL), growing.pod("b", pool=POOL)
    changed = healthy()
    changed["metadata"]["generation"] = 2
    refused = scenes.example("edge-assistant")
    unreadable = healthy()
    unreadable["spec"]["replicas"] = -1
    late = "uid-a", "uid-b"
    return {
        "new": chat(),
        "planned": scenes.applied(chat(), scenes.think(chat()))[0],
        "healthy": healthy(),
        "changed": changed,
        "scaled_to_zero": serving(chat(0)),
        "refused": scenes.applied(refused, scenes.think(refused))[0],
        "unreadable": scenes.applied(unreadable, scenes.think(unreadable))[0],
        "growing": serving(chat(2), *two, watched=judged(*late[:1], kind=VerdictKind.GROWTH)),
        "steady": serving(chat(2), *two, watched=judged(*late, kind=VerdictKind.STEADY)),
        "worker_fails": serving(
            chat(),
            growing.pod("a", pool=POOL).model_copy(
                update={"is_ready": False, "message": "CrashLoopBackOff: exit 1"}
            ),
        ),
    }


def health_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """What the script answers."""
    lua = LuaRuntime(unpack_returned_tuples=True, register_eval=False, register_builtins=False)
    for name in STRIPPED:
        lua.globals()[name] = None
    lua.globals()["obj"] = lua.table_from(manifest, recursive=True)
    answer = lua.execute((FOLDER / "health.lua").read_text())
    return dict(answer.items())


@pytest.mark.parametrize("case", CASES, ids=lambda case: Path(case["inputPath"]).stem)
def test_health_is_what_argo_expects(case: Mapping[str, Any]) -> None:
    manifest = yaml.safe_load((FOLDER / case["inputPath"]).read_text())
    assert case["healthStatus"] == health_of(manifest)


def test_golden_moments_are_those_of_the_operator() -> None:
    for name, manifest in moments().items():
        text = yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True, width=120)
        assert_same_file(FOLDER / "testdata" / f"{name}.yaml", text)


def test_every_moment_has_a_case() -> None:
    assert sorted(moments()) == sorted(Path(case["inputPath"]).stem for case in CASES)
    assert {"Healthy", "Progressing", "Degraded"} == {c["healthStatus"]["status"] for c in CASES}
