"""Is a changed file read, and does a broken one leave what was read before?"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from plimsoll.gate.keys import KeysError
from plimsoll.gate.records import GateRooms, LaneRoom
from plimsoll.gate.roster import PodSeen
from plimsoll.gate.visit import Elder, Standing
from plimsoll.keeper.files import (
    Followed,
    read_keys,
    read_rooms,
    read_standing,
    read_workers,
)


def write(path: Path, value: object, at: int) -> None:
    path.write_text(json.dumps(value))
    os.utime(path, (at, at))


def test_a_plan_is_followed_and_a_broken_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "rooms.json"
    first = GateRooms(lanes=(LaneRoom(name="chat", tokens=1000),))
    second = GateRooms(lanes=(LaneRoom(name="chat", tokens=2000),))
    write(path, first.to_json(), 1)
    followed = Followed(path, read_rooms, read_rooms(path))
    assert first == followed()
    path.write_text('{"lanes": [{"name"')
    os.utime(path, (2, 2))
    assert first == followed()
    assert "rooms.json" in followed.problem
    write(path, second.to_json(), 3)
    assert second == followed()
    assert "" == followed.problem
    path.unlink()
    assert second == followed()


def test_workers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "workers.json"
    write(path, [{"name": "a", "address": "10.0.0.1:8000", "pool": "large", "isLeaving": True}], 1)
    assert (
        PodSeen("a", "10.0.0.1:8000", "large", is_ready=True, is_leaving=True),
    ) == read_workers(path)
    write(path, [{"name": "a"}], 2)
    with pytest.raises(ValueError, match="address"):
        read_workers(path)


def test_standing_is_read_and_no_third_gate(tmp_path: Path) -> None:
    path = tmp_path / "standing.json"
    write(path, {"gates": 2, "place": 1}, 1)
    assert Standing(gates=2, place=1) == read_standing(path)
    elder = {"name": "a", "page": "10.0.0.7:8406", "since": 7}
    write(path, {"gates": 1, "place": 0, "since": 9, "elders": [elder]}, 2)
    assert Standing(since=9, elders=(Elder("a", "10.0.0.7:8406", 7),)) == read_standing(path)
    for wrong in ({"gates": 3, "place": 1}, {"gates": 2}, {}):
        write(path, wrong, 2)
        with pytest.raises(ValueError, match=r"gates|place"):
            read_standing(path)


def test_a_mounted_secret_is_read_without_its_links(tmp_path: Path) -> None:
    data = tmp_path / "..2026"
    data.mkdir()
    (data / "nightly").write_text("a-key-that-is-long-enough\n")
    (tmp_path / "..data").symlink_to(data)
    (tmp_path / "nightly").symlink_to(data / "nightly")
    assert ["nightly"] == list(read_keys(tmp_path).values())
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(KeysError, match="binary is no text"):
        read_keys(tmp_path)
