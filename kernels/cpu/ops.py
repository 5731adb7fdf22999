"""Ops by themselves: programs of one native operation, or of two.

Operands are those of `kernels.ops`, which has checked their shapes. Unpacked weights, such as
LoRA matrices, run on the reference: packing them would cost more than one use.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.backend import reference
from kernels.cpu import library, weights
from kernels.cpu.library import CACHES, call, pointer
from kernels.cpu.operations import kind_of, new_op, weight_group
from kernels.cpu.schema import (
    MAX_EXPERTS,
    MAX_STREAMS,
    MAX_TAPS,
    Barrier,
    NativeActivation,
    NativeKVLayer,
    NativeOp,
    NativeProgram,
    OpKind,
)
from kernels.ops import Activation, ImageRows, InPlace, Recurrence, Spans
from kernels.ops.routing import Routing
from kernels.states.kv_pages import PagedKV, PageLayer, PageTable
from kernels.states.layer_state import PAGE_TOKENS
from kernels.weights.weight import Weight

_PASS_TOKENS = 512  # of a product: bounds the memory of its quantized activations
_BUFFERS = frozenset({"x", "y", "z", "out"})  # fields of an operation that number its buffers

Segment = tuple[int, int, Sequence[PageTable]]  # tokens, position, page tables by group


class FewOps:
    """A program of few operations, whose buffers are contiguous tensors f32."""

    def __init__(self) -> None:
        self._ops: list[NativeOp] = []
        self._buffers: list[int] = []  # addresses
        self._kept: list[Tensor] = []  # what these and the operations point to

    def add(self, kind: OpKind, **fields: object) -> NativeOp:
        """Add an operation; the tensors of its fields are buffers, or vectors that it reads."""
        for name, value in fields.items():
            if isinstance(value, Tensor):
                is_buffer = name in _BUFFERS
                fields[name] = (
                    self.buffer(value) if is_buffer else self._address(value.contiguous())
                )
        self._ops.append(new_op(kind, **fields))
        return self._ops[-1]

    def buffer(self, tensor: Tensor) -> int:
        """The number of a buffer."""
        self._buffers.append(self._address(tensor))
        return len(self._buffers) - 1

    def run(
        self,
        segments: Sequence[Segment] | int,
        layer: NativeKVLayer | None = None,
        type: torch.dtype = torch.float32,
        images: ImageRows | None = None,
    ) -> None:
        """Run all over so many rows, or over segments with the pages of a layer.

        `images` are those of the only segment.
        """
        segments = [(segments, 0, ())] if isinstance(segments, int) else segments
        pointers = (ctypes.c_void_p * len(self._buffers))(*self._buffers)
        program = NativeProgram(
            ops=(NativeOp * len(self._ops))(*self._ops),
            buffers=ctypes.addressof(pointers),
            layers=None if layer is None else ctypes.pointer(layer),
            cache_type=CACHES[type],
            op_bytes=ctypes.sizeof(NativeOp),
        )
        # Keeps the tables that its structs point to.
        batch = library.NativeBatch(segments, [images])
        structs, end = batch.structs, len(self._ops)
        library.call("run", ctypes.byref(program), 0, end, structs, len(structs), None)

    def _address(self, tensor: Tensor) -> int:
        self._kept.append(tensor)
        return pointer(tensor, torch.int32 if tensor.dtype == torch.int32 else torch.float32)


# --- products and embeddings --------------------------------------------------------------------


def linear(x: Tensor, weight: Weight) -> Tensor:
    """Product with a packed weight; quantized formats round x to int8 in groups of 16 or 32."""
    if not weights.is_packed(weight):
        return reference.linear(x, weight)
    x, y = x.contiguous(), torch.empty(x.shape[0], weight.shape[0])
    for start in range(0, len(x), _PASS_TOKENS) if y.numel() else ():
        product(x[start : start + _PASS_TOKENS], weight, y[start : start + _PASS_TOKENS])
    return y


def product(x: Tensor, weight: Weight, y: Tensor) -> None:
    """y [T, N] = the product of x [T, D] and a packed weight."""
    few, width, group = FewOps(), x.shape[1], weight_group(weight)
    number = few.buffer(x)
    if group:
        few.add(OpKind.QUANTIZE, x=number, width=width, quantize=group, barrier=Barrier.BATCH)
    op = few.add(OpKind.LINEAR, x=number, width=width, count=1)
    op.weights[0], op.outs[0] = weights.native(weight), few.buffer(y)
    few.run(len(x))


def embed(ids: Tensor, weight: Weight) -> Tensor:
    """Embedding rows of a packed table, bit-identical to the format's decoder."""
    if not weights.is_packed(weight):
        return reference.embed(ids, weight)
    ids, y = ids.contiguous(), torch.empty(ids.shape[0], weight.columns)
    if ids.numel():
        if ids.min() < 0 or ids.max() >= weight.shape[0]:
            raise IndexError(f"embed: an id is outside the {weight.shape[0]} rows of the table")
        held = weights.native(weight)
        call("rows_of", ctypes.byref(held), pointer(ids, torch.int64), ids.numel(), pointer(y))
    return y


