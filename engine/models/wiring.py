"""GGUF tensor names to the parts of a decoder: what the architectures have in common."""

from __future__ import annotations

from engine.models.config import Config
from engine.models.layers import Attention, Block, Decoder, GatedMLP, Norm, Rope
from engine.weights import Weights
from kernels.ops import Activation


def attention(
    weights: Weights,
    config: Config,
    index: int,
    rope: Rope,
    *,
    normed: bool = False,
    scale: float = 0.0,
    window: int = 0,
) -> Attention:
    """Attention of block `index`; `normed` where queries and keys have norms; scale 0: C^-0.5."""
    D, C, name = config.width, config.head_width, f"blk.{index}"
    return Attention(
        query=weights.matrix(f"{name}.attn_q.weight", config.heads * C, D),
        key=weights.matrix(f"{name}.attn_k.weight", config.kv_heads * C, D),
        value=weights.matrix(f"{name}.attn_v.weight", config.kv_heads * C, D),
        output=weights.matrix(f"{name}.attn_output.weight", D, config.heads * C),
        rope=rope,
        head_width=C,
        scale=scale or C**-0.5,
        query_norm=norm(weights, config, f"{name}.attn_q_norm.weight", C) if normed else None,
        key_norm=norm(weights, config, f"{name}.attn_k_norm.weight", C) if normed else None,
        window=window,
    )


def gated_mlp(weights: Weights, config: Config, index: int, activation: Activation) -> GatedMLP:
    """Feed-forward part of block `index`."""
    D, F, name = config.width, config.feed_forward, f"blk.{index}"
    return GatedMLP(
        gate=weights.matrix(f"{name}.ffn_gate.weight", F, D),
        up=weights.matrix(f"{name}.ffn_up.weight", F, D),
        down=weights.matrix(f"{name}.ffn_down.weight", D, F),
        activation=activation,
    )


def norm(weights: Weights, config: Config, tensor: str, width: int) -> Norm:
    """A norm over `width` channels."""
    return Norm(weights.vector(tensor, width), config.epsilon)


def pre_norm_block(
    weights: Weights, config: Config, index: int, rope: Rope, *, normed: bool = False
) -> Block:
    """The block of the llama family: norm, attention, norm, SiLU-gated MLP."""
    name, D = f"blk.{index}", config.width
    return Block(
        attention_norm=norm(weights, config, f"{name}.attn_norm.weight", D),
        attention=attention(weights, config, index, rope, normed=normed),
        mlp_norm=norm(weights, config, f"{name}.ffn_norm.weight", D),
        mlp=gated_mlp(weights, config, index, Activation.SILU),
    )


def decoder(
    weights: Weights,
    config: Config,
    blocks: tuple[Block, ...],
    *,
    embedding_scale: float = 1.0,
    logit_cap: float = 0.0,
) -> Decoder:
    """Embedding, blocks, final norm and head; a file without a head shares the embedding."""
    V, D = config.vocabulary, config.width
    embedding = weights.matrix("token_embd.weight", V, D)
    head = weights.optional_matrix("output.weight", V, D)
    return Decoder(
        embedding=embedding,
        blocks=blocks,
        norm=norm(weights, config, "output_norm.weight", D),
        head=embedding if head is None else head,
        embedding_scale=embedding_scale,
        logit_cap=logit_cap,
    )
