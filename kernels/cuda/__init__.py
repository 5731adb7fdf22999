"""CUDA backend: kernels in Triton for NVIDIA GPUs.

Nothing here is imported before a GPU is asked for: the plain program has no Triton.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from functools import cache, partial

import torch

from kernels.backend.backend import Backend
from kernels.backend.refusal import Reason, Refusal
from kernels.backend.torch_backend import available_bytes
from kernels.cuda import driver_module
from kernels.programs.program import Program, Recorded

NAME = "cuda"
LEAST_CAPABILITY = (8, 0)  # of GPUs with tensor cores for bfloat16

_COMPILERS = ("cc", "gcc", "clang")


def refused(device: str = "") -> Refusal | None:
    """Why kernels cannot run on a GPU of this computer; None: they can.

    `device` is the number of a GPU, "" the first one. Asks torch and the driver, and never raises.
    """
    if torch.version.cuda is None:
        return Refusal(Reason.NO_SUPPORT, "This build of torch has no CUDA.")
    try:
        if not torch.cuda.is_available():
            return Refusal(Reason.NO_DEVICE, "torch finds no NVIDIA GPU or no driver for it.")
        count = torch.cuda.device_count()
        if device and not (device.isdecimal() and int(device) < count):
            return Refusal(Reason.NO_DEVICE, f"There is no GPU {device}; the computer has {count}.")
        number = int(device or 0)
        name, capability = (
            torch.cuda.get_device_name(number),
            torch.cuda.get_device_capability(number),
        )
    except (RuntimeError, AssertionError) as error:
        return driver_refusal(error)
    if capability < LEAST_CAPABILITY:
        return Refusal(
            Reason.TOO_OLD,
            f"The {name} is too old: kernels need compute capability "
            f"{LEAST_CAPABILITY[0]}.{LEAST_CAPABILITY[1]}, it has {capability[0]}.{capability[1]}.",
        )
    if importlib.util.find_spec("triton") is None:
        return Refusal(
            Reason.NO_TRITON,
            "The package triton, which compiles the kernels, is not installed.",
        )
    compiler = os.environ.get("CC", "")
    if not driver_module.is_compiled() and not any(
        map(shutil.which, (compiler, *_COMPILERS) if compiler else _COMPILERS)
    ):
        return Refusal(
            Reason.NO_COMPILER, "Triton needs a C compiler, and there is none; install gcc."
        )
    return None


def driver_refusal(error: BaseException) -> Refusal:
    """The refusal of a GPU whose driver raised an error."""
    reason = str(error).strip().split("\n")[0] or type(error).__name__
    return Refusal(Reason.DRIVER_FAILS, f"The NVIDIA driver fails: {reason.rstrip('.')}.")


@cache
def cuda_backend(device: str = "") -> Backend:
    """The backend on a GPU, "" the first one. Raises ValueError with the reason if it cannot run."""
    if (reason := refused(device)) is not None:
        raise ValueError(f"The GPU cannot be used: {reason.text}")
    name = f"{NAME}:{device}" if device else NAME
    return backend_on(torch.device("cuda", int(device or 0)), name)


def backend_on(place: torch.device, name: str = NAME) -> Backend:
    """The backend on a device of torch; on the processor only in Triton's interpreter."""
    from kernels.cuda import ops, program, sampling  # noqa: PLC0415  # need Triton
    from kernels.gpu import encoding  # noqa: PLC0415

    if driver_module.is_compiled():
        driver_module.use()

    def words() -> str:
        return f"{name} {torch.cuda.get_device_name(place)}" if place.type == "cuda" else name

    launched = ops.CudaOps()

    def record(recorded: Program) -> Recorded:
        if encoding.begins_with_given_rows(recorded):
            return encoding.record(recorded, launched, place)
        return program.record(recorded, made.ops, place)

    kernels = {**launched.table(place), ("record", "F32"): record}
    sampler = partial(sampling.CudaSampler, device=place)
    made = Backend(name, kernels, words, place, partial(available_bytes, place), sampler)
    return made
