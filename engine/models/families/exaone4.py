"""exaone4: post-norms only, query and key norms; the large model has a window and few global layers.

In three layers of four it has RoPE and a sliding window; the fourth has full attention and no
position encoding. The small model has full attention and RoPE in every layer.
"""

from __future__ import annotations

from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, decoder, gated_mlp, norm
from engine.models.config import Config, read_config, sliding_layers, sliding_window
from engine.models.layers import Block, Decoder
from engine.models.parts import Rope
from engine.models.rope import no_rope, rope
from engine.models.weights import Weights
from kernels.ops import Activation

# Files of the large model may state neither window nor pattern.
_LAYERS_OF_32B, _WINDOW_OF_32B = 64, 4_096


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=False)
    blocks = tuple(
        _block(weights, config, index, *((no_rope(), 0) if window is None else (rotary, window)))
        for index, window in enumerate(_windows(file, config))
    )
    return decoder(weights, config, blocks)


def _windows(file: GGUFFile, config: Config) -> list[int | None]:
    """The window of each layer, 0 for unlimited; None: unlimited, and without RoPE.

    A window without a pattern, in files of the small model, is not used.
    """
    large = config.layers == _LAYERS_OF_32B
    window = sliding_window(file, _WINDOW_OF_32B if large else 0)
    has_pattern = f"{config.architecture}.attention.sliding_window_pattern" in file.metadata
    if not window or not (large or has_pattern):
        return [0] * config.layers
    return [window if slides else None for slides in sliding_layers(file, config, every=4)]


def _block(weights: Weights, config: Config, index: int, rotary: Rope, window: int) -> Block:
    name, D = f"blk.{index}", config.width
    return Block(
        attention_norm=None,
        attention=attention(weights, config, index, rotary, qk_norm=1, window=window),
        mlp_norm=None,
        mlp=gated_mlp(weights, config, index, Activation.SILU),
        after_attention=norm(weights, config, f"{name}.post_attention_norm", D),
        after_mlp=norm(weights, config, f"{name}.post_ffw_norm", D),
    )
