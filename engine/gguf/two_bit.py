"""Detection of the layout of 2-bit tensors: three block layouts share the GGUF type number 42.

ggml's Q2_0 has blocks of 64 weights. Older PrismML files, from before its type number 142, have
blocks of 128 with the scale first; OxiBonsai's have 128 with the scale last and another meaning of
one code. Decoded with the wrong layout, weights are noise. Evidence, in this order: a key written
by OxiBonsai; the tensor offsets, which show the block size; the scales, which are never negative
when read from the right position. A file without enough evidence is refused.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from engine.errors import OTHER_FAULT, ModelFileError, UnsupportedModel
from engine.gguf.tensor_info import Marks, TensorInfo, extent, padded
from engine.gguf.values import shown
from kernels.weights.formats import Format, by_name

NUMBER = 42
OVERRIDE = "TOKONOMA_Q2_LAYOUT"
_SAMPLE_BLOCKS = 4_096  # whose scales are examined


@dataclass(frozen=True, slots=True)
class Layout:
    """One block layout of the type number 42."""

    name: str  # the value of the override
    format: Format
    words: str


G64 = Layout("g64", by_name("Q2_0"), "groups of 64, scale first")
G128 = Layout("g128", by_name("PQ2_0"), "groups of 128, scale first")
G128_LAST = Layout("g128-last", by_name("TQ2_0_G128"), "groups of 128, scale last")
LAYOUTS = {layout.name: layout for layout in (G64, G128, G128_LAST)}


@dataclass(frozen=True, slots=True)
class LayoutEvidence:
    """The layout of the 2-bit tensors of a file, and the evidence for it."""

    layout: Layout
    by: str  # the evidence in words, after "detected by"


def resolve_layout(
    infos: Sequence[TensorInfo], marks: Marks, data: mmap.mmap, start: int, alignment: int
) -> tuple[list[TensorInfo], LayoutEvidence | None]:
    """The tensors with the detected layout of the 2-bit ones; their data begins at byte `start`.

    Raises UnsupportedModel if the layout cannot be detected, ModelFileError if the environment
    variable TOKONOMA_Q2_LAYOUT contradicts the file.
    """
    two_bit = [info for info in infos if info.format.id == NUMBER]
    if not two_bit:
        return list(infos), None
    with memoryview(data) as view:
        block, is_complete = _block_size(infos, len(view) - start, alignment)
        order = _order(two_bit, view, start) if block == G128.format.block else None
    detected = _evidence(marks, block, order)
    chosen = _override(block, order, detected) or detected
    if chosen is None and not is_complete:
        chosen = LayoutEvidence(G128, "nothing")  # a truncated file is refused later
    if chosen is None:
        raise _undetectable(two_bit[0])
    return [_as(info, chosen.layout) for info in infos], chosen


def _evidence(marks: Marks, block: int, order: Layout | None) -> LayoutEvidence | None:
    if marks.ternary:
        return LayoutEvidence(G128_LAST, "a key that OxiBonsai writes")
    if block == G64.format.block:
        return LayoutEvidence(G64, "the offsets of its tensors")
    return LayoutEvidence(order, "the offsets and scales of its tensors") if order else None


def _override(
    block: int, order: Layout | None, detected: LayoutEvidence | None
) -> LayoutEvidence | None:
    """The layout set in the environment; raises ModelFileError if the file contradicts it."""
    name = os.environ.get(OVERRIDE, "")
    if not name:
        return None
    if name not in LAYOUTS:
        raise UnsupportedModel(
            f"{OVERRIDE} is {shown(name)}, which is no 2-bit layout.",
            f"Set it to one of these, or unset it: {', '.join(LAYOUTS)}.",
            OTHER_FAULT,
        )
    wanted = LAYOUTS[name]
    if wanted.format.block != block or order not in (None, wanted):
        actual = order or (detected.layout if detected else None)
        raise ModelFileError(
            f"{OVERRIDE} selects {wanted.words}, but the 2-bit tensors of this file are in "
            f"{actual.words if actual else f'groups of {block}'}: it would answer with noise.",
            f"Unset {OVERRIDE}, or set it to the layout of the file.",
            OTHER_FAULT,
        )
    return LayoutEvidence(wanted, OVERRIDE)


def _undetectable(info: TensorInfo) -> UnsupportedModel:
    return UnsupportedModel(
        f"The tensor {shown(info.name)} is stored in 2 bits with {G128.format.block} weights to a "
        "group, and its blocks do not show which of two layouts they have.",
        f"If you know which program made the file, set {OVERRIDE} to {G128.name} (PrismML) or "
        f"{G128_LAST.name} (OxiBonsai); or choose the file whose name ends in Q2_0_g64.",
    )


# --- the size of a block ------------------------------------------------------------------------


def _block_size(infos: Sequence[TensorInfo], available: int, alignment: int) -> tuple[int, bool]:
    """The block size in weights that fits the tensor offsets, and whether the data is complete.

    ggml's block size unless the offsets contradict it.
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
    # If only the last tensor is 2-bit, both sizes fit the offsets: the end of the file decides.
    if needed is not None and available not in (wanted, padded(wanted, alignment)):
        return of_64, True
    return of_128, wanted <= available


def _as(info: TensorInfo, layout: Layout) -> TensorInfo:
    """A 2-bit tensor with that layout; any other tensor unchanged."""
    if info.format.id != NUMBER:
        return info
    size = math.prod(info.shape) // layout.format.block * layout.format.size
    return replace(info, format=layout.format, size_bytes=size)


# --- the position of the scale ------------------------------------------------------------------


def _order(two_bit: Sequence[TensorInfo], view: memoryview, start: int) -> Layout | None:
    """The layout of 128 weights that the scales fit best; None if both or neither fits."""
    blocks = _sample(two_bit, view, start)
    fits = {
        G128: _plausibility(blocks[:, :2], blocks[:, 2:]),
        G128_LAST: _plausibility(blocks[:, 32:], blocks[:, :32]),
    }
    best = max(fits.values())
    found = [layout for layout, score in fits.items() if score == best]
    return found[0] if len(found) == 1 and best else None


def _plausibility(scales: torch.Tensor, codes: torch.Tensor) -> int:
    """0: some scale is negative or not finite; 1: all scales are valid; 2: codes ternary too."""
    halves = scales.contiguous().view(torch.float16).to(torch.float32)
    if not bool((halves.isfinite() & (halves.signbit().logical_not())).all()):
        return 0
    return 1 if bool((codes & codes >> 1 & 0x55).any()) else 2


def _sample(two_bit: Sequence[TensorInfo], view: memoryview, start: int) -> torch.Tensor:
    """Sample blocks u8 [n, 34] spread over the 2-bit tensors; n is 0 if the data is missing."""
    size, each = G128.format.size, max(_SAMPLE_BLOCKS // len(two_bit), 1)
    taken = bytearray()
    for info in two_bit:
        first = start + info.offset
        count = min(_as(info, G128).size_bytes, max(len(view) - first, 0)) // size
        for block in range(0, count, max(count // each, 1)):
            taken += view[first + block * size : first + (block + 1) * size]
    if not taken:
        return torch.zeros(0, size, dtype=torch.uint8)
    return torch.frombuffer(taken, dtype=torch.uint8).view(-1, size)
