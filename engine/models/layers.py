"""The blocks every architecture is wired from: attention, gated MLP, decoder.

Shape letters, here and in every model: T tokens, D model width, H heads, K key/value heads,
C width of one head, F feed-forward width, V vocabulary, S tokens in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cache import Cache
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
class Rope:
    """Rotary position embedding of one kind of layer."""

    frequencies: Tensor  # [C/2] f32, radians per position
    interleaved: bool  # pairs (2i, 2i+1) as GGUF stores llama; else (i, i + C/2)

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        return ops.rope(x, positions, self.frequencies, self.interleaved)


@dataclass(frozen=True, slots=True)
class Attention:
    """Causal grouped-query attention over the session's cache."""

    query: Weight  # [H*C, D]
    key: Weight  # [K*C, D]
    value: Weight  # [K*C, D]
    output: Weight  # [D, H*C]
    rope: Rope
    head_width: int
    scale: float
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    window: int = 0  # tokens a query sees back; 0: all

    def __call__(self, x: Tensor, positions: Tensor, cache: Cache, layer: int) -> Tensor:
        """x [T, D] f32 at `positions` [T] → [T, D]; writes the layer's keys and values."""
        T, C = x.shape[0], self.head_width
        query = ops.linear(x, self.query).view(T, -1, C)  # [T, H, C]
        key = ops.linear(x, self.key).view(T, -1, C)  # [T, K, C]
        value = ops.linear(x, self.value).view(T, -1, C)  # [T, K, C]
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        query, key = self.rope(query, positions), self.rope(key, positions)
        keys, values = cache.write(layer, key, value)  # [S, K, C] each
        mixed = ops.attention(
            query, keys, values, position=cache.length, scale=self.scale, window=self.window
        )  # [T, H*C]
        return ops.linear(mixed, self.output)


@dataclass(frozen=True, slots=True)
class GatedMLP:
    """down(activation(gate(x)) * up(x))."""

    gate: Weight  # [F, D]
    up: Weight  # [F, D]
    down: Weight  # [D, F]
    activation: Activation

    def __call__(self, x: Tensor) -> Tensor:
        hidden = ops.gated(ops.linear(x, self.gate), ops.linear(x, self.up), self.activation)
        return ops.linear(hidden, self.down)


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
        return sum(weight.shape[0] * weight.shape[1] for weight in self._products)

    @property
    def size_bytes(self) -> int:
        """Bytes its products read, as the weights are held."""
        return sum(weight.size_bytes for weight in self._products)

    @property
    def _products(self) -> tuple[Weight, ...]:
        a, m = self.attention, self.mlp
        return (a.query, a.key, a.value, a.output, m.gate, m.up, m.down)

    def __call__(self, x: Tensor, positions: Tensor, cache: Cache, layer: int) -> Tensor:
        y = self.attention(self.attention_norm(x), positions, cache, layer)
        x = x + (self.after_attention(y) if self.after_attention else y)
        y = self.mlp(self.mlp_norm(x))
        return x + (self.after_mlp(y) if self.after_mlp else y)


@dataclass(frozen=True, slots=True)
class Decoder:
    """A whole model: tokens and a cache in, logits out."""

    embedding: Weight  # [V, D]
    blocks: tuple[Block, ...]
    norm: Norm
    head: Weight  # [V, D]; the embedding itself where a file ties them
    embedding_scale: float = 1.0
    logit_cap: float = 0.0  # 0: none

    def hidden(
        self, tokens: Tensor, cache: Cache, checkpoint: Callable[[], None] = lambda: None
    ) -> Tensor:
        """tokens [T] i64, appended to the cache → last hidden states [T, D], before the head.

        `checkpoint` is called between layers and may raise `Cancelled`: the cache is then as it was.
        """
        positions = torch.arange(cache.length, cache.length + tokens.shape[0])
        x = ops.embed(tokens, self.embedding)  # [T, D]
        if self.embedding_scale != 1.0:
            x = x * self.embedding_scale
        for layer, block in enumerate(self.blocks):
            checkpoint()
            x = block(x, positions, cache, layer)
        cache.advance(tokens.shape[0])
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [T, D] → logits [T, V] f32."""
        y = ops.linear(self.norm(hidden), self.head)
        return ops.softcap(y, self.logit_cap) if self.logit_cap else y
