"""Vectors of passages in memory, and the search for those nearest to a question's vector.

A vector is kept as bytes, each number in one with a common scale: a quarter of the memory, and as
fast as float32, because the rows are converted in blocks that stay in the processor's cache.
The only module of the app with numpy: it is imported when the first vector comes, on a worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

_BLOCK = 512  # rows
_SCALE = np.dtype("<f4")


def packed(vector: Sequence[float]) -> bytes:
    """A vector of length 1 in the direction of this one: its scale, then a byte for each number.

    One that is not finite, or 0, becomes 0 and is near to nothing.
    """
    row = np.asarray(vector, np.float32)
    most = float(np.abs(row).max(initial=0.0))
    if not np.isfinite(most) or most == 0:
        return bytes(_SCALE.itemsize + len(row))
    codes = np.rint(row * np.float32(127 / most)).astype(np.int8)
    scale = 1 / np.linalg.norm(codes.astype(np.float32))
    return np.asarray(scale, _SCALE).tobytes() + codes.tobytes()


def packed_bytes(numbers: int) -> int:
    """Bytes of a packed vector of this many numbers."""
    return _SCALE.itemsize + numbers


def refined(
    vector: Sequence[float], near: Mapping[int, float], rows: Iterable[tuple[int, bytes]]
) -> dict[int, float]:
    """Cosines of passages, each the mean of its own and of the best of its parts, highest first.

    `rows` are the packed vectors of passages, followed by those of their parts if it has any.
    """
    wanted = np.asarray(vector, np.float32)
    wanted = wanted / (np.linalg.norm(wanted) or 1)
    made = dict(near)
    for number, data in rows:
        if number in made and len(data) > (length := packed_bytes(len(wanted))):
            raw = np.frombuffer(data[length : len(data) // length * length], np.uint8)
            raw = raw.reshape(-1, length)
            scales = np.ascontiguousarray(raw[:, : _SCALE.itemsize]).view(_SCALE)[:, 0]
            codes = raw[:, _SCALE.itemsize :].view(np.int8).astype(np.float32)
            made[number] = (made[number] + float((codes @ wanted * scales).max())) / 2
    return dict(sorted(made.items(), key=lambda each: (-each[1], each[0])))


class VectorTable:
    """The vectors of one model, all of the same length, by the ids of their passages."""

    def __init__(self, numbers: int) -> None:
        self.numbers = numbers  # of a vector
        self._ids = np.empty(0, np.int64)  # ascending
        self._codes = np.empty((0, numbers), np.int8)
        self._scales = np.empty(0, np.float32)
        self._added: dict[int, bytes] = {}

    def __len__(self) -> int:
        self._merge()
        return len(self._ids)

    def add(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Add packed vectors; those of another length are ignored, those of known ids replaced."""
        length = packed_bytes(self.numbers)
        self._added.update((number, row) for number, row in rows if len(row) == length)

    def remove(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Remove the passages of these ranges of ids, first and last."""
        self._merge()
        keep = np.ones(len(self._ids), bool)
        for first, last in self._slices(ranges):
            keep[first:last] = False
        if not keep.all():
            self._keep(keep)

    def nearest(
        self, vector: Sequence[float], limit: int, ranges: Iterable[tuple[int, int]] | None = None
    ) -> list[tuple[int, float]]:
        """Ids and cosines (-1 to 1) of the nearest passages, also of only some ranges of ids."""
        self._merge()
        wanted = np.asarray(vector, np.float32)
        length = float(np.linalg.norm(wanted))
        if len(wanted) != self.numbers or not np.isfinite(length) or length == 0:
            return []
        wanted /= length
        slices = [(0, len(self._ids))] if ranges is None else list(self._slices(ranges))
        found = [self._cosines(wanted, first, last) for first, last in slices if first < last]
        if not found:
            return []
        cosines = np.concatenate(found)
        ids = np.concatenate([self._ids[first:last] for first, last in slices if first < last])
        if limit < len(cosines):
            best = np.argpartition(-cosines, limit)[:limit]
            cosines, ids = cosines[best], ids[best]
        order = np.lexsort((ids, -cosines))
        return [(int(ids[at]), float(cosines[at])) for at in order]

    def _cosines(self, wanted: NDArray[np.float32], first: int, last: int) -> NDArray[np.float32]:
        made = np.empty(last - first, np.float32)
        block = np.empty((min(_BLOCK, last - first), self.numbers), np.float32)
        for at in range(first, last, _BLOCK):
            codes = self._codes[at : min(at + _BLOCK, last)]
            rows = block[: len(codes)]
            np.copyto(rows, codes)
            np.dot(rows, wanted, out=made[at - first : at - first + len(codes)])
        made *= self._scales[first:last]
        return made

    def _slices(self, ranges: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
        """The rows of ranges of ids: first, and the one after the last."""
        pairs = np.asarray(list(ranges), np.int64).reshape(-1, 2)
        firsts = np.searchsorted(self._ids, pairs[:, 0], "left")
        ends = np.searchsorted(self._ids, pairs[:, 1], "right")
        return zip(firsts.tolist(), ends.tolist(), strict=True)

    def _merge(self) -> None:
        """Put what was added into the arrays."""
        if not self._added:
            return
        added, self._added = self._added, {}
        ids = np.fromiter(added, np.int64, len(added))
        raw = np.frombuffer(b"".join(added.values()), np.uint8).reshape(len(added), -1)
        scales = np.ascontiguousarray(raw[:, : _SCALE.itemsize]).view(_SCALE)[:, 0]
        codes = raw[:, _SCALE.itemsize :].view(np.int8)
        if known := np.isin(self._ids, ids).any():
            self._keep(~np.isin(self._ids, ids))
        if known or (len(self._ids) and ids.min() < self._ids[-1]) or (np.diff(ids) < 0).any():
            ids = np.concatenate((self._ids, ids))
            order = np.argsort(ids, kind="stable")
            self._ids = ids[order]
            self._codes = np.concatenate((self._codes, codes))[order]
            self._scales = np.concatenate((self._scales, scales))[order]
        else:
            self._ids = np.concatenate((self._ids, ids))
            self._codes = np.concatenate((self._codes, codes))
            self._scales = np.concatenate((self._scales, scales))

    def _keep(self, keep: NDArray[np.bool_]) -> None:
        self._ids, self._codes = self._ids[keep], self._codes[keep]
        self._scales = self._scales[keep]
