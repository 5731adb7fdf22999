"""nanbeige: llama blocks that every token runs through several times, one after the other.

Each time a block has keys and values of its own. Between two times there is the final norm.
"""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import decoder, norm, pre_norm_block
from engine.models.config import read_config
from engine.models.layers import Decoder
from engine.models.rope import rope
from engine.models.weights import Weights


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    rotary = rope(file, config, weights, context, interleaved=True)
    once = tuple(pre_norm_block(weights, config, index, rotary) for index in range(config.layers))
    again = once
    if not file.metadata.get("nanbeige.skip_loop_final_norm", False):
        between = norm(weights, config, "output_norm", config.width)
        last = f"blk.{config.layers - 1}"
        between = replace(between, weight=weights.beside(last, between.weight))
        again = (*once[:-1], replace(once[-1], mlp_sum_norm=between))
    return decoder(weights, config, again * (config.loops - 1) + once)
