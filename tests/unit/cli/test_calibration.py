"""`plimsoll calibration` on files, and on a cluster in a box."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import pytest
import yaml

import scenes
import worlds
from api_box import StandIn, kubeconfig, serving
from plimsoll.cli.exits import Exit
from plimsoll.cli.main import main
from plimsoll.cluster.kinds import CONFIG_MAP
from plimsoll.plan.calibration import Measurement
from plimsoll.plan.calibration_text import calibration_of, text_of
from plimsoll.plan.paged_ask import calibration_key, prepare
from plimsoll.plan.records import Refusal
from plimsoll.render.calibration import CALIBRATION_NAME, DATA_KEY, calibration_manifest

Capture = pytest.CaptureFixture[str]
GIB = 1 << 30
EXAMPLE = scenes.EXAMPLES / "mixed-fleet.yaml"


def _measured(share: float = 0.9) -> Measurement:
    """The key of the example's pool of four A6000."""
    ask = prepare(worlds.seventy_b_on_four_a6000())
    assert not isinstance(ask, Refusal)
    key = calibration_key(ask)
    return Measurement(
        key, int(share * GIB), GIB, 2, "2026-11-01T00:00:00Z", "2026-11-30T00:00:00Z"
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "known.json"
    path.write_text(text_of((_measured(),)))
    return path


def test_show_says_a_line_each(file: Path, capsys: Capture) -> None:
    assert main(["calibration", "show", "-f", str(file)]) == Exit.FITS
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["GPU", "CARDS", "ARCHITECTURE"]
    assert line.split()[:2] == ["NVIDIA-RTX-A6000", "4"]
    assert "90%" in line
    assert "2026-11-30" in line


def test_export_of_a_config_map_is_its_text(file: Path, tmp_path: Path, capsys: Capture) -> None:
    as_map = tmp_path / "cm.yaml"
    as_map.write_text(yaml.safe_dump(calibration_manifest("team", file.read_text())))
    assert main(["calibration", "export", "-f", str(as_map)]) == Exit.FITS
    assert capsys.readouterr().out == file.read_text()


def test_import_prints_a_config_map_that_kubectl_takes(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(file.read_text()))
    assert main(["calibration", "import", "-"]) == Exit.FITS
    printed = yaml.safe_load(capsys.readouterr().out)
    assert (printed["kind"], printed["metadata"]["name"]) == ("ConfigMap", CALIBRATION_NAME)
    assert "namespace" not in printed["metadata"]
    assert calibration_of(printed["data"][DATA_KEY]).measured == (_measured(),)


def test_import_adds_to_what_a_file_holds(file: Path, tmp_path: Path, capsys: Capture) -> None:
    more = tmp_path / "more.json"
    more.write_text(text_of((_measured(1.2),)))
    assert main(["calibration", "import", str(more), "-f", str(file), "-n", "x"]) == Exit.FITS
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["metadata"]["namespace"] == "x"
    (one,) = calibration_of(printed["data"][DATA_KEY]).measured
    assert one.share == pytest.approx(1.2)
    assert one.plans == 4


def test_reset_prints_an_empty_one(capsys: Capture) -> None:
    assert main(["calibration", "reset"]) == Exit.FITS
    printed = yaml.safe_load(capsys.readouterr().out)
    assert json.loads(printed["data"][DATA_KEY]) == {"schema": 1, "entries": []}


def test_a_poisoned_entry_is_told_and_left_out(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "poisoned.json"
    path.write_text(
        text_of((_measured(), _measured(90)._replace(key=_measured().key._replace(cards=8))))
    )
    assert main(["calibration", "export", "-f", str(path)]) == Exit.FITS
    told = capsys.readouterr()
    assert len(json.loads(told.out)["entries"]) == 1
    assert "is ignored" in told.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["import"], "name the FILE"),
        (["show", "x.json"], "--file x.json"),
        (["export", "--write"], "writes nothing"),
        (["import", "x.json", "-f", "y.json", "--write"], "give one"),
        (["show", "-f", "/nowhere/x.json"], "No such file"),
    ],
)
def test_what_cannot_be_meant_is_told(words: list[str], says: str, capsys: Capture) -> None:
    assert main(["calibration", *words]) == Exit.BAD_INPUT
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("text", ["7", "kind: ConfigMap", "schema: 9\nentries: []", "{", "a: [b"])
def test_a_file_without_a_calibration_is_bad_input(
    text: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    assert main(["calibration", "show", "-f", str(path)]) == Exit.BAD_INPUT
    assert str(path) in capsys.readouterr().err


def test_a_plan_uses_what_it_is_given(file: Path, capsys: Capture) -> None:
    words = ["plan", "-f", str(EXAMPLE), "--pool", "a6000-tp4", "-o", "json"]
    main(words)
    (plain,) = json.loads(capsys.readouterr().out)
    main([*words, "--calibration", str(file)])
    (calibrated,) = json.loads(capsys.readouterr().out)
    before, after = (each["outcome"]["ledger"] for each in (plain, calibrated))
    sizes = [
        {line["owner"]: line["bytes"] for line in ledger}["Collectives"]
        for ledger in (before, after)
    ]
    assert sizes[1] == sizes[0] * _measured().measured_bytes // _measured().bound_bytes
    assert "Measured" in {line["confidence"] for line in after}


def test_the_rendered_manifests_are_those_of_the_calibrated_plan(
    file: Path, tmp_path: Path, capsys: Capture
) -> None:
    words = ["render", "-f", str(EXAMPLE), "--pool", "a6000-tp4"]
    main(words)
    plain = capsys.readouterr().out
    main([*words, "--calibration", str(file)])
    assert capsys.readouterr().out != plain


def test_a_cluster_is_read_and_written(file: Path, tmp_path: Path, capsys: Capture) -> None:
    async def story() -> StandIn:
        box = StandIn()
        async with serving(box):
            config = tmp_path / "kubeconfig"
            config.write_text(kubeconfig(box))

            async def command(*words: str) -> int:
                return await asyncio.to_thread(
                    main, ["calibration", *words, "-n", "team", "--kubeconfig", str(config)]
                )

            assert await command("show") == Exit.FITS
            assert await command("import", str(file), "--write") == Exit.FITS
            assert await command("import", str(file), "--write") == Exit.FITS
            capsys.readouterr()
            assert await command("export") == Exit.FITS
            (one,) = calibration_of(capsys.readouterr().out).measured
            assert one.plans == 4
            assert await command("reset", "--write") == Exit.FITS
        return box

    box = asyncio.run(story())
    text = box.get(CONFIG_MAP, "team", CALIBRATION_NAME)["data"][DATA_KEY]
    assert text == text_of(())
