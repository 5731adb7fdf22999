"""Reader of PEFT adapters: a folder with adapter_config.json and adapter_model.safetensors.

Hugging Face modules become tensors of the file as in llama.cpp's converter: see `peft_modules`.
Nothing is unpickled: adapter_model.bin is refused.

Source: https://github.com/huggingface/peft/blob/v0.18.0/src/peft/tuners/lora/layer.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from engine.adapters.delta import (
    DAMAGED,
    EMBEDDING,
    OTHER_ADAPTER,
    BaseModel,
    Contents,
    Pair,
    check_halves,
    check_memory,
    finite_pair,
)
from engine.adapters.peft_config import CONFIG, PeftConfig, read_config
from engine.adapters.peft_modules import Target
from engine.adapters.peft_modules import targets as targets_of
from engine.adapters.tensor_file import TensorFile
from engine.errors import AdapterError, AdapterOfOtherModel, DamagedAdapter, Fault, FaultKind
from engine.gguf.values import shown

TENSORS = "adapter_model.safetensors"

_PICKLED = ("adapter_model.bin", "adapter_model.pt", "adapter_model.pth")
_TYPES = ("F64", "F32", "F16", "BF16")
_HALF = re.compile(r"(.+)\.lora_(?:embedding_)?([AB])(?:\.\w+)??(?:\.weight)?")


@dataclass(frozen=True, slots=True)
class _Halves:
    """The tensor names of the two halves of the pair of one module."""

    module: str  # Hugging Face name in the file
    targets: list[Target]
    a: str
    b: str

    @property
    def is_embedding(self) -> bool:
        """Whether rows are looked up: the factors are stored transposed."""
        return self.targets[0].name == EMBEDDING


@dataclass(frozen=True, slots=True)
class _Piece:
    """The change of a tensor, or of a part of it, by one module."""

    target: Target
    a: Tensor  # [R, in] f32, or [E, R, in]
    b: Tensor  # [out, R] f32, or [E, out, R]
    scale: float


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
    config = read_config(folder / CONFIG)
    with TensorFile(folder / TENSORS) as file:
        found = _find_halves(file, base)
        for halves in found:
            _check(file, halves, base, config)
        check_memory(sum(prod(_shape(file, key)) for half in found for key in (half.a, half.b)))
        pieces: dict[str, list[_Piece]] = {}
        for halves in found:
            checkpoint()
            for piece in _pieces(file, halves, base, config):
                pieces.setdefault(piece.target.name, []).append(piece)
        pairs = {name: _pair(name, some, base) for name, some in pieces.items()}
        return Contents(pairs, _notes(file, config, pairs), file.sha256(checkpoint))


def _find_halves(file: TensorFile, base: BaseModel) -> list[_Halves]:
    """Find all pairs of the file; raises AdapterError for any other tensor."""
    found: dict[tuple[str, int, int], dict[str, str]] = {}
    modules: dict[tuple[str, int, int], tuple[str, list[Target]]] = {}
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
        targets = targets_of(module, base)
        place = targets[0].name, targets[0].expert, targets[0].start
        modules[place] = module, targets
        other = found.setdefault(place, {}).setdefault(half, key)
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
    return [_Halves(*modules[place], both["A"], both["B"]) for place, both in found.items()]


def _short(name: str) -> str:
    """A tensor or module name for an error message."""
    return shown(name.removeprefix("base_model.model."))


def _is_copy(key: str) -> bool:
    """Whether a tensor is a copy of a base weight, which PEFT saves with an adapted embedding."""
    return key.endswith(".base_layer.weight")


def _check(file: TensorFile, halves: _Halves, base: BaseModel, config: PeftConfig) -> None:
    """Raise AdapterError unless both halves are floats, and their shapes match a whole tensor."""
    for key in (halves.a, halves.b):
        stored = file.tensors[key].dtype
        if stored not in _TYPES:
            raise AdapterError(
                f"The tensor {_short(key)} has the type {stored}, which is not supported.",
                f"Choose an adapter stored as {', '.join(_TYPES[1:])}.",
            )
    a, b = _shape(file, halves.a), _shape(file, halves.b)
    if halves.is_embedding:  # stored as [R, V] and [D, R]
        a, b = b[::-1], a[::-1]
    target, *more = halves.targets
    is_part = bool(more) or target.expert >= 0
    if is_part and target.name in base.shapes:  # the model's shape is compared with what it becomes
        base = replace(base, shapes={target.name: (b[0], a[-1]) if a and b else ()})
    check_halves(target.name, a, b, base, config.base_model)


def _shape(file: TensorFile, key: str) -> list[int]:
    return list(file.tensors[key].shape)


def _pieces(
    file: TensorFile, halves: _Halves, base: BaseModel, config: PeftConfig
) -> Iterator[_Piece]:
    """The changes of the tensors that a module is in the file, their shapes checked."""
    a, b = file.tensor(halves.a).float(), file.tensor(halves.b).float()
    if halves.is_embedding:
        a, b = b.T.contiguous(), a.T.contiguous()
    scale = config.scale(halves.module.removeprefix("base_model.model."), a.shape[0])
    for target in halves.targets:
        changed_a, changed_b = target.change(a, b)
        if not _fits(target, changed_a, changed_b, base.shapes[target.name]):
            raise AdapterOfOtherModel(
                f"The adapter's change of the module {_short(halves.module)} has the shape "
                f"{[len(b), a.shape[1]]}, which does not fit the tensor {shown(target.name)} of the "
                "model.",
                OTHER_ADAPTER,
            )
        yield _Piece(target, changed_a, changed_b, scale)


def _fits(target: Target, a: Tensor, b: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether the factors are those of a tensor [out, in] or [E, out, in], or of an expert of it."""
    if target.expert < 0:
        return (*b.shape[:-1], a.shape[-1]) == shape
    fits = len(shape) == 3 and target.expert < shape[0]
    return fits and (len(b), a.shape[1]) == (target.rows or shape[1], shape[2])


def _pair(name: str, pieces: list[_Piece], base: BaseModel) -> Pair:
    """The pair of a tensor; those of single experts are stacked, with their scales in b."""
    first = pieces[0]
    if first.target.expert < 0:
        return finite_pair(name, first.a.contiguous(), first.b.contiguous(), first.scale)
    experts, rows, columns = base.shapes[name]
    ranks = [0] * experts
    for piece in pieces:
        ranks[piece.target.expert] += len(piece.a)
    a, b = torch.zeros(experts, max(ranks), columns), torch.zeros(experts, rows, max(ranks))
    ranks = [0] * experts
    for piece in pieces:
        expert, start = piece.target.expert, piece.target.start
        some = slice(ranks[expert], ranks[expert] + len(piece.a))
        a[expert, some] = piece.a
        b[expert, start : start + len(piece.b), some] = piece.b * piece.scale
        ranks[expert] = some.stop
    return finite_pair(name, a, b, 1.0)


def _notes(file: TensorFile, config: PeftConfig, pairs: Mapping[str, Pair]) -> tuple[str, ...]:
    copies = [key for key in sorted(file.tensors) if _is_copy(key)]
    notes = [f"The tensor {_short(key)} is a copy of a base weight and ignored." for key in copies]
    ranks = {pair.rank for pair in pairs.values()}
    if config.ranks and not ranks <= config.ranks:
        stated, found = (", ".join(map(str, sorted(these))) for these in (config.ranks, ranks))
        notes.append(f"The file states the rank {stated}; the tensors have the rank {found}.")
    return tuple(notes)
