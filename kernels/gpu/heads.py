"""Heads of an attention layer, as the launches of a backend need them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from kernels.ops import Attend
from kernels.programs.not_lowerable import refuse
from kernels.programs.program import Program
from kernels.states.kv_pages import PageLayer


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of a layer: norms and RoPE of queries and keys, scale and limits of scores."""

    layer: PageLayer
    heads: int
    query_norm: Tensor | None  # f32 [C]
    key_norm: Tensor | None
    epsilon: float
    frequencies: Tensor  # f32 [pairs]
    interleaved: bool
    rope_scale: float
    scale: float
    window: int = 0
    cap: float = 0.0
    norms_rotated: bool = False  # queries and keys are normed after RoPE
    sinks: Tensor | None = None  # f32 [heads]: one more score of each, of a value of zeros
    chunk: int = 0  # tokens, see Attend

    @classmethod
    def of(cls, one: Attend, program: Program) -> Self:
        """The heads of an instruction; raises NotLowerable."""
        one_norm = (one.query_norm is None) != (one.key_norm is None) and bool(one.k)
        lacking = {
            "in both directions": not one.causal,
            "with a norm of queries or keys alone": one_norm,
            "with keys that are the values": one.values_are_keys,
            "in chunks and with spans": bool(one.chunk and one.spans),
        }
        refuse(one, lacking)
        return cls(
            program.kv.kv(one.layer),
            program.widths[one.q] // one.head_width,
            one.query_norm,
            one.key_norm if one.key_norm is not None else one.query_norm,
            one.epsilon,
            one.frequencies,
            one.interleaved,
            one.rope_scale,
            one.scale,
            one.window,
            one.cap,
            one.norms_rotated,
            one.sinks,
            one.chunk,
        )

    @classmethod
    def rotated(
        cls,
        layer: PageLayer,
        q: Tensor,
        scale: float,
        window: int,
        cap: float,
        sinks: Tensor | None,
    ) -> Self:
        """Heads whose queries [T, H, C] have their norm and RoPE already."""
        nothing, H = torch.empty(0, device=q.device), q.shape[1]
        scores = scale, window, cap
        return cls(layer, H, None, None, 0.0, nothing, False, 1.0, *scores, sinks=sinks)

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.layer.shape.kv_heads

    @property
    def width(self) -> int:
        """Channels of a head."""
        return self.layer.shape.head_width

    @property
    def group(self) -> int:
        """Queries that share a key."""
        return self.heads // self.kv_heads

    def places(self) -> tuple[int, int, int, int]:
        """Byte offsets of the layer's parts in a page."""
        layer = self.layer
        return layer.keys, layer.key_scales, layer.values, layer.value_scales
