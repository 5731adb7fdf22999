"""Picture reader: from image files to pictures as a model reads them, decoded in child processes."""

from __future__ import annotations

import hashlib
import math
import stat
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import RequestError
from engine.gguf.values import shown
from engine.messages import Detail, ImagePart
from engine.processes.pool import ChildFault, ChildLimits, ChildPool
from engine.vision.picture import Picture, Tile
from engine.vision.picture_task import Size, ask_child
from engine.vision.plans import Cut, Plan, plan_picture
from engine.vision.projector_file import VisionConfig
from engine.vision.refusals import MOST_BYTES, Refusal, called, refused

Pixels = NDArray[np.uint8]  # [height, width, 3]
Levels = NDArray[np.float32]  # [256, 3]: what a channel's values become

LIMITS = ChildLimits(seconds=60, memory_bytes=1_600_000_000, output_bytes=200_000_000)
_KEPT_BYTES = 128_000_000  # of pixels of the pictures that were read last
_KEPT_SIZES = 1_024
_SHAPE = struct.Struct("<5Q")


@dataclass(frozen=True, slots=True)
class _Kept:
    """A picture that was read, and bytes of its pixels."""

    picture: Picture
    pixel_bytes: int


class PictureReader:
    """Reads pictures for one encoder; any thread may call, and waits."""

    def __init__(self, config: VisionConfig, children: ChildPool | None = None) -> None:
        """`children` are the processes that decode; None: one that `close` ends."""
        self._config = config
        self._own = None if children else ChildPool(LIMITS, most=1)
        self._children = children or self._own
        self._levels = levels(config)
        self._lock = threading.Lock()  # guards the two below
        self._pictures: OrderedDict[tuple[str, Detail | int], _Kept] = OrderedDict()
        self._sizes: OrderedDict[str, Size] = OrderedDict()

    def read(self, part: ImagePart, cancelled: Callable[[], bool] | None = None) -> Picture:
        """The picture of a part; raises RequestError saying why not, and Cancelled.

        Those that were read last are kept, by content and detail.
        """
        name, content, key = _content(part)
        _check_detail(part)
        with self._lock:
            if (kept := self._pictures.get((key, part.detail))) is not None:
                self._pictures.move_to_end((key, part.detail))
                return kept.picture
        size = self._measure(name, content, key, cancelled)
        for _ in range(2):  # the first size may be one that the header states wrongly
            plan = plan_picture(self._config, *size, part.detail)
            answer, pieces = self._call(name, content, _request(size, plan), cancelled)
            if answer == size:
                if list(map(len, pieces)) != _lengths(plan):  # no child is trusted
                    raise refused(ChildFault.CRASHED, name)
                kept = _Kept(self._picture(size, plan, pieces), sum(map(len, pieces)))
                self._keep(key, part.detail, kept)
                return kept.picture
            size = self._remember(key, answer)
        raise refused(Refusal.DAMAGED, name)

    def measure(
        self, part: ImagePart, cancelled: Callable[[], bool] | None = None
    ) -> tuple[int, int]:
        """Width and height of a picture as it is seen, by its header; raises as `read` does."""
        name, content, key = _content(part)
        return self._measure(name, content, key, cancelled)

    def tokens(self, part: ImagePart, cancelled: Callable[[], bool] | None = None) -> int:
        """The rows that a picture becomes, by its header; raises as `read` does."""
        _check_detail(part)
        size = self.measure(part, cancelled)
        return plan_picture(self._config, *size, part.detail).tokens

    def close(self) -> None:
        """End its own child process; pictures that are read then or later raise Cancelled."""
        if self._own is not None:
            self._own.close()

    def _measure(
        self, name: str, content: bytes, key: str, cancelled: Callable[[], bool] | None
    ) -> Size:
        with self._lock:
            if (known := self._sizes.get(key)) is not None:
                return known
        return self._remember(key, self._call(name, content, {}, cancelled)[0])

    def _remember(self, key: str, size: Size) -> Size:
        with self._lock:
            self._sizes[key] = size
            while len(self._sizes) > _KEPT_SIZES:
                self._sizes.popitem(last=False)
        return size

    def _keep(self, key: str, detail: Detail | int, kept: _Kept) -> None:
        with self._lock:
            self._pictures[key, detail] = kept
            total = sum(one.pixel_bytes for one in self._pictures.values())
            while total > _KEPT_BYTES:
                total -= self._pictures.popitem(last=False)[1].pixel_bytes

    def _call(
        self,
        name: str,
        content: bytes,
        request: dict[str, Any],
        cancelled: Callable[[], bool] | None,
    ) -> tuple[Size, list[bytes]]:
        """A picture's size and the pieces of its plan, as `ask_child` gives them."""
        assert self._children is not None
        return ask_child(self._children, content, request, name, cancelled)

    def _picture(self, size: Size, plan: Plan, pieces: list[bytes]) -> Picture:
        left = iter(pieces)
        tiles = tuple(self._tiles(plan.tiles, left))
        overview = None if plan.overview is None else next(self._tiles(plan.overview, left))
        return Picture(*size, tiles, plan.tiles.grid, overview)

    def _tiles(self, cut: Cut, pieces: Iterator[bytes]) -> Iterator[Tile]:
        lines, columns = cut.grid
        for piece in islice(pieces, lines * columns):
            width, height = cut.tile
            pixels = np.frombuffer(piece, np.uint8).reshape(height, width, 3)
            key = hashlib.sha256(
                _SHAPE.pack(height, width, cut.lines, cut.columns, cut.count) + piece
            ).hexdigest()
            normalised = partial(_normalised, pixels, self._levels)
            yield Tile(key, cut.lines, cut.columns, cut.count, normalised, len(piece))


