"""Decoder layers shared by all architectures: projection, attention, feed-forward, block, decoder.

LoRA adapters are passed to each call as a stack; an empty stack changes no bit of the result.
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
    """RMS norm, or a layer norm if `centred`.

    GGUF stores gemma's norm weights with the 1 already added.
    """

    weight: Tensor  # [D] f32
    epsilon: float
    centred: bool = False
    bias: Tensor | None = None  # [D] f32, only of a layer norm

    def __call__(self, x: Tensor) -> Tensor:
        if self.centred:
            return ops.layer_norm(x, self.weight, self.bias, self.epsilon)
        return ops.rms_norm(x, self.weight, self.epsilon)


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """A layer norm with separate weights per head, as Command R+ has for queries and keys."""

    weight: Tensor  # [H, C] f32
    epsilon: float

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, H, C] f32 → [T, H, C]."""
        return ops.layer_norm(x, torch.ones(x.shape[-1]), None, self.epsilon) * self.weight


@dataclass(frozen=True, slots=True)
class Projection:
    """A linear layer: one weight matrix, its bias, and the LoRA deltas of the adapters in use."""

    name: str  # of the GGUF tensor; adapters refer to it
    weight: Weight  # [N, D]
    bias: Tensor | None = None  # [N] f32
    part: Part | None = None  # the rows of a fused tensor that this layer uses

    def __call__(self, x: Tensor, stack: Stack) -> Tensor:
        """x [T, D] f32 → [T, N] f32."""
        y = stack.apply(self.name, x, ops.linear(x, self.weight), self.part)
        return y if self.bias is None else y + self.bias


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding of one kind of layer."""

    frequencies: Tensor  # [n] f32, radians per position; the first 2n channels are rotated
    interleaved: bool  # pairs (2i, 2i+1) as GGUF stores llama; else (i, i + n)
    scale: float = 1.0  # of the rotated channels

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        return ops.rope(x, positions, self.frequencies, self.interleaved, self.scale)


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
        """Its linear layers."""
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
        """Its linear layers."""
        return (self.up, self.down)

    def __call__(self, x: Tensor, stack: Stack) -> Tensor:
        return self.down(ops.gated(self.up(x, stack), None, self.activation), stack)


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

    def __call__(
        self, x: Tensor, positions: Tensor, cache: Cache, layer: int, stack: Stack
    ) -> Tensor:
        normed = self.attention_norm(x) if self.attention_norm else x
        y = self.attention(normed, positions, cache, layer, stack)
        x = self._add(x, y, self.after_attention)
        if self.mlp_norm:
            normed = self.mlp_norm(x)
        elif not self.attention_norm:
            normed = x
        return self._add(x, self.mlp(normed, stack), self.after_mlp)

    def _add(self, x: Tensor, y: Tensor, norm: Norm | None) -> Tensor:
        """The residual stream x plus the normed and scaled output y."""
        y = norm(y) if norm else y
        return x + (y if self.residual_scale == 1.0 else y * self.residual_scale)


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder-only transformer: token ids and a KV cache to logits."""

    embedding: Weight  # [V, D]
    blocks: tuple[Block, ...]
    norm: Norm
    head: Projection  # [V, D]; its weight is the embedding where a file ties them
    base: BaseModel  # the shapes adapters must match
    embedding_scale: float = 1.0
    logit_cap: float = 0.0  # 0: none
    positions: Weight | None = None  # [context, D], learned position embeddings
    refused: frozenset[str] = (
        frozenset()
    )  # ops that failed the kernel check; "record": the recorded program

    def hidden(
        self,
        tokens: Tensor,
        cache: Cache,
        checkpoint: Callable[[], None] = lambda: None,
        stack: Stack = NO_ADAPTERS,
    ) -> Tensor:
        """tokens [T] i64, appended to the cache → last hidden states [T, D], before the head.

        `checkpoint` is called between layers and may raise `Cancelled`, which leaves the cache
        unchanged.
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
