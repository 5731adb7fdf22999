"""Program: a forward pass as an instruction list, which a backend may record and run in one call.

A model builds its program once, over named buffers; a backend that can record it runs a token
without returning to Python for each op. An instruction computes what the op of the same name in
`kernels.ops` computes: T tokens are processed together, at `position` on, and a buffer holds one
row for each. The program is independent of backend and device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from torch import Tensor

from kernels.weight import Weight


class Activation(Enum):
    """Activation function of a feed-forward layer: of its gate, or of all inner channels."""

    SILU = "silu"  # x * sigmoid(x)
    GELU_TANH = "gelu_tanh"  # x * normal distribution function, by its tanh approximation


@dataclass(frozen=True, slots=True, eq=False)
class LoraDelta:
    """LoRA term that is added to a product y of x: (x down^T * scales) up^T."""

    down: Weight  # F32 [R, in]; for an embedding the lookup table [V, R]
    up: Weight  # F32 [out, R]
    scales: Tensor  # f32 [R]


@dataclass(frozen=True, slots=True, eq=False)
class Embed:
    """out = (rows of the table for the tokens, plus their LoRA terms) * scale.

    Then adds the rows of learned position embeddings, if the model has them.
    """

    table: Weight  # [V, D]
    out: str
    scale: float = 1.0
    change: LoraDelta | None = None
    positions: Weight | None = None  # [context, D]


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """out = RMS norm or layer norm of x; out may be x."""

    x: str
    weight: Tensor  # f32 [width]
    epsilon: float
    out: str
    centred: bool = False  # layer norm, which subtracts the mean
    bias: Tensor | None = None  # f32 [width]; only of a layer norm


@dataclass(frozen=True, slots=True, eq=False)
class HeadNorm:
    """x = layer norm of each head of x [T, H*C], times weights that differ by head; no bias."""

    x: str
    weight: Tensor  # f32 [H, C]
    epsilon: float


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """Products of one x with several matrices, one per buffer of `outs`, which excludes x."""

    x: str
    weights: tuple[Weight, ...]  # [N, width of x] each
    outs: tuple[str, ...]
    changes: tuple[LoraDelta | None, ...] = ()  # one for each of `outs`; empty: no LoRA
    biases: tuple[Tensor | None, ...] = ()  # f32 [N] each, added last; empty: no bias


@dataclass(frozen=True, slots=True, eq=False)
class Attend:
    """Attention: norm and RoPE of q and k, append k and v to the KV cache, attend to it.

    q [T, H*C] and k, v [T, K*C] may be overwritten. `window`, `cap`: as in the op attention.
    """

    q: str
    k: str
    v: str
    out: str  # [T, H*C]; another buffer than q, k and v
    layer: int  # index of the layer's keys and values in KVBuffers
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
    """out = activation(gate) * up, or activation(gate) where `up` is ""; out may be either."""

    gate: str
    up: str
    activation: Activation
    out: str


@dataclass(frozen=True, slots=True, eq=False)
class Experts:
    """Mixture of experts: out = sum over the chosen experts of share * down(act(gate(x)) * up(x)).

    The shares of a token are the softmax of its `chosen` highest scores; see the op route.
    """

    x: str
    scores: str  # [T, E], from the router
    gates: tuple[Weight, ...]  # E of [F, D]
    ups: tuple[Weight, ...]  # E of [F, D]
    downs: tuple[Weight, ...]  # E of [D, F]
    chosen: int
    activation: Activation
    out: str  # [T, D]; another buffer than x


@dataclass(frozen=True, slots=True, eq=False)
class Add:
    """x = x + y * scale; y may be overwritten where the scale is not 1."""

    x: str
    y: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Softcap:
    """x = cap * tanh(x / cap)."""

    x: str
    cap: float


Instruction = Embed | Norm | HeadNorm | Linear | Attend | Gate | Experts | Add | Softcap


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Instructions of a forward pass: body (tokens to hidden states) and head (these to logits)."""

    body: tuple[Instruction, ...]  # for every token: leaves the buffer `hidden` [T, D]
    layers: tuple[int, ...]  # start of each layer in `body`, where a pass can be cancelled
    head: tuple[Instruction, ...]  # from `hidden`, for the tokens whose logits are requested
    hidden: str
    logits: str  # [T, V]
    widths: Mapping[str, int]  # columns of every buffer


@dataclass(frozen=True, slots=True, eq=False)
class LayerKV:
    """Keys or values of one layer: data [K, capacity, C] f32, f16 or i8, contiguous."""

    data: Tensor
    scales: Tensor | None  # i8 only: f16 [K, capacity, ceil(C / 32)], one per 32 channels


@dataclass(frozen=True, slots=True, eq=False)
class KVBuffers:
    """Key and value buffers of all layers; replaced by larger ones when full."""

    number: int  # unique id: cached pointers stay valid while it is the same
    capacity: int  # positions, in every layer
    keys: tuple[LayerKV, ...]
    values: tuple[LayerKV, ...]


class Recorded(Protocol):
    """A program recorded by a backend. Returned tensors belong to the caller."""

    def hidden(
        self,
        tokens: Sequence[int],
        kv: KVBuffers,
        position: int,
        checkpoint: Callable[[], None] = ...,
    ) -> Tensor:
        """Run the body: T tokens from `position` on → hidden states [T, D] f32.

        Their keys and values are written to `kv`, which must have capacity for them and contain
        those of all earlier positions. `checkpoint` is called between layers and may raise to
        cancel; the rows of `kv` from `position` on are then undefined.
        """
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Run the head: hidden states [T, D] f32 → logits [T, V] f32."""
        ...

    def step(self, token: int, kv: KVBuffers, position: int) -> Tensor:
        """Body and head for one token, bit-identical to the two calls → logits [V] f32."""
        ...
