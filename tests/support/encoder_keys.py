"""The metadata of a picture encoder as a file: enough to pair and plan it, not to run it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFWriter


def write_encoder(path: Path, projector: str, output: int, padding: int = 0) -> Path:
    """The metadata of a picture encoder, without tensors."""
    writer = GGUFWriter(path, "clip")
    writer.add_string("clip.projector_type", projector)
    numbers = {
        "projection_dim": output,
        "image_size": 32,
        "patch_size": 8,
        "embedding_length": 32,
        "feed_forward_length": 40,
        "block_count": 2,
        "attention.head_count": 4,
    }
    for key, value in numbers.items():
        writer.add_uint32(f"clip.vision.{key}", value)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    if projector == "resampler":
        writer.add_int32("clip.minicpmv_version", 3)
        writer.add_tensor("resampler.query", np.zeros((4, output), np.float32))
    writer.add_array("clip.vision.wa_layer_indexes", [0])
    writer.add_string("padding", "x" * padding)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
