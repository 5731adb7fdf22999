"""Operations: the native operations of a program while they are listed, and its buffers."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache

from torch import Tensor

from kernels.cpu import library, weights
from kernels.cpu.schema import NativeActivation, NativeOp, NativeWeight, OpKind
from kernels.ops import Activation, Instruction, RowTable
from kernels.ops.in_place import op_name
from kernels.programs.not_lowerable import NotLowerable, refuse
from kernels.states.kv_pages import PageLayer, StateLayer
from kernels.weights.weight import Weight


@dataclass(slots=True)
class Operations:
    """Operations so far, index and width of each buffer, and what the operations point to."""

    widths: dict[str, int]
    layers: Sequence[PageLayer | StateLayer]
    ops: list[NativeOp] = field(default_factory=list)
    kept: list[object] = field(default_factory=list)  # tensors and arrays that operations point to
    tables: dict[str, RowTable] = field(default_factory=dict)  # whose rows fill a buffer first
    quantized: tuple[str, int] = ("", 0)  # buffer that has a quantized copy, columns per scale

    def number(self, name: str, width: int = 0) -> int:
        """The index of a buffer; a new name is added with its `width`."""
        if name not in self.widths:
            assert width, name
            self.widths[name] = width
        return list(self.widths).index(name)

    def add(self, kind: OpKind, **fields: object) -> NativeOp:
        self.ops.append(new_op(kind, **fields))
        return self.ops[-1]

    def add_named(self, one: Instruction) -> None:
        """Add the operation that has the name and the fields of an instruction that changes x.

        Raises NotLowerable if there is none.
        """
        kind = kind_of(type(one))
        if kind is None:
            raise NotLowerable(one)
        x = str(getattr(one, "x"))  # noqa: B009
        self.add(kind, width=self.widths[x], **self.native_fields(one))
        self.invalidate(x)

    def native_fields(self, one: Instruction) -> dict[str, object]:
        """Fields of an instruction as an operation has them: numbers of buffers, addresses."""
        found: dict[str, object] = {}
        for each in fields(one):
            value = getattr(one, each.name)
            found[each.name] = (
                self.number(value)
                if isinstance(value, str)
                else self.pointer(value)
                if isinstance(value, Tensor)
                else value
            )
        return found

    def pointer(self, tensor: Tensor | None) -> int | None:
        if tensor is None:
            return None
        contiguous = tensor.contiguous()
        self.kept.append(contiguous)
        return contiguous.data_ptr()

    def invalidate(self, name: str) -> None:
        if self.quantized[0] == name:
            self.quantized = ("", 0)

    def weight_array(self, some: Sequence[Weight]) -> ctypes.Array[NativeWeight]:
        self.kept += some
        array = (NativeWeight * len(some))(*map(weights.native, some))
        self.kept.append(array)
        return array


@cache
def kind_of(instruction: type) -> OpKind | None:
    """The kind of operation with the name of an instruction, if it has all of its fields."""
    kind = OpKind.__members__.get(op_name(instruction).upper())
    there = {name for name, *_ in NativeOp._fields_}
    return kind if there.issuperset(each.name for each in fields(instruction)) else None


def new_op(kind: OpKind, **fields: object) -> NativeOp:
    """A native operation without the buffers and options that are not among its fields."""
    op = NativeOp(kind=kind, activation=-1, add_to=-1, x=-1, y=-1, z=-1, out=-1)
    for name, value in fields.items():
        setattr(op, name, value)
    return op


def weight_group(weight: Weight) -> int:
    """Columns of x per quantization scale for a product; 0: it reads floats."""
    return library.native().nk_activation_group(weight.format.id)


def activation_of(one: object, activation: Activation | None) -> int:
    """The number of an instruction's activation, -1 for none; raises NotLowerable."""
    if activation is None:
        return -1
    if activation.name not in NativeActivation.__members__:
        raise NotLowerable(one, f"with the activation {activation.value}")
    return NativeActivation[activation.name]


def refuse_unpacked(one: object, some: Iterable[Weight | None]) -> None:
    """Raise NotLowerable for an instruction unless its weights, which may be None, are packed."""
    packed = all(weight is None or weights.is_packed(weight) for weight in some)
    refuse(one, {"with weights that are not packed": not packed})
