"""Do the user's own table and ResourceSlices reach `plimsoll plan`?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.cli.exits import Exit
from plimsoll.cli.main import main

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
MIXED = str(EXAMPLES / "mixed-fleet.yaml")
Capture = pytest.CaptureFixture[str]
GIB = 2**30


def written(path: Path, *things: Any) -> str:
    path.write_text(yaml.safe_dump_all(things), encoding="utf-8")
    return str(path)


def answer(capsys: Capture, *arguments: str) -> dict[str, Any]:
    """What is said of the pool on four cards."""
    assert main(["plan", "-f", MIXED, "--pool", "a6000-tp4", "-o", "json", *arguments]) in (
        Exit.FITS,
        Exit.REFUSED,
    )
    (found,) = json.loads(capsys.readouterr().out)
    outcome: dict[str, Any] = found["outcome"]
    return outcome


NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n",
        "labels": {"nvidia.com/gpu.product": "NVIDIA-RTX-A6000", "nvidia.com/gpu.memory": "49140"},
    },
    "status": {"allocatable": {"nvidia.com/gpu": "4"}},
}
SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "s"},
    "spec": {
        "driver": "gpu.nvidia.com",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": f"gpu-{at}",
                "attributes": {
                    "type": {"string": "gpu"},
                    "productName": {"string": "NVIDIA RTX A6000"},
                    "uuid": {"string": f"GPU-{at}"},
                },
                "capacity": {"memory": {"value": "46068Mi"}},
            }
            for at in range(4)
        ],
    },
}


def test_the_table_goes_before_the_catalogue(capsys: Capture, tmp_path: Path) -> None:
    table = [{"product": "NVIDIA RTX A6000", "total": "40Gi", "reserved": 0}]
    path = written(tmp_path / "values.yaml", {"gpuTypes": table, "operator": {"replicas": 1}})
    found = answer(capsys, "--gpu-types", path)
    assert (40 * GIB, "Profile") == (found["cardBytes"], found["provenance"][1]["source"])


def test_a_type_that_only_the_table_knows_is_planned_for(capsys: Capture, tmp_path: Path) -> None:
    raw = yaml.safe_load(Path(MIXED).read_text(encoding="utf-8"))
    raw["spec"]["pools"] = [
        pool | {"gpu": pool["gpu"] | {"product": "NVIDIA-N9"}} for pool in raw["spec"]["pools"][:1]
    ]
    chat = written(tmp_path / "chat.yaml", raw)
    table = [{"product": "NVIDIA-N9", "total": "80Gi", "computeCapability": "9.0"}]
    path = written(tmp_path / "types.yaml", table)
    assert Exit.REFUSED == main(["plan", "-f", chat, "-o", "json"])
    capsys.readouterr()
    assert Exit.FITS == main(["plan", "-f", chat, "-o", "json", "--gpu-types", path])
    (found,) = json.loads(capsys.readouterr().out)
    assert 80 * GIB == found["outcome"]["cardBytes"]


def test_slices_of_a_dump_go_before_its_labels_and_the_table_before_both(
    capsys: Capture, tmp_path: Path
) -> None:
    nodes = written(tmp_path / "nodes.yaml", NODE)
    both = written(tmp_path / "both.yaml", NODE, SLICE)
    table = written(tmp_path / "t.yaml", [{"product": "NVIDIA-RTX-A6000", "total": "44Gi"}])
    assert 49140 * 2**20 == answer(capsys, "--facts", nodes)["cardBytes"]
    assert 46068 * 2**20 == answer(capsys, "--facts", both)["cardBytes"]
    assert 44 * GIB == answer(capsys, "--facts", both, "--gpu-types", table)["cardBytes"]


@pytest.mark.parametrize("table", [[{"product": "X", "total": "much"}], {"gpuTypes": 3}])
def test_an_error_in_the_table_is_bad_input_with_its_address(
    table: Any, capsys: Capture, tmp_path: Path
) -> None:
    path = written(tmp_path / "types.yaml", table)
    assert Exit.BAD_INPUT == main(["plan", "-f", MIXED, "--gpu-types", path])
    assert "--gpu-types" in capsys.readouterr().err
