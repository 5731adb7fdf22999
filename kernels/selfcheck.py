"""Kernels held to their definitions on the operands a model really has, when it is loaded.

A kernel that is wrong on one processor, or for one shape, answers with noise that nobody can tell
from a bad model. `Witness` watches ops run and computes each once more by the reference: an op
that reads a weight on some of its rows, as the file has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels import reference
from kernels.weight import Weight

MOST_ERROR = 2e-3  # normalized squared error of any op; rounding to 8 bits costs 2e-4 at worst
_ROWS = 64  # of a weight that are looked at

# A prepared weight and row numbers → f32 rows; None where it is not known.
Stored = Callable[[Weight, Tensor], Tensor | None]


class Witness:
    """Watches ops; `faults` are those that disagreed, as `ops.refuse` takes them."""

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self.faults: dict[tuple[str, str], float] = {}  # op and format to the largest error
        self.checked = 0

    def __call__(self, op: str, operands: tuple[Any, ...], result: Any) -> None:
        """One op that ran."""
        if op in ("linear", "embed"):
            self._weight_op(op, operands, result)
        elif op in (each.__name__ for each in reference.OTHER_OPS):
            self._note(op, "F32", result, getattr(reference, op)(*operands))

    def _weight_op(self, op: str, operands: tuple[Any, ...], result: Tensor) -> None:
        if op == "embed":
            ids, table = operands
            wanted = self._stored(table, ids)
            if wanted is not None:
                self._note(op, table.format.name, result, wanted, exact=True)
            return
        x, weight = operands
        rows = torch.linspace(0, weight.shape[0] - 1, min(_ROWS, weight.shape[0])).long().unique()
        stored = self._stored(weight, rows)
        if stored is not None:
            self._note(op, weight.format.name, result[:, rows], x @ stored.T)

    def _note(
        self, op: str, format: str, found: Tensor, wanted: Tensor, exact: bool = False
    ) -> None:
        self.checked += 1
        size = float(wanted.double().square().sum())
        error = float((found.double() - wanted.double()).square().sum()) / (size or 1.0)
        # Not "error > most": no number is a fault too, unless the definition has it as well.
        if not error <= (0.0 if exact else MOST_ERROR) and bool(wanted.isfinite().all()):
            self.faults[op, format] = max(error, self.faults.get((op, format), 0.0))
