"""Small files of model families, written for tests of what their pages read from metadata."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from architecture_files import Skeleton
from architecture_files import write as write_skeleton

VOCABULARY = 32
_KINDS = {bool: "BOOL", int: "UINT32", float: "FLOAT32", str: "STRING"}


def write(
    path: Path,
    architecture: str,
    layer: Mapping[str, tuple[int, ...]],
    keys: Mapping[str, Any],
    *,
    layers: int = 2,
    width: int = 32,
    tensors: Mapping[str, tuple[int, ...]] | None = None,
) -> Path:
    """A model whose layers all have the tensors `layer`, by name without "blk.0." and ".weight".

    A name may end with ".bias". The keys of the architecture are given without its prefix.
    """
    usual = {
        "block_count": layers,
        "context_length": 256,
        "embedding_length": width,
        "feed_forward_length": width,
        "attention.head_count": 1,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    metadata: dict[str, tuple[str, Any]] = {"general.architecture": ("STRING", architecture)}
    for key, value in (usual | dict(keys)).items():
        kind = _KINDS[type(value[0] if isinstance(value, list) else value)]
        if isinstance(value, list):
            kind = f"{kind.replace('UINT32', 'INT32')}[]"
        metadata[key if key.startswith("xielu.") else f"{architecture}.{key}"] = kind, value
    shapes = {"token_embd.weight": (VOCABULARY, width), "output_norm.weight": (width,)}
    for index in range(layers):
        for name, shape in layer.items():
            whole = name if name.endswith((".bias", ".scale")) else f"{name}.weight"
            shapes[f"blk.{index}.{whole}"] = shape
    return write_skeleton(Skeleton(architecture, metadata, shapes | dict(tensors or {})), path)


def attention(width: int, heads: int = 1, kv_heads: int = 1) -> dict[str, tuple[int, ...]]:
    """Attention of heads that divide the width, with the norm before it."""
    rows = width // heads * kv_heads
    return {
        "attn_norm": (width,),
        "attn_q": (width, width),
        "attn_k": (rows, width),
        "attn_v": (rows, width),
        "attn_output": (width, width),
    }


def gated_mlp(width: int) -> dict[str, tuple[int, ...]]:
    """A gated MLP as wide inside as outside, with the norm before it."""
    inside = {f"ffn_{part}": (width, width) for part in ("gate", "up", "down")}
    return {"ffn_norm": (width,), **inside}
