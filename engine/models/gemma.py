"""gemma, gemma2 and gemma3: scaled embeddings, GELU, and from the second on norms after each part.

Gemma 2 looks at everything in every second layer and caps scores and logits; Gemma 3 does so in
every sixth, norms queries and keys instead, and turns nearby layers by frequencies of their own.
"""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, gated_mlp, norm, pre_norm_block
from engine.models.config import Config, read_config, sliding_layers, sliding_window
from engine.models.layers import Block, Decoder, Rope
from engine.models.rope import rope, rope_frequencies
from engine.models.weights import Weights
from kernels.ops import Activation

_LOCAL_ROPE_BASE = 10_000.0
# The 27B models alone divide by their width per head; no key of the file says so.
_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}


def build_gemma(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    turning = rope(file, config, weights, context, interleaved=False)
    blocks = tuple(
        pre_norm_block(weights, config, index, turning, activation=Activation.GELU_TANH)
        for index in range(config.layers)
    )
    return decoder(weights, config, blocks, embedding_scale=config.width**0.5)


def build_gemma2(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    turning = rope(file, config, weights, context, interleaved=False)
    return _build(file, weights, config, [turning] * config.layers, every=2, normed=0)


def build_gemma3(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Local layers rotate with their own base and no scaling, global ones with the file's."""
    config = read_config(file)
    everywhere = rope(file, config, weights, context, interleaved=False)
    base = file.number("gemma3.rope.freq_base_swa", _LOCAL_ROPE_BASE, minimum=1.0)
    nearby = replace(everywhere, frequencies=rope_frequencies(base, config.rotated), scale=1.0)
    local = sliding_layers(file, config, every=6)
    ropes = [nearby if slides else everywhere for slides in local]
    return _build(file, weights, config, ropes, every=6, normed=1)


def _build(
    file: GGUFFile, weights: Weights, config: Config, ropes: list[Rope], every: int, normed: int
) -> Decoder:
    """Blocks of which one in `every` sees everything, the others their window."""
    name = config.architecture
    window = sliding_window(file, 0 if name == "gemma3" else 4_096)
    local = sliding_layers(file, config, every)
    caps = {"gemma2": (50.0, 30.0)}.get(name, (0.0, 0.0))
    scores, logits = (
        file.number(f"{name}.{key}_softcapping", default, minimum=0.0, maximum=1e6)
        for key, default in zip(("attn_logit", "final_logit"), caps, strict=True)
    )
    blocks = tuple(
        _block(weights, config, index, turning, window if local[index] else 0, normed, scores)
        for index, turning in enumerate(ropes)
    )
    return decoder(weights, config, blocks, embedding_scale=config.width**0.5, logit_cap=logits)


def _block(
    weights: Weights,
    config: Config,
    index: int,
    turning: Rope,
    window: int,
    normed: int,
    cap: float,
) -> Block:
    D, name = config.width, f"blk.{index}"
    largest = config.layers == _LAYERS_OF_27B[config.architecture]
    divisor = D / config.heads if largest else config.head_width
    return Block(
        attention_norm=norm(weights, config, f"{name}.attn_norm", D),
        attention=attention(
            weights,
            config,
            index,
            turning,
            normed=normed,
            scale=divisor**-0.5,
            window=window,
            cap=cap,
        ),
        mlp_norm=norm(weights, config, f"{name}.ffn_norm", D),
        mlp=gated_mlp(weights, config, index, Activation.GELU_TANH),
        after_attention=norm(weights, config, f"{name}.post_attention_norm", D),
        after_mlp=norm(weights, config, f"{name}.post_ffw_norm", D),
    )
