"""Is HAProxy read as it is, on the oldest release and on the current one?"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from plimsoll.gate.reading import NO_LIMIT, GateSeen, UnreadableError, read
from plimsoll.gate.roster import ServerSeen
from plimsoll.gate.step import LaneSeen

DATA: Final = Path(__file__).parents[2] / "data" / "haproxy"


def of_release(release: str) -> tuple[str, str]:
    return tuple((DATA / f"{release}-{name}.txt").read_text() for name in ("stat", "state"))  # type: ignore[return-value]


@pytest.mark.parametrize("release", ["2.6.12", "3.2.26"])
def test_what_a_real_haproxy_said(release: str) -> None:
    expected = GateSeen(
        servers=(
            ServerSeen(name="s1", address="127.0.0.1:9", is_open=False, in_flight=0),
            ServerSeen(name="s2", address="10.1.2.3:8000", is_open=True, in_flight=0),
        ),
        lanes={"s1": (LaneSeen(limit=0, in_flight=0),), "s2": (LaneSeen(limit=5, in_flight=0),)},
        queued=(0,),
    )
    assert expected == read(*of_release(release), ["chat"])


def test_no_limit_is_read_as_more_than_any_plan() -> None:
    stat, state = of_release("2.6.12")
    assert (
        NO_LIMIT
        == read(stat.replace("chat,s2,0,0,0,0,5", "chat,s2,0,0,0,0,"), state, ["chat"])
        .lanes["s2"][0]
        .limit
    )
    assert (
        NO_LIMIT
        == read(stat.replace("chat,s2,0,0,0,0,5", "chat,s2,0,0,0,0,0"), state, ["chat"])
        .lanes["s2"][0]
        .limit
    )


def test_an_answer_that_was_cut_off_is_not_half_believed() -> None:
    stat, state = of_release("2.6.12")
    with pytest.raises(UnreadableError, match="does not show"):
        read(stat[: stat.index("chat,s2")], state, ["chat"])
    with pytest.raises(UnreadableError, match="does not show"):
        read(stat, state, ["batch"])
    with pytest.raises(UnreadableError, match="version"):
        read(stat, "", ["chat"])
    with pytest.raises(UnreadableError, match="no header"):
        read(stat.split("\n", 1)[1], state, ["chat"])
