"""Which of three layouts the 2-bit tensors of a file have: the number 42 is used for all of them.

ggml's Q2_0 packs 64 weights to a block. PrismML's files of before its number 142 pack 128, with the
scale in front; OxiBonsai's pack 128 too, with the scale behind and another meaning of one code.
Read as another, each is noise. What tells them apart, in this order: a key that OxiBonsai writes;
where the tensors lie, which shows the size of a block; the scales in the blocks, which are never
negative where they are read in the right place. Where that is not enough, nothing is guessed.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.tensor_info import Marks, TensorInfo, extent, padded
from engine.gguf.values import shown
from kernels.formats import Format, by_name

NUMBER = 42
OVERRIDE = "TOKONOMA_Q2_LAYOUT"
_SAMPLE = 4_096  # blocks whose scales are looked at


@dataclass(frozen=True, slots=True)
class Layout:
    """One meaning of the number 42."""

    name: str  # as the override has it
    format: Format
    words: str


G64 = Layout("g64", by_name("Q2_0"), "groups of 64, scale first")
G128 = Layout("g128", by_name("PQ2_0"), "groups of 128, scale first")
G128_LAST = Layout("g128-last", by_name("TQ2_0_G128"), "groups of 128, scale last")
LAYOUTS = {layout.name: layout for layout in (G64, G128, G128_LAST)}


@dataclass(frozen=True, slots=True)
class LayoutEvidence:
    """What the 2-bit tensors of a file are, and how that is known."""

    layout: Layout
    by: str  # in words, after "told by"


def resolve_layout(
    infos: Sequence[TensorInfo], marks: Marks, data: mmap.mmap, start: int, alignment: int
) -> tuple[list[TensorInfo], LayoutEvidence | None]:
    """The tensors with the layout their 2-bit ones have; their data begins at byte `start`.

    Raises UnsupportedModel or ModelFileError where the layout cannot be told, and where the
    environment's choice contradicts the file.
    """
    two_bit = [info for info in infos if info.format.id == NUMBER]
    if not two_bit:
        return list(infos), None
    with memoryview(data) as view:
        block, whole = _block(infos, len(view) - start, alignment)
        order = _order(two_bit, view, start) if block == G128.format.block else None
    told = _evidence(marks, block, order)
    chosen = _asked_for(block, order, told) or told
    if chosen is None and not whole:
        chosen = LayoutEvidence(G128, "nothing")  # that it is cut short will be said of it
    if chosen is None:
        raise _cannot_tell(two_bit[0])
    return [_as(info, chosen.layout) for info in infos], chosen


def _evidence(marks: Marks, block: int, order: Layout | None) -> LayoutEvidence | None:
    if marks.ternary:
        return LayoutEvidence(G128_LAST, "a key that OxiBonsai writes")
    if block == G64.format.block:
        return LayoutEvidence(G64, "where its tensors lie")
    return (
        LayoutEvidence(order, "where its tensors lie and what their scales are") if order else None
    )


def _asked_for(
    block: int, order: Layout | None, told: LayoutEvidence | None
) -> LayoutEvidence | None:
    """What the environment asks for, if the file can be that."""
    name = os.environ.get(OVERRIDE, "")
    if not name:
        return None
    if name not in LAYOUTS:
        raise UnsupportedModel(
            f"{OVERRIDE} is {shown(name)}, which is no 2-bit layout.",
            f"Set it to one of these, or unset it: {', '.join(LAYOUTS)}.",
        )
    wanted = LAYOUTS[name]
    if wanted.format.block != block or order not in (None, wanted):
        is_one = order or (told.layout if told else None)
        raise ModelFileError(
            f"{OVERRIDE} asks for {wanted.words}, but the 2-bit tensors of this file are in "
            f"{is_one.words if is_one else f'groups of {block}'}: it would answer with noise.",
            f"Unset {OVERRIDE}, or set it to the layout the file has.",
        )
    return LayoutEvidence(wanted, OVERRIDE)


def _cannot_tell(info: TensorInfo) -> UnsupportedModel:
    return UnsupportedModel(
        f"The tensor {shown(info.name)} is stored in 2 bits with {G128.format.block} weights to a "
        "group, and its blocks do not show which of two layouts they have.",
        f"If you know who made the file, set {OVERRIDE} to {G128.name} (PrismML) or "
        f"{G128_LAST.name} (OxiBonsai); or choose the file whose name ends in Q2_0_g64.",
    )


# --- the size of a block ------------------------------------------------------------------------


def _block(infos: Sequence[TensorInfo], available: int, alignment: int) -> tuple[int, bool]:
    """Weights of a block by where the tensors lie, and whether all of their bytes are there.

    ggml's size where nothing speaks against it.
    """
    ordered = sorted(infos, key=lambda info: info.offset)
    of_64, of_128 = G64.format.block, G128.format.block
    if any(info.shape[-1] % of_128 for info in ordered if info.format.id == NUMBER):
        return of_64, True
    needed = extent(ordered, [info.size_bytes for info in ordered], alignment)
    if needed is not None and needed <= available:
        return of_64, True
    wanted = extent(ordered, [_as(info, G128).size_bytes for info in ordered], alignment)
    if wanted is None:
        return of_64, True
    # Where the last tensor alone is 2-bit, both explain the offsets: then the end decides.
    if needed is not None and available not in (wanted, padded(wanted, alignment)):
        return of_64, True
    return of_128, wanted <= available


def _as(info: TensorInfo, layout: Layout) -> TensorInfo:
    """The tensor in that layout; any other than a 2-bit one as it is."""
    if info.format.id != NUMBER:
        return info
    size = math.prod(info.shape) // layout.format.block * layout.format.size
    return replace(info, format=layout.format, size_bytes=size)


# --- where the scale stands ---------------------------------------------------------------------


def _order(two_bit: Sequence[TensorInfo], view: memoryview, start: int) -> Layout | None:
    """The one layout of 128 weights that the blocks themselves allow; None: both, or neither."""
    blocks = _sample(two_bit, view, start)
    fits = {
        G128: _plausible(blocks[:, :2], blocks[:, 2:]),
        G128_LAST: _plausible(blocks[:, 32:], blocks[:, :32]),
    }
    best = max(fits.values())
    found = [layout for layout, how_well in fits.items() if how_well == best]
    return found[0] if len(found) == 1 and best else None


def _plausible(scales: torch.Tensor, codes: torch.Tensor) -> int:
    """0: there are negative or endless scales; 1: the scales are right; 2: the codes ternary too."""
    halves = scales.contiguous().view(torch.float16).to(torch.float32)
    if not bool((halves.isfinite() & (halves.signbit().logical_not())).all()):
        return 0
    return 1 if bool((codes & codes >> 1 & 0x55).any()) else 2


def _sample(two_bit: Sequence[TensorInfo], view: memoryview, start: int) -> torch.Tensor:
    """Blocks spread over the 2-bit tensors that are there, u8 [n, 34]; n may be 0."""
    size, each = G128.format.size, max(_SAMPLE // len(two_bit), 1)
    taken = bytearray()
    for info in two_bit:
        first = start + info.offset
        count = min(_as(info, G128).size_bytes, max(len(view) - first, 0)) // size
        for block in range(0, count, max(count // each, 1)):
            taken += view[first + block * size : first + (block + 1) * size]
    if not taken:
        return torch.zeros(0, size, dtype=torch.uint8)
    return torch.frombuffer(taken, dtype=torch.uint8).view(-1, size)
