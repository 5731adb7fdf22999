"""Metal backend: kernels in Metal Shading Language for GPUs of Apple, which torch compiles.

Nothing here is compiled before the backend runs. What only a Mac can show is in UNVERIFIED.md.
"""

from __future__ import annotations

from functools import cache

import torch

from kernels.backend.backend import Backend
from kernels.backend.refusal import Reason, Refusal
from kernels.programs.program import Program, Recorded
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

NAME = "metal"


def refused(device: str = "") -> Refusal | None:
    """Why kernels cannot run on the GPU of this computer; None: they can.

    `device` is the number of a GPU, "" or "0": torch has only one.
    """
    if not torch.backends.mps.is_built():
        text = "This build of torch has no Metal; it needs a Mac with a processor of Apple."
        return Refusal(Reason.NO_SUPPORT, text)
    if not torch.backends.mps.is_available():
        text = "torch finds no GPU of Apple, or macOS is older than 14."
        return Refusal(Reason.NO_DEVICE, text)
    if device not in ("", "0"):
        return Refusal(Reason.NO_DEVICE, f"There is no GPU {device}; the computer has 1.")
    return None


def failure(place: torch.device) -> str:
    """Why a first kernel fails on a device, in one sentence; "": it works.

    Shaders are compiled on the user's computer, by a compiler that no test of this version knows.
    """
    from kernels.metal import products, weights  # noqa: PLC0415  # as in `backend_on`

    format = by_name("Q5_1")
    blocks = torch.arange(3 * format.size, dtype=torch.uint8).view(3, format.size)
    blocks[:, 1:4:2] = 0x2E  # of the half-precision scale and minimum: about 0.1
    weight = Weight(blocks, format, (3, format.block))
    wanted = weight.dense()
    try:
        operand = weights.operand(weights.STORE.prepare(weight, device=place))
        rows, product = torch.empty(3, format.block, device=place), torch.empty(1, 3, device=place)
        products.decode_rows(operand, 0, rows)
        products.linear(rows[:1], [operand], [product], 1)
        found = rows.cpu(), product.cpu()
    except (RuntimeError, SyntaxError, TypeError, AttributeError) as error:
        lines = str(error).strip().split("\n")
        return f"Its first kernel fails: {lines[0] or type(error).__name__}."
    # The exact bits are for the check of each model, which can do without single kernels.
    if torch.allclose(found[0], wanted) and torch.allclose(found[1], wanted[:1] @ wanted.T):
        return ""
    return "Its first kernel gives wrong numbers."


@cache
def metal_backend(device: str = "") -> Backend:
    """The backend on the GPU. Raises ValueError with the reason if it cannot run."""
    place = torch.device("mps")
    found = refused(device)
    if reason := failure(place) if found is None else found.text:
        raise ValueError(f"The GPU cannot be used: {reason}")
    return backend_on(place, f"{NAME}:{device}" if device else NAME)


def backend_on(place: torch.device, name: str = NAME) -> Backend:
    """The backend on a device of torch; on the processor only with a stand-in for the compiler."""
    from kernels.gpu import encoding  # noqa: PLC0415
    from kernels.metal import ops, program  # noqa: PLC0415  # the plain program needs neither

    def words() -> str:
        return f"{name} {torch.backends.mps.get_name()}" if place.type == "mps" else name

    launched = ops.MetalOps()

    def record(recorded: Program) -> Recorded:
        if encoding.begins_with_given_rows(recorded):
            return encoding.record(recorded, launched, place)
        return program.record(recorded, made.ops, place)

    kernels = {**launched.table(place), ("record", "F32"): record}
    made = Backend(name, kernels, words, place)
    return made
