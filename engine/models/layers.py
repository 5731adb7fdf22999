"""Structure of a decoder, shared by all architectures: block and decoder.

Their parts are in `engine.models.parts`, `mixers` and `feed_forward`. What they compute is defined
in `engine.models.forward`, which builds the program.
Shape letters, here and in every model: T tokens, D model width, H heads, K key/value heads,
C width of one head, F feed-forward width, V vocabulary, S tokens in the cache.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from engine.adapters.delta import BaseModel
from engine.models.altup import AltUp, AltUpLayer
from engine.models.expert_streamer import ExpertStreamer
from engine.models.feed_forward import FeedForward
from engine.models.layer_streamer import LayerStreamer
from engine.models.mixers import Attention, LatentAttention, Mixer, ParallelMixers
from engine.models.parts import HeadNorms, Norm, Projection
from kernels.backend.backend import ENCODER_OPS
from kernels.backend.placement import Placement
from kernels.ops import Activation, RowTable
from kernels.ops.hadamard_rotation import HadamardRotation
from kernels.states.layer_state import ConvState, LayerState, RecurrentState, SharedState
from kernels.weights.weight import Weight


@dataclass(frozen=True, slots=True)
class LayerInput:
    """A term of the stream at the end of a block, from the token's embedding for this layer.

    norm(output(activation(gate(stream)) * the layer's part of the input)); see `LayerInputs`.
    """

    layer: int  # whose part it is
    gate: Projection  # [P, D]
    output: Projection  # [D, P]
    norm: Norm
    activation: Activation


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """Per-layer embeddings (PLE): one vector of P channels for each of L layers and each token.

    (norm(projection(embedding) * projection_scale) + row of the table * table_scale) * scale.
    """

    table: RowTable  # [V, L*P]
    projection: Projection  # [L*P, D], of the scaled embedding
    norm: HeadNorms  # [L, P]
    table_scale: float
    projection_scale: float
    scale: float

    @property
    def width(self) -> int:
        """P, channels for one layer."""
        return self.norm.weight.shape[1]


@dataclass(frozen=True, slots=True)
class Block:
    """One residual block: attention and MLP with optional norms before and after each.

    In some blocks of hybrid models a recurrence or a convolution takes the place of attention, and
    some have only one of the two.

    Without a norm before the MLP, its input is that of attention: the two are parallel. If
    attention has no norm before it either, both read the residual stream. In BERT the stream itself
    is normed after each sum.
    """

    attention_norm: Norm | None
    attention: Mixer | None
    mlp_norm: Norm | None
    mlp: FeedForward | None
    after_attention: Norm | None = None
    after_mlp: Norm | None = None
    residual_scale: float = 1.0  # of the outputs of attention and MLP
    attention_sum_norm: Norm | None = None  # of the stream once attention is added
    mlp_sum_norm: Norm | None = None
    layer_input: LayerInput | None = None
    output_scale: float = 1.0  # of the stream after the block
    altup: AltUpLayer | None = None  # of a decoder with several

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
        parts = () if self.layer_input is None else (self.layer_input.gate, self.layer_input.output)
        mixer = () if self.attention is None else self.attention.projections
        altup = () if self.altup is None else self.altup.projections
        return (*mixer, *(() if self.mlp is None else self.mlp.projections), *parts, *altup)

    @property
    def states(self) -> tuple[LayerState, ...]:
        """What it remembers of earlier tokens; of `SharedState` the layer is a block."""
        return () if self.attention is None else self.attention.states

    @property
    def window(self) -> int:
        """Tokens that one token reads; 0: unlimited. A state of fixed size counts as one."""
        match self.attention:
            case Attention():
                return self.attention.window or self.attention.chunk
            case LatentAttention() | ParallelMixers():
                return 0
            case _:
                return 1


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
    embedding_rotation: HadamardRotation | None = None  # of the rows of the embedding
    logit_cap: float = 0.0  # 0: none
    positions: Weight | None = None  # [context, D], learned position embeddings
    types: Weight | None = None  # [n, D], embeddings of token types; see `kernels.ops.Embed`
    separator: int = -1  # the token between two texts, with `types`
    embedding_norm: Norm | None = None
    layer_inputs: LayerInputs | None = None  # of the `Block.layer_input` of its blocks
    altup: AltUp | None = None  # more than one residual stream
    dense: tuple[Projection, ...] = ()  # of embeddings, after the norm and one after the other
    ranking: Ranking | None = None  # of a model that scores documents and does not continue texts
    # By backend, the ops that failed their check; "record": the program.
    refused: Mapping[str, Collection[str]] = field(default_factory=dict)
    streamer: LayerStreamer | ExpertStreamer | None = None  # reads layers or experts not in memory
    offloaded: tuple[
        int, ...
    ] = ()  # the number of each layer in the streamer, -1 of those in memory

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
        offloaded = tuple(self.offloaded[layer] for layer in kept) if self.offloaded else ()
        placement = self.placement.of_layers(kept)
        return replace(self, blocks=blocks, placement=placement, offloaded=offloaded)

    def _moved(self, layer: int, kept: list[int]) -> Block:
        """A block with the number that the one it reads has among those that are kept."""
        block = self.blocks[layer]
        match block.attention:
            case Attention(shared=int(read)):
                return replace(block, attention=replace(block.attention, shared=kept.index(read)))
            case _:
                return block
