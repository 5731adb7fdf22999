"""Metal backend: kernels in Metal Shading Language for GPUs of Apple, which torch compiles.

Nothing here is compiled before the backend runs. What only a Mac can show is in UNVERIFIED.md.
"""

from __future__ import annotations

from functools import cache

import torch

from kernels.backend import Backend
from kernels.cuda.layout import FORMATS
from kernels.program import Program, Recorded

NAME = "metal"

WEIGHT_OPS = ("linear", "embed")  # with kernels for the formats of `kernels.cuda.layout`
OTHER_OPS = ("rms_norm", "layer_norm", "attention", "gated")


def has_kernel(op: str, format: str) -> bool:
    """Whether an op has a kernel for weights of a format, F32 where it reads none."""
    return (op in WEIGHT_OPS and format in FORMATS) or op in OTHER_OPS


def refusal(device: str = "") -> str:
    """Why kernels cannot run on the GPU of this computer, in one sentence; "": they can.

    `device` is the number of a GPU, "" or "0": torch has only one.
    """
    if not torch.backends.mps.is_built():
        return "This build of torch has no Metal; it needs a Mac with a processor of Apple."
    if not torch.backends.mps.is_available():
        return "torch finds no GPU of Apple, or macOS is older than 14."
    if device not in ("", "0"):
        return f"There is no GPU {device}; the computer has 1."
    return ""


@cache
def metal_backend(device: str = "") -> Backend:
    """The backend on the GPU. Raises ValueError with the reason if it cannot run."""
    if reason := refusal(device):
        raise ValueError(f"The GPU cannot be used: {reason}")
    name = f"{NAME}:{device}" if device else NAME
    return backend_on(torch.device("mps"), name)


def backend_on(place: torch.device, name: str = NAME) -> Backend:
    """The backend on a device of torch; on the processor only with a stand-in for the compiler."""
    from kernels.metal import ops, program  # noqa: PLC0415  # the plain program needs neither

    def words() -> str:
        return f"{name} {torch.backends.mps.get_name()}" if place.type == "mps" else name

    def record(recorded: Program) -> Recorded | None:
        return program.record(recorded, made.ops, place)

    made = Backend(name, {**ops.table(place), ("record", "F32"): record}, words, place)
    return made