# --- rows ---------------------------------------------------------------------------------------


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """RMS norm of every row."""
    return _rows(OpKind.NORM, x, weight=weight, epsilon=epsilon)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
    """Layer norm of every row."""
    return _rows(OpKind.NORM, x, weight=weight, bias=bias, epsilon=epsilon, centred=True)


def hadamard(x: Tensor, block: int) -> Tensor:
    """Hadamard transform of every block of columns: sums and differences, log2(block) times."""
    return _rows(OpKind.ROTATE, x, pairs=block, heads=1, kv_heads=1)


def in_place(one: InPlace, x: Tensor, y: Tensor) -> Tensor:
    """What an instruction makes of rows, by the operation of its name."""
    kind = kind_of(type(one))
    assert kind is not None, one
    values = {each.name: getattr(one, each.name) for each in dataclasses.fields(one)}
    constants = {name: each for name, each in values.items() if not isinstance(each, str)}
    factor = {"y": y.contiguous()} if "y" in values else {}
    return _changed(kind, x, **factor, **constants)


def mix_streams(x: Tensor, coefficients: Tensor) -> Tensor:
    """Each stream plus a combination of all."""
    count = round(coefficients.shape[1] ** 0.5)
    if count > MAX_STREAMS:
        return reference.mix_streams(x, coefficients)
    shape = {"heads": count, "head_width": x.shape[1] // count}
    return _changed(OpKind.MIX_STREAMS, x, y=coefficients.contiguous(), **shape)


def add_to_streams(x: Tensor, y: Tensor, coefficients: Tensor | None, first: int) -> Tensor:
    """Streams from `first` on plus y, times coefficients."""
    shape = {"heads": x.shape[1] // y.shape[1], "head_width": y.shape[1], "start": first}
    more = {} if coefficients is None else {"z": coefficients.contiguous()}
    return _changed(OpKind.ADD_TO_STREAMS, x, y=y.contiguous(), **more, **shape)


def route(scores: Tensor, chosen: int, routing: Routing | None = None) -> Tensor:
    """Shares of the chosen experts of each row, 0 elsewhere."""
    tokens, experts = scores.shape
    if experts > MAX_EXPERTS:
        return reference.route(scores, chosen, routing)
    how = library.native_routing(routing or Routing(chosen), experts)
    routes, groups = torch.empty(4, tokens, chosen), torch.empty(2 * experts + 2)
    shape = {"experts": experts, "chosen": chosen, "routing": how}
    _run(OpKind.ROUTE, tokens, x=scores.contiguous(), y=routes, z=groups, **shape)
    numbers = routes[0].view(torch.int32).long()
    return scores.new_zeros(scores.shape).scatter_(1, numbers, routes[1])


# --- elements -----------------------------------------------------------------------------------


def gated(gate: Tensor, up: Tensor | None, activation: Activation, limit: float = 0.0) -> Tensor:
    """activation(gate) * up, both within `limit`; activation(gate) without `up`."""
    if activation.name not in NativeActivation.__members__:  # of encoders and few other models
        return reference.gated(gate, up, activation, limit)
    factor = {} if up is None else {"y": up.contiguous()}
    function = NativeActivation[activation.name]
    return _elements(OpKind.GATE, gate, **factor, activation=function, limit=limit)


# --- attention ----------------------------------------------------------------------------------


def rope(
    x: Tensor, positions: Tensor, frequencies: Tensor, interleaved: bool, scale: float
) -> Tensor:
    """RoPE of every head of every token."""
    y, pairs = _copy(x), len(frequencies)
    if not x.numel() or not pairs:
        return y
    few, cosines = FewOps(), torch.empty(len(x), 2 * pairs)
    angles = few.buffer(cosines)
    wide = positions.view(len(x), -1)  # one position of all pairs, or of each
    axes = torch.arange(wide.shape[1], dtype=torch.int32).expand(pairs)
    few.add(OpKind.ANGLES, out=angles, pairs=pairs, weight=frequencies, axes=axes, scale=scale)
    shape = {"heads": x.shape[1], "head_width": x.shape[2], "pairs": pairs}
    few.add(OpKind.ROPE, x=y, out=angles, interleaved=interleaved, **shape)
    few.run(len(x), images=ImageRows(positions=wide))
    return y


def attention(
    q: Tensor,
    kv: PagedKV,
    position: int,
    scale: float,
    window: int,
    cap: float,
    sinks: Tensor | None = None,
    spans: Spans = Spans.CAUSAL,
) -> Tensor:
    """Attention over KV pages; bits depend on a query, what it sees and the rows alone."""
    tokens, heads, width = q.shape
    y = torch.empty(tokens, heads * width)
    if y.numel():
        tables = [kv.table] * (kv.layer.group + 1)  # only that of the group is read
        segments = [(tokens, position, tables)]
        attend(q.contiguous(), segments, kv.layer, scale, window, cap, sinks, y, spans)
    return y


def attend(
    q: Tensor,
    segments: Sequence[Segment],
    layer: PageLayer,
    scale: float,
    window: int,
    cap: float,
    sinks: Tensor | None,
    y: Tensor,
    spans: Spans = Spans.CAUSAL,
) -> None:
    """y [T, H * C] = attention of the queries [T, H, C] of segments.

    The tokens of the only segment may be a span.
    """
    _, heads, width = q.shape
    few = FewOps()
    few.add(
        OpKind.ATTEND,
        x=q,
        out=y,
        heads=heads,
        kv_heads=layer.shape.kv_heads,
        head_width=width,
        scale=scale,
        window=window,
        cap=cap,
        sinks=sinks,
        spans=spans,
    )
    images = ImageRows(spans=[range(len(q))]) if spans else None
    few.run(segments, library.native_kv_layer(layer), layer.dtype, images)


def full_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int) -> Tensor:
    """Attention in both directions; bits depend on a query and on the keys and values alone."""
    tokens, heads, width = q.shape
    y = torch.empty(tokens, heads * width)
    if y.numel():
        few = FewOps()
        query = few.buffer(q.contiguous())
        shape = {"heads": heads, "kv_heads": k.shape[1], "head_width": width, "full": True}
        # Without a rotation it stores the keys and values alone, and reads no angles.
        few.add(OpKind.ROPE, x=query, y=k.contiguous(), z=v.contiguous(), out=query, **shape)
        few.add(OpKind.ATTEND, x=query, out=y, scale=scale, window=window, **shape)
        few.run(tokens)
    return y


def attention_bytes(T: int, S: int, H: int, K: int, C: int, cache_dtype: torch.dtype) -> int:
    """Bytes of the result and of native scratch: a tile per thread; few tokens also results of pages."""
    # The number of threads may be set later: assume the larger one.
    threads = max(os.cpu_count() or 1, library.threads())
    scratch = library.native().nk_attention_bytes(
        threads, T, H, K, C, max(S - T, 0), CACHES[cache_dtype]
    )
    return 4 * T * H * C + scratch


# --- states of fixed size -----------------------------------------------------------------------


def short_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Causal depthwise convolution, in the reference's order of sums."""
    taps = weight.shape[1]
    if taps > MAX_TAPS:
        return reference.short_conv(x, weight, bias, state)
    few, y = FewOps(), _copy(x)
    few.add(OpKind.SHORT_CONV, x=y, width=x.shape[1], taps=taps, weight=weight.T, bias=bias)
    return y, _run_states(few, len(x), state)


def recurrence(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    strength: Tensor | None,
    state: Tensor,
    one: Recurrence,
) -> tuple[Tensor, Tensor]:
    """Gated linear recurrence, token by token, with a head's state in the cache."""
    heads, decays = v.shape[1], decay.shape[1]
    if strength is None and decays != heads:
        return reference.recurrence(q, k, v, decay, strength, state, one)
    few, y = FewOps(), torch.empty(v.shape)
    op = few.add(
        OpKind.RECURRENCE,
        x=q.contiguous(),
        y=k.contiguous(),
        z=v.contiguous(),
        out=y,
        heads=heads,
        kv_heads=q.shape[1],
        head_width=q.shape[2],
        value_width=v.shape[2],
        decays=decays,
        scale=one.scale,
        epsilon=one.epsilon,
        floor=one.floor,
        corrected=one.corrected,
        tiled=one.tiled,
        rate=one.rate,
        decay_bias=one.decay_bias,
        skip=one.skip,
    )
    op.outs[0] = few.buffer(decay.contiguous())
    op.outs[1] = -1 if strength is None else few.buffer(strength.contiguous())
    return y, _run_states(few, len(v), state)


def _run_states(few: FewOps, tokens: int, state: Tensor) -> Tensor:
    """Run a program after a state; returns that after it, in pages as a sequence has them."""
    if not tokens:
        return state.clone()
    after = torch.empty(2, *state.shape)  # in turn, as each page is read to write the next
    table = PageTable()
    table.append(state.contiguous())
    pages = -(-tokens // PAGE_TOKENS)
    for page in range(pages):
        table.append(after[page % 2])
    few.run([(tokens, PAGE_TOKENS, [table])], NativeKVLayer(0, 0))
    return after[(pages - 1) % 2]


# --- programs of one operation ------------------------------------------------------------------


def _copy(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def _run(kind: OpKind, rows: int, **fields: object) -> None:
    if rows:
        few = FewOps()
        few.add(kind, **fields)
        few.run(rows)


def _rows(kind: OpKind, x: Tensor, **fields: object) -> Tensor:
    """An operation from rows x to rows `out`."""
    width, y = x.shape[-1], torch.empty(x.shape)
    if x.numel():
        _run(kind, x.numel() // width, x=x.contiguous(), out=y, width=width, **fields)
    return y


def _changed(kind: OpKind, x: Tensor, **fields: object) -> Tensor:
    """An operation that changes rows x."""
    y = _copy(x)
    _run(kind, len(x), x=y, width=x.shape[1], **fields)
    return y


def _elements(kind: OpKind, x: Tensor, **fields: object) -> Tensor:
    """An operation from the elements of x to those of `out`."""
    y = torch.empty(x.shape)
    if x.numel():
        _run(kind, 1, x=x.contiguous(), out=y, width=x.numel(), **fields)
    return y
