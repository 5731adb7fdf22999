"""NVIDIA GPUs of this computer, as their driver describes them; needs neither torch nor CUDA.

The driver brings the management library NVML, whose calls start no context on the GPU. Asking takes
some milliseconds, and up to a second when no program uses the GPU: not for the window's thread.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

_LIBRARY = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
_SYSTEM_FOLDER = 0x800  # LOAD_LIBRARY_SEARCH_SYSTEM32: from no other folder of Windows
_TEXT_BYTES = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE


@dataclass(frozen=True, slots=True)
class NvidiaGPU:
    """A GPU and the driver that runs it."""

    name: str  # "NVIDIA GeForce RTX 4070"
    total_bytes: int  # of its memory; 0: not known
    capability: tuple[int, int]  # compute capability
    driver: str  # version: "580.65.06"


class _Memory(ctypes.Structure):
    """nvmlMemory_t of NVML's API."""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


def nvidia_gpus(library: str = _LIBRARY) -> tuple[NvidiaGPU, ...]:
    """The GPUs that NVIDIA's driver lists, in its order; empty without a driver that works."""
    try:
        nvml: Any = (
            ctypes.CDLL(library, winmode=_SYSTEM_FOLDER)
            if sys.platform == "win32"
            else ctypes.CDLL(library)
        )
        if nvml.nvmlInit_v2() != 0:
            return ()
    except (OSError, AttributeError):  # no such library, or one that is not NVML
        return ()
    try:
        return _listed(nvml)
    except AttributeError:  # an old one without such a function
        return ()
    finally:
        nvml.nvmlShutdown()


def version_of(text: str) -> tuple[int, ...]:
    """The numbers of a version such as "580.65.06", to compare; empty when it is none."""
    parts = text.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


def _listed(nvml: Any) -> tuple[NvidiaGPU, ...]:
    count, text = ctypes.c_uint(), ctypes.create_string_buffer(_TEXT_BYTES)
    if nvml.nvmlSystemGetDriverVersion(text, _TEXT_BYTES) or nvml.nvmlDeviceGetCount_v2(
        ctypes.byref(count)
    ):
        return ()
    driver = text.value.decode("ascii", "replace")
    found: list[NvidiaGPU] = []
    for number in range(count.value):
        device, memory = ctypes.c_void_p(), _Memory()
        major, minor = ctypes.c_int(), ctypes.c_int()
        if (
            nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(device))
            or nvml.nvmlDeviceGetName(device, text, _TEXT_BYTES)
            or nvml.nvmlDeviceGetCudaComputeCapability(
                device, ctypes.byref(major), ctypes.byref(minor)
            )
        ):
            continue
        known = nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0
        found.append(
            NvidiaGPU(
                text.value.decode("utf-8", "replace"),
                int(memory.total) if known else 0,
                (major.value, minor.value),
                driver,
            )
        )
    return tuple(found)
