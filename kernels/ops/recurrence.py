"""Gated linear recurrence: delta rule and state-space models."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from kernels.ops.running import Pass
from kernels.ops.table import Table, dtype_name


@dataclass(frozen=True, slots=True, eq=False)
class Recurrence:
    """out = gated linear recurrence of q, k and v; see the op recurrence."""

    q: str  # [T, K*C]
    k: str  # [T, K*C]
    v: str  # [T, H*V]
    decay: str  # [T, H] or, one for each channel of a key, [T, H*C]
    strength: str  # [T, H]; "": that of a state-space model, its time step
    out: str  # [T, H*V]; another buffer than the others
    layer: int  # index in the program's KVLayout, of a RecurrentState
    rate: Tensor  # f32 [H], negative; with a floor positive
    decay_bias: Tensor  # f32 [H] or [H*C], as `decay`
    scale: float  # of q
    epsilon: float  # of the lengths of q and k; negative: they are not divided by their lengths
    corrected: bool = True  # the delta rule
    tiled: bool = False  # head h reads key head h % K; else h // (H / K)
    skip: Tensor | None = None  # f32 [H]: this much of v is added to the result
    floor: float = 0.0  # negative: of the logarithm of the decay, which is sigmoid-shaped then

    def run(self, on: Pass) -> None:
        layer = on.kv.state(self.layer)
        _, C, V = layer.shape.shape
        q, k, v = on.heads(self.q, C), on.heads(self.k, C), on.heads(self.v, V)
        decay = on.buffers[self.decay]
        strength = on.buffers[self.strength] if self.strength else None
        outs: list[Tensor] = []
        for rows, state, index in on.states(self.layer):
            some = None if strength is None else strength[rows]
            operands = q[rows], k[rows], v[rows], decay[rows], some, state.read(index - 1)
            y, after = checked_recurrence(on.ops, *operands, self)
            state.write(index, after)
            outs.append(y.flatten(1))
        on.set(self.out, torch.cat(outs))


def checked_recurrence(
    ops: Table,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    strength: Tensor | None,
    state: Tensor,
    one: Recurrence,
) -> tuple[Tensor, Tensor]:
    """Gated linear recurrence: v [T, H, V] f32 → y [T, H, V] f32 and the state after it.

    Of every head, with a matrix S [C, V] as its state, for each token in turn:

        q = q / sqrt(sum of q² + epsilon) * scale; k likewise without the scale
        S = exp(rate * softplus(decay + decay_bias)) * S
        u = sigmoid(strength) * (v - S^T k) if `corrected` (delta rule), else of v
        S = S + k u^T
        y = S^T q, plus skip * v

    With a `floor` the logarithm of the decay is floor * sigmoid(rate * (decay + decay_bias)) in
    place of rate * softplus(...). With a negative epsilon q and k are not divided. Without `strength` it is
    softplus(decay + decay_bias) in place of the sigmoid: a state-space model's time step. q and
    k [T, K, C] f32: head h reads their head h // (H / K), or h % K if `tiled`. decay and
    decay_bias are [T, H] and [H] f32, or [T, H*C] and [H*C] with one value for each row of S.
    strength [T, H], rate and skip [H] f32, state [H, C, V] f32: zeros before the first token.
    The result does not depend on how the tokens are cut into calls.
    Source: https://arxiv.org/abs/2412.06464 equation 10; uncorrected: section 2.1; the decay
    and the step: https://arxiv.org/abs/2405.21060 section 7; by channel:
    https://arxiv.org/abs/2510.26692 section 3
    """
    shape = f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"
    if q.dim() != 3 or v.dim() != 3 or q.shape != k.shape or len(q) != len(v) or not len(v):
        raise ValueError(f"recurrence: {shape} are not [T, K, C] twice and [T, H, V]")
    T, H, C = len(v), v.shape[1], q.shape[2]
    if H % q.shape[1]:
        raise ValueError(f"recurrence: {shape} do not have heads in groups")
    decays = H * C if one.decay_bias.numel() == H * C else H
    operands = [
        ("decay", decay, (T, decays)),
        ("rate", one.rate, (H,)),
        ("decay_bias", one.decay_bias, (decays,)),
        ("state", state, (H, C, v.shape[2])),
    ]
    operands += [("strength", strength, (T, H))] if strength is not None else []
    operands += [("skip", one.skip, (H,))] if one.skip is not None else []
    for name, tensor, wanted in operands:
        if tensor.shape != wanted:
            raise ValueError(f"recurrence: {name} {list(tensor.shape)} does not fit {shape}")
    for tensor in (q, k, v, *(tensor for _, tensor, _ in operands)):
        if tensor.dtype != torch.float32:
            raise ValueError(f"recurrence: an operand is {dtype_name(tensor)}, not float32")
    if one.floor > 0 or (one.floor and strength is None):
        raise ValueError(f"recurrence: a floor of {one.floor}, or one without a strength")
    found = ops.find_any("recurrence") if one.floor else ops.find("recurrence")
    return found(q, k, v, decay, strength, state, one)


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
