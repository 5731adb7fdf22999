"""Reader of GGUF LoRA adapters as written by llama.cpp's converter, and of OxiLLaMa's variants.

Each adapted tensor has two: `NAME.lora_a` [R, in] and `NAME.lora_b` [out, R], or [E, R, in] and
[E, out, R] for the matrices of all experts. Those of the
embedding are transposed, [V, R] and [D, R], because its rows are looked up. The rank is taken from
the tensors: most files do not state it, and a stated rank may be wrong.

Source: https://github.com/ggml-org/llama.cpp/blob/b6000/src/llama-adapter.cpp
"""

from __future__ import annotations

from collections.abc import Callable
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
from engine.errors import (
    AdapterError,
    AdapterOfOtherModel,
    DamagedAdapter,
    Fault,
    FaultKind,
    ModelFileError,
)
from engine.gguf.reader import GGUFFile, TensorInfo
from engine.gguf.values import shown
from kernels.weights.weight import Weight

_HALVES = (".lora_a", ".lora_b")
_NORM = "_norm.weight"
_RANK_KEYS = ("adapter.lora.r", "lora.r", "adapter.lora.rank")
_ALPHA_KEYS = ("adapter.lora.alpha", "lora.alpha")
_ACTIVATED_KEY = "adapter.alora.invocation_tokens"
_LARGEST_ALPHA = 1e6
_CHUNK_WEIGHTS = 1 << 20  # decoded between cancellation checks
_ANOTHER = "Choose a GGUF adapter or a PEFT folder, or get another copy of this one."

Halves = dict[str, tuple[TensorInfo, TensorInfo]]


def read(path: Path, base: BaseModel, checkpoint: Callable[[], None]) -> Contents:
    """Read all pairs of a file as float32; raises AdapterError or OutOfMemory."""
    try:
        with GGUFFile.open(path) as file:
            _refuse_other_kinds(file)
            _refuse_other_bases(file, base)
            halves = _halves(file)
            for name, (a, b) in halves.items():
                check_halves(name, *_oriented(name, _matrix(a), _matrix(b)), base)
            ranks = {_matrix(b)[-1] for _, b in halves.values()}
            check_memory(sum(prod(a.shape) + prod(b.shape) for a, b in halves.values()))
            pairs = {
                name: _read_pair(file, name, *both, checkpoint) for name, both in halves.items()
            }
            return Contents(pairs, _notes(file, ranks), file.sha256(checkpoint))
    except ModelFileError as error:
        raise AdapterError(str(error), _ANOTHER, _fault(error.fault)) from error


def _fault(fault: Fault) -> Fault:
    """The fault of a file that should be an adapter: what is no GGUF file is no adapter."""
    return Fault(FaultKind.NO_ADAPTER) if fault.kind is FaultKind.NOT_A_MODEL else fault


def _refuse_other_kinds(file: GGUFFile) -> None:
    """Raise AdapterError unless the file is a plain LoRA adapter, by its keys or tensor names."""
    has_halves = any(name.endswith(_HALVES) for name in file.tensors)
    kind = file.string("general.type", "adapter" if has_halves else "model")
    if kind != "adapter":
        what = "a complete model" if kind == "model" else f"of the type {shown(kind)}"
        raise AdapterError(
            f"{shown(file.path.name)} is {what}, not an adapter.",
            "Open a model with Open model; choose a GGUF adapter or a PEFT folder here.",
            Fault(FaultKind.NO_ADAPTER),
        )
    if len(file.paths) > 1:
        raise AdapterError(
            f"{shown(file.path.name)} is one of {len(file.paths)} parts of an adapter.",
            "Join the parts into one file, or choose another copy.",
        )
    method = file.string("adapter.type", "lora")
    if method != "lora":
        raise AdapterError(
            f"The adapter is of the type {shown(method)}; this version supports only 'lora'.",
            "Choose a LoRA adapter.",
        )
    if _ACTIVATED_KEY in file.metadata.stored:
        raise AdapterError(
            f"The file is an activated LoRA (the key '{_ACTIVATED_KEY}'), which this version does "
            "not support.",
            "Choose a plain LoRA adapter.",
        )


