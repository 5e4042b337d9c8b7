"""Real engines are told apart by what they retrieve: 16 bit, 8 bit, and one whose digits are corrupted.

The tiny model misses numbers at 16 bit too, which is why a probe judges the difference. So few trials as are
quick here show no small loss; the tolerance is wide accordingly. docs/measured/retrieval.md has a longer run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from controlplane.fetch import node_parts
from controlplane.node import real_node_possible
from llama_server import llama_server, unpacked
from patience import Patience, stretched
from stand_ins.corrupting import Corrupting

REASON = real_node_possible()
pytestmark = [
    pytest.mark.real_node,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]
SLOT: Final = ("--ctx-size", "1024", "--swa-full", "--flash-attn", "on")
"""With --swa-full a prompt that begins like the last is not read again."""
QUICK: Final = ("--lengths", "250", "--depths", "5", "--trials", "15", "--tolerance", "0.4")
PASSED, REFUSED = 0, 3


class Servers(NamedTuple):
    """Two real engines with the same model, and the folder of one's answers."""

    sixteen_bit: str
    eight_bit: str
    baseline: Path


def probe(*words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of the real command."""
    plimsoll = Path(sys.executable).with_name("plimsoll")
    ran = subprocess.run(
        (plimsoll, "probe", "retrieval", "-o", "json", *words),
        capture_output=True,
        text=True,
        check=False,
        timeout=stretched(Patience.REAL_POD_READY),
    )
    assert ran.returncode in (PASSED, REFUSED), ran.stderr
    assert "of 15" in ran.stderr  # progress
    report: dict[str, Any] = json.loads(ran.stdout)
    return ran.returncode, report


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """llama-server with a cache of f16, and with keys in q8_0."""
    folder = tmp_path_factory.mktemp("probe")
    parts = node_parts()
    root = unpacked(parts, folder)
    kept = folder / "sixteen.json"
    with (
        llama_server(root, parts.model, *SLOT, log=folder / "f16.log") as one,
        llama_server(root, parts.model, *SLOT, "-ctk", "q8_0", log=folder / "q8.log") as other,
    ):
        _, report = probe("--url", one, *QUICK[:-2], "--save", str(kept))
        assert report["exact"] >= 8, report  # enough to judge a cache by
        yield Servers(one, other, kept)


def test_eight_bit_keys_retrieve_as_sixteen_bit_do(servers: Servers) -> None:
    code, report = probe(
        "--url", servers.eight_bit, "--baseline", str(servers.baseline), *QUICK[-2:]
    )
    assert (PASSED, "Passed") == (code, report["verdict"]), report
    assert report["baselineExact"] - 2 <= report["exact"]


def test_a_server_that_corrupts_digits_fails(servers: Servers) -> None:
    with Corrupting(servers.eight_bit) as broken:
        code, report = probe("--url", broken.url, "--baseline", str(servers.baseline), *QUICK[-2:])
        assert broken.corrupted >= report["baselineExact"]
    assert (REFUSED, "Failed") == (code, report["verdict"]), report
    assert report["baselineExact"] == report["lost"]
    assert report["digitsRight"] > 0.5  # most digits are right, and that does not count
