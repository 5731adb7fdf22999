"""Picture encoders on GPUs: programs that begin with given rows, lowered to launches over all patches.

Products are as exact as those of float32, attention is torch's, norms and gates are kernels.
Nothing is captured, since pictures differ in size, and nothing waits for the device. Buffers lie in
as little memory as the program says, and only while a picture is encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from kernels.gpu.ops import GpuOps
from kernels.gpu.turns import BatchTurns
from kernels.ops import (
    COMMON_ACTIVATIONS,
    Add,
    Attend,
    Clip,
    Columns,
    Gate,
    GivenRows,
    HeadNorm,
    Instruction,
    Join,
    Linear,
    Norm,
    Scale,
    ScaleChannels,
    Segment,
)
from kernels.programs.not_lowerable import NotLowerable, refuse
from kernels.programs.program import Program

_ALIGNMENT = 64  # floats: where buffers begin in memory that they share
_SCORES = 1 << 24  # floats of attention at once, where torch has no kernel that needs none


@dataclass(slots=True)
class _Run:
    """One run over patches: its buffers [T, width] f32, the given rows, and positions of RoPE."""

    buffers: dict[str, Tensor]
    given: Tensor  # [T, W] f32
    sizes: list[int]  # tokens of each segment
    turns: BatchTurns
    waves: dict[tuple[object, ...], tuple[Tensor, Tensor]] = field(default_factory=dict[Any, Any])


_Launch = Callable[[_Run], None]


def begins_with_given_rows(program: Program) -> bool:
    """Whether a program is a part of a picture encoder: it caches nothing and reads no tokens."""
    first = program.body[0] if program.body else None
    return isinstance(first, GivenRows) and not first.added and not program.kv.layers


def record(program: Program, ops: GpuOps[Any], device: torch.device) -> Recorded:
    """The program, lowered; raises NotLowerable."""
    return Recorded(program, ops, device)


class Recorded:
    """A recorded part of a picture encoder; used by one thread at a time."""

    equal_bits = False  # torch's sums depend on the size of a batch
    exact = False  # products of halves are summed in another order

    def __init__(self, program: Program, ops: GpuOps[Any], device: torch.device) -> None:
        refuse(program, {"with a head": bool(program.head)})
        self._program, self._device = program, device
        self._launches = [_lowered(one, ops, program.widths) for one in program.body]

    def hidden(
        self,
        batch: Sequence[Segment],
        checkpoint: Callable[[], None] = lambda: None,
        given: Tensor | None = None,
    ) -> Tensor:
        """Run the program for all patches of a batch, whose rows are given → [T, W] f32."""
        assert given is None, "the rows are those of the segments"
        sizes = [len(one.tokens) for one in batch]
        turns = BatchTurns(batch, self._device)
        run = _Run(self._buffers(sum(sizes)), _given(batch, self._device), sizes, turns)
        for at, launch in enumerate(self._launches):
            if at in self._program.layers:
                checkpoint()
            launch(run)
        return run.buffers[self._program.hidden]

    def logits(self, hidden: Tensor) -> Tensor:
        """The states themselves: there is no head."""
        return hidden

    def step(self, batch: Sequence[Segment], given: Tensor | None = None) -> Tensor:
        """As `hidden`."""
        return self.hidden(batch, given=given)

    def _buffers(self, tokens: int) -> dict[str, Tensor]:
        """Buffers of so many rows; of the alternative sets all begin in the same memory."""
        widths, sets = self._program.widths, self._program.alternatives
        sizes = [
            [-(-tokens * widths[one] // _ALIGNMENT) * _ALIGNMENT for one in some] for some in sets
        ]
        shared = torch.empty(max(map(sum, sizes), default=0), device=self._device)
        made: dict[str, Tensor] = {}
        for some, each in zip(sets, sizes, strict=True):
            for name, start in zip(some, accumulate(each, initial=0), strict=False):
                made[name] = shared[start : start + tokens * widths[name]].view(tokens, -1)
        for name, width in widths.items():
            if name not in made:
                made[name] = torch.empty(tokens, width, device=self._device)
        return made


def _given(batch: Sequence[Segment], device: torch.device) -> Tensor:
    """The rows of all tokens [T, W] f32 on a device; raises ValueError unless each has one."""
    rows: list[Tensor] = []
    for one in batch:
        found = None if one.images is None else one.images.rows
        if found is None or len(found) != len(one.tokens):
            raise ValueError(f"given_rows: not each of {len(one.tokens)} patches has a row")
        rows.append(found.to(device))
    return rows[0] if len(rows) == 1 else torch.cat(rows)


def _lowered(one: Instruction, ops: GpuOps[Any], widths: Any) -> _Launch:
    """What runs an instruction; raises NotLowerable."""
    match one:
        case GivenRows():
            return partial(_give, one, widths[one.x])
        case Linear():
            more = any(one.rotations) or any(one.deltas) or any(s != 1.0 for s in one.scales)
            refuse(one, {"with more than products and biases": more})
            return partial(_multiply, one, ops)
        case Norm():
            refuse(one, {"with a bias": one.bias is not None and not one.centred})
            return partial(_norm, one, ops)
        case HeadNorm():
            ones = torch.ones(one.weight.shape[1], device=one.weight.device)
            return partial(_norm_heads, one, ops, ones)
        case Gate():
            is_common = one.activation in COMMON_ACTIVATIONS and not one.limit
            refuse(one, {f"with the activation {one.activation.value}": not is_common})
            return partial(_gate, one, ops)
        case Attend():
            _refuse_attention(one, widths)
            return partial(_attend, one, ops, _wave_key(one))
        case Add():
            return lambda run: _nothing(
                run.buffers[one.x].add_(run.buffers[one.y], alpha=one.scale)
            )
        case Scale():
            return lambda run: _nothing(run.buffers[one.x].mul_(one.scale))
        case ScaleChannels():
            return lambda run: _nothing(run.buffers[one.x].mul_(one.weight))
        case Clip():
            return lambda run: _nothing(run.buffers[one.x].clamp_(one.least, one.most))
        case Columns():
            return partial(_columns, one)
        case Join():
            return partial(_join, one)
        case _:
            raise NotLowerable(one)


def _refuse_attention(one: Attend, widths: Any) -> None:
    shared = widths[one.q] != widths[one.k] if one.k else True
    lacking = {
        "that is causal": one.causal,
        "with a window": bool(one.window),
        "with sinks or a cap": one.sinks is not None or bool(one.cap),
        "with heads that share keys": shared,
    }
    refuse(one, lacking)


def _nothing(done: Tensor) -> None:
    del done


def _give(one: GivenRows, width: int, run: _Run) -> None:
    rows, x = run.given[:, one.start : one.start + width], run.buffers[one.x]
    if rows.shape[1] != width:
        raise ValueError(f"given_rows: rows of {run.given.shape[1]} columns are too narrow")
    x.add_(rows) if one.added else x.copy_(rows)


def _multiply(one: Linear, ops: GpuOps[Any], run: _Run) -> None:
    x, biases = run.buffers[one.x], one.biases or (None,) * len(one.outs)
    for weight, name, bias in zip(one.weights, one.outs, biases, strict=True):
        out = run.buffers[name]
        ops.exact_linear(x, weight, out)
        if bias is not None:
            out.add_(bias)


def _norm(one: Norm, ops: GpuOps[Any], run: _Run) -> None:
    operands = one.weight, one.bias, one.epsilon, one.centred
    ops.launch_norm(run.buffers[one.x], *operands, run.buffers[one.out])


def _norm_heads(one: HeadNorm, ops: GpuOps[Any], ones: Tensor, run: _Run) -> None:
    heads, width = one.weight.shape
    x = run.buffers[one.x].view(-1, width)
    ops.launch_norm(x, ones, None, one.epsilon, one.centred, x)
    x.view(-1, heads, width).mul_(one.weight)


def _gate(one: Gate, ops: GpuOps[Any], run: _Run) -> None:
    up = run.buffers[one.up] if one.up else None
    ops.launch_gated(run.buffers[one.gate], up, one.activation, run.buffers[one.out])


def _columns(one: Columns, run: _Run) -> None:
    run.buffers[one.out].copy_(run.buffers[one.x][:, one.start : one.start + one.width])


def _join(one: Join, run: _Run) -> None:
    places = run.buffers[one.out].unflatten(1, (one.heads, -1))
    start = 0
    for name in one.xs:
        part = run.buffers[name].unflatten(1, (one.heads, -1))
        places[..., start : start + part.shape[2]].copy_(part)
        start += part.shape[2]


# --- attention ------------------------------------------------------------------------------------


def _attend(one: Attend, ops: GpuOps[Any], key: tuple[object, ...], run: _Run) -> None:
    """Attention of the patches of each picture to all of them."""
    q, k, v, out = (
        run.buffers[name].unflatten(1, (-1, one.head_width))
        for name in (one.q, one.k, one.v, one.out)
    )
    for x, norm in ((q, one.query_norm), (k, one.key_norm)):
        if norm is not None and not one.norms_rotated:
            _norm_rows(x, norm, one.epsilon, ops)
        if len(one.frequencies):
            _turn(x, *_waves(one, key, run), interleaved=one.interleaved)
        if norm is not None and one.norms_rotated:
            _norm_rows(x, norm, one.epsilon, ops)
    first = 0
    for size in run.sizes:
        rows = slice(first, first + size)
        queries, keys, values = (x[rows].transpose(0, 1)[None] for x in (q, k, v))
        # On CUDA torch has a kernel for float32 that never has all scores in memory.
        step = size if q.is_cuda else max(_SCORES // (q.shape[1] * size), 1)
        for start in range(0, size, step):
            some = queries[:, :, start : start + step]
            found = functional.scaled_dot_product_attention(some, keys, values, scale=one.scale)
            end = first + min(start + step, size)
            out[first + start : end].copy_(found[0].transpose(0, 1))
        first = rows.stop


def _norm_rows(x: Tensor, weight: Tensor, epsilon: float, ops: GpuOps[Any]) -> None:
    rows = x.view(-1, x.shape[2])
    ops.launch_norm(rows, weight, None, epsilon, False, rows)


def _wave_key(one: Attend) -> tuple[object, ...]:
    """What cosines and sines of RoPE depend on; read once, so that no run waits for the device."""
    axes = () if one.axes is None else tuple(one.axes.tolist())
    return axes, tuple(one.frequencies.tolist()), one.rope_scale


def _waves(one: Attend, key: tuple[object, ...], run: _Run) -> tuple[Tensor, Tensor]:
    """Cosines and sines [T, 1, pairs] of RoPE, computed once a run."""
    if key not in run.waves:
        place = run.turns.of(one.axes)
        if place is None:
            place = torch.cat([torch.arange(size) for size in run.sizes])[:, None]
            place = place.to(one.frequencies.device)
        angles = (place.float() * one.frequencies)[:, None]
        run.waves[key] = angles.cos() * one.rope_scale, angles.sin() * one.rope_scale
    return run.waves[key]


def _turn(x: Tensor, cosines: Tensor, sines: Tensor, *, interleaved: bool) -> None:
    """RoPE of heads x [T, H, C], in place."""
    count = cosines.shape[2]
    a = x[..., 0 : 2 * count : 2] if interleaved else x[..., :count]
    b = x[..., 1 : 2 * count : 2] if interleaved else x[..., count : 2 * count]
    turned = a * cosines - b * sines
    b.copy_(b * cosines + a * sines)
    a.copy_(turned)