def levels(config: VisionConfig) -> Levels:
    """The numbers [256, 3] f32 that values of 0 to 255 become, in the order of the references.

    Those of Gemma 4 are 0 to 1: what files state of a mean is no part of it. LFM2's reference
    subtracts a mean of 0 to 255, the others one of 0 to 1, which differ in the last bit.
    """
    values = np.arange(256)[:, None]
    unit = (values * (1 / 255)).astype(np.float32)
    if config.projector == "llama4":  # whose reference computes in bfloat16
        rough = (torch.from_numpy(values).bfloat16() * (1 / 255)).expand(256, 3)
        mean, deviation = (torch.tensor(x).bfloat16() for x in (config.mean, config.deviation))
        return ((rough - mean) / deviation).float().numpy()
    if config.projector in ("gemma4v", "gemma4uv"):
        return np.repeat(unit, 3, 1)
    mean, deviation = (np.array(one, np.float32) for one in (config.mean, config.deviation))
    if config.projector == "lfm2":
        scale = np.float32(255)
        unit, mean, deviation = values.astype(np.float32), mean * scale, deviation * scale
    return ((unit - mean) / deviation).astype(np.float32)


def _normalised(pixels: Pixels, table: Levels) -> Tensor:
    made = np.empty(pixels.shape, np.float32)
    for line, values in zip(made, pixels, strict=True):  # indices of one line at once take memory
        line[:] = table[values, (0, 1, 2)]
    return torch.from_numpy(made)


def _request(size: Size, plan: Plan) -> dict[str, Any]:
    cuts = [cut for cut in (plan.tiles, plan.overview) if cut is not None]
    asked = [{"sizes": cut.sizes, "grid": cut.grid, "canvas": cut.canvas} for cut in cuts]
    return {"plan": {"size": size, "filter": plan.filter, "cuts": asked}}


def _content(part: ImagePart) -> tuple[str, bytes, str]:
    """What users call a picture, the content of its file, and its hash; raises RequestError."""
    name = ""
    if isinstance(part.source, bytes):
        content = part.source
        if len(content) > MOST_BYTES:
            raise _too_long(name)
    else:
        name = shown(part.source.name)
        content = _file_content(part.source, name)
    if not content:
        raise refused(Refusal.EMPTY, name)
    return name, content, hashlib.sha256(content).hexdigest()


def _file_content(path: Path, name: str) -> bytes:
    """What is in a file; raises RequestError."""
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):  # a pipe, say, which would never end
            raise RequestError(f"{called(name)} is no file.", "Choose a picture's file.")
        if state.st_size > MOST_BYTES:
            raise _too_long(name)
        return path.read_bytes()
    except FileNotFoundError:
        raise refused(Refusal.MISSING, name) from None
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or "its name is none"
        raise RequestError(
            f"{called(name)} cannot be opened: {why}.",
            "Check that you may read the file, or choose another one.",
        ) from None


def _too_long(name: str) -> RequestError:
    return RequestError(
        f"{called(name)} is a file of more than {MOST_BYTES // 1_000_000} MB.",
        "Save it in another format or smaller, and add that.",
    )


def _check_detail(part: ImagePart) -> None:
    if isinstance(part.detail, int) and part.detail < 1:
        raise RequestError(
            f"A picture cannot become {part.detail} tokens.", "Allow it 1 token or more."
        )


def _lengths(plan: Plan) -> list[int]:
    """Bytes of each tile."""
    cuts = [cut for cut in (plan.tiles, plan.overview) if cut is not None]
    return [3 * math.prod(cut.tile) for cut in cuts for _ in range(math.prod(cut.grid))]
