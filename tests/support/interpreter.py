"""Reference interpreter of recorded programs: runs each instruction with the public kernel ops.

Its results equal those of the recorded forward pass bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

import torch
from torch import Tensor

from engine import CacheType
from engine.state.kv_cache import attention_view, encoded
from kernels import ops, program
from kernels.program import Instruction, KVBuffers, LayerKV, LoraDelta, Program

_TYPES = {
    torch.float32: CacheType.F32,
    torch.float16: CacheType.F16,
    torch.int8: CacheType.Q8_0,
}


class Interpreter:
    """Runs a program's instructions one by one, and counts the runs."""

    def __init__(self, recorded: Program) -> None:
        self.program = recorded
        self.passes = 0  # runs of the body
        self.steps = 0  # of these, decode steps of one token

    def hidden(
        self,
        tokens: Sequence[int],
        kv: KVBuffers,
        position: int,
        checkpoint: Callable[[], None] = lambda: None,
    ) -> Tensor:
        self.passes += 1
        assert position + len(tokens) <= kv.capacity
        buffers: dict[str, Tensor] = {}
        for at, one in enumerate(self.program.body):
            if at in self.program.layers:
                checkpoint()
            self._run(one, buffers, torch.tensor(list(tokens)), kv, position)
        return buffers[self.program.hidden]

    def logits(self, hidden: Tensor) -> Tensor:
        buffers = {self.program.hidden: hidden}
        for one in self.program.head:
            match one:
                case program.Embed() | program.Attend():
                    raise AssertionError("a head has no embedding and no attention")
                case _:
                    self._pointwise(one, buffers)
        return buffers[self.program.logits]

    def step(self, token: int, kv: KVBuffers, position: int) -> Tensor:
        self.steps += 1
        return self.logits(self.hidden([token], kv, position))[0]

    def _run(
        self,
        one: Instruction,
        buffers: dict[str, Tensor],
        tokens: Tensor,
        kv: KVBuffers,
        position: int,
    ) -> None:
        match one:
            case program.Embed():
                rows = ops.embed(tokens, one.table)
                if one.change is not None:
                    rows = rows + _change(ops.embed(tokens, one.change.down), one.change)
                rows = rows * one.scale
                if one.positions is not None:
                    at = torch.arange(position, position + len(rows))
                    rows = rows + ops.embed(at, one.positions)
                self._set(buffers, one.out, rows)
            case program.Attend():
                self._set(buffers, one.out, _attend(one, buffers, kv, position))
            case _:
                self._pointwise(one, buffers)

    def _pointwise(
        self,
        one: program.Norm | program.Linear | program.Gate | program.Add | program.Softcap,
        buffers: dict[str, Tensor],
    ) -> None:
        match one:
            case program.Norm(centred=True):
                normed = ops.layer_norm(buffers[one.x], one.weight, one.bias, one.epsilon)
                self._set(buffers, one.out, normed)
            case program.Norm():
                self._set(buffers, one.out, ops.rms_norm(buffers[one.x], one.weight, one.epsilon))
            case program.Linear():
                x = buffers[one.x]
                changes = one.changes or (None,) * len(one.outs)
                biases = one.biases or (None,) * len(one.outs)
                for weight, out, change, bias in zip(
                    one.weights, one.outs, changes, biases, strict=True
                ):
                    y = ops.linear(x, weight)
                    if change is not None:
                        y = y + _change(ops.linear(x, change.down), change)
                    if bias is not None:
                        y = y + bias
                    self._set(buffers, out, y)
            case program.Gate():
                up = buffers[one.up] if one.up else None
                gated = ops.gated(buffers[one.gate], up, one.activation)
                self._set(buffers, one.out, gated)
            case program.Add():
                y = buffers[one.y] if one.scale == 1.0 else buffers[one.y] * one.scale
                self._set(buffers, one.x, buffers[one.x] + y)
            case program.Softcap():
                self._set(buffers, one.x, ops.softcap(buffers[one.x], one.cap))
            case _:
                assert_never(one)

    def _set(self, buffers: dict[str, Tensor], name: str, values: Tensor) -> None:
        assert values.shape[1] == self.program.widths[name], name
        buffers[name] = values


def _change(low: Tensor, change: LoraDelta) -> Tensor:
    return ops.linear(low * change.scales, change.up)


def _attend(
    one: program.Attend, buffers: dict[str, Tensor], kv: KVBuffers, position: int
) -> Tensor:
    query, key, value = (
        buffers[name].view(len(buffers[name]), -1, one.head_width) for name in (one.q, one.k, one.v)
    )
    if one.query_norm is not None and one.key_norm is not None:
        query = ops.rms_norm(query, one.query_norm, one.epsilon)
        key = ops.rms_norm(key, one.key_norm, one.epsilon)
    positions = torch.arange(position, position + len(query))
    query, key = (
        ops.rope(x, positions, one.frequencies, one.interleaved, one.rope_scale)
        for x in (query, key)
    )
    keys = _stored(key, kv.keys[one.layer], position)
    values = _stored(value, kv.values[one.layer], position)
    return ops.attention(query, keys, values, position, one.scale, one.window, one.cap)


def _stored(rows: Tensor, cache: LayerKV, position: int) -> Tensor:
    """Append rows [T, K, C] to the cache at `position`; returns all cached rows [S, K, C]."""
    end = position + len(rows)
    parts = [cache.data] if cache.scales is None else [cache.data, cache.scales]
    for part, coded in zip(
        parts, encoded(rows.transpose(0, 1), _TYPES[cache.data.dtype]), strict=True
    ):
        part[:, position:end] = coded
    return attention_view([part[:, :end] for part in parts])
