"""Structure of a decoder, shared by all architectures: projection, attention, block, decoder.

What these layers compute is defined in `engine.models.forward`, which builds the program.
Shape letters, here and in every model: T tokens, D model width, H heads, K key/value heads,
C width of one head, F feed-forward width, V vocabulary, S tokens in the cache.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from torch import Tensor

from engine.lora.delta import BaseModel, Part
from kernels.backend import ENCODER_OPS
from kernels.layer_state import ConvState, LayerShape, LayerState, RecurrentState, SharedState
from kernels.placement import Placement
from kernels.program import Activation, Pager
from kernels.weight import Weight


@dataclass(frozen=True, slots=True)
class Norm:
    """RMS norm, or a layer norm if `centred`.

    GGUF stores gemma's norm weights with the 1 already added.
    """

    weight: Tensor  # [D] f32
    epsilon: float
    centred: bool = False
    bias: Tensor | None = None  # [D] f32, only of a layer norm


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """A layer norm with separate weights per head, as Command R+ has for queries and keys."""

    weight: Tensor  # [H, C] f32
    epsilon: float


@dataclass(frozen=True, slots=True)
class Projection:
    """A linear layer: one weight matrix, its bias, and the LoRA deltas of the adapters in use."""

    name: str  # of the GGUF tensor; adapters refer to it
    weight: Weight  # [N, D]
    bias: Tensor | None = None  # [N] f32
    part: Part | None = None  # the rows of a fused tensor that this layer uses


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding of one kind of layer."""

    frequencies: Tensor  # [n] f32, radians per position; the first 2n channels are rotated
    interleaved: bool  # pairs (2i, 2i+1) as GGUF stores llama; else (i, i + n)
    scale: float = 1.0  # of the rotated channels


@dataclass(frozen=True, slots=True)
class Attention:
    """Grouped-query attention over the session's KV cache, or in both directions over a text."""

    query: Projection  # [H*C, D]
    key: Projection | None  # [K*C, D]; neither key nor value where it reads those of `shared`
    value: Projection | None  # [K*C, D]
    output: Projection  # [D, H*C]
    rope: Rope
    head_width: int
    scale: float
    query_norm: Norm | HeadNorms | None = None  # over each head, or over all heads at once
    key_norm: Norm | HeadNorms | None = None
    window: int = 0  # tokens: sliding window; 0: unlimited
    cap: float = 0.0  # soft cap of attention scores; 0: none
    shared: int | None = None  # index of an earlier block, whose keys and values it reads
    causal: bool = True  # else each token attends to the whole text, and nothing is cached

    @property
    def norms_whole(self) -> bool:
        """Whether the query and key norms span all heads at once."""
        norm = self.query_norm
        return norm is not None and norm.weight.shape[-1] != self.head_width

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Its linear layers."""
        own = (self.query, self.key, self.value, self.output)
        return tuple(each for each in own if each is not None)

    @property
    def state(self) -> LayerShape:
        """Shape of its keys and values."""
        assert self.key is not None, "the keys are those of another layer"
        return LayerShape(self.key.weight.shape[0] // self.head_width, self.head_width, self.window)


@dataclass(frozen=True, slots=True)
class Convolution:
    """Causal depthwise convolution, one kernel for each channel."""

    weight: Tensor  # [N, k] f32
    bias: Tensor | None = None  # [N] f32
    activation: Activation | None = None


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


@dataclass(frozen=True, slots=True)
class DeltaNet:
    """Gated linear recurrence of convolved queries, keys and values, in place of attention.

    output(norm(recurrence) * activation(gate(x))); see `kernels.program.Recurrence`.
    """

    query: Projection  # [K*C, D]
    key: Projection  # [K*C, D]
    value: Projection  # [H*V, D]
    convolutions: tuple[Convolution, Convolution, Convolution]  # of query, key and value
    decay: Projection  # [H, D]
    strength: Projection  # [H, D]
    rate: Tensor  # [H] f32, negative
    decay_bias: Tensor  # [H] f32
    key_width: int  # C
    value_width: int  # V
    epsilon: float  # of the lengths of queries and keys
    norm: Norm
    gate: Projection  # [H*V, D]
    activation: Activation
    output: Projection  # [D, H*V]
    corrected: bool = True  # the delta rule; else every value is added as it is

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Its linear layers."""
        some = (self.query, self.key, self.value, self.decay, self.strength)
        return (*some, self.gate, self.output)


