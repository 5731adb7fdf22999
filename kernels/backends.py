"""The backends of this build, their choice, and settings that all models on them share."""

from __future__ import annotations

import logging
import os

import torch

from kernels import cpu, cuda, metal
from kernels.backend import reference
from kernels.backend.backend import Backend
from kernels.backend.torch_backend import NAME, torch_backend
from kernels.cpu import library

log = logging.getLogger(__name__)

# The backends of the processor, the preferred one first, and those available on this machine.
KNOWN = {
    "cpu": Backend("cpu", cpu.KERNELS, cpu.words),
    "reference": Backend("reference", reference.KERNELS),
}
BACKENDS = {name: KNOWN[name] for name in KNOWN if name != "cpu" or library.available()}
# What `choose` takes; "torch:cuda" names the device of the backend "torch", "cuda:1" a GPU.
NAMES = (*BACKENDS, cuda.NAME, metal.NAME, NAME)

if "cpu" not in BACKENDS and os.environ.get("KERNELS") != "reference":
    log.warning("The slow reference runs, not the native kernels. %s", library.reason())


def choose(name: str = "") -> Backend:
    """The backend `name`, or that of the environment variable KERNELS, or the preferred one.

    Raises ValueError when there is no such backend, or no GPU that can run it.
    """
    wanted = name or os.environ.get("KERNELS", "") or next(iter(BACKENDS))
    if wanted in BACKENDS:
        return BACKENDS[wanted]
    kind, _, device = wanted.partition(":")
    if kind == cuda.NAME:
        return cuda.cuda_backend(device)
    if kind == metal.NAME:
        return metal.metal_backend(device)
    if kind != NAME:
        present = ", ".join(NAMES)
        raise ValueError(f"There is no backend '{wanted}'; this build has: {present}.")
    return torch_backend(device)


def set_threads(threads: int) -> None:
    """Set the number of threads of all backends on the processor, the caller's included.

    Raises RuntimeError when the system refuses one.
    """
    torch.set_num_threads(threads)
    if library.available():
        library.set_threads(threads)


def release() -> None:
    """Release worker threads and scratch memory until the next pass."""
    if library.available():
        library.release()


def instruction_set_refusal() -> str:
    """Reason why the instruction set named by KERNELS_ISA is not in use; "" when it is."""
    wanted = os.environ.get("KERNELS_ISA", "")
    return library.reason() if wanted and wanted != library.instruction_set() else ""
