"""The blocks every architecture is wired from: projection, attention, gated MLP, decoder.

Adapters come in through the stack that a call is given; an empty one leaves every bit as it is.
Shape letters, here and in every model: T tokens, D model width, H heads, K key/value heads,
C width of one head, F feed-forward width, V vocabulary, S tokens in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cache import Cache
from engine.lora import NO_ADAPTERS, BaseModel, Stack
from kernels import ops
from kernels.ops import Activation
from kernels.weight import Weight


@dataclass(frozen=True, slots=True)
class Norm:
    """Root-mean-square norm; GGUF stores gemma's weights with the 1 already added."""

    weight: Tensor  # [D] f32
    epsilon: float

    def __call__(self, x: Tensor) -> Tensor:
        return ops.rms_norm(x, self.weight, self.epsilon)


@dataclass(frozen=True, slots=True)
class Projection:
    """A product with one matrix, and with what the adapters in use change of it."""

    name: str  # in GGUF, by which adapters name it
    weight: Weight  # [N, D]

    def __call__(self, x: Tensor, stack: Stack) -> Tensor:
        """x [T, D] f32 → [T, N] f32."""
        return stack.apply(self.name, x, ops.linear(x, self.weight))


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding of one kind of layer."""

    frequencies: Tensor  # [C/2] f32, radians per position
    interleaved: bool  # pairs (2i, 2i+1) as GGUF stores llama; else (i, i + C/2)

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        return ops.rope(x, positions, self.frequencies, self.interleaved)


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
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    window: int = 0  # tokens a query sees back; 0: all

    def __call__(
        self, x: Tensor, positions: Tensor, cache: Cache, layer: int, stack: Stack
    ) -> Tensor:
        """x [T, D] f32 at `positions` [T] → [T, D]; writes the layer's keys and values."""
        T, C = x.shape[0], self.head_width
        query = self.query(x, stack).view(T, -1, C)  # [T, H, C]
        key = self.key(x, stack).view(T, -1, C)  # [T, K, C]
        value = self.value(x, stack).view(T, -1, C)  # [T, K, C]
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        query, key = self.rope(query, positions), self.rope(key, positions)
        keys, values = cache.write(layer, key, value)  # [S, K, C] each
        mixed = ops.attention(
            query, keys, values, position=cache.length, scale=self.scale, window=self.window
        )  # [T, H*C]
        return self.output(mixed, stack)


@dataclass(frozen=True, slots=True)
class GatedMLP:
    """down(activation(gate(x)) * up(x))."""

    gate: Projection  # [F, D]
    up: Projection  # [F, D]
    down: Projection  # [D, F]
    activation: Activation

    def __call__(self, x: Tensor, stack: Stack) -> Tensor:
        hidden = ops.gated(self.gate(x, stack), self.up(x, stack), self.activation)
        return self.down(hidden, stack)


@dataclass(frozen=True, slots=True)
class Block:
    """One residual layer; the norms after attention and MLP exist where an architecture has them."""

    attention_norm: Norm
    attention: Attention
    mlp_norm: Norm
    mlp: GatedMLP
    after_attention: Norm | None = None
    after_mlp: Norm | None = None

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
        a, m = self.attention, self.mlp
        return (a.query, a.key, a.value, a.output, m.gate, m.up, m.down)

    def __call__(
        self, x: Tensor, positions: Tensor, cache: Cache, layer: int, stack: Stack
    ) -> Tensor:
        y = self.attention(self.attention_norm(x), positions, cache, layer, stack)
        x = x + (self.after_attention(y) if self.after_attention else y)
        y = self.mlp(self.mlp_norm(x), stack)
        return x + (self.after_mlp(y) if self.after_mlp else y)


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
        x = stack.embed(tokens, ops.embed(tokens, self.embedding))  # [T, D]
        if self.embedding_scale != 1.0:
            x = x * self.embedding_scale
        for layer, block in enumerate(self.blocks):
            checkpoint()
            x = block(x, positions, cache, layer, stack)
        cache.advance(tokens.shape[0])
        return x

    def logits(self, hidden: Tensor, stack: Stack = NO_ADAPTERS) -> Tensor:
        """hidden [T, D] → logits [T, V] f32."""
        y = self.head(self.norm(hidden), stack)
        return ops.softcap(y, self.logit_cap) if self.logit_cap else y
