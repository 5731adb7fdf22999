"""Calls of the task of child processes that reads picture files: sizes, tiles and thumbnails.

The other side is `engine.vision.decoding`. Nothing of torch or Pillow is imported here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine.errors import Cancelled
from engine.processes.pool import ChildError, ChildFault, ChildPool
from engine.vision.refusals import Refusal, refused


class Size(NamedTuple):
    """Pixels of a picture."""

    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small copy of a picture."""

    picture: Size  # as it is seen
    size: Size
    pixels: bytes  # u8 [height, width, 3]


def ask_child(
    children: ChildPool,
    content: bytes,
    request: Mapping[str, Any],
    name: str = "",
    cancelled: Callable[[], bool] | None = None,
) -> tuple[Size, list[bytes]]:
    """The size of the picture in a file, and the tiles that `request` plans.

    `name` is what users call it. Raises PictureRefused and Cancelled.
    """
    try:
        pieces = children.call("picture", request, cancelled, content=content)
    except ChildError as error:
        if error.fault is ChildFault.CANCELLED:
            raise Cancelled from None
        raise refused(error.fault, name) from None
    try:
        answer = json.loads(pieces[0])
        size = Size(int(answer["width"]), int(answer["height"]))
        refusal = Refusal(answer["refusal"]) if "refusal" in answer else None
    except (ValueError, TypeError, LookupError):
        raise refused(ChildFault.CRASHED, name) from None
    if refusal is not None:
        raise refused(refusal, name, *size)
    if min(size) < 1:
        raise refused(Refusal.DAMAGED, name)
    return size, pieces[1:]


def read_thumbnail(
    children: ChildPool,
    content: bytes,
    longest: int,
    cancelled: Callable[[], bool] | None = None,
) -> Thumbnail:
    """A copy of the picture in a file, with sides of `longest` pixels at most.

    Raises PictureRefused and Cancelled.
    """
    request: dict[str, Any] = {}
    for _ in range(3):  # its size; the copy; once more, if the header states a wrong size
        picture, pieces = ask_child(children, content, request, cancelled=cancelled)
        share = min(1.0, longest / max(picture))
        size = Size(*(max(1, round(side * share)) for side in picture))
        if pieces and len(pieces[0]) == 3 * size.width * size.height:
            return Thumbnail(picture, size, pieces[0])
        cut = {"sizes": [size], "grid": (1, 1)}
        request = {"plan": {"size": picture, "filter": "lanczos", "cuts": [cut]}}
    raise refused(Refusal.DAMAGED)
