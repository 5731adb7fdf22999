"""Ops of the Metal backend, run one by one; operands are those of `kernels.ops`, on the device."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from kernels import formats, reference
from kernels.gpu.layout import FORMATS
from kernels.kv_pages import PagedKV
from kernels.metal import arena, elementwise, products, weights
from kernels.metal import attention as pages
from kernels.metal.arena import Arena
from kernels.metal.attention import Heads
from kernels.program import Activation
from kernels.weight import Weight

# Multiply-adds in 100 ms: 1 TFLOP/s, about half of what the slowest GPU of Apple has.
_MACS_PER_100_MS = 50_000_000_000


def table(device: torch.device) -> dict[tuple[str, str], reference.Kernel]:
    """The kernels of a backend on a device; ops that it lacks run as torch operations there."""
    decoded = {
        ("prepare", format.name): partial(reference.prepare, device=device)
        for format in formats.FORMATS.values()
    }
    made = {**reference.KERNELS, **decoded, **weights.entries(device)}
    for name in FORMATS:
        made["linear", name] = linear
        made["embed", name] = embed
    for op in (rms_norm, layer_norm, gated, attention, attention_bytes, macs_per_100_ms):
        made[op.__name__, "F32"] = op
    made["memory", "F32"] = Arena(partial(reference.memory, device=device)).take
    made["read_bandwidth", "F32"] = partial(reference.read_bandwidth, device=device)
    return made


def linear(x: Tensor, weight: Weight) -> Tensor:
    """Product with a stored weight, by the number of tokens; F32 matrices are exact."""
    tokens, columns = x.shape
    rows = weight.shape[0]
    if not weights.is_stored(weight):
        return reference.linear(x, weight)
    if not tokens:
        return x.new_empty(0, rows)
    operand = weights.operand(weight)
    if weight.format.name == "F32":
        dense = operand.data.view(torch.float32).view(rows, columns)
        return torch.nn.functional.linear(x, dense)
    y = torch.empty(tokens, rows, device=x.device)
    if tokens > products.FEW:
        products.linear_many(x.contiguous(), operand, y, tokens)
    else:
        products.linear(x.contiguous(), [operand], [y], tokens)
    return y


def embed(ids: Tensor, weight: Weight) -> Tensor:
    """Embedding rows of a stored table, bit-identical to the format's decoder."""
    if not weights.is_stored(weight):
        return reference.embed(ids, weight)
    if not len(ids):
        return torch.empty(0, weight.columns, device=ids.device)
    if ids.min() < 0 or ids.max() >= weight.shape[0]:
        raise IndexError(f"embed: an id is outside the {weight.shape[0]} rows of the table")
    out = torch.empty(len(ids), weight.columns, device=ids.device)
    products.embed(ids.contiguous(), weights.operand(weight), out)
    return out


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """RMS norm of every row."""
    return _norm(x, weight, None, epsilon, centred=False)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
    """Layer norm of every row."""
    return _norm(x, weight, bias, epsilon, centred=True)


def _norm(
    x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float, *, centred: bool
) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        width = x.shape[-1]
        bias = None if bias is None else bias.contiguous()
        rows = x.view(-1, width), weight.contiguous(), bias
        elementwise.norm_launch(*rows, epsilon, centred, out.view(-1, width))()
    return out


def gated(gate: Tensor, up: Tensor | None, activation: Activation) -> Tensor:
    """activation(gate) * up; activation(gate) without `up`."""
    gate = gate.contiguous()
    out = torch.empty_like(gate)
    if gate.numel():
        other = None if up is None else up.contiguous()
        elementwise.gated_launch(gate, other, activation, out)()
    return out


def attention(
    q: Tensor, kv: PagedKV, position: int, scale: float, window: int, cap: float
) -> Tensor:
    """Attention over KV pages, of queries [T, H, C] that were rotated before."""
    tokens, heads, width = q.shape
    out = torch.empty(tokens, heads * width, device=q.device)
    if not tokens:
        return out
    nothing = torch.empty(0, device=q.device)
    one = Heads(
        kv.layer, heads, None, None, 0.0, nothing, False, 1.0, scale, window=window, cap=cap
    )
    count = len(kv.table)
    found = arena.places([kv.table], count) or arena.places([arena.copied(kv.table)], count)
    assert found is not None, "pages of one buffer"
    places = torch.tensor(found.entries[0]).to(q.device)
    rows = q.reshape(tokens, heads * width)
    pages.attend_rows(one, rows, places, found.chunks, position, out)
    return out


def attention_bytes(T: int, S: int, H: int, K: int, C: int, cache_dtype: torch.dtype) -> int:
    """Bytes of the queries and the result."""
    del S, K, cache_dtype
    return 8 * T * H * C


def macs_per_100_ms() -> int:
    """Multiply-adds in about 100 ms."""
    return _MACS_PER_100_MS
