"""Builders shared by the architectures: GGUF tensor names to projections, blocks and decoder."""

from __future__ import annotations

from dataclasses import replace

from engine.lora.delta import Part
from engine.lora.stack import EMBEDDING, HEAD, BaseModel
from engine.models.config import Config
from engine.models.layers import (
    MLP,
    Attention,
    Block,
    Decoder,
    Experts,
    GatedMLP,
    Norm,
    Projection,
    Ranking,
    Rope,
)
from engine.models.weights import Weights
from kernels.program import Activation
from kernels.weight import Weight

RANKING = "cls.output"  # tensor of files that score documents


def projection(weights: Weights, name: str, rows: int, columns: int) -> Projection:
    """A linear layer over the tensor `name`.weight [rows, columns], with `name`.bias if present."""
    bias = weights.optional_vector(f"{name}.bias", rows)
    return Projection(f"{name}.weight", weights.matrix(f"{name}.weight", rows, columns), bias)


def projections(
    weights: Weights, name: str, rows: tuple[int, ...], columns: int
) -> list[Projection]:
    """Linear layers whose matrices are fused in one tensor, stacked by rows."""
    tensor, total = f"{name}.weight", sum(rows)
    bias = weights.optional_vector(f"{name}.bias", total)
    made: list[Projection] = []
    for weight in weights.parts(tensor, rows, columns):
        start = sum(rows[: len(made)])
        part = Part(start, start + rows[len(made)], total)
        part_bias = None if bias is None else bias[part.start : part.end]
        made.append(Projection(tensor, weight, part_bias, part))
    return made


def attention(
    weights: Weights,
    config: Config,
    index: int,
    rope: Rope,
    *,
    qk_norm: int = 0,
    scale: float = 0.0,
    window: int = 0,
    cap: float = 0.0,
    causal: bool = True,
) -> Attention:
    """Attention of block `index`; scale 0: C^-0.5.

    `qk_norm`: the number of heads that one query or key norm spans, 1 or all; 0: no such norm.
    """
    D, C, name = config.width, config.head_width, f"blk.{index}"
    rope = replace(rope, frequencies=weights.beside(name, rope.frequencies))
    rows = (config.heads * C, config.kv_heads * C, config.kv_heads * C)
    if weights.has(f"{name}.attn_qkv.weight"):
        query, key, value = projections(weights, f"{name}.attn_qkv", rows, D)
    else:
        query, key, value = (
            projection(weights, f"{name}.attn_{letter}", count, D)
            for letter, count in zip("qkv", rows, strict=True)
        )
    query_norm = key_norm = None
    if qk_norm:
        query_width, key_width = (C, C) if qk_norm == 1 else rows[:2]
        query_norm = norm(weights, config, f"{name}.attn_q_norm", query_width)
        key_norm = norm(weights, config, f"{name}.attn_k_norm", key_width)
    return Attention(
        query=query,
        key=key,
        value=value,
        output=projection(weights, f"{name}.attn_output", D, config.heads * C),
        rope=rope,
        head_width=C,
        scale=scale or C**-0.5,
        query_norm=query_norm,
        key_norm=key_norm,
        window=window,
        cap=cap,
        causal=causal,
    )


def gated_mlp(weights: Weights, config: Config, index: int, activation: Activation) -> GatedMLP:
    """Gated feed-forward of block `index`."""
    D, F, name = config.width, config.feed_forward, f"blk.{index}"
    if weights.rows(f"{name}.ffn_up.weight") == 2 * F and not weights.has(
        f"{name}.ffn_gate.weight"
    ):
        gate, up = projections(weights, f"{name}.ffn_up", (F, F), D)
    else:
        gate = projection(weights, f"{name}.ffn_gate", F, D)
        up = projection(weights, f"{name}.ffn_up", F, D)
    return GatedMLP(gate, up, projection(weights, f"{name}.ffn_down", D, F), activation)


def mlp(weights: Weights, config: Config, index: int, activation: Activation) -> MLP:
    """Feed-forward of block `index`, without a gate."""
    D, F, name = config.width, config.feed_forward, f"blk.{index}"
    up = projection(weights, f"{name}.ffn_up", F, D)
    return MLP(up, projection(weights, f"{name}.ffn_down", D, F), activation)


