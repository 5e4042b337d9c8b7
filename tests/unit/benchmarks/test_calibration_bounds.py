"""Do the bounds within which a calibration is believed hold for start-ups of real cards?"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.accuracy import reading_pool

from plimsoll.plan.calibration import PLAUSIBLE

GIB = 1 << 30
READINGS = Path(__file__).parents[2] / "data" / "vllm_readings.json"


def test_start_ups_of_real_cards_lie_within_the_bounds() -> None:
    """Of every reading whose model, share, weights and pool are stated: what it took over what we bound."""
    shares = {}
    for reading in json.loads(READINGS.read_text())["readings"]:
        said, planned = reading["reported"], reading_pool.planned(reading)
        requested = reading_pool.requested_bytes(reading)
        known = (
            reading.get("model"),
            requested,
            said.get("weights_gib"),
            said.get("available_kv_gib"),
        )
        if isinstance(planned, str) or None in known:
            continue
        assert requested is not None
        rest = requested - said["weights_gib"] * GIB
        shares[reading["id"]] = (rest - said["available_kv_gib"] * GIB) / (rest - planned[0])
    assert len(shares) >= 20
    assert PLAUSIBLE[0] < min(shares.values())
    assert max(shares.values()) < 1
