"""cohere2moe: blocks of cohere2 with a mixture and the average of it and a shared expert.

The first layers have no mixture, and all of them RoPE; of the others only those with a sliding
window have it.
"""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, experts, gated_mlp, layer_norm, norm
from engine.models.config import Config, read_config, sliding_layers, sliding_window
from engine.models.families.cohere import scaled
from engine.models.feed_forward import Experts, GatedMLP
from engine.models.layers import Block, Decoder
from engine.models.parts import Norm
from engine.models.rope import no_rope, rope
from engine.models.routing import dense_layers, read_routing
from engine.models.weights import Weights
from kernels.ops import Activation
from kernels.ops.routing import Gating


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    name = config.architecture
    # A file with the epsilon of RMS norms has these, whether or not it has that of layer norms too.
    epsilon = file.number(f"{name}.attention.layer_norm_rms_epsilon", 0.0, minimum=0.0, maximum=1.0)
    config = replace(config, epsilon=epsilon or config.epsilon)

    def a_norm(tensor: str) -> Norm:
        return (norm if epsilon else layer_norm)(weights, config, tensor, config.width)

    rotary, window = rope(file, config, weights, context, interleaved=True), sliding_window(file)
    slides = sliding_layers(file, config, every=4, full_first=True)
    routing = read_routing(file, config, Gating.SIGMOID)
    shared = _shared_width(file, config)

    def mlp(index: int, dense: Config | None) -> Experts | GatedMLP:
        if dense is not None:
            return gated_mlp(weights, dense, index, Activation.SILU)
        made = experts(weights, config, index, Activation.SILU, routing, shared=shared)
        return replace(made, output_scale=0.5) if shared else made

    blocks = tuple(
        Block(
            attention_norm=a_norm(f"blk.{index}.attn_norm"),
            attention=attention(
                weights,
                config,
                index,
                rotary if slides[index] or dense is not None else no_rope(),
                window=window if slides[index] else 0,
            ),
            mlp_norm=None,
            mlp=mlp(index, dense),
        )
        for index, dense in enumerate(dense_layers(file, config))
    )
    return decoder(weights, config, blocks, last_norm=scaled(file, config, a_norm("output_norm")))


def _shared_width(file: GGUFFile, config: Config) -> int:
    """Inner channels of the expert of all tokens; 0: there is none."""
    name = config.architecture
    count = file.integer(f"{name}.expert_shared_count", 0, minimum=0, maximum=4_096)
    if not count:
        return 0
    key = f"{name}.expert_shared_feed_forward_length"
    return file.integer(key, config.feed_forward * count, minimum=1, maximum=1 << 24)