def experts(weights: Weights, config: Config, index: int, activation: Activation) -> Experts:
    """Mixture of experts of block `index`; adapters do not apply to the experts."""
    D, F, E, name = config.width, config.feed_forward, config.experts, f"blk.{index}"
    gates = weights.experts(f"{name}.ffn_gate_exps.weight", E, F, D)
    ups = weights.experts(f"{name}.ffn_up_exps.weight", E, F, D)
    downs = weights.experts(f"{name}.ffn_down_exps.weight", E, D, F)
    return Experts(
        projection(weights, f"{name}.ffn_gate_inp", E, D),
        tuple(
            GatedMLP(Projection("", gate), Projection("", up), Projection("", down), activation)
            for gate, up, down in zip(gates, ups, downs, strict=True)
        ),
        config.experts_per_token,
    )


def norm(weights: Weights, config: Config, name: str, width: int) -> Norm:
    """An RMS norm over `width` channels."""
    return Norm(weights.vector(f"{name}.weight", width), config.epsilon)


def layer_norm(weights: Weights, config: Config, name: str, width: int) -> Norm:
    """A layer norm over `width` channels, with its bias if it has one."""
    weight = weights.vector(f"{name}.weight", width)
    bias = weights.optional_vector(f"{name}.bias", width)
    return Norm(weight, config.epsilon, centred=True, bias=bias)


def pre_norm_block(
    weights: Weights,
    config: Config,
    index: int,
    rope: Rope,
    *,
    qk_norm: int = 0,
    scale: float = 0.0,
    window: int = 0,
    activation: Activation = Activation.SILU,
) -> Block:
    """The block of the llama family: norm, attention, norm, gated MLP or experts."""
    name, D = f"blk.{index}", config.width
    feed_forward = experts if config.experts else gated_mlp
    return Block(
        attention_norm=norm(weights, config, f"{name}.attn_norm", D),
        attention=attention(
            weights, config, index, rope, qk_norm=qk_norm, scale=scale, window=window
        ),
        mlp_norm=norm(weights, config, f"{name}.ffn_norm", D),
        mlp=feed_forward(weights, config, index, activation),
    )


def decoder(
    weights: Weights,
    config: Config,
    blocks: tuple[Block, ...],
    *,
    last_norm: Norm | None = None,
    embedding_scale: float = 1.0,
    logit_cap: float = 0.0,
    positions: Weight | None = None,
) -> Decoder:
    """Embedding, blocks, final norm and head; a file without a head ties it to the embedding."""
    V, D = config.vocabulary, config.width
    embedding = weights.matrix(EMBEDDING, V, D)
    head_weight = weights.optional_matrix(HEAD, V, D)
    bias = weights.optional_vector("output.bias", V)
    if head_weight is None:  # tied: the same weight, unless the head is on another backend
        head_weight = weights.matrix(EMBEDDING, V, D, beside=HEAD)
    head = Projection(HEAD, head_weight, bias)
    return Decoder(
        embedding=embedding,
        blocks=blocks,
        norm=last_norm or norm(weights, config, "output_norm", D),
        head=head,
        base=base_model(config, embedding, head, blocks),
        placement=weights.placement(len(blocks)),
        pager=weights.pager,
        paged=weights.paged(len(blocks)),
        embedding_scale=embedding_scale,
        logit_cap=logit_cap,
        positions=positions,
        ranking=ranking(weights, config),
    )


def ranking(weights: Weights, config: Config) -> Ranking | None:
    """The head of a file that scores documents, if it is one."""
    D = config.width
    if not weights.has(f"{RANKING}.weight"):
        return None
    dense = projection(weights, "cls", D, D) if weights.has("cls.weight") else None
    output = projection(weights, RANKING, weights.rows(f"{RANKING}.weight"), D)
    # As llama.cpp converts Qwen3-Reranker: the rows of "yes" and "no" in the head.
    return Ranking(dense, output, is_share=config.architecture == "qwen3")


def base_model(
    config: Config, embedding: Weight, head: Projection, blocks: tuple[Block, ...]
) -> BaseModel:
    """The matrix shapes adapters must match; a tied head counts separately, as in PEFT."""
    shapes = {EMBEDDING: (embedding.shape[0], embedding.shape[1])}
    for product in (head, *(product for block in blocks for product in block.projections)):
        rows, columns = product.weight.shape
        if product.name:
            shapes[product.name] = (product.part.rows if product.part else rows, columns)
    return BaseModel(
        architecture=config.architecture,
        heads=config.heads,
        kv_heads=config.kv_heads,
        shapes=shapes,
    )
