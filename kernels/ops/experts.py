"""Mixture of experts, and how a token's experts are chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from kernels.ops.gate import Activation, checked_gated
from kernels.ops.hadamard import transform_of
from kernels.ops.hadamard_rotation import HadamardRotation, rotated
from kernels.ops.linear import LoraDelta, checked_linear, lora_term
from kernels.ops.routing import Gating, Routing
from kernels.ops.running import Pass
from kernels.ops.table import Table
from kernels.ops.weight_streamers import ExpertStreamer
from kernels.weights.weight import Weight

# The smallest sum that shares of experts are divided by.
_LEAST_SUM = 2.0**-14


@dataclass(frozen=True, slots=True, eq=False)
class Experts:
    """Mixture of experts: out = sum over the chosen experts of share * down(act(gate(x)) * up(x)).

    Without `ups` an expert is down(act(gate(x))). The shares of a token are those of the op route.
    With a `streamer` the weights of the chosen experts are read once these are known.
    """

    x: str
    scores: str  # [T, E], from the router
    gates: tuple[Weight, ...]  # E of [F, D]
    ups: tuple[Weight, ...]  # E of [F, D], or none
    downs: tuple[Weight, ...]  # E of [D, F]
    routing: Routing
    activation: Activation
    out: str  # [T, D]; another buffer than x
    limit: float = 0.0  # as of Gate
    gate_bias: Tensor | None = None  # f32 [E, F], added to gate(x)
    up_bias: Tensor | None = None  # f32 [E, F]
    down_bias: Tensor | None = None  # f32 [E, D]
    gate_scale: Tensor | None = None  # f32 [E], of the product before the bias
    up_scale: Tensor | None = None  # f32 [E]
    down_scale: Tensor | None = None  # f32 [E]
    weighs_input: bool = False  # the share scales the input of an expert, not its output
    gate_rotation: HadamardRotation | None = None  # of x before gate(x)
    up_rotation: HadamardRotation | None = None
    down_rotation: HadamardRotation | None = None
    gate_changes: tuple[LoraDelta, ...] = ()  # of x itself, one for each expert; empty: no LoRA
    up_changes: tuple[LoraDelta, ...] = ()
    down_changes: tuple[LoraDelta, ...] = ()
    streamer: ExpertStreamer | None = None  # reads experts that are not in memory
    offloaded_layer: int = -1  # whose they are in the streamer

    @property
    def has_changes(self) -> bool:
        """Whether adapters change the experts."""
        return bool(self.gate_changes or self.up_changes or self.down_changes)

    def run(self, on: Pass) -> None:
        x = on.buffers[self.x]
        shares = checked_route(on.ops, on.buffers[self.scores], self.routing)  # [T, E]
        y = torch.zeros_like(x)
        chosen: list[int] = shares.any(0).nonzero()[:, 0].cpu().tolist()
        groups = (
            (chosen,)
            if self.streamer is None
            else self.streamer.read(self.offloaded_layer, chosen, on.checkpoint)
        )
        for number in chain.from_iterable(groups):
            tokens = shares[:, number].nonzero()[:, 0]
            some, share = x[tokens], shares[tokens, number, None]
            added = self._expert(on.ops, some * share if self.weighs_input else some, number)
            y.index_add_(0, tokens, added if self.weighs_input else added * share)
        on.set(self.out, y)

    def _expert(self, ops: Table, x: Tensor, number: int) -> Tensor:
        """The output of one expert: [t, D]."""

        def product(
            x: Tensor,
            weights: tuple[Weight, ...],
            scale: Tensor | None,
            bias: Tensor | None,
            rotation: HadamardRotation | None,
            deltas: tuple[LoraDelta, ...],
        ) -> Tensor:
            read = x if rotation is None else rotated(x, rotation, transform_of(ops))
            y = checked_linear(ops, read, weights[number])
            y = y if scale is None else y * scale[number]
            if deltas:
                delta = deltas[number]
                y = y + lora_term(ops, checked_linear(ops, x, delta.down), delta)
            return y if bias is None else y + bias[number]

        gates = self.gate_scale, self.gate_bias, self.gate_rotation, self.gate_changes
        gate, up = product(x, self.gates, *gates), None
        if self.ups:
            up = product(
                x, self.ups, self.up_scale, self.up_bias, self.up_rotation, self.up_changes
            )
        inner = checked_gated(ops, gate, up, self.activation, self.limit)
        downs = self.down_scale, self.down_bias, self.down_rotation, self.down_changes
        return product(inner, self.downs, *downs)


def checked_route(ops: Table, scores: Tensor, routing: Routing) -> Tensor:
    """Expert routing: scores [T, E] f32 → shares [T, E] f32, 0 for experts that are not chosen.

    The gating makes values of the scores; with a bias added, a token's highest, of equal ones
    the first, are its experts. With several groups they are of the best of these, by the sum
    of a group's two highest. The values of the chosen experts, divided by their sum if
    `normalized`, times `scale` are the shares.
    Source: https://arxiv.org/abs/2401.04088 section 2.1; groups, bias and sigmoid:
    https://arxiv.org/abs/2412.19437 section 2.1.2
    """
    E, chosen, groups = scores.shape[-1], routing.chosen, routing.groups
    if scores.dim() != 2 or scores.dtype != torch.float32:
        raise ValueError(f"route: scores are float32 [T, E], got {list(scores.shape)}")
    if not 0 < chosen <= E:
        raise ValueError(f"route: {chosen} of {E} experts cannot be chosen")
    if routing.is_plain:
        return ops.find("route")(scores, chosen)
    if routing.bias is not None and routing.bias.shape != (E,):
        raise ValueError(f"route: a bias {list(routing.bias.shape)} does not fit {E} experts")
    if E % groups or not 0 < routing.chosen_groups <= groups:
        shape = f"{routing.chosen_groups} of {groups} groups"
        raise ValueError(f"route: {shape} of {E} experts cannot be chosen")
    if chosen > E // groups * routing.chosen_groups:
        raise ValueError(f"route: {chosen} experts are more than the chosen groups have")
    return ops.find_any("route")(scores, chosen, routing)


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
