"""The blocks every architecture is wired from: projection, attention, feed-forward, decoder.

Adapters come in through the stack that a call is given; an empty one leaves every bit as it is.
Shape letters, here and in every model: T tokens, D model width, H heads, K key/value heads,
C width of one head, F feed-forward width, V vocabulary, S tokens in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.lora.delta import Part
from engine.lora.stack import NO_ADAPTERS, BaseModel, Stack
from engine.state.kv_cache import Cache
from kernels import ops
from kernels.ops import Activation
from kernels.weight import Weight


@dataclass(frozen=True, slots=True)
class Norm:
    """Root-mean-square norm, or a layer norm where it is centred.

    GGUF stores gemma's weights with the 1 already added.
    """

    weight: Tensor  # [D] f32
    epsilon: float
    centred: bool = False
    bias: Tensor | None = None  # [D] f32, of a layer norm

    def __call__(self, x: Tensor) -> Tensor:
        if self.centred:
            return ops.layer_norm(x, self.weight, self.bias, self.epsilon)
        return ops.rms_norm(x, self.weight, self.epsilon)


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """A layer norm of every head by weights of its own, as Command R+ has for queries and keys."""

    weight: Tensor  # [H, C] f32
    epsilon: float

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, H, C] f32 → [T, H, C]."""
        return ops.layer_norm(x, torch.ones(x.shape[-1]), None, self.epsilon) * self.weight


@dataclass(frozen=True, slots=True)
class Projection:
    """A product with one matrix, and with what the adapters in use change of it."""

    name: str  # in GGUF, by which adapters name it
    weight: Weight  # [N, D]
    bias: Tensor | None = None  # [N] f32
    part: Part | None = (
        None  # which of that tensor's rows these are, where it holds several products
    )

    def __call__(self, x: Tensor, stack: Stack) -> Tensor:
        """x [T, D] f32 → [T, N] f32."""
        y = stack.apply(self.name, x, ops.linear(x, self.weight), self.part)
        return y if self.bias is None else y + self.bias


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding of one kind of layer."""

    frequencies: Tensor  # [n] f32, radians per position; the first 2n channels turn
    interleaved: bool  # pairs (2i, 2i+1) as GGUF stores llama; else (i, i + n)
    scale: float = 1.0  # of what has turned

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        return ops.rope(x, positions, self.frequencies, self.interleaved, self.scale)


@dataclass(frozen=True, slots=True)
class Attention:
    """Causal grouped-query attention over the session's cache."""

    query: Projection  # [H*C, D]
    key: Projection  # [K*C, D]
    value: Projection  # [K*C, D]
    output: Projection  # [D, H*C]
    rope: Rope
    head_width: int
    scale: float
    query_norm: Norm | HeadNorms | None = None  # of each head, or of all channels of all heads
    key_norm: Norm | HeadNorms | None = None
    window: int = 0  # tokens a query sees back; 0: all
    cap: float = 0.0  # scores are squeezed to within it; 0: not

    @property
    def norms_whole(self) -> bool:
        """Whether queries and keys are normed over all their heads at once."""
        norm = self.query_norm
        return norm is not None and norm.weight.shape[-1] != self.head_width

    def __call__(
        self, x: Tensor, positions: Tensor, cache: Cache, layer: int, stack: Stack
    ) -> Tensor:
        """x [T, D] f32 at `positions` [T] → [T, D]; writes the layer's keys and values."""
        T, C = x.shape[0], self.head_width
        query, key, value = (product(x, stack) for product in (self.query, self.key, self.value))
        if self.query_norm is not None and self.key_norm is not None and self.norms_whole:
            query, key = self.query_norm(query), self.key_norm(key)
        query, key = query.view(T, -1, C), key.view(T, -1, C)  # [T, H, C] and [T, K, C]
        value = value.view(T, -1, C)  # [T, K, C]
        if self.query_norm is not None and self.key_norm is not None and not self.norms_whole:
            query, key = self.query_norm(query), self.key_norm(key)
        query, key = self.rope(query, positions), self.rope(key, positions)
        keys, values = cache.write(layer, key, value)  # [S, K, C] each
        mixed = ops.attention(
            query, keys, values, cache.length, self.scale, self.window, self.cap
        )  # [T, H*C]
        return self.output(mixed, stack)


@dataclass(frozen=True, slots=True)
class GatedMLP:
    """down(activation(gate(x)) * up(x))."""

    gate: Projection  # [F, D]
    up: Projection  # [F, D]
    down: Projection  # [D, F]
    activation: Activation

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Its products."""
        return (self.gate, self.up, self.down)

    def __call__(self, x: Tensor, stack: Stack) -> Tensor:
        hidden = ops.gated(self.gate(x, stack), self.up(x, stack), self.activation)
        return self.down(hidden, stack)


@dataclass(frozen=True, slots=True)
class MLP:
    """down(activation(up(x)))."""

    up: Projection  # [F, D]
    down: Projection  # [D, F]
    activation: Activation

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Its products."""
        return (self.up, self.down)

    def __call__(self, x: Tensor, stack: Stack) -> Tensor:
        return self.down(ops.gated(self.up(x, stack), None, self.activation), stack)


