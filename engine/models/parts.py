"""Parts of layers that every architecture shares: norm, projection, RoPE, convolution."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.adapters.delta import Part
from kernels.ops import Activation
from kernels.ops.hadamard_rotation import HadamardRotation
from kernels.states.layer_state import ConvState
from kernels.weights.weight import Weight


@dataclass(frozen=True, slots=True)
class Norm:
    """RMS norm, or a layer norm if `centred`.

    GGUF stores gemma's norm weights with the 1 already added.
    """

    weight: Tensor  # [D] f32
    epsilon: float
    centred: bool = False
    bias: Tensor | None = None  # [D] f32


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """A norm of each head with separate weights, as Command R+ has for queries and keys."""

    weight: Tensor  # [H, C] f32
    epsilon: float
    centred: bool = True  # layer norm; else RMS norm


@dataclass(frozen=True, slots=True)
class Projection:
    """A linear layer: one weight matrix, its bias, and the LoRA deltas of the adapters in use."""

    name: str  # of the GGUF tensor; adapters refer to it
    weight: Weight  # [N, D]
    bias: Tensor | None = None  # [N] f32
    part: Part | None = None  # the rows of a fused tensor that this layer uses
    scale: float = 1.0  # of the product, before bias and LoRA
    rotation: HadamardRotation | None = (
        None  # of the input, where the rows of the matrix are rotated
    )


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding of one kind of layer."""

    frequencies: Tensor  # [n] f32, radians per position; the first 2n channels are rotated
    interleaved: bool  # pairs (2i, 2i+1) as GGUF stores llama; else (i, i + n)
    scale: float = 1.0  # of the rotated channels
    axes: Tensor | None = None  # [n] i32: of several positions of a token, that of each pair


@dataclass(frozen=True, slots=True)
class Convolution:
    """Depthwise convolution, one kernel for each channel."""

    weight: Tensor  # [N, k] f32
    bias: Tensor | None = None  # [N] f32
    activation: Activation | None = None
    causal: bool = True  # else the kernel is centred on each token, and nothing is remembered

    @property
    def state(self) -> ConvState:
        """What it remembers: its last inputs."""
        channels, taps = self.weight.shape
        return ConvState(channels, taps)
