"""A forward pass as a list of instructions, which a backend may carry out in one go.

A model says once what it computes, from buffers with names into buffers with names; a backend that
can records that and runs a token without coming back for each op. The instructions mean what the
ops of the same kind mean: T tokens are read together, at `position` on, and a buffer holds one row
for each. Nothing here says how, or on what, any of it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from torch import Tensor

from kernels.weight import Weight


class Activation(Enum):
    """What a feed-forward does to its gate, or to all of its inner channels."""

    SILU = "silu"  # x * sigmoid(x)
    GELU_TANH = "gelu_tanh"  # x * normal distribution function, by its tanh approximation


@dataclass(frozen=True, slots=True, eq=False)
class LoraDelta:
    """What adapters add to a product y of x: (x down^T * scales) up^T."""

    down: Weight  # F32 [R, in]; of an embedding the table [V, R] that is looked up
    up: Weight  # F32 [out, R]
    scales: Tensor  # f32 [R]


@dataclass(frozen=True, slots=True, eq=False)
class Embed:
    """out = (rows of the table for the tokens, and what adapters change of them) * scale.

    Where positions are learned, their rows are added after that.
    """

    table: Weight  # [V, D]
    out: str
    scale: float = 1.0
    change: LoraDelta | None = None
    positions: Weight | None = None  # [context, D]


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """out = the root-mean-square norm of x, or its layer norm; out may be x."""

    x: str
    weight: Tensor  # f32 [width]
    epsilon: float
    out: str
    centred: bool = False  # the layer norm
    bias: Tensor | None = None  # f32 [width]; only of a layer norm


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """Products of one x with several matrices, one for each of `outs`; none of these is x."""

    x: str
    weights: tuple[Weight, ...]  # [N, width of x] each
    outs: tuple[str, ...]
    changes: tuple[LoraDelta | None, ...] = ()  # one for each of `outs`; empty: no adapter has any
    biases: tuple[Tensor | None, ...] = ()  # f32 [N] each, added last; empty: there is none


@dataclass(frozen=True, slots=True, eq=False)
class Attend:
    """The heads of q and k are normed and turned, k and v stored, and q attends to what is stored.

    q [T, H*C] and k, v [T, K*C] may be left changed. `window`, `cap`: as in the op attention.
    """

    q: str
    k: str
    v: str
    out: str  # [T, H*C]; none of the three
    layer: int  # whose keys and values of the room
    head_width: int  # C
    query_norm: Tensor | None  # f32 [C]; both norms or none
    key_norm: Tensor | None
    epsilon: float
    frequencies: Tensor  # f32 [n], as in the op rope, whose `scale` is `rope_scale`
    interleaved: bool
    rope_scale: float
    scale: float
    window: int = 0
    cap: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """out = activation(gate) * up, without a factor where `up` is ""; out may be either."""

    gate: str
    up: str
    activation: Activation
    out: str


@dataclass(frozen=True, slots=True, eq=False)
class Add:
    """x = x + y * scale; y may be left changed where the scale is not 1."""

    x: str
    y: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Softcap:
    """x = cap * tanh(x / cap)."""

    x: str
    cap: float


Instruction = Embed | Norm | Linear | Attend | Gate | Add | Softcap


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """One forward pass: tokens to hidden states, and rows of these to logits."""

    body: tuple[Instruction, ...]  # for every token: leaves the buffer `hidden` [T, D]
    layers: tuple[int, ...]  # where in `body` each layer begins: there a pass may be given up
    head: tuple[Instruction, ...]  # from `hidden`, of those tokens whose logits are wanted
    hidden: str
    logits: str  # [T, V]
    widths: Mapping[str, int]  # columns of every buffer


@dataclass(frozen=True, slots=True, eq=False)
class LayerKV:
    """Keys or values of one layer: data [K, capacity, C] f32, f16 or i8, contiguous."""

    data: Tensor
    scales: Tensor | None  # of i8: f16 [K, capacity, ceil(C / 32)], one for 32 channels


@dataclass(frozen=True, slots=True, eq=False)
class KVBuffers:
    """Where the keys and values of all layers lie; a larger one replaces it when it is full."""

    number: int  # no other room has it: what is known of a room stays true while it is the same
    capacity: int  # positions, in every layer
    keys: tuple[LayerKV, ...]
    values: tuple[LayerKV, ...]


class Recorded(Protocol):
    """A program as a backend runs it. Tensors that are returned belong to the caller."""

    def hidden(
        self,
        tokens: Sequence[int],
        kv: KVBuffers,
        position: int,
        checkpoint: Callable[[], None] = ...,
    ) -> Tensor:
        """Run the body: T tokens from `position` on → hidden states [T, D] f32.

        Their keys and values are written to `buffers_for`, which has space for them and holds those of all
        positions before. `checkpoint` is called at the layers and may raise; what `buffers_for` holds from
        `position` on is then worth nothing.
        """
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Run the head: hidden states [T, D] f32 → logits [T, V] f32."""
        ...

    def step(self, token: int, kv: KVBuffers, position: int) -> Tensor:
        """Both for one token, with the same bits → logits [V] f32."""
        ...
