"""Image registry: ids from the vocabulary's size on for the rows of images in token sequences.

A sequence has one id for each row, and equal images have the same ids: prefix tree, scheduler and
pages treat them as tokens. An image is known by a key, such as the hash of its pixels and of how
many rows were made of it. Ids are given out anew by each process; what is saved of texts has the
keys.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

ROWS_BYTES = 64 << 20  # of encoded rows that are kept beyond those that are needed
PIXELS_BYTES = 512 << 20  # of the images that prompts had last: forty of the largest in one prompt


@dataclass(slots=True, eq=False)
class Image:
    """An image of which rows stand in texts; `rows` is None while they are not in memory."""

    key: str
    first: int  # its first id
    count: int  # rows
    lines: int  # rows of them, one below the other
    columns: int  # rows of a line
    rows: Tensor | None = None  # [count, W] f32
    pixels: Callable[[], Tensor] | None = None  # [height, width, 3] f32, normalised

    @property
    def ids(self) -> range:
        """The ids of its rows, in order."""
        return range(self.first, self.first + self.count)

    @property
    def extent(self) -> int:
        """Positions that it takes, where rows of a line have the same one: the longer side."""
        return max(self.lines, self.columns)


class ImageRegistry:
    """The images of one loaded model; prompts on any thread add some while others are read."""

    def __init__(self, vocabulary: int, rows_bytes: int = ROWS_BYTES) -> None:
        """Ids below `vocabulary` are tokens; up to `rows_bytes` of encoded rows are kept."""
        self.vocabulary, self._rows_bytes = vocabulary, rows_bytes
        self._encoded: dict[Image, None] = {}  # those with rows, used last at the end
        self._seen: dict[Image, int] = {}  # those with pixels, in prompts last at the end: bytes
        self._by_key: dict[tuple[str, int, int, int], Image] = {}  # and its sizes
        self._firsts: list[int] = []
        self.images: list[Image] = []  # in the order of their ids
        self._next = vocabulary
        self._adding = threading.Lock()

    def add(
        self,
        key: str,
        count: int,
        lines: int,
        columns: int,
        pixels: Callable[[], Tensor] | None = None,
        pixel_bytes: int = 0,
    ) -> Image:
        """The image of this key and of these sizes; a new one gets ids for so many rows, which `pixels` are for.

        Those that prompts had longest ago lose their pixels when all hold too many bytes.
        """
        with self._adding:
            if (image := self.known(key, count, lines, columns)) is None:
                assert count > 0, "an image has rows"
                image = Image(key, self._next, count, lines, columns)
                self._next += count
                self.images.append(image)
                self._firsts.append(image.first)  # last: `find` looks here, then at the image
                self._by_key[key, count, lines, columns] = image
            if pixels is not None:
                image.pixels = pixels
                self._seen.pop(image, None)
                self._seen[image] = pixel_bytes
                self._forget_pixels(image)
            return image

    def known(self, key: str, count: int, lines: int, columns: int) -> Image | None:
        """The image of this key and of these sizes, if it has been added."""
        return self._by_key.get((key, count, lines, columns))

    def _forget_pixels(self, newest: Image) -> None:
        held = sum(self._seen.values())
        for one in [one for one in self._seen if one is not newest]:
            if held <= PIXELS_BYTES:
                return
            held -= self._seen.pop(one)
            one.pixels = None

    def keep(self, image: Image, rows: Tensor, needed: Collection[Image] = ()) -> None:
        """Take the encoded rows of an image, and free those of others beyond the limit.

        Those used longest ago are freed first, and none of `needed` images.
        """
        image.rows = rows
        self.use(image)
        self._free(self._rows_bytes, {image, *needed})

    def use(self, image: Image) -> None:
        """Note that the rows of an image are read."""
        self._encoded.pop(image, None)
        self._encoded[image] = None

    def free(self, needed: Collection[Image] = ()) -> None:
        """Free all rows but those of needed images; the others are encoded again if need be."""
        self._free(0, set(needed))

    def _free(self, limit: int, needed: Collection[Image]) -> None:
        held = sum(one.rows.nbytes for one in self._encoded if one.rows is not None)
        for one in [one for one in self._encoded if one not in needed]:
            if held <= limit:
                return
            held -= 0 if one.rows is None else one.rows.nbytes
            one.rows = None
            del self._encoded[one]

    def find(self, row: int) -> Image:
        """The image that an id from the vocabulary's size on belongs to."""
        assert self.vocabulary <= row < self._next, f"{row} is no id of an image"
        return self.images[bisect_right(self._firsts, row) - 1]

    def in_text(self, ids: Sequence[int]) -> list[tuple[int, Image]]:
        """Every image of which there are rows, and where in the text its first one is or would be.

        That is below 0 if the text begins inside of an image.
        """
        found: list[tuple[int, Image]] = []
        array = np.asarray(ids, dtype=np.int64)
        places = np.flatnonzero(array >= self.vocabulary)
        at = 0
        while at < len(places):
            place = int(places[at])
            image = self.find(int(array[place]))
            start = place - (int(array[place]) - image.first)
            found.append((start, image))
            at += min(image.first + image.count - int(array[place]), len(places) - at)
        return found
