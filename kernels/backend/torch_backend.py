"""Torch backend: the reference's ops on any torch device, run by the interpreter.

Deliberately plain: it serves a device for which there are no kernels, and proves that a model can
be placed on several backends. Weights are decoded to float32 on the device or, where that takes too
much of its memory, stay packed there and are decoded for every product; see `Storage`.
"""

from __future__ import annotations

from functools import cache, partial

import torch

from kernels.backend import reference
from kernels.backend.backend import HOST, Backend
from kernels.ops import Kernel
from kernels.weights.formats import FORMATS

NAME = "torch"


@cache
def torch_backend(device: str = "") -> Backend:
    """The backend "torch" on a device such as "cuda"; "": the processor, or a GPU if there is one.

    On a named device its name is "torch:cuda". Raises ValueError when torch has no such device.
    """
    place = _named(device) if device else torch.device(next(iter(_accelerators()), HOST.type))
    kernels: dict[tuple[str, str], Kernel] = {
        **reference.KERNELS,
        **{
            ("prepare", format.name): partial(reference.prepare, device=place)
            for format in FORMATS.values()
        },
        ("memory", "F32"): partial(reference.memory, device=place),
        ("read_bandwidth", "F32"): partial(reference.read_bandwidth, device=place),
    }
    name = f"{NAME}:{device}" if device else NAME
    return Backend(name, kernels, lambda: f"{NAME} {place}", place, lambda: available_bytes(place))


def available_bytes(device: torch.device) -> int | None:
    """Free memory of a device that has its own; None: it uses the computer's memory."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return None


def used_bytes(device: torch.device) -> int:
    """Bytes of this process's tensors in the memory that a device has for itself; 0: it has none."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def _named(device: str) -> torch.device:
    try:
        found = torch.device(device)
    except RuntimeError:
        found = None
    if found is None or found.type not in ("cpu", "meta", *_accelerators()):
        raise ValueError(f"torch has no device '{device}' on this computer.")
    return found


def _accelerators() -> tuple[str, ...]:
    """Types of the accelerators of this computer that torch supports."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return () if found is None else (found.type,)
