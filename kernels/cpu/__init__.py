"""Native CPU backend: its table of kernels by op and format.

Operands are those of `kernels.ops`, which has checked their shapes. Unpacked weights, such as
LoRA matrices, run on the reference: packing them would cost more than one use.
"""

from __future__ import annotations

import ctypes
import os

import torch
from torch import Tensor

from kernels import reference
from kernels.cpu import library, listing, program, timing, weights
from kernels.cpu.library import CACHES, call, optional, pointer
from kernels.cpu.memory import memory
from kernels.cpu.rows import (
    add_to_streams,
    gaussian_top_k,
    hadamard,
    match_magnitude,
    mix_streams,
)
from kernels.cpu.schema import MAX_EXPERTS, MAX_TAPS, NativeActivation, NativeRecurrence
from kernels.kv_pages import PagedKV
from kernels.ops import Activation, Recurrence, Xielu
from kernels.routing import Routing
from kernels.weight import Weight

# Formats with a packed layout in native/pack/pack.cpp; the others run on the reference.
FORMATS = (
    *("F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "Q8_0", "MXFP4", "IQ4_NL", "IQ4_XS"),
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    *("Q1_0", "Q2_0", "TQ1_0", "TQ2_0", "PQ2_0", "PTQ1_0", "TQ2_0_G128"),
)


def linear(x: Tensor, weight: Weight) -> Tensor:
    """Product with a packed weight; quantized formats round x to int8 in groups of 16 or 32."""
    if not weights.is_packed(weight):
        return reference.linear(x, weight)
    x, y = x.contiguous(), torch.empty(x.shape[0], weight.shape[0])
    if y.numel():
        held = weights.native(weight)
        call("linear", ctypes.byref(held), pointer(x), x.shape[0], pointer(y))
    return y


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


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """RMS norm of every row."""
    x, weight = x.contiguous(), weight.contiguous()
    y, width = torch.empty_like(x), x.shape[-1]
    if x.numel():
        rows = x.numel() // width
        call("rms_norm", pointer(x), pointer(weight), epsilon, rows, width, pointer(y))
    return y


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
    """Layer norm of every row."""
    x, weight = x.contiguous(), weight.contiguous()
    bias = None if bias is None else bias.contiguous()
    y, width = torch.empty_like(x), x.shape[-1]
    if x.numel():
        operands = pointer(x), pointer(weight), optional(bias)
        call("layer_norm", *operands, epsilon, x.numel() // width, width, pointer(y))
    return y


def rope(
    x: Tensor, positions: Tensor, frequencies: Tensor, interleaved: bool, scale: float
) -> Tensor:
    """RoPE of every head of every token."""
    x, positions, frequencies = x.contiguous(), positions.contiguous(), frequencies.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        operands = pointer(x), pointer(positions, torch.int64), pointer(frequencies)
        sizes = *x.shape, frequencies.shape[0]
        call("rope", *operands, *sizes, interleaved, scale, pointer(y))
    return y


def attention(
    q: Tensor,
    kv: PagedKV,
    position: int,
    scale: float,
    window: int,
    cap: float,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention over KV pages; bits depend on a query, its position and the rows alone."""
    tokens, heads, width = q.shape
    q, y = q.contiguous(), torch.empty(tokens, heads * width)
    if y.numel():
        layer = kv.layer
        tables = [kv.table] * (layer.group + 1)  # only that of the group is read
        batch = library.NativeBatch([(tokens, position, tables)])
        place = ctypes.byref(library.native_kv_layer(layer))
        sizes = heads, layer.shape.kv_heads, width
        sinks = None if sinks is None else sinks.contiguous()
        options = CACHES[layer.dtype], place, scale, window, cap, optional(sinks)
        call("attention", pointer(q), *sizes, batch.structs, 1, *options, pointer(y))
    return y


def full_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int) -> Tensor:
    """Attention in both directions; bits depend on a query and on the keys and values alone."""
    tokens, heads, width = q.shape
    q, k, v, y = q.contiguous(), k.contiguous(), v.contiguous(), torch.empty(tokens, heads * width)
    if y.numel():
        sizes = tokens, heads, k.shape[1], width
        call("full_attention", *map(pointer, (q, k, v)), *sizes, scale, window, pointer(y))
    return y


def attention_bytes(T: int, S: int, H: int, K: int, C: int, cache_dtype: torch.dtype) -> int:
    """Bytes of the result and of native scratch: a tile per thread; few tokens also results of pages."""
    # The number of threads may be set later: assume the larger one.
    threads = max(os.cpu_count() or 1, library.threads())
    scratch = library.native().nk_attention_bytes(
        threads, T, H, K, C, max(S - T, 0), CACHES[cache_dtype]
    )
    return 4 * T * H * C + scratch


def gated(gate: Tensor, up: Tensor | None, activation: Activation, limit: float = 0.0) -> Tensor:
    """activation(gate) * up, both within `limit`; activation(gate) without `up`."""
    if activation.name not in NativeActivation.__members__:  # of encoders and few other models
        return reference.gated(gate, up, activation, limit)
    gate = gate.contiguous()
    up = None if up is None else up.contiguous()
    y = torch.empty_like(gate)
    function = NativeActivation[activation.name]
    call("gated", pointer(gate), optional(up), gate.numel(), function, limit, pointer(y))
    return y


def route(scores: Tensor, chosen: int, routing: Routing | None = None) -> Tensor:
    """Shares of the chosen experts of each row, 0 elsewhere."""
    if scores.shape[1] > MAX_EXPERTS:
        return reference.route(scores, chosen, routing)
    scores = scores.contiguous()
    shares = torch.empty_like(scores)
    how = library.native_routing(routing or Routing(chosen), scores.shape[1])
    call("route", pointer(scores), len(scores), ctypes.byref(how), pointer(shares))
    return shares


def short_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Causal depthwise convolution, in the reference's order of sums."""
    taps = weight.shape[1]
    if taps > MAX_TAPS:
        return reference.short_conv(x, weight, bias, state)
    x, weight, state = x.contiguous(), weight.T.contiguous(), state.contiguous()
    y, after = torch.empty_like(x), torch.empty_like(state)
    bias = None if bias is None else bias.contiguous()
    operands = pointer(x), pointer(weight), optional(bias), pointer(state)
    call("short_conv", *operands, *x.shape, taps, pointer(y), pointer(after))
    return y, after


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
    y, after = torch.empty(v.shape), torch.empty(state.shape)
    inputs = [None if x is None else x.contiguous() for x in (q, k, v, decay, strength)]
    options = [None if x is None else x.contiguous() for x in (one.rate, one.decay_bias, one.skip)]
    state = state.contiguous()
    sizes = heads, q.shape[1], q.shape[2], v.shape[2], decays
    pointers = *map(optional, inputs), *map(optional, options), pointer(y)
    factors = one.scale, one.epsilon, one.floor
    how = NativeRecurrence(*pointers, *sizes, *factors, one.corrected, one.tiled)
    call("recurrence", ctypes.byref(how), pointer(state), len(v), pointer(after))
    return y, after


def xielu(x: Tensor, one: Xielu) -> Tensor:
    """Expanded integral of the exponential linear unit, element by element."""
    x = x.contiguous()
    y = torch.empty_like(x)
    factors = (ctypes.c_float * 4)(one.positive, one.negative, one.beta, one.epsilon)
    call("xielu", pointer(x), factors, x.numel(), pointer(y))
    return y


def softcap(x: Tensor, cap: float) -> Tensor:
    """Soft cap: cap * tanh(x / cap), within (-cap, cap)."""
    x = x.contiguous()
    y = torch.empty_like(x)
    call("softcap", pointer(x), cap, x.numel(), pointer(y))
    return y


def macs_per_100_ms() -> int:
    """Multiply-adds in 100 ms on two cores; measured: 200 to 250 billion a second per core."""
    return 40_000_000_000


def read_bandwidth(size: int) -> float:
    """Read bandwidth in bytes/s: the best of five."""
    return library.read_bandwidth(size, 5)


KERNELS: dict[tuple[str, str], reference.Kernel] = {
    **{
        (op.__name__, format): op
        for op in (
            *(weights.prepare, weights.held_bytes, weights.empty, weights.fill),
            *(weights.group_rows, linear, embed),
        )
        for format in FORMATS
    },
    **{(op.__name__, "F32"): op for op in (rms_norm, layer_norm, rope, attention, full_attention)},
    **{(op.__name__, "F32"): op for op in (gated, route, softcap, macs_per_100_ms, read_bandwidth)},
    **{(op.__name__, "F32"): op for op in (short_conv, recurrence, xielu)},
    **{(op.__name__, "F32"): op for op in (mix_streams, add_to_streams, match_magnitude)},
    **{(op.__name__, "F32"): op for op in (gaussian_top_k, hadamard)},
    **{(f"{op.__name__}_any", "F32"): op for op in (attention, gated, route, recurrence)},
    **{(op.__name__, "F32"): op for op in (attention_bytes, memory, program.record)},
    ("operations", "F32"): listing.operations,
    ("operation_times", "F32"): timing.operation_times,
}


def words() -> str:
    """Display name of the backend: "cpu avx512"."""
    return f"cpu {library.instruction_set()}"
