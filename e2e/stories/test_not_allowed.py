"""What the site does not allow: refused by the real operator, while what runs goes on running."""

from __future__ import annotations

from objects import small
from world import World


def test_a_models_own_code_is_refused(world: World) -> None:
    raw = small(world, workers=1)
    world.apply(raw)
    world.await_ready("small", 1)
    before = world.deployments()
    raw["spec"]["pools"][0]["extraArgs"] = ["--trust_remote_code"]
    world.apply(raw)
    planned = world.await_condition("small", "Planned", "False", reason="NotAllowedHere")
    assert "--trust-remote-code" in planned["message"]
    assert "security.trustRemoteCode" in planned["message"]
    assert world.deployments() == before
    raw["spec"]["pools"][0]["extraArgs"] = []
    world.apply(raw)
    world.await_condition("small", "Planned", "True")


def test_a_variable_in_the_place_of_a_flag_is_refused(world: World) -> None:
    raw = small(world, workers=1)
    raw["spec"]["pools"][0] |= {
        "extraArgs": ["$(HIDDEN)"],
        "env": [{"name": "HIDDEN", "value": "--max-num-seqs=999"}],
    }
    world.apply(raw)
    planned = world.await_condition("small", "Planned", "False", reason="NotAllowedHere")
    assert "$(HIDDEN)" in planned["message"]
    assert world.deployments() == {}
