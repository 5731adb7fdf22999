"""Architectures: the table from a GGUF file's own name for its kind to the code that wires it."""

from __future__ import annotations

from collections.abc import Callable

from engine.errors import UnsupportedModel
from engine.gguf import GGUFFile
from engine.models import gemma3, llama, qwen3
from engine.models.layers import Decoder
from engine.weights import Weights

ARCHITECTURES: dict[str, Callable[[GGUFFile, Weights], Decoder]] = {
    "gemma3": gemma3.build,
    "llama": llama.build,
    "qwen3": qwen3.build,
}


def architecture(file: GGUFFile) -> Callable[[GGUFFile, Weights], Decoder]:
    """The builder for a file; raises UnsupportedModel naming the architecture it asks for."""
    name = file.string("general.architecture")
    if name not in ARCHITECTURES:
        raise UnsupportedModel(
            f"The file is a {name!r} model, an architecture this version cannot run.",
            f"Choose a model of one of these kinds: {', '.join(sorted(ARCHITECTURES))}.",
        )
    return ARCHITECTURES[name]
