"""What stands on a PDF's page: its words, ruled lines and pictures, read by PDFium."""

from __future__ import annotations

import ctypes
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from app.documents.pdf.geometry import Rule, Word, direction
from app.documents.pdf.library import pdfium

MOST_CHARACTERS_OF_A_PAGE = 500_000
MOST_OBJECTS = 20_000  # of a page that is searched for ruled lines
MOST_SEGMENTS = 20_000  # of its paths
DEEPEST_FORM = 4  # forms within forms
THIN = 2.5  # points of the thickest ruled line
FIELD_HEIGHT = 12.0  # points of the line in a form's field
SHORTEST = 6.0  # points of the shortest

_HYPHEN = "\x02"  # as PDFium marks a hyphen at the end of a line, which the word goes on after
_WORD = re.compile(rf"[^\s\0\ufeff\u200b{_HYPHEN}]*{_HYPHEN}|[^\s\0\ufeff\u200b{_HYPHEN}]+")
_BULLETS = {0xF0A7, 0xF0A8, 0xF0B7, 0xF0D8, 0xF0FC, 0xF076, 0xF06C, 0xF06E}  # of symbol fonts
_LIGATURES = re.compile("[\ufb00-\ufb06\ufb13-\ufb17\ufb1d-\ufdfb\ufe70-\ufefc]")
_UNKNOWN = "\ufffd"
Turn = Callable[[float, float, float, float], tuple[float, float, float, float]]


@dataclass(slots=True)
class Content:
    """A page, turned so that most of its words are upright."""

    width: float = 0.0  # points
    height: float = 0.0
    words: list[Word] = field(default_factory=list[Word])  # in the order of the file
    aside: list[str] = field(default_factory=list[str])  # words in other directions
    rules: list[Rule] = field(default_factory=list[Rule])
    has_picture: bool = False
    unknown: int = 0  # characters without a meaning
    is_damaged: bool = False


def page_content(page: Any, form: Any) -> Content:
    """The content of a loaded page; `form` is the document's form environment or None."""
    area = pdfium.FS_RECTF()
    pdfium.FPDF_GetPageBoundingBox(page, area)
    turns: tuple[Turn, ...] = (
        lambda x0, y0, x1, y1: (x0 - area.left, area.top - y1, x1 - area.left, area.top - y0),
        lambda x0, y0, x1, y1: (y0 - area.bottom, x0 - area.left, y1 - area.bottom, x1 - area.left),
        lambda x0, y0, x1, y1: (
            area.right - x1,
            y0 - area.bottom,
            area.right - x0,
            y1 - area.bottom,
        ),
        lambda x0, y0, x1, y1: (area.top - y1, area.right - x1, area.top - y0, area.right - x0),
    )
    content = Content()
    placed = _words(page, area, content)
    fields = list(_fields(page, form)) if form is not None else []
    letters = Counter[int]()
    for quarter, _box, text in placed:
        letters[quarter] += len(text)
    del letters[-1]
    upright = letters.most_common(1)[0][0] if letters else pdfium.FPDFPage_GetRotation(page) % 4
    placed.extend((upright, box, text) for box, text in fields)
    turn = turns[upright]
    content.width, content.height = turn(area.left, area.bottom, area.right, area.top)[2:]
    for quarter, box, text in placed:
        if quarter == upright:
            content.words.append(Word(*turn(*box), text))
        else:
            content.aside.append(text)
    for rule in _rules(page, content):
        content.rules.append(Rule(*turn(*rule)))
    return content


def _words(
    page: Any, area: Any, content: Content
) -> list[tuple[int, tuple[float, float, float, float], str]]:
    """Quarter turns to the left (-1: slanted), box on the page, and text of each word."""
    made: list[tuple[int, tuple[float, float, float, float], str]] = []
    text_page = pdfium.FPDFText_LoadPage(page)
    if not text_page:
        return made
    try:
        count = min(pdfium.FPDFText_CountChars(text_page), MOST_CHARACTERS_OF_A_PAGE)
        code = pdfium.FPDFText_GetUnicode
        quarter = 0
        text = "".join([_character(code(text_page, i)) for i in range(count)])
        box_of = pdfium.FPDFText_GetLooseCharBox
        first, last = pdfium.FS_RECTF(), pdfium.FS_RECTF()
        first_at, last_at = ctypes.byref(first), ctypes.byref(last)
        for match in _WORD.finditer(text):
            start, end = match.span()
            box_of(text_page, start, first_at)
            box_of(text_page, end - 1, last_at)
            box = (
                min(first.left, last.left),
                min(first.bottom, last.bottom),
                max(first.right, last.right),
                max(first.top, last.top),
            )
            if not (
                area.left <= (box[0] + box[2]) / 2 <= area.right
                and area.bottom <= (box[1] + box[3]) / 2 <= area.top
            ):
                continue  # beyond the page
            word = match[0]
            if _UNKNOWN in word:
                content.unknown += word.count(_UNKNOWN)
            quarter = _quarter(text_page, start, first, last, word) if end - start > 1 else quarter
            made.append((quarter, box, _plain(word)))
    finally:
        pdfium.FPDFText_ClosePage(text_page)
    return made


