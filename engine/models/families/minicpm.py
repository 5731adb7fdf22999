"""minicpm: llama blocks with scaled embeddings, residuals and logits; some are mixtures.

MiniCPM 1, 2 and 4.
"""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import decoder, norm, pre_norm_block
from engine.models.config import read_config
from engine.models.layers import Decoder
from engine.models.rope import rope
from engine.models.weights import Weights

# Of the first models, whose files have no keys for them.
_EMBEDDING_SCALE, _DEPTH_SCALE, _WIDTH_OF_LOGITS = 12.0, 1.4, 256


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    embedding, residual, logits = (
        file.number(f"minicpm.{key}", default, minimum=1e-6, maximum=1e6)
        for key, default in (
            ("embedding_scale", _EMBEDDING_SCALE),
            ("residual_scale", _DEPTH_SCALE / config.layers**0.5),
            ("logit_scale", config.width / _WIDTH_OF_LOGITS),
        )
    )
    rotary = rope(file, config, weights, context, interleaved=True)
    plain = (pre_norm_block(weights, config, index, rotary) for index in range(config.layers))
    blocks = tuple(replace(block, residual_scale=residual) for block in plain)
    # Logits are linear in the output of the last norm, so its weight can absorb their divisor.
    last_norm = norm(weights, config, "output_norm", config.width)
    last_norm = replace(last_norm, weight=last_norm.weight / logits)
    return decoder(weights, config, blocks, last_norm=last_norm, embedding_scale=embedding)
