"""bert, nomic-bert: encoders that read a text in both directions, for embeddings and ranking.

Every sum is normed, with bias: x = norm(x + attention(x)), x = norm(x + MLP(x)). bert has learned
positions and a GELU, nomic-bert RoPE and a gated SiLU; both add the embedding of a token type.
"""

from __future__ import annotations

from engine.errors import RequestError
from engine.gguf.reader import GGUFFile
from engine.models.builder import attention, base_model, gated_mlp, layer_norm, mlp, ranking
from engine.models.config import Config, read_config
from engine.models.layers import Block, Decoder
from engine.models.parts import Projection, Rope
from engine.models.rope import no_rope, rope
from engine.models.weights import Weights
from kernels.ops import Activation
from kernels.weights.weight import Weight

_EMBEDDING, _TYPES = "token_embd.weight", "token_types.weight"
_SEPARATOR = 102  # of BERT's vocabulary


def build_bert(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    if context > config.context:
        raise RequestError(
            f"This model has learned positions for {config.context:,} tokens; a context of "
            f"{context:,} was requested.",
            f"Request at most {config.context:,} tokens.",
        )
    positions = weights.matrix("position_embd.weight", config.context, config.width)
    return _build(file, weights, config, no_rope(), positions)


def build_nomic_bert(file: GGUFFile, weights: Weights, context: int) -> Decoder:
    """Wire the blocks; raises ModelFileError naming a tensor that is missing or misshapen."""
    config = read_config(file)
    return _build(file, weights, config, rope(file, config, weights, context, interleaved=False))


def _build(
    file: GGUFFile,
    weights: Weights,
    config: Config,
    rotary: Rope,
    positions: Weight | None = None,
) -> Decoder:
    V, D = config.vocabulary, config.width
    blocks = tuple(
        Block(
            attention_norm=None,
            attention=attention(weights, config, index, rotary, causal=False),
            attention_sum_norm=layer_norm(weights, config, f"blk.{index}.attn_output_norm", D),
            mlp_norm=None,
            mlp=mlp(weights, config, index, Activation.GELU)
            if positions is not None
            else gated_mlp(weights, config, index, Activation.SILU),
            mlp_sum_norm=layer_norm(weights, config, f"blk.{index}.layer_output_norm", D),
        )
        for index in range(config.layers)
    )
    embedding = weights.matrix(_EMBEDDING, V, D)
    head = Projection("", embedding)  # for the check of kernels alone
    separator = file.integer("tokenizer.ggml.seperator_token_id", _SEPARATOR, minimum=0)
    return Decoder(
        embedding=embedding,
        blocks=blocks,
        norm=None,
        head=head,
        base=base_model(weights, config, embedding, head, blocks),
        placement=weights.placement(len(blocks)),
        positions=positions,
        types=weights.optional_matrix(_TYPES, weights.rows(_TYPES), D),
        separator=separator,
        embedding_norm=layer_norm(weights, config, "token_embd_norm", D),
        ranking=ranking(weights, config),
    )