def _quarter(text_page: Any, start: int, first: Any, last: Any, word: str) -> int:
    """The way from a word's first character to its last: quarter turns, -1 if it is slanted."""
    across, up = last.left - first.left, last.bottom - first.bottom
    if not word.isascii() and direction(word) < 0:
        across, up = -across, -up
    if abs(up) * 12 <= abs(across):
        return 0 if across >= 0 else 2
    if abs(across) * 12 <= abs(up):
        return 1 if up > 0 else 3
    turned = pdfium.FPDFText_GetCharAngle(text_page, start) / (math.pi / 2)
    return round(turned) % 4 if abs(turned - round(turned)) < 0.05 else -1


def _character(code: int) -> str:
    if code in _BULLETS:
        return "•"
    if code in (0xFFFE, 0xFFFF) or 0xE000 <= code < 0xF900 or code > 0x10FFFF:
        return _UNKNOWN  # of no meaning outside of the font
    return chr(code)


def _plain(word: str) -> str:
    if word.isascii():
        return word
    if "\ud800" <= max(word) <= "\udfff" or any("\ud800" <= each <= "\udfff" for each in word):
        word = word.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _LIGATURES.sub(lambda found: _compatible(found[0]), word)


def _compatible(character: str) -> str:
    return unicodedata.normalize("NFKC", character)


def _fields(page: Any, form: Any) -> Iterator[tuple[tuple[float, float, float, float], str]]:
    """Box and value of each field of a form."""
    for i in range(min(pdfium.FPDFPage_GetAnnotCount(page), MOST_OBJECTS)):
        note = pdfium.FPDFPage_GetAnnot(page, i)
        if not note:
            continue
        try:
            if pdfium.FPDFAnnot_GetSubtype(note) == pdfium.FPDF_ANNOT_WIDGET and (
                value := _value(form, note)
            ):
                box = pdfium.FS_RECTF()
                pdfium.FPDFAnnot_GetRect(note, box)
                yield _value_box(box, value), value
        finally:
            pdfium.FPDFPage_CloseAnnot(note)


def _value_box(box: Any, value: str) -> tuple[float, float, float, float]:
    """About where the value stands in its field: on one line, from the left."""
    if "\n" in value or "\r" in value:
        return box.left, box.bottom, box.right, box.top
    middle, half = (box.bottom + box.top) / 2, min((box.top - box.bottom) / 2, FIELD_HEIGHT / 2)
    right = min(box.right, box.left + half * len(value))
    return box.left, middle - half, right, middle + half


def _value(form: Any, note: Any) -> str:
    kind = pdfium.FPDFAnnot_GetFormFieldType(form, note)
    if kind in (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON):
        state = utf16(
            lambda buffer, size: pdfium.FPDFAnnot_GetStringValue(
                note, b"AS", ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), size
            )
        )
        return "[ ]" if state in ("", "Off") else "[x]"
    if kind in (
        pdfium.FPDF_FORMFIELD_TEXTFIELD,
        pdfium.FPDF_FORMFIELD_COMBOBOX,
        pdfium.FPDF_FORMFIELD_LISTBOX,
    ):
        return utf16(
            lambda buffer, size: pdfium.FPDFAnnot_GetFormFieldValue(
                form, note, ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), size
            )
        ).strip()
    return ""


def utf16(call: Callable[[Any, int], int]) -> str:
    """The text that a function of PDFium writes as UTF-16 to a buffer of some size in bytes."""
    size = call(None, 0)
    if not 2 < size < 1 << 22:
        return ""
    buffer = ctypes.create_string_buffer(size)
    call(buffer, size)
    return buffer.raw[: size - 2].decode("utf-16-le", "replace")


