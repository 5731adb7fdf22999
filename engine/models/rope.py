"""Rotary frequencies as a file's keys ask for them: plain, stretched, YaRN, per-frequency divisors.

All of it is arithmetic over one vector, done once when a model is wired. GGUF writes one key for
the kind of scaling; divisors of single frequencies (Llama 3, Phi 3) are tensors of their own.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.models.config import Config
from engine.models.layers import Rope
from engine.models.weights import Weights

SCALINGS = ("none", "linear", "dynamic", "yarn", "longrope", "su", "llama3")
_FACTORS = ("rope_factors_short.weight", "rope_factors_long.weight")


def rope(
    file: GGUFFile, config: Config, weights: Weights, context: int, *, interleaved: bool
) -> Rope:
    """The rotation of a model whose sessions hold up to `context` tokens.

    Raises ModelFileError or UnsupportedModel naming the key or tensor at fault.
    """
    kind, factor, trained = _scaling(file, config)
    base = config.rope_base
    if kind == "dynamic" and context > trained:
        # Source: https://arxiv.org/abs/2306.15595, as transformers computes it for `dynamic`.
        stretch = factor * context / trained - (factor - 1)
        base *= stretch ** (config.rotated / (config.rotated - 2))
    frequencies = rope_frequencies(base, config.rotated)
    scale = file.number(f"{config.architecture}.rope.scaling.attn_factor", 1.0, minimum=0.0)
    if kind == "yarn":
        frequencies = _yarn(file, config, frequencies, factor, trained)
        scale *= 1 + 0.1 * math.log(factor) if factor > 1 else 1
    elif kind == "linear":
        frequencies = frequencies / factor
    divisors = _divisors(config, weights, long=context > trained)
    return Rope(frequencies if divisors is None else frequencies / divisors, interleaved, scale)


def rope_frequencies(base: float, rotated: int) -> Tensor:
    """[rotated / 2] f32 radians per position, rounded as the models' own training code rounds them.

    Source: https://github.com/huggingface/transformers/blob/v4.57.0/src/transformers/modeling_rope_utils.py
    """
    exponents = torch.arange(0, rotated, 2, dtype=torch.int64).float() / rotated
    return 1.0 / (base**exponents)


def no_rope() -> Rope:
    """Nothing turns: layers that know no positions."""
    return Rope(torch.empty(0), interleaved=False)


def _scaling(file: GGUFFile, config: Config) -> tuple[str, float, int]:
    """The kind of scaling, by how much, and the context before it."""
    prefix = f"{config.architecture}.rope.scaling"
    old = file.number(f"{config.architecture}.rope.scale_linear", 1.0, minimum=1e-3, maximum=1e6)
    factor = file.number(f"{prefix}.factor", old, minimum=0.0, maximum=1e6) or 1.0
    kind = file.string(f"{prefix}.type", "linear")
    if kind not in SCALINGS:
        raise UnsupportedModel(
            f"The key '{prefix}.type' asks for {kind!r}, which this version cannot compute.",
            "Choose a model without context extension, or update the program.",
        )
    trained = file.integer(f"{prefix}.original_context_length", config.context, minimum=1)
    return kind, factor, trained


def _yarn(
    file: GGUFFile, config: Config, frequencies: Tensor, factor: float, trained: int
) -> Tensor:
    """Fast frequencies as they were, slow ones stretched, a ramp between.

    Source: https://arxiv.org/abs/2309.00071 section 3.2
    """
    prefix = f"{config.architecture}.rope.scaling"
    fast = file.number(f"{prefix}.yarn_beta_fast", 32.0, minimum=0.0)
    slow = file.number(f"{prefix}.yarn_beta_slow", 1.0, minimum=0.0)
    share = file.number(f"{prefix}.yarn_ext_factor", 1.0, minimum=0.0, maximum=1.0)

    def dimension(turns: float) -> float:
        """The channel pair that turns so often within the context of the training."""
        least = max(turns, 1e-9)
        return (
            config.rotated
            * math.log(trained / (least * 2 * math.pi))
            / (2 * math.log(config.rope_base))
        )

    low = max(math.floor(dimension(fast)), 0)
    high = min(math.ceil(dimension(slow)), config.rotated - 1)
    ramp = (torch.arange(config.rotated // 2) - low) / max(high - low, 0.001)
    kept = (1 - ramp.clamp(0, 1)) * share  # 1: as it was
    return frequencies / factor * (1 - kept) + frequencies * kept


def _divisors(config: Config, weights: Weights, *, long: bool) -> Tensor | None:
    """What the file divides single frequencies by: for all contexts, or for short and long ones."""
    pairs = config.rotated // 2
    always = weights.optional_vector("rope_freqs.weight", pairs)
    short, far = (weights.optional_vector(name, pairs) for name in _FACTORS)
    if (short is None) != (far is None):
        raise ModelFileError(
            f"The tensor '{_FACTORS[far is None]}' is missing from the file.",
            "The file is incomplete; download it again or choose another.",
        )
    return always if always is not None else far if long else short
