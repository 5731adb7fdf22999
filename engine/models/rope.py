"""RoPE frequencies from GGUF metadata: unscaled, linear, dynamic NTK, YaRN, per-frequency divisors.

Computed once, when a model is built. One GGUF key names the kind of scaling; the per-frequency
divisors of Llama 3 and Phi 3 are separate tensors.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.models.config import Config
from engine.models.parts import Rope
from engine.models.weights import Weights

SCALINGS = ("none", "linear", "dynamic", "yarn", "longrope", "su", "llama3")
# Their files have a tenth of the multiplier of YaRN's magnitude.
_TENTHS = ("deepseek2", "mistral4")
_FACTORS = ("rope_factors_short.weight", "rope_factors_long.weight")


def rope(
    file: GGUFFile,
    config: Config,
    weights: Weights,
    context: int,
    *,
    interleaved: bool,
    whole_bounds: bool = True,
    has_divisors: bool = True,
) -> Rope:
    """The RoPE of a model whose sessions hold up to `context` tokens.

    With `whole_bounds` YaRN's ramp begins and ends at whole channel pairs. Without `has_divisors`
    those of the file are not used. Raises ModelFileError or UnsupportedModel naming the faulty key
    or tensor.
    """
    kind, factor, trained = _scaling(file, config)
    base = config.rope_base
    if kind == "dynamic" and context > trained:
        # Source: https://arxiv.org/abs/2306.15595, as transformers computes it for `dynamic`.
        stretch = factor * context / trained - (factor - 1)
        base *= stretch ** (config.rotary_dim / (config.rotary_dim - 2))
    frequencies = rope_frequencies(base, config.rotary_dim)
    scale = file.number(f"{config.architecture}.rope.scaling.attn_factor", 1.0, minimum=0.0)
    if kind == "yarn":
        frequencies = _yarn(file, config, frequencies, factor, trained, whole_bounds)
        scale *= _yarn_scale(file, config, factor)
    elif kind == "linear":
        frequencies = frequencies / factor
    divisors = _divisors(config, weights, long=context > trained) if has_divisors else None
    return Rope(frequencies if divisors is None else frequencies / divisors, interleaved, scale)


def rope_frequencies(base: float, rotary_dim: int) -> Tensor:
    """[rotary_dim / 2] f32 radians per position, rounded as in the models' training code.

    Source: https://github.com/huggingface/transformers/blob/v4.57.0/src/transformers/modeling_rope_utils.py
    """
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.int64).float() / rotary_dim
    return 1.0 / (base**exponents)


def no_rope() -> Rope:
    """A RoPE that rotates no channels, for layers without position encoding."""
    return Rope(torch.empty(0), interleaved=False)


def _scaling(file: GGUFFile, config: Config) -> tuple[str, float, int]:
    """The kind of RoPE scaling, its factor, and the original training context in tokens."""
    prefix = f"{config.architecture}.rope.scaling"
    old = file.number(f"{config.architecture}.rope.scale_linear", 1.0, minimum=1e-3, maximum=1e6)
    factor = file.number(f"{prefix}.factor", old, minimum=0.0, maximum=1e6) or 1.0
    kind = file.string(f"{prefix}.type", "linear")
    if kind not in SCALINGS:
        raise UnsupportedModel(
            f"The key '{prefix}.type' is {kind!r}, a RoPE scaling this version does not support.",
            "Choose a model without context extension, or update the program.",
        )
    trained = file.integer(f"{prefix}.original_context_length", config.context, minimum=1)
    return kind, factor, trained


def _yarn(
    file: GGUFFile,
    config: Config,
    frequencies: Tensor,
    factor: float,
    trained: int,
    whole_bounds: bool,
) -> Tensor:
    """YaRN: high frequencies unchanged, low ones divided by `factor`, a ramp in between.

    Source: https://arxiv.org/abs/2309.00071 section 3.2
    """
    prefix = f"{config.architecture}.rope.scaling"
    fast = file.number(f"{prefix}.yarn_beta_fast", 32.0, minimum=0.0)
    slow = file.number(f"{prefix}.yarn_beta_slow", 1.0, minimum=0.0)
    share = file.number(f"{prefix}.yarn_ext_factor", 1.0, minimum=0.0, maximum=1.0)

    def dimension(turns: float) -> float:
        """The channel pair that completes `turns` rotations within the training context."""
        least = max(turns, 1e-9)
        return (
            config.rotary_dim
            * math.log(trained / (least * 2 * math.pi))
            / (2 * math.log(config.rope_base))
        )

    low, high = dimension(fast), dimension(slow)
    if whole_bounds:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.rotary_dim - 1)
    ramp = (torch.arange(config.rotary_dim // 2) - low) / max(high - low, 0.001)
    kept = (1 - ramp.clamp(0, 1)) * share  # 1: frequency unchanged
    return frequencies / factor * (1 - kept) + frequencies * kept


def magnitude(file: GGUFFile, config: Config, rotary: Rope) -> float:
    """The scale of whole queries and keys where the channels without RoPE are scaled too."""
    kind, factor, _ = _scaling(file, config)
    if kind != "yarn":
        return rotary.scale
    return rotary.scale * _yarn_magnitude(factor, _yarn_multiplier(file, config))


def _yarn_magnitude(factor: float, multiplier: float = 1.0) -> float:
    """YaRN's scale of queries and keys, for contexts `factor` times as long."""
    return 1 + 0.1 * multiplier * math.log(factor) if factor > 1 else 1.0


def _yarn_multiplier(file: GGUFFile, config: Config) -> float:
    """The multiplier of the magnitude of whole heads; 0: only rotated channels have one."""
    key = f"{config.architecture}.rope.scaling.yarn_log_multiplier"
    multiplier = file.number(key, 0.0, minimum=0.0, maximum=1e3)
    return multiplier * 10 if config.architecture in _TENTHS else multiplier


def _yarn_scale(file: GGUFFile, config: Config, factor: float) -> float:
    """The scale of rotated channels, beside that of whole heads."""
    stated = file.number(f"{config.architecture}.rope.scaling.yarn_attn_factor", 0.0, minimum=0.0)
    if stated:  # the model's `attention_factor`, which replaces the usual one in transformers
        return stated
    multiplier = _yarn_multiplier(file, config)
    if config.architecture == "deepseek2" and multiplier:  # the same for both
        return 1.0
    return _yarn_magnitude(factor) / _yarn_magnitude(factor, multiplier)


def _divisors(config: Config, weights: Weights, *, long: bool) -> Tensor | None:
    """Per-frequency divisors: one set for all contexts, or one each for short and long ones."""
    pairs = config.rotary_dim // 2
    common = weights.optional_vector("rope_freqs.weight", pairs)
    short, extended = (weights.optional_vector(name, pairs) for name in _FACTORS)
    if (short is None) != (extended is None):
        raise ModelFileError(
            f"The tensor '{_FACTORS[extended is None]}' is missing from the file.",
            "The file is incomplete; download it again or choose another.",
        )
    return common if common is not None else extended if long else short
