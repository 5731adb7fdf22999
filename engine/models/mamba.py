"""Builder of Mamba-2 mixers, which several families have in some or all layers."""

from __future__ import annotations

from engine.errors import ModelFileError
from engine.gguf.reader import GGUFFile
from engine.models.builder import projection, projections
from engine.models.config import Config
from engine.models.mixers import StateSpace
from engine.models.parts import Convolution, HeadNorms
from engine.models.weights import Weights
from kernels.ops import Activation

_KEYS = ("conv_kernel", "inner_size", "state_size", "time_step_rank", "group_count")


def state_space(
    file: GGUFFile, weights: Weights, config: Config, index: int, *, has_norm: bool = True
) -> StateSpace:
    """The Mamba-2 mixer of block `index`; without `has_norm` its file may lack the norm.

    Raises ModelFileError naming the key or tensor that is missing or does not fit.
    """
    name, D = f"blk.{index}", config.width
    taps, inner, C, H, K = (
        file.integer(f"{config.architecture}.ssm.{key}", minimum=1, maximum=1 << 20)
        for key in _KEYS
    )
    if inner % H or H % K:
        raise ModelFileError(
            f"{H} recurrent heads cannot share {inner} channels and {K} groups evenly.",
            "The file is damaged or made by a faulty converter; get another copy.",
        )
    keys, V = K * C, inner // H
    gate, value, key, query, step = projections(
        weights, f"{name}.ssm_in", (inner, inner, keys, keys, H), D
    )
    rows = (inner, keys, keys)
    convolved = weights.table(f"{name}.ssm_conv1d.weight", sum(rows), taps).split(rows)
    bias = weights.optional_vector(f"{name}.ssm_conv1d.bias", sum(rows))
    biases = (None, None, None) if bias is None else bias.split(rows)
    value_taps, key_taps, query_taps = (
        Convolution(one.contiguous(), own, Activation.SILU)
        for one, own in zip(convolved, biases, strict=True)
    )
    norm = None
    if has_norm or weights.has(f"{name}.ssm_norm.weight"):
        norm_weight = weights.table(f"{name}.ssm_norm.weight", K, inner // K)
        norm = HeadNorms(norm_weight, config.epsilon, centred=False)
    return StateSpace(
        gate=gate,
        value=value,
        key=key,
        query=query,
        convolutions=(value_taps, key_taps, query_taps),
        step=step,
        step_bias=weights.vector(f"{name}.ssm_dt.bias", H),
        rate=weights.table(f"{name}.ssm_a", H, 1).flatten(),
        skip=weights.table(f"{name}.ssm_d", H, 1).flatten(),
        key_width=C,
        value_width=V,
        norm=norm,
        output=projection(weights, f"{name}.ssm_out", D, inner),
    )
