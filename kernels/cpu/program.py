"""Recorded programs on the CPU: one native call runs a whole token.

A token takes some two hundred operations; returning to Python between them would cost more than a
small model's arithmetic.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kernels.cpu import library
from kernels.cpu.lowering import Lowering, can_lower
from kernels.cpu.schema import NativeCacheType, NativeLayerKV, NativeOp, NativeProgram
from kernels.program import Attend, KVBuffers, Program

CACHES = {
    torch.float32: NativeCacheType.F32,
    torch.float16: NativeCacheType.F16,
    torch.int8: NativeCacheType.Q8,
}


def record(program: Program) -> Recorded | None:
    """Lower a program to native operations; None when it reads weights that are not packed."""
    return Recorded(program) if can_lower(program) else None


class Recorded:
    """A program as native operations, with its buffers; used by one thread at a time."""

    def __init__(self, program: Program) -> None:
        lowering = Lowering(dict(program.widths))
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
