"""How is NVML asked, so that no answer and no missing answer does harm?

Only this and `events` import pynvml. Each look starts the library anew, for it knows the cards that were
there when it was started. Calls block; whoever has a loop gives them a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import pynvml as nvml

from plimsoll.agent.reading import (
    CardReading,
    Memory,
    Process,
    Reading,
    Refused,
    SliceReading,
    Trouble,
)

T = TypeVar("T")

_TROUBLES: Final = {
    nvml.NVML_ERROR_NOT_SUPPORTED: Trouble.NOT_SUPPORTED,
    nvml.NVML_ERROR_NO_PERMISSION: Trouble.NO_PERMISSION,
    nvml.NVML_ERROR_NOT_FOUND: Trouble.NOT_FOUND,
    nvml.NVML_ERROR_GPU_NOT_FOUND: Trouble.NOT_FOUND,
    nvml.NVML_ERROR_DRIVER_NOT_LOADED: Trouble.DRIVER_NOT_LOADED,
    nvml.NVML_ERROR_LIBRARY_NOT_FOUND: Trouble.LIBRARY_NOT_FOUND,
    nvml.NVML_ERROR_FUNCTION_NOT_FOUND: Trouble.FUNCTION_NOT_FOUND,
    nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: Trouble.FUNCTION_NOT_FOUND,
    nvml.NVML_ERROR_TIMEOUT: Trouble.NO_ANSWER,
    nvml.NVML_ERROR_GPU_IS_LOST: Trouble.GPU_LOST,
    nvml.NVML_ERROR_RESET_REQUIRED: Trouble.RESET_REQUIRED,
    nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Trouble.VERSION_MISMATCH,
}


def read() -> Reading:
    """One look at all cards. Never raises for anything that NVML says."""
    with started() as failed:
        if failed is not None:
            return Reading(driver=failed, cards=failed)
        driver = asked(nvml.nvmlSystemGetDriverVersion)
        count = asked(nvml.nvmlDeviceGetCount)
        if isinstance(count, Refused):
            return Reading(driver=driver, cards=count)
        return Reading(driver=driver, cards=tuple(_card(index) for index in range(count)))


def asked(call: Callable[[], T]) -> T | Refused:
    """The answer, or the error in its place."""
    try:
        return call()
    except nvml.NVMLError as error:
        return Refused(trouble=_TROUBLES.get(error.value, Trouble.OTHER), says=str(error))
    except nvml.NVMLLibraryMismatchError as error:  # no NVMLError, though it speaks of one
        return Refused(trouble=Trouble.FUNCTION_NOT_FOUND, says=str(error))
    except UnicodeDecodeError as error:
        return Refused(trouble=Trouble.OTHER, says=f"not text: {error}")


@contextmanager
def started() -> Iterator[Refused | None]:
    """The library, started and ended again; why it could not be started, where it could not."""
    failed = asked(nvml.nvmlInit)
    if isinstance(failed, Refused) and failed.trouble is Trouble.FUNCTION_NOT_FOUND:
        failed = asked(_init_v2)
    try:
        yield failed
    finally:
        if failed is None:
            asked(nvml.nvmlShutdown)


def _init_v2() -> None:
    """For libraries from before nvmlInitWithFlags (R396)."""
    status = nvml._nvmlGetFunctionPointer("nvmlInit_v2")()
    if status != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(status)


def _card(index: int) -> CardReading | Refused:
    handle = asked(lambda: nvml.nvmlDeviceGetHandleByIndex(index))
    if isinstance(handle, Refused):
        return handle
    mig = asked(lambda: nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE)
    return CardReading(
        index=index,
        name=asked(lambda: nvml.nvmlDeviceGetName(handle)),
        uuid=asked(lambda: nvml.nvmlDeviceGetUUID(handle)),
        memory=_memory(handle),
        compute_capability=asked(
            lambda: tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle))  # a list of two
        ),
        addressing_mode=asked(lambda: nvml.nvmlDeviceGetAddressingMode(handle)),
        ecc=asked(lambda: nvml.nvmlDeviceGetEccMode(handle)[0] == nvml.NVML_FEATURE_ENABLED),
        mig_enabled=mig,
        slices=_slices(handle) if mig is True else (),
        graphics=_processes(
            handle,
            nvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
            nvml.nvmlDeviceGetGraphicsRunningProcesses_v2,
        ),
        compute=_processes(
            handle,
            nvml.nvmlDeviceGetComputeRunningProcesses_v3,
            nvml.nvmlDeviceGetComputeRunningProcesses_v2,
        ),
    )


def _memory(handle: Any) -> Memory | Refused:
    """The second version where the library has it (R510), else the first."""
    newer = asked(lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    if not isinstance(newer, Refused):
        return Memory(total=newer.total, reserved=newer.reserved, used=newer.used)
    if newer.trouble in (Trouble.GPU_LOST, Trouble.RESET_REQUIRED, Trouble.NO_PERMISSION):
        return newer
    older = asked(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    return older if isinstance(older, Refused) else Memory(total=older.total)


def _slices(handle: Any) -> tuple[SliceReading, ...] | Refused:
    """The MIG devices; NVML has gaps in their numbers."""
    count = asked(lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    if isinstance(count, Refused):
        return count
    found = []
    for index in range(count):
        one = asked(partial(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index))
        if isinstance(one, Refused):
            if one.trouble is Trouble.NOT_FOUND:
                continue
            return one
        found.append(_slice(one))
    return tuple(found)


def _slice(handle: Any) -> SliceReading:
    return SliceReading(
        name=asked(lambda: nvml.nvmlDeviceGetName(handle)),
        uuid=asked(lambda: nvml.nvmlDeviceGetUUID(handle)),
        memory=_memory(handle),
        attributes=asked(lambda: _attributes(nvml.nvmlDeviceGetAttributes_v2(handle))),
    )


def _attributes(raw: Any) -> tuple[int, int, int]:
    return raw.gpuInstanceSliceCount, raw.computeInstanceSliceCount, raw.memorySizeMB


def _processes(
    handle: Any, newest: Callable[[Any], Any], older: Callable[[Any], Any]
) -> tuple[Process, ...] | Refused:
    found = asked(lambda: newest(handle))
    if isinstance(found, Refused) and found.trouble is Trouble.FUNCTION_NOT_FOUND:
        found = asked(lambda: older(handle))
    if isinstance(found, Refused):
        return found
    return tuple(Process(pid=each.pid, used_bytes=each.usedGpuMemory) for each in found)
