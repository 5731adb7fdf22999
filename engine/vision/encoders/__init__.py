"""Kinds of projectors, one page each, and how an encoder is built from its file."""

from __future__ import annotations

from collections.abc import Callable

from engine.gguf.reader import GGUFFile
from engine.models.weights import Weights
from engine.vision.encoder import Encoder, Wiring
from engine.vision.encoders import (
    gemma3,
    gemma4uv,
    gemma4v,
    glm4v,
    idefics3,
    internvl,
    lfm2,
    llama4,
    minicpmv4_6,
    pixtral,
    qwen3vl,
    resampler,
)
from engine.vision.projector_file import (
    VisionConfig,
    read_projector,
    read_vision_config,
    refuse_projector,
)
from kernels.backend.backend import Backend
from kernels.backend.placement import Placement

PROJECTORS: dict[str, Callable[[Weights, VisionConfig], Wiring]] = {
    "qwen3vl_merger": qwen3vl.build,
    "gemma4v": gemma4v.build,
    "gemma4uv": gemma4uv.build,
    "gemma3": gemma3.build,
    "pixtral": pixtral.build,
    "lfm2": lfm2.build,
    "idefics3": idefics3.build,
    "internvl": internvl.build,
    "glm4v": glm4v.build,
    "minicpmv4_6": minicpmv4_6.build,
    "resampler": resampler.build,
    "llama4": llama4.build,
}
SOUND = ("a.", "mm.a.")  # tensors of an encoder of sounds, which the file may have too


def build_encoder(
    file: GGUFFile, backend: Backend, checkpoint: Callable[[], None] = lambda: None
) -> Encoder:
    """The picture encoder of a file, with its weights in memory.

    Raises ModelFileError naming what is missing or wrong, and UnsupportedModel for a projector that
    there is no page for.
    """
    projector = read_projector(file)
    build = PROJECTORS.get(projector)
    if build is None:
        raise refuse_projector(projector)
    config = read_vision_config(file)
    weights = Weights(file, checkpoint=checkpoint, placement=Placement.on(backend, config.layers))
    weights.ignore(*(name for name in weights.names if name.startswith(SOUND)))
    wiring = build(weights, config)
    weights.refuse_unused_tensors()
    return Encoder(wiring, backend)
