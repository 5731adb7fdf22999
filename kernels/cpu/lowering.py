"""Lowering of programs: instructions to the flat list of operations that a native call runs.

Instructions are fused: a norm also quantizes its result for the products after it, gate and up are
multiplied tile by tile as they are computed, a product adds its result to the residual stream.
Results are bit-identical to running the ops one by one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kernels.cpu import library, weights
from kernels.cpu.schema import (
    MAX_EXPERTS,
    MAX_WEIGHTS,
    Barrier,
    NativeActivation,
    NativeOp,
    NativeWeight,
    OpKind,
)
from kernels.kv_pages import PageLayer
from kernels.program import (
    Add,
    Attend,
    Embed,
    Experts,
    Fetch,
    Gate,
    HeadNorm,
    Instruction,
    Linear,
    LoraDelta,
    Norm,
    Program,
    Softcap,
)
from kernels.weight import Weight

_KNOWN = (Embed, Norm, HeadNorm, Linear, Attend, Gate, Experts, Add, Softcap, Fetch)


def can_lower(program: Program) -> bool:
    """Whether native operations can run a program: all its weights must be packed."""
    if not all(isinstance(layer, PageLayer) for layer in program.kv.layers):
        return False  # also where another stage has the recurrent layers
    for one in (*program.body, *program.head):
        if not isinstance(one, _KNOWN):
            return False
        if isinstance(one, HeadNorm) and not one.centred:
            return False
        if isinstance(one, Norm) and not one.is_plain:
            return False
        if isinstance(one, Attend) and not (one.k and one.is_plain):
            return False
        if isinstance(one, Gate) and not _is_native_gate(one):
            return False
        if isinstance(one, Embed) and not _is_native_embed(one):
            return False
        if isinstance(one, Linear) and not _is_native_linear(one):
            return False
        if isinstance(one, Experts) and not _is_native_mixture(one):
            return False
    return True


def _is_native_gate(one: Gate) -> bool:
    return one.activation.name in NativeActivation.__members__ and not one.limit


def _is_native_embed(one: Embed) -> bool:
    if one.types is not None or one.rotation is not None:
        return False
    change = () if one.change is None else (one.change.down, one.change.up)
    return all(map(weights.is_packed, filter(None, (one.table, one.positions, *change))))


def _is_native_linear(one: Linear) -> bool:
    return not any(one.rotations) and all(map(weights.is_packed, _weights_of(one)))


def _weights_of(one: Linear) -> list[Weight]:
    """The matrices of products and of their LoRA terms."""
    changes = [change for change in one.changes if change is not None]
    return [*one.weights, *(half for change in changes for half in (change.down, change.up))]


def _is_native_mixture(one: Experts) -> bool:
    """Packed weights that read at most one quantized copy of x."""
    if not one.is_plain or one.activation.name not in NativeActivation.__members__:
        return False
    matrices = (*one.gates, *one.ups, *one.downs)
    if len(one.gates) > MAX_EXPERTS or not all(map(weights.is_packed, matrices)):
        return False
    return len({_weight_group(one.gates[0]), _weight_group(one.ups[0])} - {0}) <= 1


@dataclass(slots=True)
class Lowering:
    """State of the lowering: operations so far, and index and width of each buffer."""

    widths: dict[str, int]
    ops: list[NativeOp] = field(default_factory=list)
    angles: dict[tuple[float, ...], str] = field(default_factory=dict)
    kept: list[object] = field(default_factory=list)  # tensors and arrays that operations point to
    quantized: tuple[str, int] = ("", 0)  # buffer that has a quantized copy, columns per scale

    def number(self, name: str, width: int = 0) -> int:
        """The index of a buffer; a new name is added with its `width`."""
        if name not in self.widths:
            assert width, name
            self.widths[name] = width
        return list(self.widths).index(name)

    def add(self, kind: OpKind, **fields: object) -> NativeOp:
        op = NativeOp(kind=kind, activation=-1, add_to=-1, x=-1, y=-1, z=-1, out=-1)
        for name, value in fields.items():
            setattr(op, name, value)
        self.ops.append(op)
        return op

    def pointer(self, tensor: Tensor | None) -> int | None:
        if tensor is None:
            return None
        contiguous = tensor.contiguous()
        self.kept.append(contiguous)
        return contiguous.data_ptr()

    # --- instructions ---------------------------------------------------------------------------

    def lower(self, rest: Sequence[Instruction]) -> int:
        """Emit the first instruction, fused with the next if possible; returns the number used."""
        one, then = rest[0], rest[1] if len(rest) > 1 else None
        match one:
            case Embed():
                self._embed(one)
            case Norm():
                self._norm(one, then)
            case Linear():
                return self._linear(one, then)
            case Attend():
                self._attend(one)
            case HeadNorm():
                self._head_norm(one)
            case Gate():
                self._gate(one)
            case Experts():
                self._experts(one)
            case Add():
                names = {"x": self.number(one.x), "y": self.number(one.y)}
                self.add(OpKind.ADD, **names, width=self.widths[one.x], scale=one.scale)
                self._invalidate(one.x)
                if one.scale != 1.0:
                    self._invalidate(one.y)
            case Softcap():
                self.add(
                    OpKind.SOFTCAP, x=self.number(one.x), cap=one.cap, width=self.widths[one.x]
                )
                self._invalidate(one.x)
            case Fetch():  # a native call ends here
                self.quantized = ("", 0)
        return 1

    def may_begin_call(self, one: Instruction) -> bool:
        """Whether a native call may begin here: quantized activations do not outlive a call."""
        return isinstance(one, Norm) or (isinstance(one, Linear) and self.quantized[0] != one.x)

    def _invalidate(self, name: str) -> None:
        if self.quantized[0] == name:
            self.quantized = ("", 0)

    def _embed(self, one: Embed) -> None:
        added = -1 if one.change is None else self._embed_lora(one.table.columns, one.change)
        op = self.add(
            OpKind.EMBED,
            x=added,
            out=self.number(one.out),
            scale=one.scale,
            width=one.table.columns,
        )
        for table in filter(None, (one.table, one.positions)):
            self._set_weight(op, op.count, table)
            op.count += 1
        self._invalidate(one.out)

    def _embed_lora(self, width: int, change: LoraDelta) -> int:
        """Emit the LoRA term of an embedding; returns the number of its buffer."""
        rank = change.down.columns
        middle, added = f"rank {rank}", "embed change"
        self.number(middle, rank)
        self.number(added, width)
        op = self.add(OpKind.EMBED, out=self.number(middle), scale=1.0, width=rank, count=1)
        self._set_weight(op, 0, change.down)
        scales = self.pointer(change.scales)
        self.add(OpKind.SCALE_COLUMNS, x=self.number(middle), width=rank, weight=scales)
        self._products(Linear(middle, (change.up,), (added,)))
        return self.number(added)

    def _norm(self, one: Norm, then: Instruction | None) -> None:
        op = self.add(
            OpKind.NORM,
            x=self.number(one.x),
            out=self.number(one.out),
            width=self.widths[one.x],
            weight=self.pointer(one.weight),
            bias=self.pointer(one.bias),
            centred=one.centred,
            epsilon=one.epsilon,
        )
        self._invalidate(one.out)
        if isinstance(then, Linear) and one.x != one.out == then.x:
            first = _split_by_group(then)[0]
            op.quantize = _group(first)
            op.barrier = Barrier.BATCH if _reads_only_codes(first) else Barrier.ALWAYS
            self.quantized = (one.out, op.quantize)

    def _linear(self, one: Linear, then: Instruction | None) -> int:
        """Emit products, fused with a gate or a residual add that follows them directly."""
        parts = _split_by_group(one)
        if len(parts) > 1:
            for part in parts:
                self._linear(part, None)
            return 1
        self._quantize(one)
        plain = not any(one.changes) and all(bias is None for bias in one.biases)
        plain = plain and not one.scales
        alone = len(one.weights) == 1
        if plain and isinstance(then, Gate) and _can_fuse_gate(one, then):
            self._products(one, activation=NativeActivation[then.activation.name])
            return 2
        if plain and alone and isinstance(then, Add) and (then.y, then.scale) == (one.outs[0], 1.0):
            self._products(one, add_to=self.number(then.x))
            self._invalidate(then.x)
            return 2
        self._products(one)
        for out, scale in zip(one.outs, one.scales, strict=False):
            width = self.widths[out]
            weight = self.pointer(torch.full((width,), scale))
            self.add(OpKind.SCALE_COLUMNS, x=self.number(out), width=width, weight=weight)
        for out, change in zip(one.outs, one.changes, strict=False):
            if change is not None:
                self._add_lora(one.x, out, change)
        for out, bias in zip(one.outs, one.biases, strict=False):
            if bias is not None:
                vector = self.pointer(bias)
                self.add(OpKind.BIAS, x=self.number(out), width=self.widths[out], weight=vector)
        return 1

    def _quantize(self, one: Linear) -> None:
        wanted = (one.x, _group(one))
        if self.quantized != wanted and wanted[1]:
            self.add(
                OpKind.QUANTIZE,
                x=self.number(one.x),
                width=self.widths[one.x],
                quantize=wanted[1],
                barrier=Barrier.BATCH,
            )
            self.quantized = wanted

    def _products(self, one: Linear, activation: int = -1, add_to: int = -1) -> None:
        last = self.ops[-1]
        used = (last.x, last.out) if last.kind == OpKind.NORM else (last.x,)
        written = {add_to, *map(self.number, one.outs)} - {-1}
        if not written.isdisjoint(used):  # another thread may still read or write the buffer
            last.barrier = Barrier.ALWAYS
        for start in range(0, len(one.weights), MAX_WEIGHTS):
            some = one.weights[start : start + MAX_WEIGHTS]
            outs = one.outs[start : start + MAX_WEIGHTS]
            op = self.add(
                OpKind.LINEAR,
                x=self.number(one.x),
                width=self.widths[one.x],
                count=len(some),
                activation=activation,
                add_to=add_to,
            )
            for at, (weight, out) in enumerate(zip(some, outs, strict=True)):
                self._set_weight(op, at, weight)
                op.outs[at] = self.number(out)
                self._invalidate(out)

    def _add_lora(self, x: str, out: str, change: LoraDelta) -> None:
        """Add the LoRA term (x down^T * scales) up^T to a product that was computed before."""
        rank = change.down.shape[0]
        middle, added = f"rank {rank}", f"{out} change"
        self.number(middle, rank)
        self.number(added, self.widths[out])
        self._products(Linear(x, (change.down,), (middle,)))
        scales = self.pointer(change.scales)
        self.add(OpKind.SCALE_COLUMNS, x=self.number(middle), width=rank, weight=scales)
        self._products(Linear(middle, (change.up,), (added,)), add_to=self.number(out))

    def _attend(self, one: Attend) -> None:
        shape = {
            "layer": one.layer,
            "head_width": one.head_width,
            "heads": self.widths[one.q] // one.head_width,
            "kv_heads": self.widths[one.k] // one.head_width,
        }
        angles = self.angles[_rope_key(one)]
        self.add(
            OpKind.ROPE,
            x=self.number(one.q),
            y=self.number(one.k),
            z=self.number(one.v),
            out=self.number(angles),
            pairs=one.frequencies.shape[0],
            interleaved=one.interleaved,
            query_norm=self.pointer(one.query_norm),
            key_norm=self.pointer(one.key_norm),
            epsilon=one.epsilon,
            **shape,
        )
        self.add(
            OpKind.ATTEND,
            x=self.number(one.q),
            out=self.number(one.out),
            scale=one.scale,
            cap=one.cap,
            window=one.window,
            **shape,
        )
        for name in (one.q, one.k, one.v, one.out):
            self._invalidate(name)

    def _head_norm(self, one: HeadNorm) -> None:
        self.add(
            OpKind.HEAD_NORM,
            x=self.number(one.x),
            weight=self.pointer(one.weight),
            epsilon=one.epsilon,
            heads=one.weight.shape[0],
            head_width=one.weight.shape[1],
        )
        self._invalidate(one.x)

    def _experts(self, one: Experts) -> None:
        """Route, products with gates and ups, gate, products with downs, weighted sum."""
        count, chosen = len(one.gates), one.routing.chosen
        inner, width = one.gates[0].shape
        routes = self.number("expert routes", 4 * chosen)
        groups = self.number("expert groups", 2 * count + 2)
        gate, up = (self.number(f"expert {name}", chosen * inner) for name in ("gate", "up"))
        rows = self.number("expert rows", chosen * width)  # inputs and outputs
        shape = {"experts": count, "chosen": chosen}
        route = {"y": routes, "z": groups, **shape}
        self.add(OpKind.ROUTE, x=self.number(one.scores), **route)
        self.add(OpKind.ORDER_PAIRS, barrier=Barrier.BATCH, **route)
        used = {_weight_group(one.gates[0]), _weight_group(one.ups[0])}
        x = self.number(one.x)
        if 0 in used:
            self.add(OpKind.GATHER, x=x, y=routes, out=rows, width=width, **shape)
        if group := max(used):
            self.add(OpKind.QUANTIZE, x=x, y=routes, quantize=group, width=width, **shape)
        op = self.add(
            OpKind.EXPERT_LINEAR,
            x=rows,
            z=groups,
            width=width,
            count=2,
            activation=NativeActivation[one.activation.name],
            expert_weights=self._weight_array((*one.gates, *one.ups)),
            **shape,
        )
        op.outs[0], op.outs[1] = gate, up
        if group := _weight_group(one.downs[0]):
            self.add(OpKind.QUANTIZE, x=gate, quantize=group, width=inner, **shape)
        op = self.add(
            OpKind.EXPERT_LINEAR,
            x=gate,
            z=groups,
            width=inner,
            count=1,
            expert_weights=self._weight_array(one.downs),
            **shape,
        )
        op.outs[0] = rows
        self.add(OpKind.COMBINE, x=rows, y=routes, out=self.number(one.out), width=width, **shape)
        self.quantized = ("", 0)  # overwritten by the rows of the pairs

    def _weight_array(self, some: Sequence[Weight]) -> ctypes.Array[NativeWeight]:
        self.kept += some
        array = (NativeWeight * len(some))(*map(weights.native, some))
        self.kept.append(array)
        return array

    def _gate(self, one: Gate) -> None:
        self.add(
            OpKind.GATE,
            x=self.number(one.gate),
            y=self.number(one.up) if one.up else -1,
            out=self.number(one.out),
            width=self.widths[one.gate],
            activation=NativeActivation[one.activation.name],
        )
        self._invalidate(one.out)

    def add_angles(self, one: Attend) -> None:
        """Emit the RoPE angles of an attention, once for all layers that share them."""
        key = _rope_key(one)
        if key in self.angles:
            return
        name, pairs = f"angles {len(self.angles)}", one.frequencies.shape[0]
        self.angles[key] = name
        # Without RoPE there are no angles, but a buffer needs a width above 0.
        out, weight = self.number(name, max(2 * pairs, 1)), self.pointer(one.frequencies)
        self.add(
            OpKind.ANGLES,
            barrier=Barrier.NEVER,
            out=out,
            pairs=pairs,
            weight=weight,
            scale=one.rope_scale,
        )

    def _set_weight(self, op: NativeOp, at: int, weight: Weight) -> None:
        self.kept.append(weight)
        op.weights[at] = weights.native(weight)


def _group(one: Linear) -> int:
    """Columns of x per quantization scale for these products; 0: they read floats."""
    return max(map(_weight_group, one.weights))


def _weight_group(weight: Weight) -> int:
    return library.native().nk_activation_group(weight.format.id)


def _split_by_group(one: Linear) -> list[Linear]:
    """Split products so that each part reads one quantized copy of x."""
    parts: dict[int, list[int]] = {}
    for at, weight in enumerate(one.weights):
        parts.setdefault(_group(Linear(one.x, (weight,), ("",))), []).append(at)
    if 0 in parts and len(parts) > 1:  # float products can join any part
        exact = parts.pop(0)
        next(iter(parts.values())).extend(exact)
    changes = one.changes or (None,) * len(one.weights)
    biases = one.biases or (None,) * len(one.weights)
    scales = one.scales or (1.0,) * len(one.weights)
    return [
        Linear(
            one.x,
            tuple(one.weights[at] for at in sorted(part)),
            tuple(one.outs[at] for at in sorted(part)),
            tuple(changes[at] for at in sorted(part)),
            tuple(biases[at] for at in sorted(part)),
            tuple(scales[at] for at in sorted(part)) if one.scales else (),
        )
        for part in parts.values()
    ]


def _reads_only_codes(one: Linear) -> bool:
    """Whether these products read only the quantized copy of x, not its floats."""
    return all(map(_weight_group, one.weights))


def _can_fuse_gate(one: Linear, gate: Gate) -> bool:
    rows = {weight.shape[0] for weight in one.weights}
    return one.outs == (gate.gate, gate.up) and gate.out == gate.gate and len(rows) == 1


def _rope_key(one: Attend) -> tuple[float, ...]:
    return (one.rope_scale, *one.frequencies.tolist())
