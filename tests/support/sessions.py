"""Opens a `Session` directly over a GGUF file, without a tokenizer or a memory plan."""

from __future__ import annotations

from pathlib import Path

from engine.gguf.reader import GGUFFile
from engine.inference.session import Session
from engine.models import architecture
from engine.models.config import read_config
from engine.models.weights import Weights
from engine.state.kv_cache import Cache


def open_session(path: Path, context: int = 256) -> Session:
    """An empty session over the file's decoder and an f32 cache; raises ModelFileError."""
    with GGUFFile.open(path) as file:
        config = read_config(file)
        weights = Weights(file)
        decoder = architecture(file)(file, weights, context)
        weights.refuse_unused_tensors()
        return Session(decoder, Cache(config.layers, config.kv_heads, config.head_width, context))
