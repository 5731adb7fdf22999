"""Reference backend: definitions of all ops in plain torch, against which kernels are tested.

Written for readability: float32 throughout, tokens first, optimised only to bound memory.
Shapes and errors are documented with the public ops in `kernels.ops`, which check them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from kernels.formats import FORMATS, Format, by_name
from kernels.kv_pages import PagedKV
from kernels.program import Activation, Recurrence, Xielu
from kernels.quantized_kv import QuantizedKV
from kernels.rotation import hadamard
from kernels.routing import Gating, Routing
from kernels.streams import add_to_streams, gaussian_top_k, match_magnitude, mix_streams
from kernels.weight import Weight, file_dtype

# Attention scores of one tile of queries, all heads: bounds memory for any length.
_SCORES = 1 << 24  # floats, 64 MiB

# Weights decoded between two calls of the checkpoint, or at once in a product: about 5 ms.
_PIECE = 1 << 21

# The smallest sum that shares of experts are divided by.
_LEAST_SUM = 2.0**-14

# Memory of a product that decodes its weight: one piece, the decoder's temporaries, its outputs.
DECODING_BYTES = 3 * 4 * _PIECE


def prepare(
    weight: Weight,
    checkpoint: Callable[[], None],
    done: Callable[[int, int], None],
    device: torch.device | None = None,
) -> Weight:
    """Decode once to float32; F32 is copied too, so that the file can be closed.

    The result is on `device`, where it is decoded; None: where the weight is.
    """
    rows = weight.data.shape[0]
    dense = torch.empty(rows, weight.columns, device=device or weight.data.device)
    step = max(_PIECE // weight.columns, 1)
    for start in range(0, rows, step):
        checkpoint()
        end = min(start + step, rows)
        stored = weight.data[start:end].to(dense.device)
        piece = Weight(stored, weight.format, (end - start, weight.columns), weight.layout)
        piece.decode(0, end - start, dense[start:end])
        done(start, end)
    return Weight(dense, by_name("F32"), weight.shape)


def held_bytes(format: Format, shape: Sequence[int]) -> int:
    """Bytes of a prepared weight: float32, whatever its format."""
    return 4 * math.prod(shape)


def copy(
    weight: Weight,
    checkpoint: Callable[[], None],
    done: Callable[[int, int], None],
    device: torch.device | None = None,
) -> Weight:
    """A copy of the packed bytes on `device`; every product decodes them again."""
    rows = weight.data.shape[0]
    data = torch.empty_like(weight.data, device=device or weight.data.device)
    step = max(_PIECE // weight.columns, 1)
    for start in range(0, rows, step):
        checkpoint()
        end = min(start + step, rows)
        data[start:end] = weight.data[start:end].to(data.device)
        done(start, end)
    return Weight(data, weight.format, weight.shape)


def empty(format: Format, shape: Sequence[int], memory: Tensor) -> Weight:
    """A weight over the beginning of `memory` u8, packed as in a file; `fill` writes its rows."""
    rows, row_bytes = math.prod(shape[:-1]), format.row_bytes(shape[-1])
    data = memory[: rows * row_bytes].view(rows, row_bytes)
    return Weight(data.view(file_dtype(format)), format, tuple(shape))


def fill(weight: Weight, first: int, end: int, rows: Tensor) -> None:
    """Copy rows u8, as in a file, to the rows from `first` to before `end` of a weight."""
    stored = weight.data.view(torch.uint8)
    stored[first:end] = rows.view(end - first, stored.shape[1])


def group_rows(format: Format) -> int:
    """Rows that `fill` writes together."""
    return 1


def linear(x: Tensor, weight: Weight) -> Tensor:
    """y[t, n] = sum over d of x[t, d] * weight[n, d]; a large weight is decoded in pieces."""
    rows, step = weight.shape[0], max(_PIECE // weight.columns, 1)
    if rows <= step or weight.format.name == "F32":
        return functional.linear(x, weight.dense())
    y = x.new_empty(x.shape[0], rows)
    decoded = torch.empty(step, weight.columns, device=x.device)
    for start in range(0, rows, step):
        end = min(start + step, rows)
        weight.decode(start, end, decoded[: end - start])
        y[:, start:end] = functional.linear(x, decoded[: end - start])
    return y


def embed(ids: Tensor, weight: Weight) -> Tensor:
    """y[t] = row ids[t] of weight."""
    return weight.rows(ids)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """y = x / sqrt(mean of x² + epsilon) * weight, over the last dimension."""
    mean = x.square().mean(-1, keepdim=True)
    return x * torch.rsqrt(mean + epsilon) * weight


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
    """y = (x - mean) / sqrt(variance + epsilon) * weight + bias, over the last dimension."""
    y = functional.layer_norm(x, x.shape[-1:], eps=epsilon) * weight
    return y if bias is None else y + bias


def rope(
    x: Tensor, positions: Tensor, frequencies: Tensor, interleaved: bool, scale: float
) -> Tensor:
    """RoPE: rotate each pair (a, b) of channels by the angle position * frequency of that pair."""
    pairs = frequencies.shape[0]
    angles = positions.to(torch.float32)[:, None, None] * frequencies  # [T, 1, pairs]
    cos, sin = angles.cos() * scale, angles.sin() * scale
    rotated, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if interleaved:
        a, b = rotated[..., 0::2], rotated[..., 1::2]
        y = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
    else:
        a, b = rotated[..., :pairs], rotated[..., pairs:]
        y = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    return torch.cat((y, rest), dim=-1) if rest.shape[-1] else y


def attention(
    q: Tensor,
    kv: PagedKV,
    position: int,
    scale: float,
    window: int,
    cap: float,
    sinks: Tensor | None = None,
) -> Tensor:
    """Causal softmax attention, in tiles of queries."""
    T, H, C = q.shape
    first = max(position - window + 1, 0) if window else 0
    k, v = (
        rows.dense() if isinstance(rows, QuantizedKV) else rows.to(torch.float32)
        for rows in kv.rows(first, position + T)
    )
    y = q.new_empty(T, H * C)
    step = max(_SCORES // (H * (position + T)), 1)
    for start in range(0, T, step):
        tile = q[start : start + step]
        at = position - first + start
        y[start : start + step] = _attend(tile, k, v, at, scale, window, cap, sinks)
    return y


def full_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int) -> Tensor:
    """Softmax attention of every token to all, or to those at most window // 2 away."""
    T, H, C = q.shape
    group = H // k.shape[1]
    k, v = (each.repeat_interleave(group, 1).transpose(0, 1) for each in (k, v))  # [H, T, C]
    y = q.new_empty(T, H, C)
    step = max(_SCORES // (H * T), 1)
    at = torch.arange(T, device=q.device)
    for start in range(0, T, step):
        tile = q[start : start + step].transpose(0, 1)
        near = (at[start : start + step, None] - at).abs() <= window // 2 if window else None
        found = functional.scaled_dot_product_attention(
            tile[None], k[None], v[None], near, scale=scale
        )
        y[start : start + step] = found[0].transpose(0, 1)
    return y.flatten(1)


def attention_bytes(T: int, S: int, H: int, K: int, C: int, cache_dtype: torch.dtype) -> int:
    """Bytes of the largest tile's mask and queries, float32 copies of K and V, and the result."""
    tile = min(max(_SCORES // (H * S), 1), T)
    # Bool, then for each head of a group bool and float32; a single query needs none.
    mask = tile * S * (1 + 5 * H // K) if tile > 1 else 0
    # Rows are copied from their pages, joined and decoded to float32; the Hadamard transform of
    # int8 takes two more float32 copies.
    copies = {torch.float32: 4, torch.float16: 4, torch.int8: 6}[cache_dtype] * S * K * C
    return mask + 4 * (copies + (3 * tile + T) * H * C)


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    position: int,
    scale: float,
    window: int,
    cap: float,
    sinks: Tensor | None,
) -> Tensor:
    """Attention of one tile of queries [t, H, C] over the keys visible to any of them."""
    t, H, C = q.shape
    K = k.shape[1]
    first = max(position - window + 1, 0) if window else 0
    end = position + t
    k, v = k[first:end].transpose(0, 1), v[first:end].transpose(0, 1)  # [K, s, C]
    # Grouped-query attention: heads that share keys become further queries, [K, G*t, C].
    q = q.view(t, K, H // K, C).permute(1, 2, 0, 3).reshape(K, -1, C)
    mask = None  # a single query attends to every key of the slice
    if t > 1:
        mask = _mask(t, first, position, window, q.device).repeat(H // K, 1)  # [G*t, s]
    if cap or sinks is not None:
        scores = q @ k.mT * scale  # [K, G*t, s]
        scores = softcap(scores, cap) if cap else scores
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        if sinks is not None:
            sink = sinks.view(K, -1, 1).repeat_interleave(t, 1)  # [K, G*t, 1]
            scores = torch.cat((scores, sink), -1)
        y = scores.softmax(-1)[..., : v.shape[1]] @ v
    else:  # the same without a cap and sinks: torch's fused kernel, in one pass over the keys
        y = functional.scaled_dot_product_attention(q[None], k[None], v[None], mask, scale=scale)
    return y.view(K, -1, t, C).permute(2, 0, 1, 3).reshape(t, H * C)


def _mask(t: int, first: int, position: int, window: int, device: torch.device) -> Tensor:
    """Causal and window mask of t queries over the keys from `first` on: bool [t, s]."""
    query = torch.arange(position, position + t, device=device)[:, None]
    key = torch.arange(first, position + t, device=device)
    mask = key <= query
    return mask & (query - key < window) if window else mask


def gated(gate: Tensor, up: Tensor | None, activation: Activation, limit: float = 0.0) -> Tensor:
    """activation(gate) * up, both within `limit` if it is not 0; activation(gate) without `up`."""
    if limit:
        gate = gate if activation is Activation.SILU_CUT else gate.clamp(max=limit)
        up = None if up is None else up.clamp(-limit, limit)
    match activation:
        case Activation.SILU:
            y = functional.silu(gate)
        case Activation.GELU:
            y = functional.gelu(gate)
        case Activation.GELU_TANH:
            y = functional.gelu(gate, approximate="tanh")
        case Activation.RELU:
            y = gate.relu()
        case Activation.RELU_SQUARED:
            y = gate.relu().square()
        case Activation.SILU_CUT:
            y = functional.silu(gate)
            y = y.clamp(max=limit) if limit else y
        case Activation.SIGMOID:
            y = gate.sigmoid()
        case Activation.SOFTPLUS:
            y = functional.softplus(gate)
        case Activation.GPT_OSS:
            y = gate * (1.702 * gate).sigmoid()
            up = None if up is None else up + 1
    return y if up is None else y * up


def route(scores: Tensor, chosen: int, routing: Routing | None = None) -> Tensor:
    """Shares of the experts with the highest scores, 0 elsewhere; by default their softmax."""
    shares = torch.zeros_like(scores)
    if routing is None:
        highest = _highest(scores, chosen)
        return shares.scatter_(1, highest, scores.gather(1, highest).softmax(-1))
    values = scores
    if routing.gating is Gating.SOFTMAX:
        values = scores.softmax(-1)
    elif routing.gating is Gating.SIGMOID:
        values = scores.sigmoid()
    ranked = values if routing.bias is None else values + routing.bias
    if routing.groups > 1:
        grouped = ranked.view(len(ranked), routing.groups, -1)
        best = grouped.topk(min(2, grouped.shape[-1])).values.sum(-1)  # [T, groups]
        kept = torch.zeros_like(best).scatter_(1, _highest(best, routing.chosen_groups), 1.0)
        ranked = grouped.masked_fill(kept[..., None] == 0, -math.inf).flatten(1)
    highest = _highest(ranked, chosen)
    some = values.gather(1, highest)
    if routing.gating is Gating.SOFTMAX_OF_CHOSEN:
        some = some.softmax(-1)
    elif routing.gating is Gating.SIGMOID_OF_CHOSEN:
        some = some.sigmoid()
    if routing.normalized:
        some = some / some.sum(-1, keepdim=True).clamp(min=_LEAST_SUM)
    return shares.scatter_(1, highest, some * routing.scale)


def _highest(scores: Tensor, count: int) -> Tensor:
    """Indices of the highest scores of each row, of equal ones the first."""
    return scores.sort(dim=-1, descending=True, stable=True).indices[:, :count]


def short_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Causal depthwise convolution over the inputs in the state and x; then the last inputs."""
    T, taps = len(x), weight.shape[1]
    inputs = torch.cat((state, x))  # [k - 1 + T, D]
    y = inputs[:T] * weight[:, 0]
    for tap in range(1, taps):
        y = y + inputs[tap : tap + T] * weight[:, tap]
    return y if bias is None else y + bias, inputs[T:].clone()


def recurrence(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    strength: Tensor | None,
    state: Tensor,
    one: Recurrence,
) -> tuple[Tensor, Tensor]:
    """Gated linear recurrence, token by token; with `corrected` the delta rule."""
    H, K = v.shape[1], q.shape[1]
    read = torch.arange(H, device=v.device)
    read = read % K if one.tiled else read // (H // K)
    y = torch.empty_like(v)
    for t in range(len(v)):
        query, key = (_unit(x[t], one.epsilon)[read, :, None] for x in (q, k))  # [H, C, 1] each
        biased = (decay[t] + one.decay_bias).view(H, -1)  # [H, 1] or [H, C]
        step = biased if one.floor else functional.softplus(biased)
        kept = one.rate[:, None] * step  # the logarithm of what is kept of the state
        kept = one.floor * kept.sigmoid() if one.floor else kept
        state = state * kept.exp()[..., None]
        known = (state * key).sum(1) if one.corrected else 0.0  # [H, V]
        share = strength[t].sigmoid()[:, None] if strength is not None else step
        change = share * (v[t] - known)
        state = state + key * change[:, None]
        y[t] = (state * (query * one.scale)).sum(1)
        if one.skip is not None:
            y[t] += one.skip[:, None] * v[t]
    return y, state


def _unit(x: Tensor, epsilon: float) -> Tensor:
    """x divided by its length over the last dimension, unless epsilon is negative."""
    if epsilon < 0:
        return x
    return x / (x.square().sum(-1, keepdim=True) + epsilon).sqrt()


def xielu(x: Tensor, one: Xielu) -> Tensor:
    """Above 0 a parabola, else an exponential; see the instruction."""
    above = one.positive * x.square()
    below = (torch.expm1(x.clamp(max=one.epsilon)) - x) * one.negative
    return torch.where(x > 0, above, below) + one.beta * x


def softcap(x: Tensor, cap: float) -> Tensor:
    """Soft cap: cap * tanh(x / cap), within (-cap, cap)."""
    return torch.tanh(x / cap) * cap


def macs_per_100_ms() -> int:
    """Multiply-adds in 100 ms; measured: about 50 GFLOP/s of float32."""
    return 2_500_000_000


def memory(size: int, device: torch.device | None = None) -> Tensor:
    """Memory from torch's allocator for a device; None: for the processor."""
    try:
        return torch.empty(size, dtype=torch.uint8, device=device)
    except torch.OutOfMemoryError as error:  # of an accelerator
        raise MemoryError(str(error)) from error


def read_bandwidth(size: int, device: torch.device | None = None) -> float:
    """Bandwidth of a sum over the memory: the best of five."""
    block = torch.ones(size // 4, device=device)
    seconds: list[float] = []
    for _ in range(5):
        started = time.perf_counter()
        block.sum().item()  # waits for the device
        seconds.append(time.perf_counter() - started)
    return size / min(seconds)


Kernel = Callable[..., Any]

WEIGHT_OPS: tuple[Kernel, ...] = (prepare, linear, embed)  # looked up by the weight's format
OTHER_OPS: tuple[Kernel, ...] = (rms_norm, layer_norm, rope, attention, gated, route, softcap)
STATE_OPS: tuple[Kernel, ...] = (short_conv, recurrence)  # of layers with a state of fixed size
ENCODER_OPS: tuple[Kernel, ...] = (full_attention,)  # of models that read a text in both directions
# Ops that few models have, and other ops for the operands that only some backends' kernels take:
# attention with sinks, any activation, a limit, any routing, a floor of decays.
RARE_OPS: dict[str, Kernel] = {
    "xielu": xielu,
    "hadamard": hadamard,
    "mix_streams": mix_streams,
    "add_to_streams": add_to_streams,
    "match_magnitude": match_magnitude,
    "gaussian_top_k": gaussian_top_k,
    "attention_any": attention,
    "gated_any": gated,
    "route_any": route,
    "recurrence_any": recurrence,
}

# Entries of a backend that are not ops: memory estimates, measured speeds.
OTHERS: dict[tuple[str, str], Kernel] = {
    **{
        (entry.__name__, format.name): entry
        for entry in (held_bytes, empty, fill, group_rows)
        for format in FORMATS.values()
    },
    ("attention_bytes", "F32"): attention_bytes,
    ("read_bandwidth", "F32"): read_bandwidth,
    ("macs_per_100_ms", "F32"): macs_per_100_ms,
    ("memory", "F32"): memory,
}

KERNELS: dict[tuple[str, str], Kernel] = {
    **OTHERS,
    **{(op.__name__, format.name): op for op in WEIGHT_OPS for format in FORMATS.values()},
    **{(op.__name__, "F32"): op for op in (*OTHER_OPS, *STATE_OPS, *ENCODER_OPS)},
    **{(name, "F32"): op for name, op in RARE_OPS.items()},
}
