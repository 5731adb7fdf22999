"""LoRA pairs: the low-rank factors A and B of one matrix, and checks against the base model.

The delta of a matrix W [out, in] is scale * b a, with a [R, in] and b [out, R]. File formats differ
in how they name, transpose and scale the factors; every reader returns this form. A tensor with a
matrix for each expert or head, [E, out, in], has a pair for each: a [E, R, in] and b [E, out, R].
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import AdapterError, AdapterOfOtherModel, DamagedAdapter, OutOfMemory
from engine.gguf.values import shown
from engine.machine.device import available_memory

EMBEDDING = "token_embd.weight"
HEAD = "output.weight"
OTHER_ADAPTER = "Choose an adapter that was made for this model."
DAMAGED = "The adapter is damaged or made by a faulty converter; get another copy."


@dataclass(frozen=True, slots=True)
class Part:
    """A range of rows of a fused tensor, or the same range of each of its groups of rows."""

    start: int
    end: int
    rows: int  # of the whole tensor
    groups: int = 1  # each of rows / groups rows


@dataclass(frozen=True, slots=True)
class BaseModel:
    """The loaded model as seen by adapters: architecture, head counts and matrix shapes."""

    architecture: str
    heads: int  # H
    kv_heads: int  # K
    # GGUF tensor name to (out, in) or (E, out, in), including a tied head.
    shapes: Mapping[str, tuple[int, ...]]
    # Of delta nets: key heads, their width, value heads and theirs; None: it has no such layers.
    delta_heads: tuple[int, int, int, int] | None = None
    tensors: Collection[str] = ()  # names of all tensors, also of those that no adapter changes


@dataclass(frozen=True, slots=True)
class Pair:
    """LoRA factors of one matrix, or of one of each expert; the delta at strength 1: scale * b a."""

    a: Tensor  # [R, in] or [E, R, in] f32
    b: Tensor  # [out, R] or [E, out, R] f32
    scale: float  # alpha / R, or alpha / sqrt(R) for rsLoRA

    @property
    def rank(self) -> int:
        """R, from the tensors: metadata keys for the rank are often wrong."""
        return self.a.shape[-2]

    @property
    def size_bytes(self) -> int:
        """Bytes of both factors."""
        return 4 * (self.a.numel() + self.b.numel())


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of an adapter file."""

    pairs: Mapping[str, Pair]  # by GGUF tensor name
    notes: tuple[str, ...]  # sentences on ignored parts of the file
    sha256: str  # of the file that holds the tensors, as it was read


def check_halves(
    name: str, a: Sequence[int], b: Sequence[int], base: BaseModel, made_for: str = ""
) -> None:
    """Raise AdapterError unless the shapes of a and b match the model's tensor `name`.

    `made_for` is the base model stated by the adapter, for the remedy.
    """
    remedy = f"The adapter names {made_for!r} as its base. {OTHER_ADAPTER}" if made_for else ""
    wanted = base.shapes.get(name)
    if wanted is None and name in base.tensors:
        raise AdapterError(
            f"The adapter changes the tensor {shown(name)}, which is not one that adapters can change "
            "in this version.",
            "Merge the adapter into its model, or choose an adapter of other modules.",
        )
    if wanted is None:
        raise AdapterOfOtherModel(
            f"The adapter changes the tensor {shown(name)}, which this model does not have.",
            remedy or OTHER_ADAPTER,
        )
    if len(a) != len(wanted) or len(b) != len(wanted):
        dimensions = "two dimensions" if len(wanted) == 2 else "three dimensions"
        raise DamagedAdapter(
            f"The halves for {shown(name)} have the shapes {list(a)} and {list(b)}; {dimensions} "
            "each are wanted.",
            DAMAGED,
        )
    if not a[-2] or not b[-1]:
        raise DamagedAdapter(f"The adapter's change of {shown(name)} has rank 0.", DAMAGED)
    if a[-2] != b[-1]:
        raise DamagedAdapter(
            f"The halves for {shown(name)} have the ranks {a[-2]:,} and {b[-1]:,}; they must be equal.",
            DAMAGED,
        )
    if (*b[:-1], a[-1]) != wanted or a[:-2] != b[:-2]:
        raise AdapterOfOtherModel(
            f"The adapter's change of {shown(name)} has the shape {[*b[:-1], a[-1]]}, but the model's "
            f"tensor has {list(wanted)}.",
            remedy or OTHER_ADAPTER,
        )


def check_memory(values: int) -> None:
    """Raise OutOfMemory if `values` float32 numbers do not fit in the available memory."""
    needed, free = 4 * values, available_memory()
    if needed > free:
        raise OutOfMemory(
            f"The adapter needs {needed / 1e9:.1f} GB of memory; {free / 1e9:.1f} GB are free.",
            "Choose an adapter of a smaller rank, or close other programs.",
        )


def finite_pair(name: str, a: Tensor, b: Tensor, scale: float) -> Pair:
    """A `Pair`; raises AdapterError if a value is infinite or NaN."""
    for half in (a, b):
        # A finite sum proves finite values; otherwise the sum may have overflowed: check each.
        if not torch.isfinite(half.sum()) and not bool(torch.isfinite(half).all()):
            raise DamagedAdapter(
                f"The adapter's change of {shown(name)} holds values that are no finite numbers.",
                DAMAGED,
            )
    return Pair(a, b, scale)
