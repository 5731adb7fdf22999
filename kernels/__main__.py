"""Prints the support matrix, op by format by backend, as markdown tables."""

from __future__ import annotations

from collections.abc import Iterable

from kernels import cuda, metal
from kernels.backend import reference
from kernels.backend.backend import SHOWN_WEIGHT_OPS
from kernels.backends import KNOWN
from kernels.gpu.ops import has_kernel
from kernels.weights.formats import FORMATS


def matrix() -> str:
    """Two markdown tables: weight formats, and ops that read no weights."""
    formats = [
        (
            row.name,
            f"{row.bits_per_weight:g}",
            row.words,
            *(_backends(op, row.name) for op in SHOWN_WEIGHT_OPS),
        )
        for row in sorted(FORMATS.values(), key=lambda row: (-row.bits_per_weight, row.name))
    ]
    others = [(op, _backends(op, "F32")) for op in reference.OPS]
    weights = _table(("Format", "Bits per weight", "Layout", *SHOWN_WEIGHT_OPS), formats)
    return f"{weights}\n\n{_table(('Op', 'Backends'), others)}"


def _backends(op: str, format: str) -> str:
    """Names of the backends that have a kernel for `op` on `format`."""
    names = [name for name, one in KNOWN.items() if (op, format) in one.kernels]
    if has_kernel(op, format):
        names += [cuda.NAME, metal.NAME]
    return ", ".join(names)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    print(matrix())
