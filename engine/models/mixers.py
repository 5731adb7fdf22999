"""Mixers: what combines a token with those before it, attention or a recurrence in its place.

What they compute is defined in `engine.models.forward_mixers`. Shape letters are those of
`engine.models.layers`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.models.parts import Convolution, HeadNorms, Norm, Projection, Rope
from kernels.ops import Activation
from kernels.states.layer_state import LayerShape, LayerState, RecurrentState, SharedState
from kernels.weights.weight import Weight


@dataclass(frozen=True, slots=True)
class OutputGate:
    """Gate of the attended values: activation(projection(x)), by channel or by head."""

    projection: Projection  # [H*C, D], or [H, D]
    activation: Activation


@dataclass(frozen=True, slots=True)
class QueryScale:
    """Scale of queries that grows with the position; see `kernels.ops.PositionScale`."""

    strength: float
    length: float  # tokens
    offset: float = 0.0  # tokens


@dataclass(frozen=True, slots=True)
class Attention:
    """Grouped-query attention over the session's KV cache, or in both directions over a text."""

    query: Projection  # [H*C, D]
    key: Projection | None  # [K*C, D]; neither key nor value where it reads those of `shared`
    value: Projection | None  # [K*C, D]; None beside a key: the key, before its norm and RoPE
    output: Projection  # [D, H*C]
    rope: Rope
    head_width: int
    scale: float
    query_norm: Norm | HeadNorms | None = None  # over each head, or over all heads at once
    key_norm: Norm | HeadNorms | None = None
    value_norm: HeadNorms | None = None
    norms_rotated: bool = False  # queries and keys are normed after RoPE
    query_scale: QueryScale | None = None
    window: int = 0  # tokens: sliding window; 0: unlimited
    cap: float = 0.0  # soft cap of attention scores; 0: none
    sinks: Tensor | None = None  # [H] f32, one more score of each head
    gate: OutputGate | None = None
    output_norm: Norm | None = None  # of the attended values
    shared: int | None = None  # index of an earlier block, whose keys and values it reads
    causal: bool = True  # else each token attends to the whole text, and nothing is cached
    chunk: int = 0  # tokens: positions are in chunks, and each token sees its own; 0: none

    @property
    def norms_whole(self) -> bool:
        """Whether the query and key norms span all heads at once."""
        norm = self.query_norm
        return norm is not None and norm.weight.shape[-1] != self.head_width

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Its linear layers."""
        gate = None if self.gate is None else self.gate.projection
        own = (self.query, self.key, self.value, gate, self.output)
        return tuple(each for each in own if each is not None)

    @property
    def state(self) -> LayerShape:
        """Shape of its keys and values."""
        assert self.key is not None, "the keys are those of another layer"
        kv_heads = self.key.weight.shape[0] // self.head_width
        return LayerShape(kv_heads, self.head_width, self.window or self.chunk)

    @property
    def states(self) -> tuple[LayerState, ...]:
        """What it remembers of earlier tokens."""
        if self.shared is not None:
            return (SharedState(self.shared),)
        return (self.state,) if self.causal else ()


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (MLA): one cached latent vector serves all heads.

    A key is the rotated part beside the latent vector [L], the value is the latent vector. Queries
    are mapped to it, and what is attended from it, by a matrix for each head.
    Source: https://arxiv.org/abs/2405.04434 section 2.1
    """

    query: Projection  # [H*N, D] or, with a compressed query, [H*N, Q]
    query_rope: Projection  # [H*R, D] or [H*R, Q]: the rotated channels of each head
    latent: Projection  # [L, D]
    key_rope: Projection  # [R, D]
    latent_norm: Norm  # over L channels
    absorb: tuple[Weight, ...]  # H of [L, N]: a query to the latent space
    expand: tuple[Weight, ...]  # H of [V, L]: attended latent vectors to the head's values
    names: tuple[str, str]  # of the tensors of `absorb` and `expand`, by which adapters apply
    output: Projection  # [D, H*V]
    rope: Rope
    scale: float
    compressed: Projection | None = None  # [Q, D]: a query by a smaller vector, which is normed
    compressed_norm: Norm | None = None
    query_scale: QueryScale | None = None
    gate: OutputGate | None = None  # of the values of each head: [H, D]

    @property
    def rope_width(self) -> int:
        """R, rotated channels."""
        return self.key_rope.weight.shape[0]

    @property
    def head_width(self) -> int:
        """Channels of a cached key: R + L."""
        return self.rope_width + self.latent.weight.shape[0]

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Its linear layers; those of single heads have no names."""
        heads = tuple(Projection("", one) for one in (*self.absorb, *self.expand))
        gate = None if self.gate is None else self.gate.projection
        own = (self.compressed, self.query, self.query_rope, self.latent, self.key_rope, gate)
        return (*(one for one in own if one is not None), *heads, self.output)

    @property
    def head_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes [H, rows, columns] of the tensors of `absorb` and `expand`, by name."""
        heads = zip(self.names, (self.absorb, self.expand), strict=True)
        return {name: (len(some), *some[0].shape) for name, some in heads}

    @property
    def states(self) -> tuple[LayerState, ...]:
        """The rotated parts and latent vectors of earlier tokens: keys, and values, of all heads."""
        return (LayerShape(1, self.head_width, values_are_keys=True),)


