"""Reader of PEFT adapters: a folder with adapter_config.json and adapter_model.safetensors.

Hugging Face module names are mapped to GGUF tensor names. GGUF llama files permute the rows of
query and key matrices for interleaved RoPE, so the same permutation is applied to the adapter.
Nothing is unpickled: adapter_model.bin is refused.

Source: https://github.com/huggingface/peft/blob/v0.18.0/src/peft/tuners/lora/layer.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from torch import Tensor

from engine.errors import AdapterError, AdapterOfOtherModel, DamagedAdapter, Fault, FaultKind
from engine.gguf.values import shown
from engine.lora.delta import (
    DAMAGED,
    EMBEDDING,
    HEAD,
    BaseModel,
    Contents,
    Pair,
    check_halves,
    check_memory,
    finite_pair,
)
from engine.lora.peft_config import CONFIG, PeftConfig, read_config
from engine.lora.tensor_file import TensorFile

TENSORS = "adapter_model.safetensors"

_PICKLED = ("adapter_model.bin", "adapter_model.pt", "adapter_model.pth")
_TYPES = ("F64", "F32", "F16", "BF16")
_OUTSIDE = re.compile(r"^(?:base_model\.)?(?:(?:language_)?model\.){0,3}")
_LAYER = re.compile(r"layers\.(\d{1,5})\.(.+)")
_HALF = re.compile(r"(.+)\.lora_(?:embedding_)?([AB])(?:\.\w+)??(?:\.weight)?")


@dataclass(frozen=True, slots=True)
class Family:
    """Module names of one architecture, and the modules with permuted rows."""

    layer: Mapping[str, str]  # module inside a layer to the middle of the GGUF name
    permuted: tuple[str, ...] = ()  # modules whose rows GGUF permutes for interleaved RoPE


_GATED = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_PERMUTED = ("self_attn.q_proj", "self_attn.k_proj")
_UNGATED = {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
_PHI2 = {"self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
_FUSED = {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}
FAMILIES = {
    **{
        name: Family(_GATED)
        for name in ("cohere2", "command-r", "gemma", "gemma2", "gemma3", "olmo2")
    },
    **{name: Family(_GATED) for name in ("qwen2", "qwen3", "qwen3moe")},
    **{name: Family(_GATED, _PERMUTED) for name in ("granite", "llama")},
    "phi2": Family(_GATED | _PHI2),
    "phi3": Family(_GATED | _FUSED),
    "starcoder2": Family(_GATED | _UNGATED),
}
_TOP = {"embed_tokens": EMBEDDING, "lm_head": HEAD}


@dataclass(frozen=True, slots=True)
class _Halves:
    """The tensor names of the two halves of one pair."""

    name: str  # of the base tensor, GGUF
    module: str  # Hugging Face module name in the file
    a: str
    b: str


def find_folder(path: Path) -> Path | None:
    """The PEFT folder that `path` is or belongs to; None for other files.

    Raises AdapterError for any other folder and for pickled weights.
    """
    if path.name in _PICKLED:
        raise _pickled(path.name)
    if not path.is_dir() and path.name not in (CONFIG, TENSORS):
        if path.suffix == ".safetensors":
            raise AdapterError(
                f"{shown(path.name)} is not called '{TENSORS}', as the weights of an adapter are.",
                f"Choose a folder that holds {TENSORS} and {CONFIG}.",
                Fault(FaultKind.NO_ADAPTER),
            )
        return None
    folder = path if path.is_dir() else path.parent
    for name in (CONFIG, TENSORS):
        if not (folder / name).is_file():
            raise _missing(folder, name)
    return folder


def _missing(folder: Path, name: str) -> AdapterError:
    pickled = [old for old in _PICKLED if (folder / old).is_file()]
    if name == TENSORS and pickled:
        return _pickled(pickled[0])
    return AdapterError(
        f"The folder {shown(folder.name)} is not an adapter: it holds no '{name}'.",
        f"Choose a folder that holds {TENSORS} and {CONFIG}, or a GGUF adapter.",
        Fault(FaultKind.NO_ADAPTER),
    )


def _pickled(name: str) -> AdapterError:
    return AdapterError(
        f"The adapter is saved as the pickle '{name}', which could run code when it is loaded.",
        f"Save it again as {TENSORS}, or choose another copy.",
    )


def read(folder: Path, base: BaseModel, checkpoint: Callable[[], None]) -> Contents:
    """Read all pairs of a folder as float32.

    Raises AdapterError, OutOfMemory, ModelFileError for a file that changes, or OSError.
    """
    family = FAMILIES.get(base.architecture)
    if family is None:
        raise AdapterError(
            f"PEFT adapters for {base.architecture!r} models cannot be read by this version.",
            "Choose the adapter in GGUF form.",
        )
    config = read_config(folder / CONFIG)
    with TensorFile(folder / TENSORS) as file:
        found = _find_halves(file, family)
        for halves in found:
            _check(file, halves, base, config)
        check_memory(sum(prod(_shape(file, key)) for half in found for key in (half.a, half.b)))
        pairs: dict[str, Pair] = {}
        for halves in found:
            checkpoint()
            pairs[halves.name] = _read_pair(file, halves, base, family, config)
        return Contents(pairs, _notes(file, config, pairs), file.sha256(checkpoint))


def _find_halves(file: TensorFile, family: Family) -> list[_Halves]:
    """Find all pairs of the file; raises AdapterError for any other tensor."""
    modules: dict[str, str] = {}
    found: dict[str, dict[str, str]] = {}
    for key in sorted(file.tensors):
        if _is_copy(key):
            continue
        match = _HALF.fullmatch(key)
        if match is None:
            raise AdapterError(
                f"The adapter holds the tensor {_short(key)}, which is not part of a LoRA pair.",
                "Choose an adapter that was trained as plain LoRA, without other modules.",
            )
        module, half = match.groups()
        name = _gguf_name(module, family)
        modules[name] = module
        other = found.setdefault(name, {}).setdefault(half, key)
        if other != key:
            raise DamagedAdapter(
                f"{_short(other)} and {_short(key)} are the same half of a pair.", DAMAGED
            )
    if not found:
        raise DamagedAdapter(f"'{TENSORS}' holds no LoRA pairs.", DAMAGED)
    for halves in found.values():
        for half, key in halves.items():
            if len(halves) == 1:
                other = "B" if half == "A" else "A"
                raise DamagedAdapter(
                    f"The adapter holds {_short(key)} without its half {other}.", DAMAGED
                )
    return [_Halves(name, modules[name], both["A"], both["B"]) for name, both in found.items()]


def _short(name: str) -> str:
    """A tensor or module name for an error message."""
    return shown(name.removeprefix("base_model.model."))


def _is_copy(key: str) -> bool:
    """Whether a tensor is a copy of a base weight, which PEFT saves with an adapted embedding."""
    return key.endswith(".base_layer.weight")


def _gguf_name(module: str, family: Family) -> str:
    """The GGUF tensor name of a module; raises AdapterError for an unknown module."""
    inner = _OUTSIDE.sub("", module, count=1)
    if inner in _TOP:
        return _TOP[inner]
    layer = _LAYER.fullmatch(inner)
    if layer and layer[2] in family.layer:
        return f"blk.{int(layer[1])}.{family.layer[layer[2]]}.weight"
    raise AdapterOfOtherModel(
        f"The adapter changes the module {_short(module)}, which this model does not have.",
        "Choose an adapter that was made for this model.",
    )


def _check(file: TensorFile, halves: _Halves, base: BaseModel, config: PeftConfig) -> None:
    """Raise AdapterError unless both halves are floats whose shapes match the model."""
    for key in (halves.a, halves.b):
        stored = file.tensors[key].dtype
        if stored not in _TYPES:
            raise AdapterError(
                f"The tensor {_short(key)} has the type {stored}, which is not supported.",
                f"Choose an adapter stored as {', '.join(_TYPES[1:])}.",
            )
    a, b = _shape(file, halves.a), _shape(file, halves.b)
    if halves.name == EMBEDDING:  # stored as [R, V] and [D, R]
        a, b = b[::-1], a[::-1]
    check_halves(halves.name, a, b, base, config.base_model)


def _shape(file: TensorFile, key: str) -> list[int]:
    return list(file.tensors[key].shape)


def _read_pair(
    file: TensorFile, halves: _Halves, base: BaseModel, family: Family, config: PeftConfig
) -> Pair:
    a, b = file.tensor(halves.a).float(), file.tensor(halves.b).float()
    if halves.name == EMBEDDING:
        a, b = b.T.contiguous(), a.T.contiguous()
    inside = ".".join(halves.module.split(".")[-2:])
    if inside in family.permuted:
        b = _interleaved(b, base.heads if inside.endswith("q_proj") else base.kv_heads)
    module = halves.module.removeprefix("base_model.model.")
    return finite_pair(halves.name, a, b, config.scale(module, a.shape[0]))


def _interleaved(b: Tensor, heads: int) -> Tensor:
    """Permute the rows of b [heads*C, R] from half-split to interleaved RoPE order per head."""
    rows, rank = b.shape
    return b.view(heads, 2, rows // heads // 2, rank).swapaxes(1, 2).reshape(rows, rank)


def _notes(file: TensorFile, config: PeftConfig, pairs: Mapping[str, Pair]) -> tuple[str, ...]:
    copies = [key for key in sorted(file.tensors) if _is_copy(key)]
    notes = [f"The tensor {_short(key)} is a copy of a base weight and ignored." for key in copies]
    ranks = {pair.rank for pair in pairs.values()}
    if config.ranks and not ranks <= config.ranks:
        stated, found = (", ".join(map(str, sorted(these))) for these in (config.ranks, ranks))
        notes.append(f"The file states the rank {stated}; the tensors have the rank {found}.")
    return tuple(notes)
