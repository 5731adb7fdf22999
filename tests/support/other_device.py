"""A device that is simulated on the processor, to find operations that mix devices.

Inside `OtherDevice()` the torch device `DEVICE` is a device with memory of its own: its tensors are
`Elsewhere`, which hold their values in a hidden tensor. An operation on tensors of both devices
raises `MixedDevices`, unless it is a copy that the caller asked for by `.to` or `.cpu`. Values are
those of the processor, so results can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

# A device of torch that needs no hardware. Nothing else in these tests uses it.
DEVICE = torch.device("meta")


class MixedDevices(Exception):
    """Tensors of the host and of the other device met in one operation."""


class Elsewhere(Tensor):
    """A tensor on the other device; torch shows its shape, and only the mode its values."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> Elsewhere:
        # Views of tensors made outside inference mode cannot be inference tensors.
        with torch.inference_mode(False):
            made: Any = Tensor._make_wrapper_subclass(
                cls,
                values.shape,
                strides=values.stride(),
                storage_offset=values.storage_offset(),
                dtype=values.dtype,
                device=DEVICE,
            )
        made.values = values
        return made

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, operands: Any = (), options: Any = None
    ) -> Any:
        return _run(function, operands, options or {}, [])


class OtherDevice(TorchDispatchMode):
    """The device exists while this is entered; `moves` counts the copies from and to it."""

    def __init__(self) -> None:
        super().__init__()
        self.moves: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(function, args, kwargs or {}, self.moves)


def _run(function: Any, operands: Any, options: Any, moves: list[str]) -> Any:
    tensors = list(_tensors((operands, options)))
    elsewhere = [one for one in tensors if isinstance(one, Elsewhere)]
    # As on real devices, a number from the host may meet any tensor.
    hosted = [one for one in tensors if not isinstance(one, Elsewhere) and one.dim()]
    if elsewhere and hosted:
        raise MixedDevices(f"{function}: {[list(one.shape) for one in tensors]}")
    options = dict(options)
    wanted = options.get("device")
    if wanted == DEVICE:
        options["device"] = torch.device("cpu")
    result = function(*_inside(operands), **_inside(options))
    there = wanted == DEVICE if wanted is not None else bool(elsewhere)
    if wanted is not None and tensors and there != bool(elsewhere):
        moves.append("to" if there else "from")
    if _writes(function):
        return operands[0] if "out" not in options else options["out"]
    return _pytree.tree_map_only(Tensor, Elsewhere, result) if there else result


def _tensors(operands: Any) -> Iterator[Tensor]:
    return (one for one in _pytree.tree_leaves(operands) if isinstance(one, Tensor))


def _inside(operands: Any) -> Any:
    return _pytree.tree_map_only(Elsewhere, lambda one: one.values, operands)


def _writes(function: Any) -> bool:
    """Whether an operation returns the operand it has written to."""
    return any(
        one.alias_info is not None and one.alias_info.is_write for one in function._schema.returns
    )
