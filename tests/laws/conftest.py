"""The simulated engine stands with the benchmarks: put the checkout on the path for these laws."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
