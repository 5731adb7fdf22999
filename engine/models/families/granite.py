"""granite: llama blocks with scaled embeddings, attention scores, residuals and logits."""

from __future__ import annotations

from dataclasses import replace

from engine.gguf.reader import GGUFFile
from engine.models.builder import decoder, norm, pre_norm_block
from engine.models.config import read_config
from engine.models.layers import Decoder
from engine.models.rope import no_rope, rope
from engine.models.weights import Weights


def build(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    embedding, scores, residual, logits = (
        file.number(f"granite.{key}", 0.0, minimum=0.0, maximum=1e6)
        for key in ("embedding_scale", "attention.scale", "residual_scale", "logit_scale")
    )
    has_rope = file.metadata.get("granite.rope.scaling.finetuned", True)
    rotary = rope(file, config, weights, context, interleaved=True) if has_rope else no_rope()
    plain = (
        pre_norm_block(weights, config, index, rotary, scale=scores)
        for index in range(config.layers)
    )
    blocks = tuple(replace(block, residual_scale=residual or 1.0) for block in plain)
    # Logits are linear in the output of the last norm, so its weight can absorb their divisor.
    last_norm = norm(weights, config, "output_norm", config.width)
    last_norm = replace(last_norm, weight=last_norm.weight / (logits or 1.0))
    return decoder(weights, config, blocks, last_norm=last_norm, embedding_scale=embedding or 1.0)
