"""The stand-in of NVML, built once as it is and once as an older driver's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nvml_box import Box, loaded
from stand_ins.nvml import OLD, compiler


def need_compiler() -> None:
    """Skip where the stand-in cannot be built."""
    if compiler() is None:
        pytest.skip("the stand-in of NVML is a C library, and there is no C compiler")


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A driver of today."""
    need_compiler()
    with loaded(tmp_path_factory.mktemp("nvml")) as found:
        yield found


@pytest.fixture
def old_box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A driver from before R510: several symbols are not there."""
    need_compiler()
    with loaded(tmp_path_factory.mktemp("old-nvml"), *OLD) as found:
        yield found
