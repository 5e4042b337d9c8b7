"""What NVML's errors are called."""

from __future__ import annotations

from nvml_box import A6000, Box
from plimsoll.agent.reading import Refused, Trouble


def test_every_code_has_a_word(box: Box) -> None:
    for code, trouble in (
        (3, Trouble.NOT_SUPPORTED),
        (4, Trouble.NO_PERMISSION),
        (13, Trouble.FUNCTION_NOT_FOUND),
        (15, Trouble.GPU_LOST),
        (18, Trouble.VERSION_MISMATCH),
        (10, Trouble.NO_ANSWER),
        (777, Trouble.OTHER),
    ):
        refused = box.first({**A6000, "memory.error": code}).memory
        assert isinstance(refused, Refused)
        assert trouble is refused.trouble
