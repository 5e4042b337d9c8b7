"""The time of day as a story wants it: `time.time` plus the seconds that a file says, read at each call.

On PYTHONPATH of the operator's process, with the file's name in SHIFTED_CLOCK. It stands for a clock that is
set wrong, or is set right while the operator runs: what Python calls the time of day moves, and
`time.monotonic` goes on, as on a real machine. Certificates are judged by OpenSSL's own clock, which stays
right here.
"""

import os
import time
from pathlib import Path

_right = time.time


def _shifted() -> float:
    try:
        return _right() + float(Path(os.environ["SHIFTED_CLOCK"]).read_text())
    except (KeyError, OSError, ValueError):
        return _right()


time.time = _shifted