@dataclass(frozen=True, slots=True)
class Experts:
    """A gated MLP chosen for each token from many: the best few, weighted by what the router says."""

    router: Projection  # [E, D]
    experts: tuple[GatedMLP, ...]  # E of them
    chosen: int  # experts a token passes

    @property
    def projections(self) -> tuple[Projection, ...]:
        """The products one token passes: which experts they are of does not matter to their cost."""
        some = self.experts[: self.chosen]
        return (self.router, *(each for expert in some for each in expert.projections))

    def __call__(self, x: Tensor, stack: Stack) -> Tensor:
        """x [T, D] f32 → [T, D]."""
        shares, which = self.router(x, stack).softmax(-1).topk(self.chosen)  # [T, chosen] each
        shares = shares / shares.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        for number in which.unique().tolist():
            tokens, slots = (which == number).nonzero(as_tuple=True)
            added = self.experts[number](x[tokens], stack) * shares[tokens, slots, None]
            y.index_add_(0, tokens, added)
        return y


@dataclass(frozen=True, slots=True)
class Block:
    """One residual layer, with norms where an architecture has them.

    Where there is no norm before the MLP, it reads what attention reads: the two are parallel.
    Where attention has none before it either, both read the stream itself.
    """

    attention_norm: Norm | None
    attention: Attention
    mlp_norm: Norm | None
    mlp: GatedMLP | MLP | Experts
    after_attention: Norm | None = None
    after_mlp: Norm | None = None
    residual_scale: float = 1.0  # of what attention and MLP add to the stream

    @property
    def weights(self) -> int:
        """Weights of its products: the multiply-adds one token costs, attention itself aside."""
        shapes = (product.weight.shape for product in self.projections)
        return sum(rows * columns for rows, columns in shapes)

    @property
    def size_bytes(self) -> int:
        """Bytes its products read, as the weights are held."""
        return sum(product.weight.size_bytes for product in self.projections)

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Every product of the block."""
        a = self.attention
        return (a.query, a.key, a.value, a.output, *self.mlp.projections)

    def __call__(
        self, x: Tensor, positions: Tensor, cache: Cache, layer: int, stack: Stack
    ) -> Tensor:
        read = self.attention_norm(x) if self.attention_norm else x
        y = self.attention(read, positions, cache, layer, stack)
        x = self._with(x, y, self.after_attention)
        if self.mlp_norm:
            read = self.mlp_norm(x)
        elif not self.attention_norm:
            read = x
        return self._with(x, self.mlp(read, stack), self.after_mlp)

    def _with(self, x: Tensor, y: Tensor, norm: Norm | None) -> Tensor:
        """The stream x with what a part has added to it."""
        y = norm(y) if norm else y
        return x + (y if self.residual_scale == 1.0 else y * self.residual_scale)


@dataclass(frozen=True, slots=True)
class Decoder:
    """A whole model: tokens and a cache in, logits out."""

    embedding: Weight  # [V, D]
    blocks: tuple[Block, ...]
    norm: Norm
    head: Projection  # [V, D]; its weight is the embedding where a file ties them
    base: BaseModel  # what adapters must fit
    embedding_scale: float = 1.0
    logit_cap: float = 0.0  # 0: none
    positions: Weight | None = None  # [context, D], added to the embeddings where they are learned
    refused: frozenset[str] = frozenset()  # ops found wrong here; "record": the recorded program

    def hidden(
        self,
        tokens: Tensor,
        cache: Cache,
        checkpoint: Callable[[], None] = lambda: None,
        stack: Stack = NO_ADAPTERS,
    ) -> Tensor:
        """tokens [T] i64, appended to the cache → last hidden states [T, D], before the head.

        `checkpoint` is called between layers and may raise `Cancelled`: the cache is then as it was.
        """
        positions = torch.arange(cache.length, cache.length + tokens.shape[0])
        with ops.without(self.refused):
            x = stack.embed(tokens, ops.embed(tokens, self.embedding))  # [T, D]
            if self.embedding_scale != 1.0:
                x = x * self.embedding_scale
            if self.positions is not None:
                x = x + ops.embed(positions, self.positions)
            for layer, block in enumerate(self.blocks):
                checkpoint()
                x = block(x, positions, cache, layer, stack)
        cache.advance(tokens.shape[0])
        return x

    def logits(self, hidden: Tensor, stack: Stack = NO_ADAPTERS) -> Tensor:
        """hidden [T, D] → logits [T, V] f32."""
        with ops.without(self.refused):
            y = self.head(self.norm(hidden), stack)
            return ops.softcap(y, self.logit_cap) if self.logit_cap else y
