"""What a text model does with the rows of images: given rows, RoPE axes, spans, deep stacking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.errors import ModelFileError
from engine.gguf.reader import GGUFFile
from engine.gguf.values import DAMAGED
from engine.models.forward_parts import STREAM
from kernels import ops
from kernels.ops import Instruction, Spans

AXES = 3  # of the positions of an image's rows: of the image in the text, of its line, its column


@dataclass(frozen=True, slots=True)
class Seeing:
    """The parts of a program that reads images besides a text."""

    width: int  # D, columns of the stream
    axes: Tensor | None = None  # [n] i32: axis of each pair of RoPE; None: all by the place in text
    spans: Spans = Spans.CAUSAL
    deep: int = 0  # layers that add further columns of the rows, the first ones

    def after_embedding(self) -> list[Instruction]:
        """The rows of images in place of those of their tokens."""
        return [ops.GivenRows(STREAM)]

    def layer(self, index: int, made: Sequence[Instruction]) -> list[Instruction]:
        """The instructions of a layer that sees."""
        changed = [self._attend(one) if isinstance(one, ops.Attend) else one for one in made]
        if index < self.deep:
            changed.append(ops.GivenRows(STREAM, (index + 1) * self.width, added=True))
        return changed

    def _attend(self, one: ops.Attend) -> ops.Attend:
        rotates = self.axes is not None and one.frequencies.numel()
        axes = self.axes if rotates else None
        # With a window each token sees its later neighbours as well; without one, all is causal.
        spans = self.spans if self.spans is not Spans.WINDOWED or one.window else Spans.CAUSAL
        return replace(one, axes=axes, spans=spans)


def interleaved_axes(file: GGUFFile, pairs: int) -> Tensor:
    """The axis [pairs] i32 of each pair of RoPE, of which every third one is that of a line or column.

    The file says how many pairs each axis has; those left over are of the first one. Raises
    ModelFileError.
    """
    sections = _sections(file)
    number = torch.arange(pairs)
    axes = torch.zeros(pairs, dtype=torch.int32)
    for axis in range(1, AXES):
        axes[(number % AXES == axis) & (number < AXES * sections[axis])] = axis
    return axes


def sectioned_axes(file: GGUFFile, pairs: int) -> Tensor:
    """The axis [pairs] i32 of each pair of RoPE, where those of an axis stand beside each other.

    The file says how many pairs each axis has. Raises ModelFileError.
    """
    sections = _sections(file)[:AXES]
    if sum(sections) != pairs:
        raise ModelFileError(
            f"The key '{_sections_key(file)}' is for {sum(sections)} pairs of channels, and RoPE "
            f"rotates {pairs}.",
            DAMAGED,
        )
    return torch.arange(AXES, dtype=torch.int32).repeat_interleave(torch.tensor(sections))


def _sections_key(file: GGUFFile) -> str:
    return f"{file.string('general.architecture')}.rope.dimension_sections"


def _sections(file: GGUFFile) -> list[int]:
    """How many pairs of channels each axis has; raises ModelFileError."""
    key = _sections_key(file)
    found = file.metadata.get(key)
    sections = [one for one in found if isinstance(one, int)] if isinstance(found, list) else []
    if len(sections) < AXES or min(sections) < 0:
        raise ModelFileError(
            f"The key '{key}' is not {AXES} numbers of channel pairs.",
            "The file is damaged or made by a faulty converter; get another copy.",
        )
    return sections
