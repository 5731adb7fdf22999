"""Opens sessions over models that are placed on several backends."""

from __future__ import annotations

from pathlib import Path

from engine.core.session import Session
from engine.gguf.reader import GGUFFile
from engine.messages import CacheType
from engine.models import architecture
from engine.models.config import read_config
from engine.models.weights import Weights
from kernels.backend.backend import Backend
from kernels.backend.placement import Placement
from sessions import session_over


def layers_of(path: Path) -> int:
    """Number of layers of a model file."""
    with GGUFFile.open(path) as file:
        return read_config(file).layers


def placement(path: Path, embedding: Backend, layers: list[Backend], head: Backend) -> Placement:
    """The backends of `layers` in turn; the last is repeated."""
    filled = (layers + layers[-1:] * layers_of(path))[: layers_of(path)]
    return Placement(embedding, tuple(filled), head)


def open_placed(
    path: Path, placed: Placement, type: CacheType = CacheType.F32, context: int = 256
) -> Session:
    """An empty session over a model with this placement; raises ModelFileError."""
    with GGUFFile.open(path) as file:
        weights = Weights(file, placement=placed)
        decoder = architecture(file)(file, weights, context)
        weights.refuse_unused_tensors()
    return session_over(decoder, context, type)
