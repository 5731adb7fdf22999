"""gemma, gemma2, gemma3 and gemma-embedding: scaled embeddings, GELU; gemma2 and 3 also norm each part's output.

Gemma 2 has full attention in every second layer and soft-caps scores and logits. Gemma 3 has full
attention in every sixth layer, norms queries and keys instead of capping, and has another RoPE base
in its sliding-window layers. EmbeddingGemma is Gemma 3 with attention in both directions.
"""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import (
    attention,
    decoder,
    gated_mlp,
    norm,
    pre_norm_block,
    projection,
)
from engine.models.config import Config, read_config, sliding_layers, sliding_window
from engine.models.layers import Block, Decoder
from engine.models.parts import Projection, Rope
from engine.models.rope import rope, rope_frequencies
from engine.models.weights import Weights
from kernels.ops import Activation

_LOCAL_ROPE_BASE = 10_000.0
# Only the 27B models scale scores by width / heads, which no key of the file states.
_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}
_DENSE = ("dense_2", "dense_3")  # tensors of EmbeddingGemma, as sentence-transformers numbers them


def build_gemma(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=False)
    blocks = tuple(
        pre_norm_block(weights, config, index, rotary, activation=Activation.GELU_TANH)
        for index in range(config.layers)
    )
    return decoder(weights, config, blocks, embedding_scale=config.width**0.5)


def build_gemma2(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=False)
    return _build(file, weights, config, [rotary] * config.layers, every=2, qk_norm=0)


def build_gemma3(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Local layers have a separate RoPE base and no RoPE scaling, global layers the file's."""
    return _build_gemma3(file, weights, context)


def build_embedding(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Gemma 3 in both directions, with the layers that change its embeddings, if it has them."""
    made = _build_gemma3(file, weights, context, causal=False)
    dense: list[Projection] = []
    width = made.embedding.columns
    for name in _DENSE:
        if weights.has(f"{name}.weight"):
            dense.append(projection(weights, name, weights.rows(f"{name}.weight"), width))
            width = dense[-1].weight.shape[0]
    return replace(made, dense=tuple(dense))


def _build_gemma3(
    file: GGUFFile, weights: Weights, context: int, *, causal: bool = True
) -> Decoder:
    config = read_config(file)
    name = config.architecture
    global_rope = rope(file, config, weights, context, interleaved=False)
    base = file.number(f"{name}.rope.freq_base_swa", _LOCAL_ROPE_BASE, minimum=1.0)
    frequencies = rope_frequencies(base, config.rotary_dim)
    local_rope = replace(global_rope, frequencies=frequencies, scale=1.0)
    local = sliding_layers(file, config, every=6)
    ropes = [local_rope if slides else global_rope for slides in local]
    return _build(file, weights, config, ropes, every=6, qk_norm=1, causal=causal)


def _build(
    file: GGUFFile,
    weights: Weights,
    config: Config,
    ropes: list[Rope],
    every: int,
    qk_norm: int,
    *,
    causal: bool = True,
) -> Decoder:
    """Blocks of which every `every`-th has full attention, the others a sliding window."""
    name = config.architecture
    window = sliding_window(file, 4_096 if name == "gemma2" else 0)
    local = sliding_layers(file, config, every)
    caps = {"gemma2": (50.0, 30.0)}.get(name, (0.0, 0.0))
    scores, logits = (
        file.number(f"{name}.{key}_softcapping", default, minimum=0.0, maximum=1e6)
        for key, default in zip(("attn_logit", "final_logit"), caps, strict=True)
    )
    blocks = tuple(
        _block(
            weights, config, index, rotary, window if local[index] else 0, qk_norm, scores, causal
        )
        for index, rotary in enumerate(ropes)
    )
    return decoder(weights, config, blocks, embedding_scale=config.width**0.5, logit_cap=logits)


def _block(
    weights: Weights,
    config: Config,
    index: int,
    rotary: Rope,
    window: int,
    qk_norm: int,
    cap: float,
    causal: bool,
) -> Block:
    D, name = config.width, f"blk.{index}"
    largest = config.layers == _LAYERS_OF_27B.get(config.architecture)
    divisor = D / config.heads if largest else config.head_width
    return Block(
        attention_norm=norm(weights, config, f"{name}.attn_norm", D),
        attention=attention(
            weights,
            config,
            index,
            rotary,
            qk_norm=qk_norm,
            scale=divisor**-0.5,
            window=window,
            cap=cap,
            causal=causal,
        ),
        mlp_norm=norm(weights, config, f"{name}.ffn_norm", D),
        mlp=gated_mlp(weights, config, index, Activation.GELU_TANH),
        after_attention=norm(weights, config, f"{name}.post_attention_norm", D),
        after_mlp=norm(weights, config, f"{name}.post_ffw_norm", D),
    )
