"""Boxes and points that an answer names in a picture, and the coordinates of each family of models.

The coordinate system differs between models. `readings` chooses it by the model's family and the
values, and `placed` turns what `app.domain.mark_parser` found into shares of the picture.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from app.domain.message import Message
from app.domain.parts import ImagePart, images
from engine import Role

_QWEN_STEP = 28  # pixels: both sides of what Qwen2.5-VL is given are multiples of it
_QWEN_LEAST, _QWEN_MOST = 56 * 56, 16_384 * 28 * 28  # pixels of the whole, by its own configuration


class Grid(Enum):
    """What coordinates count."""

    THOUSAND = "thousand"  # 0 to 1000 along each side
    PIXELS = "pixels"  # of the picture's file
    QWEN_PIXELS = "qwen pixels"  # of the picture in the size that Qwen2.5-VL is given
    PERCENT = "percent"  # 0 to 100 along each side
    SHARE = "share"  # 0 to 1 along each side


@dataclass(frozen=True, slots=True)
class Reading:
    """How coordinates are read."""

    grid: Grid
    y_first: bool = False


@dataclass(frozen=True, slots=True)
class WrittenMark:
    """A box or a point as a model wrote it."""

    values: tuple[float, ...]  # of a box 4: two corners; of a point 2
    label: str = ""
    image: int | None = None  # number of the picture as written; None: not said
    grid: Grid | None = None  # None: the notation does not tell
    y_first: bool | None = None  # the same


@dataclass(frozen=True, slots=True)
class Mark:
    """A box or a point (whose two corners are the same) in shares of a picture's sides, 0 to 1."""

    left: float
    top: float
    right: float
    bottom: float
    label: str = ""
    is_point: bool = False


_THOUSAND, _Y_FIRST = Reading(Grid.THOUSAND), Reading(Grid.THOUSAND, y_first=True)
# By name or architecture, in lower case; the first that is found counts.
_FAMILIES = (
    (re.compile(r"qwen[ _.-]?2[._-]?5[ _.-]?vl"), Reading(Grid.QWEN_PIXELS)),
    (re.compile(r"qwen[ _-]?3[ _.-]?vl|qwen[ _-]?3[._]?[5-9]|bonsai[ _-]?27"), _THOUSAND),
    (re.compile(r"qwen2[ _.-]vl|qwen[ _-]vl"), _THOUSAND),
    (re.compile(r"gemma|gemini"), _Y_FIRST),
    (re.compile(r"glm[ _.-]?[45]"), _THOUSAND),
    (re.compile(r"internvl"), _THOUSAND),
    (re.compile(r"molmo"), Reading(Grid.PERCENT)),
)


def family_reading(names: Iterable[str]) -> Reading | None:
    """How a model with these names and architectures writes coordinates; None: it is not known."""
    known = [name.lower() for name in names if name]
    return next(
        (reading for each, reading in _FAMILIES if any(map(each.search, known))),
        None,
    )


def readings(
    written: Sequence[WrittenMark], family: Reading | None, width: int, height: int
) -> tuple[Reading, ...]:
    """The ways to read marks over a picture of this size in pixels, the one to begin with first.

    There is one where the notation or the model's family tells it and the values do not exceed it.
    """
    open_marks = [each for each in written if each.grid is None or each.y_first is None]
    if not open_marks:
        return (family or _THOUSAND,)
    if family is not None and _fits(open_marks, family, width, height):
        return (family,)
    known = [Reading(grid) for grid in Grid if grid is not Grid.QWEN_PIXELS]
    fitting = [each for each in known if _fits(open_marks, each, width, height)]
    fitting = fitting or [Reading(Grid.PIXELS)]
    has_order = all(each.y_first is not None for each in open_marks)
    more = [] if has_order or _THOUSAND not in fitting else [_Y_FIRST]
    return (*fitting, *more)


