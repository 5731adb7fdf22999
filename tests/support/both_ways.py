"""Small decoders whose file says that they read texts in both directions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import architecture_files
import tiny


def write(name: str, path: Path, *, pooling: int = 1) -> Path:
    """The model of a recorded skeleton as an encoder, with a vocabulary."""
    skeleton = architecture_files.recorded()[name].without_scales().without_ranking()
    words = tiny.bpe("qwen3")
    skeleton = skeleton.changed(len(words["tokenizer.ggml.tokens"]), {})
    # The bias of the head has a row for each token of another vocabulary.
    tensors = {one: shape for one, shape in skeleton.tensors.items() if one != "output.bias"}
    keys = skeleton.metadata | {
        f"{skeleton.architecture}.attention.causal": ("BOOL", False),
        f"{skeleton.architecture}.pooling_type": ("UINT32", pooling),
    }
    keys.pop(f"{skeleton.architecture}.attention.sliding_window", None)
    return architecture_files.write(replace(skeleton, tensors=tensors, metadata=keys), path, words)
