"""Text of OpenDocument presentations: a page for each slide."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from app.documents.office.opendocument import STYLES, OpenFile, TextReader, opened
from app.documents.office.slides import Shape, slide_text, slides
from app.documents.office.writing import Blocks
from app.documents.source import Source
from app.domain.documents import Document

_TITLES = ("title",)
_LEFT_OUT = ("header", "footer", "date-time", "page-number", "page")
_LENGTH = re.compile(r"(-?[\d.]+)(mm|cm|in|pt|pc|px)?")
_UNITS = {"mm": 1.0, "cm": 10.0, "in": 25.4, "pt": 25.4 / 72, "pc": 25.4 / 6, "px": 25.4 / 96}


def read(source: Source) -> Document:
    """The document of an OpenDocument presentation; raises ExtractionError."""
    with opened(source) as file:
        return slides(_texts(file), file.title(), lambda: file.warnings)


def _texts(file: OpenFile) -> Iterator[str]:
    reader = TextReader(file, file.styles())
    for element in file.elements("content", *STYLES, "draw:page", "office:master-styles"):
        if element.tag == "draw:page":
            yield _slide(element, reader)
        else:
            reader.styles.add(element)


def _slide(page: Element, reader: TextReader) -> str:
    shapes = list(_shapes(page, reader))
    notes = Blocks()
    found = page.find("presentation:notes")
    for frame in found if found is not None else ():
        if frame.get("presentation:class") == "notes":
            reader.block(frame, notes)
    style = page.get("draw:style-name", "")
    is_hidden = reader.styles.value(style, "presentation:visibility") == "hidden"
    return slide_text(shapes, notes.text, is_hidden=is_hidden)


def _shapes(tree: Element, reader: TextReader) -> Iterator[Shape]:
    for element in tree:
        if element.tag == "draw:g":
            yield from _shapes(element, reader)
        elif element.tag.startswith("draw:"):
            kind = element.get("presentation:class", "")
            if kind in _LEFT_OUT or element.get("presentation:placeholder") == "true":
                continue
            blocks = Blocks()
            reader.block(element, blocks)
            x, y, width, height = (
                _millimetres(element.get(key, ""))
                for key in ("svg:x", "svg:y", "svg:width", "svg:height")
            )
            yield Shape(x, y, width, height, blocks.text, kind in _TITLES)


def _millimetres(text: str) -> float:
    found = _LENGTH.fullmatch(text)
    try:
        return float(found[1]) * _UNITS[found[2] or "pt"] if found else 0.0
    except ValueError:
        return 0.0
