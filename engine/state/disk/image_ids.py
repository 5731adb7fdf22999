"""Ids of saved texts: rows of images have other ids in each process, and negative ones in files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.state.disk.page_file import SavedImage
from engine.vision.registry import Image, ImageRegistry


def to_saved(
    ids: Sequence[int], registry: ImageRegistry, encoder: str
) -> tuple[list[int], tuple[SavedImage, ...]]:
    """The ids of a text as files have them, see `page_file.pages_of`, and its images.

    `encoder` is the key of the picture encoder. Of a shorter text that this one
    begins with, ids and images are the first of these.
    """
    array, first_row = np.asarray(ids, dtype=np.int64), 0
    found, images = array.copy(), list[SavedImage]()
    for image in dict.fromkeys(image for _, image in registry.in_text(ids)):
        rows = array - image.first
        found = np.where((rows >= 0) & (rows < image.count), -1 - first_row - rows, found)
        sizes = image.count, image.lines, image.columns
        images.append(SavedImage(encoder, image.key, *sizes))
        first_row += image.count
    return found.tolist(), tuple(images)


def from_saved(
    ids: Sequence[int],
    images: Sequence[SavedImage],
    registry: ImageRegistry | None,
    vocabulary: int,
    *,
    encoder: str | None = None,
    adds: bool = False,
) -> list[int]:
    """The ids in this process of a text in a file, up to the first one that it has none for.

    That is a row of an image that no prompt has had here, or of another `encoder`, unless that is
    None: it is not compared. With `adds` the images get ids: their pixels are not known, and their
    rows must not be needed.
    """
    array = np.asarray(ids, dtype=np.int64)
    found = np.where(array < vocabulary, array, -1)
    table = [np.empty(0, dtype=np.int64)]  # ids of all rows of the images, -1: none
    for saved in images:
        image = _known(saved, registry, encoder, adds=adds)
        first, step = (-1, 0) if image is None else (image.first, 1)
        table.append(first + step * np.arange(saved.count))
    ids_of_rows, rows = np.concatenate(table), -1 - array
    is_row = (rows >= 0) & (rows < len(ids_of_rows))
    found[is_row] = ids_of_rows[rows[is_row]]
    unknown = np.flatnonzero(found < 0)
    return found[: unknown[0] if len(unknown) else len(found)].tolist()


def _known(
    saved: SavedImage, registry: ImageRegistry | None, encoder: str | None, *, adds: bool
) -> Image | None:
    if registry is None or encoder not in (None, saved.encoder):
        return None
    take = registry.add if adds else registry.known
    return take(saved.key, saved.count, saved.lines, saved.columns)
