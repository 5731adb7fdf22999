"""Memory of a picture encoder, from the sizes in its file: weights, buffers, and encoded rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from engine.gguf.reader import GGUFFile
from engine.gguf.tensor_info import TensorInfo
from engine.messages import Detail
from engine.vision.encoders import SOUND
from engine.vision.pairing import find_encoder
from engine.vision.plans import plan_picture
from engine.vision.projector_file import VisionConfig, read_vision_config
from engine.vision.registry import ROWS_BYTES
from kernels.backend.backend import HOST, Backend
from kernels.weights.formats import Format, by_name

_LARGE = 20_000  # pixels of a side: more than any family keeps
# Of these, given rows have positions too.
_LEARNED = (
    *("qwen3vl_merger", "gemma4v", "gemma4uv", "lfm2", "idefics3", "gemma3", "internvl", "glm4v"),
    *("minicpmv4_6", "resampler", "llama4"),
)
_CLASSED = ("internvl", "llama4")  # a token beside the patches
_POSITIONS = "v.position_embd.weight"
# Not held: what is computed instead, and what is multiplied once.
_LEFT_OUT = ("resampler.pos_embed_k", "resampler.attn.q.weight")
_TRANSPOSED = {"gemma3": "mm.input_projection.weight"}  # becomes float32 when it is read
# Of the native kernels: pages of keys and values with their padding, and spare scratch.
_PADDING, _SPARE = 1.15, 1.25
_FIXED_BYTES = 4_000_000
_DEVICE_BYTES = 200_000_000  # of products and scores of attention by torch, a part at a time


@dataclass(frozen=True, slots=True)
class EncoderSizes:
    """What the memory of a picture encoder depends on."""

    path: Path
    config: VisionConfig
    tensors: tuple[tuple[Format, tuple[int, ...]], ...]  # formats and shapes, as they are held
    is_gated: bool  # its MLPs have two products before the activation

    def weights_bytes(self, backend: Backend) -> int:
        """Its weights as a backend packs them."""
        return sum(backend.held_bytes(format, shape) for format, shape in self.tensors)

    @property
    def patches(self) -> int:
        """Patches of the largest picture that it encodes at once."""
        plan = plan_picture(self.config, _LARGE, _LARGE, Detail.HIGH)
        cuts = [plan.tiles] if plan.overview is None else [plan.tiles, plan.overview]
        return max(math.prod(cut.tile) for cut in cuts) // self.config.patch**2

    @property
    def buffer_bytes(self) -> int:
        """The most that encoding the largest picture takes: its rows, the tower's buffers, scratch.

        A bound: about an eighth more than was measured. Without native kernels it takes more.
        """
        D, F, pixels = self.config.width, self.config.feed_forward, self.config.pixels
        deep = len(self.config.deep)
        given = pixels + (D if self.config.projector in _LEARNED else 0)
        inner = max(4 * D, F * (1 + self.is_gated), pixels)  # lie in the same memory
        if not self.config.layers:  # only patches, and what becomes of them
            return _FIXED_BYTES + 4 * self.patches * (given + pixels + 2 * D)
        tower = 3 * D + inner + 2 * self.config.head_width
        if self.config.queries:  # attend with rows of the text model's width
            given = D + 2 * self.config.output
            tower = max(tower, D + 8 * self.config.output)
        tower += deep * D + (1 + deep) * D * bool(deep)  # rows of deeper layers, and all joined
        scratch = _SPARE * (2 * D * _PADDING + max(D, F) / 4)  # and codes of 8 bits
        tokens = self.patches + (self.config.projector in _CLASSED)
        return _FIXED_BYTES + int(4 * tokens * (given + tower + scratch))

    def device_bytes(self, backend: Backend) -> int:
        """What encoding takes on the device of a backend."""
        spare = 0 if backend.device == HOST else _DEVICE_BYTES
        return self.weights_bytes(backend) + self.buffer_bytes + spare

    def total_bytes(self, backend: Backend) -> int:
        """All that pictures may come to take beside the text model."""
        return self.device_bytes(backend) + ROWS_BYTES


def encoder_beside(model: Path, architecture: str, width: int) -> EncoderSizes | None:
    """The sizes of the picture encoder beside a model, see `find_encoder`; None: there is none."""
    found = find_encoder(model, architecture, width)
    return None if found is None else read_encoder_sizes(found)


def read_encoder_sizes(path: Path) -> EncoderSizes:
    """The sizes in a file, whose weights are not read; raises EngineError."""
    with GGUFFile.open(path) as file:
        config = read_vision_config(file)
        infos = [
            one
            for name, one in file.tensors.items()
            if not name.startswith(SOUND) and name not in _LEFT_OUT
        ]
        transposed = _TRANSPOSED.get(config.projector)
        tensors = tuple(
            (by_name("F32") if one.name == transposed else one.format, _held(one)) for one in infos
        )
        is_gated = any(name.endswith("ffn_gate.weight") for name in file.tensors)
        return EncoderSizes(path, config, tensors, is_gated)


def _held(one: TensorInfo) -> tuple[int, ...]:
    """The shape of the vector or matrix that a tensor becomes.

    First dimensions of one do not count, and learned positions are no matrix of a product.
    """
    shape = one.shape
    if one.name == _POSITIONS:
        return (math.prod(shape),)
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape if len(shape) < 3 else (shape[0], math.prod(shape[1:]))