def _fits(written: Sequence[WrittenMark], reading: Reading, width: int, height: int) -> bool:
    """Whether no value is above the end of the sides, but for a pixel or a rounding.

    Fractions that are all below 1 are shares, and nothing else.
    """
    wide, high = _sides(reading.grid, width, height)
    points = [each for one in written if one.grid is None for each in _points(one, reading)]
    are_shares = _are_shares(written) and reading.grid is not Grid.SHARE
    return not are_shares and all(
        wide > 0 and x <= 1.02 * wide and high > 0 and y <= 1.02 * high for x, y in points
    )


def _are_shares(written: Sequence[WrittenMark]) -> bool:
    values = [value for each in written if each.grid is None for value in each.values]
    return any(value % 1 for value in values) and max(values) <= 1


def placed(
    written: Sequence[WrittenMark],
    reading: Reading,
    width: int,
    height: int,
    number: int = 0,
    count: int = 1,
) -> tuple[Mark, ...]:
    """The marks over a picture of this size in pixels, which is `number` (from 0) of `count`.

    Boxes are cut at the picture's sides. What is outside, and what is said to be on another picture
    of these, is left out.
    """
    first = 0 if any(each.image == 0 for each in written) else 1
    found: list[Mark] = []
    for each in written:
        said = None if each.image is None else each.image - first
        if said is not None and said != number and 0 <= said < count:
            continue
        wide, high = _sides(each.grid or reading.grid, width, height)
        if not wide or not high:
            continue
        points = [(x / wide, y / high) for x, y in _points(each, reading)]
        left, right = sorted((points[0][0], points[-1][0]))
        top, bottom = sorted((points[0][1], points[-1][1]))
        is_point = len(points) == 1
        if left > 1 or right < 0 or top > 1 or bottom < 0:
            continue
        if not is_point and (left == right and top == bottom):
            continue
        left, top, right, bottom = (min(max(x, 0.0), 1.0) for x in (left, top, right, bottom))
        found.append(Mark(left, top, right, bottom, each.label, is_point))
    return tuple(found)


def starts_at(written: Sequence[WrittenMark], count: int) -> int:
    """The number (from 0) of the picture to be shown first, of so many: the last unless one is said."""
    first = 0 if any(each.image == 0 for each in written) else 1
    said = (each.image - first for each in written if each.image is not None)
    return next((number for number in said if 0 <= number < count), count - 1)


def _points(written: WrittenMark, reading: Reading) -> list[tuple[float, float]]:
    """Its corners or its point, x first."""
    values = written.values
    y_first = reading.y_first if written.y_first is None else written.y_first
    pairs = zip(values[::2], values[1::2], strict=True)
    return [(b, a) if y_first else (a, b) for a, b in pairs]


def _sides(grid: Grid, width: int, height: int) -> tuple[float, float]:
    """What coordinates are at the right and at the bottom; 0: it is not known."""
    match grid:
        case Grid.THOUSAND:
            return 1000, 1000
        case Grid.PERCENT:
            return 100, 100
        case Grid.SHARE:
            return 1, 1
        case Grid.PIXELS:
            return width, height
        case Grid.QWEN_PIXELS:
            return _qwen_size(width, height)


def _qwen_size(width: int, height: int) -> tuple[float, float]:
    """The size in which Qwen2.5-VL is given a picture, where nothing else limits it."""
    if not width or not height:
        return 0, 0
    step = _QWEN_STEP
    wide, high = (max(step, round(side / step) * step) for side in (width, height))
    if wide * high > _QWEN_MOST:
        share = math.sqrt(_QWEN_MOST / (width * height))
        wide, high = (max(step, int(side * share / step) * step) for side in (width, height))
    elif wide * high < _QWEN_LEAST:
        share = math.sqrt(_QWEN_LEAST / (width * height))
        wide, high = (math.ceil(side * share / step) * step for side in (width, height))
    return wide, high


def pictures_asked_about(messages: Sequence[Message], answer: int) -> tuple[ImagePart, ...]:
    """The pictures of the last question with any before an answer of a branch, the answer's id."""
    found: tuple[ImagePart, ...] = ()
    for message in messages:
        if message.id == answer:
            return found
        if message.role is Role.USER:
            found = images(message.parts) or found
    return found