@dataclass(frozen=True, slots=True)
class ShortConvolution:
    """output(after(x) * convolution(before(x) * value(x))), in place of attention."""

    before: Projection  # [D, D]
    after: Projection  # [D, D]
    value: Projection  # [D, D]
    convolution: Convolution
    output: Projection  # [D, D]

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Its linear layers."""
        return (self.before, self.after, self.value, self.output)

    @property
    def states(self) -> tuple[LayerState, ...]:
        """What it remembers of earlier tokens."""
        return (self.convolution.state,) if self.convolution.causal else ()


@dataclass(frozen=True, slots=True)
class DeltaNet:
    """Gated linear recurrence of convolved queries, keys and values, in place of attention.

    output(norm(recurrence) * activation(gate(x))); see `kernels.ops.Recurrence`.
    """

    query: Projection  # [K*C, D]
    key: Projection  # [K*C, D]
    value: Projection  # [H*V, D]
    convolutions: tuple[Convolution, Convolution, Convolution]  # of query, key and value
    decay: Projection  # [H, D]; by channel [H*C, D], or [H*C, R] of `decay_low`
    strength: Projection  # [H, D]
    rate: Tensor  # [H] f32, negative; with a floor positive
    decay_bias: Tensor  # [H] or [H*C] f32
    key_width: int  # C
    value_width: int  # V
    epsilon: float  # of the lengths of queries and keys
    norm: Norm | HeadNorms  # over all heads at once, or over each
    gate: Projection  # [H*V, D], or [H*V, R] of `gate_low`
    activation: Activation
    output: Projection  # [D, H*V]
    corrected: bool = True  # the delta rule; else every value is added as it is
    tiled: bool = False  # head h reads key head h % K; else h // (H / K)
    decay_low: Projection | None = None  # [R, D], before `decay`
    gate_low: Projection | None = None  # [R, D], before `gate`
    floor: float = 0.0  # of the logarithm of the decay; 0: none

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Its linear layers."""
        some = (self.query, self.key, self.value, self.decay, self.strength)
        low = tuple(one for one in (self.decay_low, self.gate_low) if one is not None)
        return (*some, *low, self.gate, self.output)

    @property
    def heads(self) -> tuple[int, int, int, int]:
        """K, C, H and V."""
        keys = self.query.weight.shape[0] // self.key_width
        return keys, self.key_width, self.rate.shape[0], self.value_width

    @property
    def states(self) -> tuple[LayerState, ...]:
        """What it remembers of earlier tokens: last inputs of the convolutions, and a matrix."""
        heads = self.rate.shape[0]
        convolutions = (convolution.state for convolution in self.convolutions)
        return (*convolutions, RecurrentState(heads, self.key_width, self.value_width))


@dataclass(frozen=True, slots=True)
class StateSpace:
    """Mamba-2: a linear recurrence whose step size is computed from the token.

    output(norm(recurrence * SiLU(gate(x)))); see `kernels.ops.Recurrence`.
    Source: https://arxiv.org/abs/2405.21060 section 7
    """

    gate: Projection  # [H*V, D]
    value: Projection  # [H*V, D]
    key: Projection  # [K*C, D], "B"
    query: Projection  # [K*C, D], "C"
    convolutions: tuple[Convolution, Convolution, Convolution]  # of value, key and query
    step: Projection  # [H, D]
    step_bias: Tensor  # [H] f32
    rate: Tensor  # [H] f32, negative
    skip: Tensor  # [H] f32
    key_width: int  # C
    value_width: int  # V
    norm: HeadNorms | None  # RMS norm of groups of heads
    output: Projection  # [D, H*V]

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Its linear layers."""
        return (self.gate, self.value, self.key, self.query, self.step, self.output)

    @property
    def states(self) -> tuple[LayerState, ...]:
        """What it remembers of earlier tokens: last inputs of the convolutions, and a matrix."""
        heads = self.rate.shape[0]
        convolutions = (convolution.state for convolution in self.convolutions)
        return (*convolutions, RecurrentState(heads, self.key_width, self.value_width))


@dataclass(frozen=True, slots=True)
class ParallelMixers:
    """The sum of several mixers of one input, each times its scale, as in Falcon-H1."""

    mixers: tuple[Attention | StateSpace, ...]
    input_scales: tuple[float, ...]
    output_scales: tuple[float, ...]

    @property
    def projections(self) -> tuple[Projection, ...]:
        """The linear layers of all."""
        return tuple(one for mixer in self.mixers for one in mixer.projections)

    @property
    def states(self) -> tuple[LayerState, ...]:
        """What they remember of earlier tokens, one mixer after the other."""
        return tuple(state for mixer in self.mixers for state in mixer.states)


Mixer = Attention | LatentAttention | ShortConvolution | DeltaNet | StateSpace | ParallelMixers


def attention_kinds(one: Mixer | None) -> list[tuple[int, int, int]]:
    """Heads, key/value heads and head width of the attention in a mixer."""
    match one:
        case Attention():
            heads = one.query.weight.shape[0] // one.head_width
            kv_heads = heads if one.key is None else one.key.weight.shape[0] // one.head_width
            return [(heads, kv_heads, one.head_width)]
        case LatentAttention():
            return [(len(one.absorb), 1, one.head_width)]
        case ParallelMixers():
            return [kind for part in one.mixers for kind in attention_kinds(part)]
        case _:
            return []
