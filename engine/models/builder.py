"""Builders shared by the architectures: GGUF tensor names to projections, blocks and decoder."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from engine.adapters.delta import Part
from engine.adapters.stack import EMBEDDING, HEAD, BaseModel
from engine.models.config import Config
from engine.models.feed_forward import (
    MLP,
    ExpertMatrices,
    Experts,
    GatedMLP,
    mixtures,
)
from engine.models.layers import Block, Decoder, Ranking
from engine.models.mixers import Attention, DeltaNet, LatentAttention
from engine.models.parts import Norm, Projection, Rope
from engine.models.weights import Weights
from kernels.ops import Activation
from kernels.ops.routing import Routing
from kernels.weights.weight import Weight

SCALED_MLPS = frozenset({
    *("bitnet", "cohere2", "cohere2moe", "gemma4", "llama", "mistral3", "nanbeige"),
    *("nemotron_h", "nemotron_h_moe", "qwen3", "qwen35", "qwen35moe", "qwen3next"),
})  # fmt: skip
SCALED_EXPERTS = frozenset({
    *("cohere2moe", "gemma4", "llama", "mellum", "mistral3", "nemotron_h", "nemotron_h_moe"),
    *("qwen35moe", "qwen3moe", "qwen3next"),
})  # fmt: skip
RANKING = "cls.output"  # tensor of files that score documents


def projection(weights: Weights, name: str, rows: int, columns: int) -> Projection:
    """A linear layer over the tensor `name`.weight [rows, columns], with `name`.bias if present."""
    weight = weights.matrix(f"{name}.weight", rows, columns)
    bias, factor = weights.optional_vector(f"{name}.bias", rows), scale(weights, name)
    if bias is not None and factor != 1.0 and ".ffn_" in name:
        bias = bias * factor  # llama.cpp scales the sum
    rotation = weights.rotation(f"{name}.weight")
    return Projection(f"{name}.weight", weight, bias, None, factor, rotation)


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
        rotation = weights.rotation(tensor)
        made.append(Projection(tensor, weight, part_bias, part, scale(weights, name), rotation))
    return made


def interleaved(
    weights: Weights, name: str, groups: int, rows: tuple[int, ...], columns: int
) -> list[Projection]:
    """Linear layers whose matrices are fused in one tensor, with rows of each in every group."""
    tensor, total = f"{name}.weight", groups * sum(rows)
    bias = weights.optional_vector(f"{name}.bias", total)
    made: list[Projection] = []
    for weight in weights.groups(tensor, groups, rows, columns):
        start = sum(rows[: len(made)])
        part = Part(start, start + rows[len(made)], total, groups)
        part_bias = bias
        if bias is not None:
            part_bias = bias.view(groups, -1)[:, part.start : part.end].flatten()
        rotation = weights.rotation(tensor)
        made.append(Projection(tensor, weight, part_bias, part, scale(weights, name), rotation))
    return made


def scale(weights: Weights, name: str) -> float:
    """The factor of a product that files of NVFP4 have beside the matrix; that of x is not used.

    llama.cpp, which writes them, applies those of feed-forwards only in some architectures.
    """
    weights.ignore(f"{name}.input_scale")
    if ".ffn_" in name and weights.architecture not in SCALED_MLPS:
        weights.ignore(f"{name}.scale")
        return 1.0
    return weights.scalar(f"{name}.scale")


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
    query: Projection | None = None,
) -> Attention:
    """Attention of block `index`; scale 0: C^-0.5.

    `qk_norm`: the number of heads that one query or key norm spans, 1 or all; 0: no such norm.
    `query`: made before, where its tensor has other rows too.
    """
    D, C, name = config.width, config.head_width, f"blk.{index}"
    rope = replace(rope, frequencies=weights.beside(name, rope.frequencies))
    rows = (config.heads * C, config.kv_heads * C, config.kv_heads * C)
    if query is None and weights.has(f"{name}.attn_qkv.weight"):
        query, key, value = projections(weights, f"{name}.attn_qkv", rows, D)
    else:
        query = query or projection(weights, f"{name}.attn_q", rows[0], D)
        key, value = (
            projection(weights, f"{name}.attn_{letter}", rows[1], D) for letter in ("k", "v")
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


def experts(
    weights: Weights,
    config: Config,
    index: int,
    activation: Activation,
    routing: Routing | None = None,
    *,
    shared: int = 0,
    has_up: bool = True,
    limit: float = 0.0,
    router: Projection | None = None,
    width: int = 0,
) -> Experts:
    """Mixture of experts of block `index`.

    By default shares are the softmax of the highest scores. `shared` is the inner width of the
    expert of all tokens; 0: none. `router`: made before, where its tensors are of another kind.
    `width` of the vectors that experts read and write is by default that of the model.
    """
    D, F, E, name = config.width, config.feed_forward, config.experts, f"blk.{index}"
    L = width or D
    gate_name, up_name = (f"{name}.ffn_{part}_exps" for part in ("gate", "up"))
    up: ExpertMatrices | None = None
    if not has_up:
        gate = expert_matrices(weights, up_name, E, F, L)
    elif weights.has(f"{name}.ffn_gate_up_exps.weight"):
        gate, up = fused_experts(weights, f"{name}.ffn_gate_up_exps", E, F, L)
    else:
        gate = expert_matrices(weights, gate_name, E, F, L)
        up = expert_matrices(weights, up_name, E, F, L)
    shared_mlp = shared_gate = None
    if shared:
        shared_mlp = shared_expert(weights, config, index, activation, shared, gated=has_up)
        gate_tensor = f"{name}.ffn_gate_inp_shexp"
        if weights.has(f"{gate_tensor}.weight"):
            gate_row = weights.row(f"{gate_tensor}.weight", D)
            shared_gate = Projection(f"{gate_tensor}.weight", gate_row)
    return Experts(
        router=router or projection(weights, f"{name}.ffn_gate_inp", E, D),
        routing=with_bias(weights, index, E, routing or Routing(config.experts_per_token)),
        gate=gate,
        up=up,
        down=expert_matrices(weights, f"{name}.ffn_down_exps", E, L, F),
        activation=activation,
        limit=limit,
        shared=shared_mlp,
        shared_gate=shared_gate,
    )


def expert_scales(weights: Weights, name: str, count: int) -> Tensor | None:
    """The factors of the products of all experts, as `scale` of a single product."""
    weights.ignore(f"{name}.input_scale")
    if weights.architecture not in SCALED_EXPERTS:
        weights.ignore(f"{name}.scale")
        return None
    return weights.optional_vector(f"{name}.scale", count)


def with_bias(weights: Weights, index: int, experts: int, routing: Routing) -> Routing:
    """A routing with the bias of the choice that block `index` has, if it has one."""
    bias = weights.optional_vector(f"blk.{index}.exp_probs_b.bias", experts)
    return replace(routing, bias=bias)


def expert_matrices(
    weights: Weights, name: str, count: int, rows: int, columns: int
) -> ExpertMatrices:
    """The matrices of all experts, of one tensor [count, rows, columns]."""
    matrices = tuple(weights.experts(f"{name}.weight", count, rows, columns))
    bias = weights.table(f"{name}.bias", count, rows) if weights.has(f"{name}.bias") else None
    factor = expert_scales(weights, name, count)
    rotation = weights.rotation(f"{name}.weight")
    return ExpertMatrices(f"{name}.weight", matrices, bias, factor, rotation)


def fused_experts(
    weights: Weights, name: str, count: int, rows: int, columns: int
) -> tuple[ExpertMatrices, ExpertMatrices]:
    """Gates and ups of all experts, of one tensor [count, 2 * rows, columns]."""
    matrices = weights.expert_pairs(f"{name}.weight", count, rows, columns)
    biases: list[Tensor | None] = [None, None]
    if weights.has(f"{name}.bias"):
        biases = [*weights.table(f"{name}.bias", count, 2 * rows).split(rows, 1)]
    factor = expert_scales(weights, name, count)
    rotation = weights.rotation(f"{name}.weight")
    gate, up = (
        ExpertMatrices(
            f"{name}.weight",
            tuple(matrices[at::2]),
            biases[at],
            factor,
            rotation,
            Part(at * rows, (at + 1) * rows, 2 * rows),
        )
        for at in range(2)
    )
    return gate, up


def shared_expert(
    weights: Weights,
    config: Config,
    index: int,
    activation: Activation,
    inner: int,
    *,
    gated: bool = True,
) -> GatedMLP | MLP:
    """The expert of block `index` that all tokens run through, of `inner` channels."""
    D, name = config.width, f"blk.{index}"
    up_name = f"{name}.ffn_up_shexp"
    down = projection(weights, f"{name}.ffn_down_shexp", D, inner)
    if not gated:
        return MLP(projection(weights, up_name, inner, D), down, activation)
    if weights.rows(f"{up_name}.weight") == 2 * inner and not weights.has(
        f"{name}.ffn_gate_shexp.weight"
    ):
        gate, up = projections(weights, up_name, (inner, inner), D)
    else:
        gate = projection(weights, f"{name}.ffn_gate_shexp", inner, D)
        up = projection(weights, up_name, inner, D)
    return GatedMLP(gate, up, down, activation)


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
    return Block(
        attention_norm=norm(weights, config, f"{name}.attn_norm", D),
        attention=attention(
            weights, config, index, rope, qk_norm=qk_norm, scale=scale, window=window
        ),
        mlp_norm=norm(weights, config, f"{name}.ffn_norm", D),
        mlp=(experts if config.experts else gated_mlp)(weights, config, index, activation),
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
    """Embedding, blocks, final norm and head; a file without a head ties it to the embedding.

    There may be several times as many blocks as the file has layers, of the same weights.
    """
    V, D = config.vocabulary, config.width
    embedding = weights.matrix(EMBEDDING, V, D)
    head_weight = weights.optional_matrix(HEAD, V, D)
    bias = weights.optional_vector("output.bias", V)
    head_rotation = weights.rotation(HEAD)
    if head_weight is None:  # tied: the same weight, unless the head is on another backend
        head_weight = weights.matrix(EMBEDDING, V, D, beside=HEAD)
        head_rotation = weights.rotation(EMBEDDING, beside=HEAD)
    weights.ignore("output.input_scale")
    factor = weights.scalar("output.scale")
    head = Projection(HEAD, head_weight, bias, None, factor, head_rotation)
    weights.ignore_layers(config.layers)
    placement, times = weights.placement(config.layers), len(blocks) // config.layers
    placement = replace(placement, layers=placement.layers * times)
    return Decoder(
        embedding=embedding,
        blocks=blocks,
        norm=last_norm or norm(weights, config, "output_norm", D),
        head=head,
        base=base_model(weights, config, embedding, head, blocks),
        placement=placement,
        streamer=weights.streamer,
        offloaded=weights.offloaded(config.layers) * times,
        embedding_scale=embedding_scale,
        embedding_rotation=weights.rotation(EMBEDDING),
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
    weights: Weights,
    config: Config,
    embedding: Weight,
    head: Projection,
    blocks: tuple[Block, ...],
) -> BaseModel:
    """The matrix shapes adapters must match; a tied head counts separately, as in PEFT."""
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (embedding.shape[0], embedding.shape[1])}
    for block in blocks:
        for matrices in (one for mixture in mixtures(block.mlp) for one in mixture.matrices):
            shapes |= matrices.shapes
        if isinstance(block.attention, LatentAttention):
            shapes |= block.attention.head_shapes
    nets = [block.attention for block in blocks if isinstance(block.attention, DeltaNet)]
    for product in (head, *(product for block in blocks for product in block.projections)):
        rows, columns = product.weight.shape
        if product.name:
            shapes[product.name] = (product.part.rows if product.part else rows, columns)
    return BaseModel(
        architecture=config.architecture,
        heads=config.heads,
        kv_heads=config.kv_heads,
        shapes=shapes,
        delta_heads=nets[0].heads if nets else None,
        tensors=weights.names,
    )
