"""Table: finds the kernel that runs an op on a backend, or on the reference."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Self

import torch
from torch import Tensor

Kernel = Callable[..., Any]
Find = Callable[[str, str], Kernel]  # op and format name to the kernel that runs it
Observer = Callable[[str, tuple[Any, ...], Any], None]


class Table:
    """Kernels of the ops of a backend; immutable, so that several can be used side by side."""

    def __init__(
        self,
        find: Find,
        reference: Find,
        excluded: Collection[str] = (),
        observer: Observer | None = None,
    ) -> None:
        """The ops in `excluded` run on the `reference`; `observer` sees operands and results."""
        self._find, self._reference = find, reference
        self._excluded, self._observer = frozenset(excluded), observer

    def without(self, excluded: Collection[str]) -> Self:
        """These ops with some on the reference, and the memory they take estimated for it.

        Only for ops that read no weight: a prepared weight has the layout of one backend.
        """
        estimates = (f"{op}_bytes" for op in excluded)
        return type(self)(self._find, self._reference, (*excluded, *estimates), self._observer)

    def watched(self, observer: Observer) -> Self:
        """These ops with `observer(op, operands, result)` called after every one."""
        return type(self)(self._find, self._reference, self._excluded, observer)

    def find(self, op: str, format: str = "F32") -> Kernel:
        """The kernel that runs an op on weights of a format; raises ValueError if there is none."""
        kernel = (self._reference if op in self._excluded else self._find)(op, format)
        return kernel if self._observer is None else _observed(op, kernel, self._observer)

    def find_any(self, op: str) -> Kernel:
        """The kernel of an op for operands that not every backend's kernel of it takes."""
        find = self._reference if op in self._excluded else self._find
        kernel = find(f"{op}_any", "F32")
        return kernel if self._observer is None else _observed(op, kernel, self._observer)


def check_floats(op: str, *tensors: Tensor) -> None:
    """Raise ValueError, beginning with the op, for a tensor that is not float32."""
    if wrong := [one for one in tensors if one.dtype != torch.float32]:
        raise ValueError(f"{op}: an operand is {dtype_name(wrong[0])}, not float32")


def _observed(op: str, kernel: Kernel, observer: Observer) -> Kernel:
    def run(*operands: Any) -> Any:
        result = kernel(*operands)
        observer(op, operands, result)
        return result

    return run


def dtype_name(tensor: Tensor) -> str:
    """The name of its type: "float32"."""
    return str(tensor.dtype).removeprefix("torch.")
