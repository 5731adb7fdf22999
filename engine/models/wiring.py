"""GGUF tensor names to the parts of a decoder: what the architectures have in common."""

from __future__ import annotations

from engine.lora import EMBEDDING, HEAD, BaseModel
from engine.models.config import Config
from engine.models.layers import Attention, Block, Decoder, GatedMLP, Norm, Projection, Rope
from engine.weights import Weights
from kernels.ops import Activation
from kernels.weight import Weight


def projection(weights: Weights, tensor: str, rows: int, columns: int) -> Projection:
    """A product with the file's matrix [rows, columns]."""
    return Projection(tensor, weights.matrix(tensor, rows, columns))


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
        query=projection(weights, f"{name}.attn_q.weight", config.heads * C, D),
        key=projection(weights, f"{name}.attn_k.weight", config.kv_heads * C, D),
        value=projection(weights, f"{name}.attn_v.weight", config.kv_heads * C, D),
        output=projection(weights, f"{name}.attn_output.weight", D, config.heads * C),
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
        gate=projection(weights, f"{name}.ffn_gate.weight", F, D),
        up=projection(weights, f"{name}.ffn_up.weight", F, D),
        down=projection(weights, f"{name}.ffn_down.weight", D, F),
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
    embedding = weights.matrix(EMBEDDING, V, D)
    own_head = weights.optional_matrix(HEAD, V, D)
    head = Projection(HEAD, embedding if own_head is None else own_head)
    return Decoder(
        embedding=embedding,
        blocks=blocks,
        norm=norm(weights, config, "output_norm.weight", D),
        head=head,
        base=_base(config, embedding, head, blocks),
        embedding_scale=embedding_scale,
        logit_cap=logit_cap,
    )


def _base(
    config: Config, embedding: Weight, head: Projection, blocks: tuple[Block, ...]
) -> BaseModel:
    """What adapters must fit; a tied head is one of its own to them, as it is to PEFT."""
    products = [head, *(product for block in blocks for product in block.projections)]
    matrices = {EMBEDDING: embedding, **{product.name: product.weight for product in products}}
    return BaseModel(
        architecture=config.architecture,
        heads=config.heads,
        kv_heads=config.kv_heads,
        shapes={name: (held.shape[0], held.shape[1]) for name, held in matrices.items()},
    )
