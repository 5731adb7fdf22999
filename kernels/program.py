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
from kernels.pagers import ExpertPager, Pager
from kernels.rotation import Rotation
from kernels.routing import Routing
from kernels.streams import AddToStreams, GaussianTopK, MatchMagnitude, MixStreams, ScaleChannels
from kernels.weight import Weight


class Activation(Enum):
    """Activation function of a feed-forward layer: of its gate, or of all inner channels."""

    SILU = "silu"  # x * sigmoid(x)
    GELU = "gelu"  # x * normal distribution function
    GELU_TANH = "gelu_tanh"  # x * normal distribution function, by its tanh approximation
    RELU = "relu"  # max(x, 0)
    RELU_SQUARED = "relu_squared"  # max(x, 0) squared
    SILU_CUT = "silu_cut"  # x * sigmoid(x), of which a limit cuts the result, not x
    SIGMOID = "sigmoid"  # 1 / (1 + exp(-x))
    SOFTPLUS = "softplus"  # log(1 + exp(x))
    GPT_OSS = "gpt_oss"  # x * sigmoid(1.702 x), times up + 1 in place of up


# Those that the kernels of every backend compute.
COMMON_ACTIVATIONS = frozenset({Activation.SILU, Activation.GELU, Activation.GELU_TANH})


@dataclass(frozen=True, slots=True, eq=False)
class LoraDelta:
    """LoRA term that is added to a product y of x: (x down^T * scales) up^T."""

    down: Weight  # F32 [R, in]; for an embedding the lookup table [V, R]
    up: Weight  # F32 [out, R]
    scales: Tensor  # f32 [R]


@dataclass(frozen=True, slots=True, eq=False)
class Embed:
    """out = (rows of the table for the tokens, plus their LoRA terms) * scale.

    With a `rotation` the rows are rotated, and are rotated back first.
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
    rotation: Rotation | None = None


class RowTable(Protocol):
    """A table whose rows are read when tokens need them; the table itself need not be in memory."""

    def rows(self, ids: Tensor) -> Tensor:
        """The rows `ids` [T] i64 of the host, f32 [T, columns] there."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class AddRows:
    """x = x + rows of the table for the tokens * scale."""

    x: str
    table: RowTable  # [V, columns of x]
    scale: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """out = RMS norm or layer norm of x; out may be x."""

    x: str
    weight: Tensor  # f32 [width]
    epsilon: float
    out: str
    centred: bool = False  # layer norm, which subtracts the mean
    bias: Tensor | None = None  # f32 [width], added last


@dataclass(frozen=True, slots=True, eq=False)
class HeadNorm:
    """x = norm of each head of x [T, H*C], times weights that may differ by head; no bias."""

    x: str
    weight: Tensor  # f32 [H, C]
    epsilon: float
    centred: bool = True  # layer norm; else RMS norm


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """Products of one x with several matrices, one per buffer of `outs`, which excludes x.

    LoRA terms are those of x itself, also where the product is that of rotated x.
    """

    x: str
    weights: tuple[Weight, ...]  # [N, width of x] each
    outs: tuple[str, ...]
    changes: tuple[LoraDelta | None, ...] = ()  # one for each of `outs`; empty: no LoRA
    biases: tuple[Tensor | None, ...] = ()  # f32 [N] each, added last; empty: no bias
    scales: tuple[float, ...] = ()  # of the products, before LoRA and bias; empty: 1 each
    rotations: tuple[Rotation | None, ...] = ()  # of x, one for each of `outs`; empty: none


@dataclass(frozen=True, slots=True, eq=False)
class HeadLinear:
    """Products of every head of x with a matrix of its own.

    Of each head of x [T, H*n] the columns from `start` on, as many as the matrices have.
    """

    x: str
    weights: tuple[Weight, ...]  # H of [N, columns]
    out: str  # [T, H*N]
    start: int = 0
    changes: tuple[LoraDelta, ...] = ()  # one for each head; empty: no LoRA


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """out [T, H*(A+B)] = of each of `heads` heads the channels of [T, H*A], then of [T, H*B]."""

    xs: tuple[str, ...]
    out: str
    heads: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """out = `width` columns of x, from `start` on."""

    x: str
    start: int
    width: int
    out: str