Mixer = Attention | ShortConvolution | DeltaNet  # what combines a token with those before it


@dataclass(frozen=True, slots=True)
class GatedMLP:
    """down(activation(gate(x)) * up(x))."""

    gate: Projection  # [F, D]
    up: Projection  # [F, D]
    down: Projection  # [D, F]
    activation: Activation

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Its linear layers."""
        return (self.gate, self.up, self.down)


@dataclass(frozen=True, slots=True)
class MLP:
    """down(activation(up(x)))."""

    up: Projection  # [F, D]
    down: Projection  # [D, F]
    activation: Activation

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Its linear layers."""
        return (self.up, self.down)


@dataclass(frozen=True, slots=True)
class Experts:
    """Mixture of experts: the top-k gated MLPs of each token, weighted by the router."""

    router: Projection  # [E, D]
    experts: tuple[GatedMLP, ...]  # E of them
    chosen: int  # experts per token

    @property
    def projections(self) -> tuple[Projection, ...]:
        """The linear layers one token runs through; all experts cost the same."""
        some = self.experts[: self.chosen]
        return (self.router, *(each for expert in some for each in expert.projections))


@dataclass(frozen=True, slots=True)
class Block:
    """One residual block: attention and MLP with optional norms before and after each.

    In some blocks of hybrid models a recurrence or a convolution takes the place of attention.

    Without a norm before the MLP, its input is that of attention: the two are parallel. If
    attention has no norm before it either, both read the residual stream. In BERT the stream itself
    is normed after each sum.
    """

    attention_norm: Norm | None
    attention: Mixer
    mlp_norm: Norm | None
    mlp: GatedMLP | MLP | Experts
    after_attention: Norm | None = None
    after_mlp: Norm | None = None
    residual_scale: float = 1.0  # of the outputs of attention and MLP
    attention_sum_norm: Norm | None = None  # of the stream once attention is added
    mlp_sum_norm: Norm | None = None

    @property
    def weights(self) -> int:
        """Weights of its linear layers: the multiply-adds per token, without attention scores."""
        shapes = (product.weight.shape for product in self.projections)
        return sum(rows * columns for rows, columns in shapes)

    @property
    def size_bytes(self) -> int:
        """Bytes of the weights its linear layers read per token, as stored in memory."""
        return sum(product.weight.size_bytes for product in self.projections)

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Every linear layer of the block."""
        return (*self.attention.projections, *self.mlp.projections)

    @property
    def states(self) -> tuple[LayerState, ...]:
        """What it remembers of earlier tokens; of `SharedState` the layer is a block."""
        match self.attention:
            case Attention(shared=int(block)):
                return (SharedState(block),)
            case Attention(causal=False):
                return ()
            case Attention():
                return (self.attention.state,)
            case ShortConvolution():
                return (_conv_state(self.attention.convolution),)
            case DeltaNet():
                heads = self.attention.rate.shape[0]
                widths = self.attention.key_width, self.attention.value_width
                convolutions = map(_conv_state, self.attention.convolutions)
                return (*convolutions, RecurrentState(heads, *widths))

    @property
    def window(self) -> int:
        """Tokens that one token reads; 0: unlimited. A state of fixed size counts as one."""
        return self.attention.window if isinstance(self.attention, Attention) else 1


@dataclass(frozen=True, slots=True)
class Ranking:
    """Head that scores a pair of texts: output(tanh(dense(x))) of the first or the last token."""

    dense: Projection | None  # [D, D]
    output: Projection  # [n, D]; the first of n values is the score
    is_share: bool  # of the first label: a softmax over all


@dataclass(frozen=True, slots=True)
class Decoder:
    """A transformer: token ids and a KV cache to logits, or a whole text to hidden states."""

    embedding: Weight  # [V, D]
    blocks: tuple[Block, ...]
    norm: Norm | None  # None: hidden states are normed already
    head: Projection  # [V, D]; its weight is the embedding where a file ties them
    base: BaseModel  # the shapes adapters must match
    placement: Placement  # of its weights and KV cache
    embedding_scale: float = 1.0
    logit_cap: float = 0.0  # 0: none
    positions: Weight | None = None  # [context, D], learned position embeddings
    types: Weight | None = None  # [n, D], embeddings of token types; see `kernels.program.Embed`
    separator: int = -1  # the token between two texts, with `types`
    embedding_norm: Norm | None = None
    dense: tuple[Projection, ...] = ()  # of embeddings, after the norm and one after the other
    ranking: Ranking | None = None  # of a model that scores documents and does not continue texts
    # By backend, the ops that failed their check; "record": the program.
    refused: Mapping[str, Collection[str]] = field(default_factory=dict)
    pager: Pager | None = None  # reads layers that are not in memory
    paged: tuple[int, ...] = ()  # the number of each layer in the pager, -1 of those in memory

    @property
    def layer_states(self) -> tuple[LayerState, ...]:
        """What the layers remember and where, as a KVLayout takes it; see `first_states`.

        Raises ValueError for a layer that reads the keys of one on another backend.
        """
        first, places = self.first_states, self.placement.layers
        states: list[LayerState] = []
        for layer, block in enumerate(self.blocks):
            for state in block.states:
                if not isinstance(state, SharedState):
                    states.append(replace(state, place=places[layer].name))
                elif places[layer] is places[state.layer]:
                    states.append(SharedState(first[state.layer]))
                else:
                    raise ValueError(
                        f"Layer {layer} on {places[layer].name} reads the keys of layer "
                        f"{state.layer} on {places[state.layer].name}"
                    )
        return tuple(states)

    @property
    def first_states(self) -> tuple[int, ...]:
        """Index of the first state of each block in `layer_states`."""
        return tuple(accumulate((len(block.states) for block in self.blocks[:-1]), initial=0))

    @property
    def is_encoder(self) -> bool:
        """Whether it reads a text in both directions: it makes embeddings and cannot continue."""
        mixers = (block.attention for block in self.blocks)
        return any(isinstance(mixer, Attention) and not mixer.causal for mixer in mixers)

    @property
    def extra_ops(self) -> dict[str, tuple[str, ...]]:
        """By backend, the ops that only some models have."""
        found = self.state_ops
        if self.is_encoder:
            for backend in self.placement.backends:
                found[backend.name] = (*found.get(backend.name, ()), *ENCODER_OPS)
        return found

    @property
    def state_ops(self) -> dict[str, tuple[str, ...]]:
        """By backend, the ops of its layers with states of fixed size."""
        found: dict[str, dict[str, None]] = {}
        for state in self.layer_states:
            if isinstance(state, ConvState | RecurrentState):
                op = "short_conv" if isinstance(state, ConvState) else "recurrence"
                found.setdefault(state.place, {})[op] = None
        return {place: tuple(ops) for place, ops in found.items()}

    def of_layers(self, layers: Sequence[int]) -> Decoder:
        """A decoder of only these layers and those whose keys and values they read, in order."""
        read = (getattr(self.blocks[layer].attention, "shared", None) for layer in layers)
        kept = sorted({*layers, *(layer for layer in read if layer is not None)})
        blocks = tuple(self._moved(layer, kept) for layer in kept)
        paged = tuple(self.paged[layer] for layer in kept) if self.paged else ()
        placement = self.placement.of_layers(kept)
        return replace(self, blocks=blocks, placement=placement, paged=paged)

    def _moved(self, layer: int, kept: list[int]) -> Block:
        """A block with the number that the one it reads has among those that are kept."""
        block = self.blocks[layer]
        match block.attention:
            case Attention(shared=int(read)):
                return replace(block, attention=replace(block.attention, shared=kept.index(read)))
            case _:
                return block


def _conv_state(convolution: Convolution) -> ConvState:
    channels, taps = convolution.weight.shape
    return ConvState(channels, taps)
