"""Run-time check of kernels against the reference, on the operands of a loaded model.

A kernel that is wrong on one processor, or for one shape, produces noise that looks like a bad
model. `KernelChecker` observes ops (see `Ops.watched`) and recomputes each by the reference;
for an op that reads a weight it samples rows and decodes them from the file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, cast

import torch
from torch import Tensor

from kernels.backend import reference
from kernels.ops import InPlace, Recurrence
from kernels.ops.routing import Routing
from kernels.states.kv_pages import PagedKV
from kernels.weights.weight import Weight

MOST_ERROR = 2e-3  # normalized squared error of any op; rounding to 8 bits costs 2e-4 at worst
_ROWS = 64  # rows of a weight that are compared

# A prepared weight and row numbers → f32 rows; None where the file has no such weight.
StoredRows = Callable[[Weight, Tensor], Tensor | None]

# Ops whose whole result is computed again.
_ELEMENTS = {
    *(op.__name__ for op in (*reference.OTHER_OPS, *reference.ENCODER_OPS)),
    *reference.RARE_OPS,
}


class KernelChecker:
    """Observer of ops; `faults` lists those that differ from the reference."""

    def __init__(self, stored_rows: StoredRows) -> None:
        self._stored_rows = stored_rows
        self._sampled: dict[int, tuple[Tensor, Tensor | None]] = {}  # by id: row numbers, rows
        self.faults: dict[tuple[str, str], float] = {}  # op and format to the largest error

    def __call__(self, op: str, operands: tuple[Any, ...], result: Any) -> None:
        """Compare one executed op with the reference."""
        operands, result = tuple(map(_on_host, operands)), _on_host(result)
        tensors = [each for each in operands if isinstance(each, Tensor)]
        if not all(bool(each.isfinite().all()) for each in tensors):
            return  # an earlier op is at fault: its input was wrong already
        if op == "linear":
            x, weight = operands
            self._check_linear(x, weight, result)
        elif op == "embed":
            ids, table = operands
            self._check_embed(ids, table, result)
        elif isinstance(operands[0], InPlace):
            one, x, y = operands
            self._note(op, "F32", result, one.definition(x, y))
        elif op in _ELEMENTS:
            self._note(op, "F32", result, getattr(reference, op)(*operands))
        elif op in (each.__name__ for each in reference.STATE_OPS):
            for found, wanted in zip(result, getattr(reference, op)(*operands), strict=True):
                self._note(op, "F32", found, wanted)

    def _check_linear(self, x: Tensor, weight: Weight, result: Tensor) -> None:
        if id(weight) not in self._sampled:
            count = weight.shape[0]
            rows = torch.linspace(0, count - 1, min(_ROWS, count)).long().unique()
            self._sampled[id(weight)] = rows, self._stored_rows(weight, rows)
        rows, stored = self._sampled[id(weight)]
        if stored is not None:
            self._note("linear", weight.format.name, result[:, rows], x @ stored.T)

    def _check_embed(self, ids: Tensor, table: Weight, result: Tensor) -> None:
        stored = self._stored_rows(table, ids)
        if stored is not None:
            self._note("embed", table.format.name, result, stored, exact=True)

    def _note(
        self, op: str, format: str, found: Tensor, wanted: Tensor, exact: bool = False
    ) -> None:
        size = float(wanted.double().square().sum())
        error = float((found.double() - wanted.double()).square().sum()) / (size or 1.0)
        # Not "error > most": NaN is a fault too, unless the definition gives it as well.
        if not error <= (0.0 if exact else MOST_ERROR) and bool(wanted.isfinite().all()):
            self.faults[op, format] = max(error, self.faults.get((op, format), 0.0))


def _on_host(operand: Any) -> Any:
    """Tensors, also of options, or keys and values, in the host's memory; other operands unchanged."""
    if isinstance(operand, PagedKV | Tensor):
        return operand.cpu()
    if isinstance(operand, tuple):  # results of an op, such as a new state
        return tuple(map(_on_host, cast(tuple[Any, ...], operand)))
    if isinstance(operand, Recurrence | Routing | InPlace):
        values = ((one.name, getattr(operand, one.name)) for one in fields(operand))
        return replace(operand, **{key: _on_host(one) for key, one in values})
    return operand
