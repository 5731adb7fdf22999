"""Writes small random LoRA adapters for a model file, as GGUF (llama.cpp's layout) or PEFT folders.

Equal arguments give equal values, so a golden file records only the seed. `size` is the magnitude
of an adapter's change relative to the activation it changes, for any rank and alpha.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFWriter, quantize
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray
from safetensors.torch import save_file

from engine.gguf.reader import GGUFFile

Array = NDArray[np.float32]
Pairs = dict[str, tuple[Array, Array]]  # GGUF tensor name to a [R, in] and b [out, R]

EVERY = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
_MODULES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def shapes_of(model: Path) -> dict[str, tuple[int, int]]:
    """Shapes of all matrices of a model file: GGUF name to (out, in)."""
    with GGUFFile.open(model) as file:
        return {
            name: (info.shape[0], info.shape[1])
            for name, info in sorted(file.tensors.items())
            if len(info.shape) == 2
        }


def pairs_for(
    model: Path,
    *,
    rank: int = 4,
    alpha: float = 8.0,
    seed: int = 0,
    size: float = 0.3,
    targets: Sequence[str] = EVERY,
) -> Pairs:
    """Random A and B matrices for the tensors of a model whose names contain one of `targets`."""
    pairs: Pairs = {}
    for index, (name, (rows, columns)) in enumerate(shapes_of(model).items()):
        if not any(f".{target}." in f".{name}" for target in targets):
            continue
        random = np.random.default_rng([seed, index])
        spread = size / (alpha / rank * rank**0.5) if alpha else size / rank**0.5
        if name == "token_embd.weight":  # embeddings are smaller than other activations
            spread *= columns**-0.5
        a = random.standard_normal((rank, columns), np.float32) * np.float32(columns**-0.5)
        b = random.standard_normal((rows, rank), np.float32) * np.float32(spread)
        pairs[name] = (a, b)
    assert pairs, f"no tensor of the model is called {targets}"
    return pairs


def write(
    path: Path,
    model: Path,
    *,
    rank: int = 4,
    alpha: float = 8.0,
    seed: int = 0,
    size: float = 0.3,
    targets: Sequence[str] = EVERY,
    format: str = "F32",
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Write a GGUF adapter for `model`; `metadata` replaces or adds keys, None removes one."""
    pairs = pairs_for(model, rank=rank, alpha=alpha, seed=seed, size=size, targets=targets)
    with GGUFFile.open(model) as file:
        architecture = file.string("general.architecture")
    keys = {"adapter.lora.alpha": float(alpha)} | dict(metadata or {})
    return write_gguf(path, stored(pairs), architecture=architecture, format=format, metadata=keys)


def stored(pairs: Pairs) -> dict[str, Array]:
    """The tensors of a GGUF adapter; those of the embedding are swapped, A transposed."""
    tensors: dict[str, Array] = {}
    for name, (a, b) in pairs.items():
        swapped = name == "token_embd.weight"
        tensors[f"{name}.lora_a"] = b if swapped else a
        tensors[f"{name}.lora_b"] = np.ascontiguousarray(a.T) if swapped else b
    return tensors


def write_gguf(
    path: Path,
    tensors: Mapping[str, Array],
    *,
    architecture: str = "llama",
    format: str = "F32",
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Write tensors and keys as a GGUF adapter; rows that do not fit `format` stay F32."""
    keys: dict[str, Any] = {
        "general.architecture": architecture,
        "general.type": "adapter",
        "adapter.type": "lora",
    } | dict(metadata or {})
    writer = GGUFWriter(path, architecture)
    writer.kv_data[0].clear()
    for key, value in keys.items():
        _add(writer, key, value)
    for name, values in tensors.items():
        kind = GGMLQuantizationType[format]
        if kind is GGMLQuantizationType.F32 or (kind.name[0] == "Q" and values.shape[-1] % 32):
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    match value:
        case None:
            return
        case str():
            writer.add_string(key, value)
        case float():
            writer.add_float32(key, value)
        case int():
            writer.add_uint32(key, value)
        case _:
            writer.add_array(key, value)


def write_peft(
    folder: Path,
    pairs: Pairs,
    *,
    rank: int = 4,
    alpha: float = 8.0,
    heads: tuple[int, int] | None = None,
    config: Mapping[str, Any] | None = None,
    tensors: Mapping[str, torch.Tensor] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """Write a PEFT folder equivalent to a GGUF adapter with these `pairs`.

    `heads` (of queries, of keys) is given for llama models, whose Q and K rows Hugging Face stores
    in another order. `config` and `tensors` replace or add; a value of None removes a key.
    """
    found: dict[str, torch.Tensor] = {}
    for name, (a, b) in pairs.items():
        found |= _module_tensors(name, a, b, heads)
    found |= tensors or {}
    keys: dict[str, Any] = {
        "peft_type": "LORA",
        "base_model_name_or_path": "somebody/tiny",
        "bias": "none",
        "lora_alpha": alpha,
        "r": rank,
        "target_modules": sorted({key.split(".")[-3] for key in found}),
        "task_type": "CAUSAL_LM",
    } | dict(config or {})
    folder.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in keys.items() if value is not None}
    (folder / "adapter_config.json").write_text(json.dumps(kept), encoding="utf-8")
    halves = {key: value.to(dtype).contiguous() for key, value in found.items()}
    save_file(halves, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return folder


def _module_tensors(
    name: str, a: Array, b: Array, heads: tuple[int, int] | None
) -> dict[str, torch.Tensor]:
    """The A and B tensors of one pair, by their PEFT names."""
    if name == "token_embd.weight":
        stem = "base_model.model.model.embed_tokens.lora_embedding_"
        return {f"{stem}A": torch.from_numpy(b.T), f"{stem}B": torch.from_numpy(a.T)}
    if name == "output.weight":
        stem = "base_model.model.lm_head.lora_"
    else:
        _, layer, part, _ = name.split(".")
        stem = f"base_model.model.model.layers.{layer}.{_MODULES[part]}.lora_"
        if heads and part in ("attn_q", "attn_k"):
            b = _halved(b, heads[part == "attn_k"])
    return {f"{stem}A.weight": torch.from_numpy(a), f"{stem}B.weight": torch.from_numpy(b)}


def _halved(b: Array, heads: int) -> Array:
    """Reorder the rows of each head from GGUF's interleaved pairs to Hugging Face's halves."""
    rows, rank = b.shape
    pairs = b.reshape(heads, rows // heads // 2, 2, rank)
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows, rank))