def _rules(page: Any, content: Content) -> Iterator[tuple[float, float, float, float]]:
    """The ruled lines of a page; notes whether it has pictures."""
    count = pdfium.FPDFPage_CountObjects(page)
    left = MOST_SEGMENTS
    if count > MOST_OBJECTS:
        return
    for i in range(count):
        left = yield from _rules_of(
            pdfium.FPDFPage_GetObject(page, i), (1, 0, 0, 1, 0, 0), content, left, 0
        )
        if left <= 0:
            return


Matrix = tuple[float, float, float, float, float, float]


def _rules_of(
    item: Any, outer: Matrix, content: Content, left: int, depth: int
) -> Generator[tuple[float, float, float, float], None, int]:
    kind = pdfium.FPDFPageObj_GetType(item)
    if kind == pdfium.FPDF_PAGEOBJ_IMAGE:
        content.has_picture = True
    elif kind == pdfium.FPDF_PAGEOBJ_PATH:
        lines, left = _segments(item, _within(_matrix(item), outer), left)
        yield from lines
    elif kind == pdfium.FPDF_PAGEOBJ_FORM and depth < DEEPEST_FORM:
        inner = _within(_matrix(item), outer)
        for i in range(min(pdfium.FPDFFormObj_CountObjects(item), MOST_OBJECTS)):
            if left <= 0:
                break
            left = yield from _rules_of(
                pdfium.FPDFFormObj_GetObject(item, i), inner, content, left, depth + 1
            )
    return left


def _matrix(item: Any) -> Matrix:
    found = pdfium.FS_MATRIX()
    if not pdfium.FPDFPageObj_GetMatrix(item, found):
        return 1, 0, 0, 1, 0, 0
    return found.a, found.b, found.c, found.d, found.e, found.f


def _within(inner: Matrix, outer: Matrix) -> Matrix:
    a, b, c, d, e, f = inner
    p, q, r, s, t, u = outer
    return (
        a * p + b * r,
        a * q + b * s,
        c * p + d * r,
        c * q + d * s,
        e * p + f * r + t,
        e * q + f * s + u,
    )


def _segments(
    item: Any, matrix: Matrix, left: int
) -> tuple[list[tuple[float, float, float, float]], int]:
    """The straight lines of a path, and how many more segments may be read."""
    fill, stroke = ctypes.c_int(), ctypes.c_int()
    pdfium.FPDFPath_GetDrawMode(item, fill, stroke)
    if not fill.value and not stroke.value:
        return [], left
    count = min(pdfium.FPDFPath_CountSegments(item), left)
    a, b, c, d, e, f = matrix
    x, y = ctypes.c_float(), ctypes.c_float()
    points: list[tuple[float, float, bool]] = []  # and whether a line leads there
    begin = 0
    for i in range(count):
        segment = pdfium.FPDFPath_GetPathSegment(item, i)
        pdfium.FPDFPathSegment_GetPoint(segment, x, y)
        kind = pdfium.FPDFPathSegment_GetType(segment)
        place = a * x.value + c * y.value + e, b * x.value + d * y.value + f
        if kind == pdfium.FPDF_SEGMENT_MOVETO:
            begin = len(points)
        points.append((*place, kind == pdfium.FPDF_SEGMENT_LINETO))
        if pdfium.FPDFPathSegment_GetClose(segment):
            points.append((*points[begin][:2], kind == pdfium.FPDF_SEGMENT_LINETO))
    if not points:
        return [], left - count
    xs, ys = [point[0] for point in points], [point[1] for point in points]
    box = min(xs), min(ys), max(xs), max(ys)
    if min(box[2] - box[0], box[3] - box[1]) <= THIN:  # a line, or a thin area
        long = max(box[2] - box[0], box[3] - box[1]) >= SHORTEST
        return [box] if long else [], left - count
    made: list[tuple[float, float, float, float]] = []
    if stroke.value:
        for (x0, y0, _), (x1, y1, is_line) in pairwise(points):
            wide, high = abs(x1 - x0), abs(y1 - y0)
            if is_line and min(wide, high) <= 0.5 and max(wide, high) >= SHORTEST:
                made.append((min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)))
    return made, left - count