def _refuse_other_bases(file: GGUFFile, base: BaseModel) -> None:
    """Raise for another architecture; a file that states none is checked by its shapes."""
    wanted = file.string("general.architecture", base.architecture)
    if wanted != base.architecture:
        raise AdapterOfOtherModel(
            f"The adapter is for {shown(wanted)} models; the one that is loaded is {base.architecture!r}.",
            OTHER_ADAPTER,
        )


def _halves(file: GGUFFile) -> Halves:
    """Both tensors of each pair by base tensor name; raises AdapterError for an unpaired one."""
    halves: Halves = {}
    for name, info in file.tensors.items():
        stem, half = name[:-7], name[-7:]
        if half not in _HALVES:
            if name.endswith(_NORM):
                continue  # llama.cpp ignores them too; `_notes` reports it
            raise DamagedAdapter(
                f"The file holds the tensor {shown(name)}, which is not part of a LoRA pair.",
                DAMAGED,
            )
        other = stem + _HALVES[half == _HALVES[0]]
        if other not in file.tensors:
            raise DamagedAdapter(
                f"The file holds {shown(name)} without its other half {shown(other)}.", DAMAGED
            )
        if half == _HALVES[0]:
            halves[stem] = (info, file.tensors[other])
    if not halves:
        raise AdapterError(
            f"{shown(file.path.name)} holds no LoRA pairs.", _ANOTHER, Fault(FaultKind.NO_ADAPTER)
        )
    return halves


def _matrix(info: TensorInfo) -> tuple[int, ...]:
    """A tensor's shape, of two dimensions or more; some writers drop the dimension of rank 1."""
    return info.shape if len(info.shape) > 1 else (1, *info.shape)


def _oriented(
    name: str, a: tuple[int, ...], b: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of a and b of a `Pair`; the embedding's factors are swapped and transposed."""
    return (b[::-1], a) if name == EMBEDDING else (a, b)


def _read_pair(
    file: GGUFFile,
    name: str,
    a_info: TensorInfo,
    b_info: TensorInfo,
    checkpoint: Callable[[], None],
) -> Pair:
    a, b = _read(file, a_info, checkpoint), _read(file, b_info, checkpoint)
    if name == EMBEDDING:
        a, b = b.T.contiguous(), a
    return finite_pair(name, a, b, _scale(file, a.shape[-2]))


def _read(file: GGUFFile, info: TensorInfo, checkpoint: Callable[[], None]) -> Tensor:
    """Decode a tensor of any format to f32 in its shape."""
    shape = _matrix(info)
    rows, columns = prod(shape[:-1]), shape[-1]
    weight = Weight.from_bytes(file.data(info.name), info.format, (rows, columns))
    values = torch.empty(rows, columns)
    step = max(_CHUNK_WEIGHTS // columns, 1)
    for start in range(0, rows, step):
        checkpoint()
        end = min(start + step, rows)
        weight.decode(start, end, values[start:end])
    return values.view(shape)


def _scale(file: GGUFFile, rank: int) -> float:
    """alpha / rank; 1 if alpha is missing or 0."""
    for key in _ALPHA_KEYS:
        alpha = file.number(key, 0.0, minimum=-_LARGEST_ALPHA, maximum=_LARGEST_ALPHA)
        if alpha:
            return alpha / rank
    return 1.0


def _notes(file: GGUFFile, ranks: set[int]) -> tuple[str, ...]:
    notes: list[str] = []
    norms = [name for name in file.tensors if name.endswith(_NORM)]
    if norms:
        notes.append(f"{len(norms)} norm tensors, such as {shown(norms[0])}, are ignored.")
    for key in _RANK_KEYS:
        stated = file.metadata.stored.get(key)
        if isinstance(stated, int) and ranks != {stated}:
            found = ", ".join(str(rank) for rank in sorted(ranks))
            notes.append(f"The key '{key}' is {stated}; the tensors have the rank {found}.")
    return tuple(notes)
