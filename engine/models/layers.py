"""Structure of a decoder, shared by all architectures: projection, attention, block, decoder.

What these layers compute is defined in `engine.models.forward`, which builds the program.
Shape letters, here and in every model: T tokens, D model width, H heads, K key/value heads,
C width of one head, F feed-forward width, V vocabulary, S tokens in the cache.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from engine.lora.delta import BaseModel, Part
from kernels.kv_pages import LayerShape
from kernels.placement import Placement
from kernels.program import Activation
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
    """Causal grouped-query attention over the session's KV cache."""

    query: Projection  # [H*C, D]
    key: Projection  # [K*C, D]
    value: Projection  # [K*C, D]
    output: Projection  # [D, H*C]
    rope: Rope
    head_width: int
    scale: float
    query_norm: Norm | HeadNorms | None = None  # over each head, or over all heads at once
    key_norm: Norm | HeadNorms | None = None
    window: int = 0  # tokens: sliding window; 0: unlimited
    cap: float = 0.0  # soft cap of attention scores; 0: none

    @property
    def norms_whole(self) -> bool:
        """Whether the query and key norms span all heads at once."""
        norm = self.query_norm
        return norm is not None and norm.weight.shape[-1] != self.head_width


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

    Without a norm before the MLP, its input is that of attention: the two are parallel. If
    attention has no norm before it either, both read the residual stream.
    """

    attention_norm: Norm | None
    attention: Attention
    mlp_norm: Norm | None
    mlp: GatedMLP | MLP | Experts
    after_attention: Norm | None = None
    after_mlp: Norm | None = None
    residual_scale: float = 1.0  # of the outputs of attention and MLP

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
        a = self.attention
        return (a.query, a.key, a.value, a.output, *self.mlp.projections)


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder-only transformer: token ids and a KV cache to logits."""

    embedding: Weight  # [V, D]
    blocks: tuple[Block, ...]
    norm: Norm
    head: Projection  # [V, D]; its weight is the embedding where a file ties them
    base: BaseModel  # the shapes adapters must match
    placement: Placement  # of its weights and KV cache
    embedding_scale: float = 1.0
    logit_cap: float = 0.0  # 0: none
    positions: Weight | None = None  # [context, D], learned position embeddings
    # By backend, the ops that failed their check; "record": the program.
    refused: Mapping[str, Collection[str]] = field(default_factory=dict)

    @property
    def kv_shapes(self) -> tuple[LayerShape, ...]:
        """Shape and place of each layer's keys and values."""
        return tuple(
            LayerShape(
                block.attention.key.weight.shape[0] // block.attention.head_width,
                block.attention.head_width,
                block.attention.window,
                backend.name,
            )
            for block, backend in zip(self.blocks, self.placement.layers, strict=True)
        )

    def of_layers(self, layers: Sequence[int]) -> Decoder:
        """A decoder of only these layers, with the same embedding and head."""
        blocks = tuple(self.blocks[layer] for layer in layers)
        return replace(self, blocks=blocks, placement=self.placement.of_layers(layers))
