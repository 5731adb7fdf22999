"""Program: a forward pass as an instruction list, which a backend may record and run in one call.

A model builds its program once, over named buffers; a backend that can record it runs a token
without returning to Python for each op. An instruction computes what the op of the same name in
`kernels.ops` computes: the T tokens of a batch are processed together, and a buffer holds one row
for each. The program is independent of backend and device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from torch import Tensor

from kernels.kv_pages import KVLayout, PageTable
from kernels.weight import Weight


class Activation(Enum):
    """Activation function of a feed-forward layer: of its gate, or of all inner channels."""

    SILU = "silu"  # x * sigmoid(x)
    GELU = "gelu"  # x * normal distribution function
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

    Then adds the rows of learned position embeddings, if the model has them, and row 0 of the table
    of token types, or row 1 for the tokens after the first `separator` of their segment.
    """

    table: Weight  # [V, D]
    out: str
    scale: float = 1.0
    change: LoraDelta | None = None
    positions: Weight | None = None  # [context, D]
    types: Weight | None = None  # [n, D]; with one row it is that of all tokens
    separator: int = -1  # a token id


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
    Without k and v, both "", it attends to what an earlier instruction appended to its layer.
    If it is not `causal`, each token attends to all tokens of its segment, as in the op
    full_attention, and nothing is cached: the segment is the whole text, and `layer` is not used.
    """

    q: str
    k: str
    v: str
    out: str  # [T, H*C]; another buffer than q, k and v
    layer: int  # index in the program's KVLayout
    head_width: int  # C
    query_norm: Tensor | None  # f32 [C]; both norms or none, without k only this one or none
    key_norm: Tensor | None
    epsilon: float
    frequencies: Tensor  # f32 [n], as in the op rope, whose `scale` is `rope_scale`
    interleaved: bool
    rope_scale: float
    scale: float
    window: int = 0
    cap: float = 0.0
    causal: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class ShortConv:
    """x = causal depthwise convolution of x, then `activation`; see the op short_conv."""

    x: str  # [T, D]
    weight: Tensor  # f32 [D, k]
    layer: int  # index in the program's KVLayout, of a ConvState
    bias: Tensor | None = None  # f32 [D]
    activation: Activation | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Recurrence:
    """out = gated linear recurrence of q, k and v; see the op recurrence."""

    q: str  # [T, K*C]
    k: str  # [T, K*C]
    v: str  # [T, H*V]
    decay: str  # [T, H]
    strength: str  # [T, H]
    out: str  # [T, H*V]; another buffer than the others
    layer: int  # index in the program's KVLayout, of a RecurrentState
    rate: Tensor  # f32 [H], negative
    decay_bias: Tensor  # f32 [H]
    scale: float  # of q
    epsilon: float  # of the lengths of q and k
    corrected: bool = True  # the delta rule


@dataclass(frozen=True, slots=True, eq=False)
class Multiply:
    """x = x * y, element by element."""

    x: str
    y: str


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


@dataclass(frozen=True, slots=True, eq=False)
class Transfer:
    """x, and with it the program, moves to another backend; no other buffer is read after it.

    `kernels.stages` splits a program here and copies x to the device of the backend.
    """

    x: str
    backend: str  # name of the one that runs the instructions after this


class Pager(Protocol):
    """Weights of layers that are read into a few slots of memory when they are needed."""

    @property
    def read_bytes(self) -> int:
        """Bytes read so far."""
        ...

    def fetch(self, layer: int, upcoming: Sequence[int], checkpoint: Callable[[], None]) -> None:
        """Wait until the weights of a layer are in memory, where they stay until the next call.

        Then those of `upcoming` are read in the background, in this order. With `layer` -1 no layer
        is in use any more. `checkpoint` is called while it waits and may raise to cancel.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Fetch:
    """The weights of a paged layer are in memory for the instructions up to the next Fetch."""

    pager: Pager
    layer: int  # number of the layer in the pager; -1: none, at the end of a body
    upcoming: tuple[
        int, ...
    ]  # the paged layers after it; after the last one, those of the next pass


Instruction = (
    Embed
    | Norm
    | HeadNorm
    | Linear
    | Attend
    | ShortConv
    | Recurrence
    | Multiply
    | Gate
    | Experts
    | Add
    | Softcap
    | Transfer
    | Fetch
)


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Instructions of a forward pass: body (tokens to hidden states) and head (these to logits)."""

    body: tuple[Instruction, ...]  # for every token: leaves the buffer `hidden` [T, D]
    layers: tuple[int, ...]  # start of each layer in `body`, where a pass can be cancelled
    head: tuple[Instruction, ...]  # from `hidden`, for the tokens whose logits are requested
    hidden: str
    logits: str  # [T, V]
    widths: Mapping[str, int]  # columns of every buffer
    kv: KVLayout  # of the pages it reads and writes


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Consecutive tokens of one sequence in a batch, at positions from `position` on.

    `tables` has one page table for each group of the program's KVLayout. They must have pages for
    these positions, which the pass writes, and hold the rows of all earlier ones that are visible;
    for states of fixed size the pages that `PagedState` names.
    """

    tokens: Sequence[int]
    position: int
    tables: Sequence[PageTable]


class Recorded(Protocol):
    """A program recorded by a backend. Returned tensors belong to the caller.

    `given` [T, D] are the hidden states that a body without an embedding starts from.
    """

    equal_bits: bool  # whether a token gets the same bits in any batch
    exact: bool  # whether results have the bits of the backend's ops, run one by one

    def hidden(
        self,
        batch: Sequence[Segment],
        checkpoint: Callable[[], None] = ...,
        given: Tensor | None = None,
    ) -> Tensor:
        """Run the body for all tokens of a batch, T in total → hidden states [T, D] f32.

        Keys and values are written to the pages. With native kernels the bits of a token's row
        depend on its sequence up to that token alone: not on the other segments, and not on how
        its sequence was cut into batches. The torch reference only gives equal bits for equal
        batches. `checkpoint` is called between layers and may raise to cancel; the rows of the
        batch's positions are then undefined, and so are the states after them, but no others.
        """
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Run the head: hidden states [T, D] f32 → logits [T, V] f32."""
        ...

    def step(self, batch: Sequence[Segment], given: Tensor | None = None) -> Tensor:
        """Body and head for all tokens, bit-identical to the two calls → logits [T, V] f32."""
        ...