@dataclass(frozen=True, slots=True, eq=False)
class Attend:
    """Attention: norm and RoPE of q and k, append k and v to the KV cache, attend to it.

    q [T, H*C] and k, v [T, K*C] may be overwritten. `window`, `cap`: as in the op attention. With a
    `chunk`, positions are in chunks of so many, and a token sees only those of its own.
    Without k and v, both "", it attends to what an earlier instruction appended to its layer.
    Without v only, the values are the keys, after norm and RoPE, as its layer says: those of latent
    attention, which has one row for both.
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
    norms_rotated: bool = False  # queries and keys are normed after RoPE, not before
    sinks: Tensor | None = None  # f32 [H]: one more score of every head, of a value of zeros
    chunk: int = 0  # tokens, a multiple of those of a page; 0: none

    @property
    def values_are_keys(self) -> bool:
        """Whether it appends keys alone, which are the values too."""
        return bool(self.k) and not self.v


@dataclass(frozen=True, slots=True, eq=False)
class PositionScale:
    """x = x * (1 + strength * log(1 + floor((position + offset) / length))), by token."""

    x: str
    strength: float
    length: float
    offset: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class ShortConv:
    """x = causal depthwise convolution of x, then `activation`; see the op short_conv.

    If it is not `causal`, the kernel is centred on each token of a segment, which is a whole text,
    with zeros around it, and no state is read.
    """

    x: str  # [T, D]
    weight: Tensor  # f32 [D, k]
    layer: int  # index in the program's KVLayout, of a ConvState
    bias: Tensor | None = None  # f32 [D]
    activation: Activation | None = None
    causal: bool = True


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


@dataclass(frozen=True, slots=True, eq=False)
class Multiply:
    """x = x * y, element by element."""

    x: str
    y: str


@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """out = activation(gate) * up, or activation(gate) where `up` is ""; out may be either.

    With a `limit` above 0 the gate is first cut to at most that, and up to ± that; of SILU_CUT not
    the gate but its activation.
    """

    gate: str
    up: str
    activation: Activation
    out: str
    limit: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class HeadGate:
    """x = x * activation(gate) of each of the heads of x [T, H*C], with gate [T, H]."""

    x: str
    gate: str
    activation: Activation


@dataclass(frozen=True, slots=True, eq=False)
class Xielu:
    """x = the expanded integral of the exponential linear unit, element by element.

    Above 0: positive * x² + beta * x. Else: (expm1(min(x, epsilon)) - x) * negative + beta * x.
    Source: https://arxiv.org/abs/2411.13010 equation 10
    """

    x: str
    positive: float
    negative: float
    beta: float
    epsilon: float


@dataclass(frozen=True, slots=True, eq=False)
class Experts:
    """Mixture of experts: out = sum over the chosen experts of share * down(act(gate(x)) * up(x)).

    Without `ups` an expert is down(act(gate(x))). The shares of a token are those of the op route.
    With a `pager` the weights of the chosen experts are read once these are known.
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
    gate_rotation: Rotation | None = None  # of x before gate(x)
    up_rotation: Rotation | None = None
    down_rotation: Rotation | None = None
    gate_changes: tuple[LoraDelta, ...] = ()  # of x itself, one for each expert; empty: no LoRA
    up_changes: tuple[LoraDelta, ...] = ()
    down_changes: tuple[LoraDelta, ...] = ()
    pager: ExpertPager | None = None  # reads experts that are not in memory
    paged_layer: int = -1  # whose they are in the pager

    @property
    def has_changes(self) -> bool:
        """Whether adapters change the experts."""
        return bool(self.gate_changes or self.up_changes or self.down_changes)


@dataclass(frozen=True, slots=True, eq=False)
class Add:
    """x = x + y * scale; y may be overwritten where the scale is not 1."""

    x: str
    y: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """x = x * scale."""

    x: str
    scale: float


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
    | AddRows
    | Norm
    | HeadNorm
    | Linear
    | HeadLinear
    | Join
    | Columns
    | PositionScale
    | Attend
    | ShortConv
    | Recurrence
    | Multiply
    | Gate
    | HeadGate
    | Xielu
    | Experts
    | Add
    | Scale
    | Softcap
    | MixStreams
    | AddToStreams
    | MatchMagnitude
    | ScaleChannels
    | GaussianTopK
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
