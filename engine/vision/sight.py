"""Sight: the images of one model's texts, as the batches of its passes need them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from collections.abc import Sequence as Tokens
from typing import Protocol

import torch
from torch import Tensor

from engine.errors import RequestError
from engine.models.seeing import AXES, Seeing
from engine.state.sequence import Sequence
from engine.vision.registry import Image, ImageRegistry
from kernels.ops import ImageRows, Segment


class ImageEncoder(Protocol):
    """What makes rows of pixels, see `engine.vision.encoder.Encoder`."""

    def encode(self, pixels: Tensor, checkpoint: Callable[[], None]) -> Tensor:
        """A picture [height, width, 3] f32, normalised → rows [n, W] f32."""
        ...

    def unload(self) -> None:
        """Free its weights, which are read again when the next picture comes."""
        ...


class Sight:
    """What makes segments of texts with images; used by the engine's thread only."""

    def __init__(
        self,
        seeing: Seeing,
        registry: ImageRegistry,
        encoder: ImageEncoder | None = None,
        pad: int = 0,
    ) -> None:
        """`pad`: the token whose embedding for single layers an image's rows have."""
        self.seeing, self.registry, self.encoder, self._pad = seeing, registry, encoder, pad

    def segment(self, sequence: Sequence, tokens: Tokens[int]) -> Segment:
        """These tokens after the committed ones, as part of a batch.

        Raises KeyError with the image if the rows of one are not in memory.
        """
        plain = sequence.segment(tokens)
        V, start = self.registry.vocabulary, len(sequence.tokens)
        before, has_images = self._before(sequence), max(tokens) >= V
        if not has_images and not before:
            return plain
        images = self.registry.in_text(tokens) if has_images else []
        rows: list[Tensor] = []
        at: list[int] = []
        spans: list[range] = []
        for first, image in images:
            if image.rows is None:
                raise KeyError(image)
            self.registry.use(image)
            part = range(max(first, 0), min(first + image.count, len(tokens)))
            rows.append(image.rows[part.start - first : part.stop - first])
            at += part
            spans.append(part)
        return Segment(
            [self._pad if one >= V else one for one in tokens],
            start,
            plain.tables,
            ImageRows(
                torch.cat(rows) if rows else None,
                torch.tensor(at, dtype=torch.int64),
                self._positions(start, len(tokens), before, images),
                spans if self.seeing.spans else (),
            ),
        )

    def cut(self, tokens: Tokens[int], length: int) -> int:
        """The length of a part of some tokens that divides no span: as long, shorter, or one span."""
        divided = self._divided(tokens, length)
        return length if divided is None else divided.start or divided.stop

    def fits(self, tokens: Tokens[int], length: int) -> int:
        """The longest prefix of tokens of at most this length that ends in no span."""
        divided = self._divided(tokens, length)
        return length if divided is None else divided.start

    def _divided(self, tokens: Tokens[int], length: int) -> range | None:
        """The places of the span that a cut behind so many tokens would divide."""
        if not self.seeing.spans or length >= len(tokens):
            return None
        spans = (
            range(first, first + image.count)
            for first, image in self.registry.in_text(tokens[: length + 1])
        )
        return next((span for span in spans if span.start < length < span.stop), None)

    def missing(self, tokens: Tokens[int]) -> list[Image]:
        """The images in some tokens whose rows are not in memory."""
        found = (image for _, image in self.registry.in_text(tokens) if image.rows is None)
        return list(dict.fromkeys(found))

    def encode(
        self, image: Image, checkpoint: Callable[[], None], needed: Collection[Image] = ()
    ) -> None:
        """Fill in the rows of an image; raises RequestError, and what `checkpoint` raises.

        Rows of other images may be freed for them, but not those of `needed` ones.
        """
        if self.encoder is None or image.pixels is None:
            raise RequestError(
                "A picture of this chat is not there any more.", "Add the picture again."
            )
        rows = self.encoder.encode(image.pixels(), checkpoint)
        assert len(rows) == image.count, f"{len(rows)} rows of an image of {image.count}"
        self.registry.keep(image, rows, needed)

    def free(self, needed: Collection[Image] = ()) -> None:
        """Free the encoder's weights and all rows that are not needed, after memory ran out.

        The weights stay until then, as the memory plan has room for them.
        """
        self.registry.free(needed)
        if self.encoder is not None:
            self.encoder.unload()

    def _before(self, sequence: Sequence) -> int:
        """How far the images of a sequence move the RoPE positions after them: 0 or less."""
        if self.seeing.axes is None:
            return 0
        known, moved = sequence.moved or (0, 0)
        if known != len(sequence.tokens):  # before each token: only what is new is looked at
            new = sequence.tokens[known:]
            found = self.registry.in_text(new)
            whole = (one for first, one in found if first + one.count <= len(new))
            moved += sum(one.extent - one.count for one in whole)
        sequence.moved = len(sequence.tokens), moved
        return moved

    def _positions(
        self, start: int, count: int, before: int, images: list[tuple[int, Image]]
    ) -> Tensor | None:
        """RoPE positions [T, 3] of tokens, of images those of text, line and column."""
        if self.seeing.axes is None:
            return None
        # Of a token by its place, less what the images before it take fewer positions than rows.
        moved = torch.full((count,), before, dtype=torch.int64)
        positions = torch.empty(count, AXES, dtype=torch.int64)
        for first, image in images:
            end = first + image.count
            if end < count:
                moved[end:] += image.extent - image.count
        positions[:] = (torch.arange(start, start + count) + moved)[:, None]
        for first, image in images:
            part = torch.arange(max(first, 0), min(first + image.count, count))
            corner = start + first + int(moved[part[0]])
            place = part - first
            positions[part] = torch.stack(
                (
                    torch.full_like(place, corner),
                    corner + place // image.columns,
                    corner + place % image.columns,
                ),
                1,
            )
        return positions
