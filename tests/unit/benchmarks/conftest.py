"""The benchmarks stand beside the house, not in it: put the checkout on the path for these tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3]))
