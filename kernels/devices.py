"""Devices beside the processor that a model can be placed on, found without raising."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

import torch

from kernels import backends, cuda, metal
from kernels.backend.backend import Backend
from kernels.backend.refusal import Reason, Refusal

PROCESSOR = "cpu"  # name of the host in the choice of a device
_DRIVER = "/proc/driver/nvidia/version"
# What torch, the drivers and the compilers of kernels write in the errors that have no type.
_NAMES = re.compile(r"CUDA|cuDNN|CUDNN|cuBLAS|CUBLAS|NVRTC|Triton Error|\bMPS\b|Metal|ptxas")
_UNTYPED = (RuntimeError, OSError, subprocess.SubprocessError)


@dataclass(frozen=True, slots=True)
class Device:
    """A device: its name as in `backends.choose`, and what it is."""

    name: str  # "cuda", "cuda:1"
    label: str  # of the hardware: "NVIDIA H100"; "" if it is not known
    total_bytes: int = 0
    free_bytes: int = 0
    refusal: Refusal | None = None  # why it cannot run models

    def backend(self) -> Backend:
        """Its backend. Raises ValueError with the reason if it cannot be used."""
        return backends.choose(self.name)


def found() -> list[Device]:
    """The devices of this computer, the preferred one first, those that are refused too.

    One that is refused is listed if the computer seems to have it: a build of torch for it, or its
    driver. The first call starts the driver, which takes up to a second.
    """
    first = _described("") or _apple()
    if first is None:
        return []
    if first.refusal is not None or first.name == metal.NAME:
        return [first]
    others = (_described(str(number)) for number in range(1, torch.cuda.device_count()))
    return [first, *(one for one in others if one is not None)]


def is_device_error(error: BaseException) -> bool:
    """Whether a device, its driver or the compiler of its kernels raised an error.

    All others, a KeyError or the RuntimeError of an operation on the host, are faults of the program.
    """
    if isinstance(error, torch.AcceleratorError | torch.OutOfMemoryError | SyntaxError):
        return True  # SyntaxError: of a shader
    if any(one.__module__.partition(".")[0] == "triton" for one in type(error).__mro__):
        return True
    return isinstance(error, _UNTYPED) and _NAMES.search(str(error)) is not None


def _described(number: str) -> Device | None:
    name = f"{cuda.NAME}:{number}" if number else cuda.NAME
    refused = cuda.refused(number)
    if refused is not None and refused.reason is Reason.NO_SUPPORT and not _has_nvidia_driver():
        return None
    try:
        if refused is None or refused.reason not in (Reason.NO_SUPPORT, Reason.NO_DEVICE):
            label = torch.cuda.get_device_name(int(number or 0))
            free, total = torch.cuda.mem_get_info(int(number or 0)) if refused is None else (0, 0)
            return Device(name, label, total, free, refused)
    except (RuntimeError, AssertionError) as error:
        refused = refused or cuda.driver_refusal(error)
    return Device(name, "", refusal=refused)


def _apple() -> Device | None:
    """The GPU of a Mac; its memory is the computer's."""
    if not torch.backends.mps.is_built():
        return None
    return Device(metal.NAME, "Apple", refusal=metal.refused())


def _has_nvidia_driver() -> bool:
    return os.path.exists(_DRIVER) or shutil.which("nvidia-smi") is not None
