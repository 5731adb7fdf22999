"""Recorded programs on the CPU: lowers instructions to one flat list that a native call runs.

A token takes some two hundred operations; returning to Python between them would cost more than a
small model's arithmetic. Instructions are fused: a norm also quantizes its result for the products
after it, gate and up are multiplied tile by tile as they are computed, a product adds its result to
the residual stream. Results are bit-identical to running the ops one by one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kernels.cpu import library, weights
from kernels.cpu.schema import (
    MAX_WEIGHTS,
    Barrier,
    NativeActivation,
    NativeCacheType,
    NativeLayerKV,
    NativeOp,
    NativeProgram,
    OpKind,
)
from kernels.program import (
    Add,
    Attend,
    Embed,
    Gate,
    Instruction,
    KVBuffers,
    Linear,
    LoraDelta,
    Norm,
    Program,
    Softcap,
)
from kernels.weight import Weight

CACHES = {
    torch.float32: NativeCacheType.F32,
    torch.float16: NativeCacheType.F16,
    torch.int8: NativeCacheType.Q8,
}


def record(program: Program) -> Recorded | None:
    """Lower a program to native operations; None when it reads weights that are not packed."""
    for one in (*program.body, *program.head):
        if isinstance(one, Embed) and not _is_native_embed(one):
            return None
        if isinstance(one, Linear) and not all(map(weights.is_packed, one.weights)):
            return None
    return Recorded(program)


def _is_native_embed(one: Embed) -> bool:
    tables = filter(None, (one.table, one.positions))
    return one.change is None and all(map(weights.is_packed, tables))


@dataclass(slots=True)
class _Lowering:
    """State of the lowering: operations so far, and index and width of each buffer."""

    widths: dict[str, int]
    ops: list[NativeOp] = field(default_factory=list)
    angles: dict[tuple[float, ...], str] = field(default_factory=dict)
    kept: list[Tensor | Weight] = field(default_factory=list)  # tensors that operations point to
    quantized: tuple[str, int] = ("", 0)  # buffer that has a quantized copy, columns per scale

    def number(self, name: str, width: int = 0) -> int:
        """The index of a buffer; a new name is added with its `width`."""
        if name not in self.widths:
            assert width, name
            self.widths[name] = width
        return list(self.widths).index(name)

    def add(self, kind: OpKind, **fields: object) -> NativeOp:
        op = NativeOp(kind=kind, activation=-1, add_to=-1)
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
            case Gate():
                self._gate(one)
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
        return 1

    def may_begin_call(self, one: Instruction) -> bool:
        """Whether a native call may begin here: quantized activations do not outlive a call."""
        return isinstance(one, Norm) or (isinstance(one, Linear) and self.quantized[0] != one.x)

    def _invalidate(self, name: str) -> None:
        if self.quantized[0] == name:
            self.quantized = ("", 0)

    def _embed(self, one: Embed) -> None:
        op = self.add(
            OpKind.EMBED, out=self.number(one.out), scale=one.scale, width=one.table.columns
        )
        for table in filter(None, (one.table, one.positions)):
            self._set_weight(op, op.count, table)
            op.count += 1
        self._invalidate(one.out)

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
        alone = len(one.weights) == 1
        if plain and isinstance(then, Gate) and _can_fuse_gate(one, then):
            self._products(one, activation=NativeActivation[then.activation.name])
            return 2
        if plain and alone and isinstance(then, Add) and (then.y, then.scale) == (one.outs[0], 1.0):
            self._products(one, add_to=self.number(then.x))
            self._invalidate(then.x)
            return 2
        self._products(one)
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
        written = {add_to, *map(self.number, one.outs)}
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
        down, up = weights.prepare(change.down), weights.prepare(change.up)
        self._products(Linear(x, (down,), (middle,)))
        scales = self.pointer(change.scales)
        self.add(OpKind.SCALE_COLUMNS, x=self.number(middle), width=rank, weight=scales)
        self._products(Linear(middle, (up,), (added,)), add_to=self.number(out))

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
    return [
        Linear(
            one.x,
            tuple(one.weights[at] for at in sorted(part)),
            tuple(one.outs[at] for at in sorted(part)),
            tuple(changes[at] for at in sorted(part)),
            tuple(biases[at] for at in sorted(part)),
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


class Recorded:
    """A program as native operations, with its buffers; used by one thread at a time."""

    def __init__(self, program: Program) -> None:
        lowering = _Lowering(dict(program.widths))
        for one in program.body:
            if isinstance(one, Attend):
                lowering.add_angles(one)
        starts: list[int] = []
        at = 0
        while at < len(program.body):
            if lowering.may_begin_call(program.body[at]):
                starts.append(len(lowering.ops))
            at += lowering.lower(program.body[at:])
        self._body_end = len(lowering.ops)
        lowering.quantized = ("", 0)
        at = 0
        while at < len(program.head):
            at += lowering.lower(program.head[at:])
        self._kept = lowering.kept
        self._pieces = [0, *starts[1:], self._body_end]  # a pass can be cancelled between them
        self._names = list(lowering.widths)
        self._widths = lowering.widths
        self._hidden, self._logits = program.hidden, program.logits
        self._ops = (NativeOp * len(lowering.ops))(*lowering.ops)
        self._buffers: dict[str, Tensor] = {}
        self._tokens = 0  # capacity of the buffers in rows
        self._pointers = (ctypes.c_void_p * len(self._names))()
        self._kv_number = -1
        self._native = NativeProgram(
            ops=self._ops,
            buffers=ctypes.addressof(self._pointers),
            op_bytes=ctypes.sizeof(NativeOp),
        )

    def hidden(
        self,
        tokens: Sequence[int],
        kv: KVBuffers,
        position: int,
        checkpoint: Callable[[], None] = lambda: None,
    ) -> Tensor:
        """Run the body: T tokens from `position` on → hidden states [T, D] f32."""
        self._reserve(len(tokens))
        self._bind_cache(kv)
        ids = (ctypes.c_int64 * len(tokens))(*tokens)
        for first, end in zip(self._pieces, self._pieces[1:], strict=False):
            checkpoint()
            self._run(first, end, len(tokens), position, ids)
        width = self._widths[self._hidden]
        return self._buffers[self._hidden][: len(tokens) * width].view(-1, width).clone()

    def logits(self, hidden: Tensor) -> Tensor:
        """Run the head: hidden states [T, D] f32 → logits [T, V] f32."""
        hidden = hidden.contiguous()
        tokens = hidden.shape[0]
        self._reserve(tokens)
        logits = torch.empty(tokens, self._widths[self._logits])
        self._set_buffer(self._hidden, hidden)
        self._set_buffer(self._logits, logits)
        self._run(self._body_end, len(self._ops), tokens, 0, None)
        self._set_buffer(self._hidden, self._buffers[self._hidden])
        return logits

    def step(self, token: int, kv: KVBuffers, position: int) -> Tensor:
        """Body and head for one token, bit-identical to the two calls → logits [V] f32."""
        self._reserve(1)
        self._bind_cache(kv)
        logits = torch.empty(self._widths[self._logits])
        self._set_buffer(self._logits, logits)
        self._run(0, len(self._ops), 1, position, (ctypes.c_int64 * 1)(token))
        return logits

    def _run(self, first: int, end: int, tokens: int, position: int, ids: object) -> None:
        library.run(ctypes.byref(self._native), first, end, tokens, position, ids)

    def _set_buffer(self, name: str, tensor: Tensor) -> None:
        self._pointers[self._names.index(name)] = tensor.data_ptr()

    def _reserve(self, tokens: int) -> None:
        """Grow every buffer to this many rows, except logits, which belong to the caller."""
        if tokens <= self._tokens:
            return
        self._buffers.clear()
        for name in self._names:
            if name != self._logits:
                self._buffers[name] = torch.empty(tokens * self._widths[name])
                self._set_buffer(name, self._buffers[name])
        self._tokens = tokens

    def _bind_cache(self, kv: KVBuffers) -> None:
        if kv.number == self._kv_number:
            return
        layers = len(kv.keys)
        self._keys = (NativeLayerKV * layers)(*map(library.native_layer_kv, kv.keys))
        self._values = (NativeLayerKV * layers)(*map(library.native_layer_kv, kv.values))
        self._native.keys = self._keys
        self._native.values = self._values
        self._native.cache_type = CACHES[kv.keys[0].data.dtype]
        self._kv_number = kv.number
