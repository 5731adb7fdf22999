"""Headers, footers and page numbers of a PDF: found because they repeat at the same place."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from app.documents.intervals import clusters
from app.documents.pdf.content import Content
from app.documents.pdf.geometry import Fragment, fragments

REACH = 4  # pages before and after that are compared
MARGIN = 0.13  # of a page's height
MOST_LINES = 5  # in a margin
MOST_CELLS = 3  # side by side; more are the head of a table
NEAR = 3.0  # points
_PIECES = re.compile(r"(\d+|\b[ivxlcdm]+\b|\b[IVXLCDM]+\b)")
_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}


@dataclass(frozen=True, slots=True)
class _Line:
    """A text in a margin, and its place seen from the nearer edge."""

    pieces: list[str]
    is_top: bool
    y: float
    x0: float
    x1: float
    fragment: Fragment


def without_running(pages: Iterable[Content], count: int) -> Iterator[Content]:
    """The pages without the texts in their margins that repeat on pages nearby.

    `count` is the number of pages; a text has to repeat twice, in a file of up to three once.
    """
    needed = 1 if count <= 3 else 2
    window: deque[tuple[int, Content, list[_Line]]] = deque()
    at = 0  # in the window, of the page that is next
    for number, page in enumerate(pages):
        window.append((number, page, _margins(page)))
        if len(window) - at > REACH:
            yield _without(window, at, needed)
            at += 1
        if at > REACH:
            window.popleft()
            at -= 1
    for each in range(at, len(window)):
        yield _without(window, each, needed)


def _without(window: deque[tuple[int, Content, list[_Line]]], at: int, needed: int) -> Content:
    number, page, lines = window[at]
    running: set[int] = set()
    for line in lines:
        same = sum(
            any(_repeats(line, other, i - number) for other in others)
            for i, _, others in window
            if i != number and abs(i - number) <= REACH
        )
        if same >= needed:
            running.update(map(id, line.fragment.words))
    if running:
        page.words = [word for word in page.words if id(word) not in running]
    return page


def _margins(page: Content) -> list[_Line]:
    """The texts in the margins of a page that has other text, too."""
    zone = MARGIN * page.height
    made: list[_Line] = []
    for is_top in (True, False):
        rows = _rows(page, zone, is_top=is_top)
        for row in rows:
            if len(row) > MOST_CELLS:
                break
            for item in row:
                pieces = _PIECES.split(item.text)
                y = item.middle if is_top else page.height - item.middle
                made.append(_Line(pieces, is_top, y, item.x0, item.x1, item))
    return made


def _rows(page: Content, zone: float, *, is_top: bool) -> list[list[Fragment]]:
    """The lines of a margin, from the edge of the page to the gap before the text."""
    near = [
        word for word in page.words if (word.y0 if is_top else page.height - word.y1) < 1.5 * zone
    ]
    items = fragments(near)
    lines = clusters(
        items,
        (item.middle - 0.2 * item.height for item in items),
        (item.middle + 0.2 * item.height for item in items),
    )
    if not is_top:
        lines.reverse()
    has_more = len(near) < len(page.words)
    end = 0
    for i, line in enumerate(lines[: MOST_LINES + 1]):
        edge = line[0].y1 if is_top else page.height - line[0].y0
        if edge > zone:
            break
        if i + 1 < len(lines):
            after = lines[i + 1]
            gap = after[0].y0 - line[0].y1 if is_top else line[0].y0 - after[0].y1
            if gap >= 0.5 * line[0].height:
                end = i + 1
        elif has_more:
            end = i + 1
    return lines[:end]


def _repeats(line: _Line, other: _Line, pages: int) -> bool:
    """Whether the other text is the same, so many pages later, at the same place."""
    return (
        line.is_top == other.is_top
        and abs(line.y - other.y) <= NEAR
        and len(line.pieces) == len(other.pieces)
        and (
            abs(line.x0 - other.x0) <= NEAR
            or abs(line.x1 - other.x1) <= NEAR
            or abs(line.x0 + line.x1 - other.x0 - other.x1) <= 2 * NEAR
            or sum(map(str.isalpha, "".join(line.pieces))) >= 4  # on the left and the right
        )
        and all(
            here == there or (i % 2 and _number(there) - _number(here) == pages)
            for i, (here, there) in enumerate(zip(line.pieces, other.pieces, strict=True))
        )
    )


def _number(piece: str) -> int:
    """The value of digits or of a Roman numeral."""
    if piece[0].isdecimal():
        return int(piece[:12])
    values = [_ROMAN[each] for each in piece.lower()]
    return sum(
        -value if i + 1 < len(values) and value < values[i + 1] else value
        for i, value in enumerate(values)
    )
