"""The point at which a program moves to another backend."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.ops.running import Pass


@dataclass(frozen=True, slots=True, eq=False)
class Transfer:
    """x, and with it the program, moves to another backend; no other buffer is read after it.

    `kernels.backend.pipeline` splits a program here and copies x to the device of the backend.
    """

    x: str
    backend: str  # name of the one that runs the instructions after this

    def run(self, on: Pass) -> None:
        raise ValueError(f"Transfer to {self.backend}: the program is not split in stages")
