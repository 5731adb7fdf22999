"""A document on its way from a child process: packed there, checked here, as no child is trusted.

Its first piece is JSON of all but the texts; each further piece is the text of a page in UTF-8.
Here texts are cut at the limit, and characters that no text should have are removed. Why there is
no document travels in the same way.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.documents.source import MOST_CHARACTERS, ExtractionError, ExtractionFault
from app.domain.documents import (
    PAGE_BREAK,
    Document,
    DocumentKind,
    DocumentWarning,
    Page,
    PageUnit,
    Warned,
)

MOST_PAGES = 200_000
_MOST_DETAIL = 500
_MOST_LABEL = 200  # characters, also of a title
_MOST_WARNINGS = 20
_SAYS_EMPTY = (DocumentWarning.EMPTY, DocumentWarning.SCANNED)
_SLICE_BYTES = 1 << 20
_KEPT_CONTROLS = b"\t\n\r"
_CONTROLS = bytes(each for each in range(32) if each not in _KEPT_CONTROLS) + b"\x7f"
_CONTROL = re.compile(b"[" + re.escape(_CONTROLS) + b"]")


def pack(document: Document, most_characters: int = MOST_CHARACTERS) -> Iterator[bytes]:
    """The pieces of a document, cut at `most_characters`, without forbidden characters."""
    document = _cut(document, most_characters)
    texts = (page.text for page in document.pages)
    is_empty = not any(text and not text.isspace() for text in texts)
    warnings = document.warnings[:_MOST_WARNINGS]
    if is_empty and not any(each.warning in _SAYS_EMPTY for each in warnings):
        warnings = (Warned(DocumentWarning.EMPTY), *warnings)
    yield json.dumps(
        {
            "kind": document.kind,
            "unit": document.unit,
            "title": _line(document.title),
            "warnings": [
                (each.warning, [_line(label) for label in each.pages]) for each in warnings
            ],
            "labels": [_line(page.label) for page in document.pages],
        }
    ).encode()
    for page in document.pages:
        yield _clean(_utf8(page.text))


def pack_fault(error: ExtractionError) -> bytes:
    """The only piece of why there is no document."""
    return json.dumps({"fault": error.fault, "detail": error.detail[:_MOST_DETAIL]}).encode()


def unpack(pieces: Sequence[bytes], most_characters: int = MOST_CHARACTERS) -> Document:
    """The document that was packed. Raises ExtractionError: the one that was, or as crashed."""
    try:
        facts = json.loads(pieces[0])
        if "fault" not in facts:
            return _document(facts, pieces[1:], most_characters)
        fault, detail = ExtractionFault(facts["fault"]), str(facts["detail"])[:_MOST_DETAIL]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise ExtractionError(ExtractionFault.CRASHED, f"not a document: {error}") from None
    raise ExtractionError(fault, detail)


def unpack_picture(pieces: Sequence[bytes]) -> bytes:
    """The bytes of a picture's file. Raises ExtractionError: the one that was packed instead."""
    if len(pieces) == 1 and pieces[0][:1] != b"{":
        return pieces[0]
    unpack(pieces)  # which says why
    raise ExtractionError(ExtractionFault.CRASHED, "not a picture")


def unpack_names(pieces: Sequence[bytes], most: int) -> tuple[str, ...]:
    """The names of pictures, at most so many. Raises ExtractionError."""
    try:
        facts = json.loads(pieces[0])
        if "fault" not in facts:
            return tuple(_line(str(each)) for each in facts["names"][:most])
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise ExtractionError(ExtractionFault.CRASHED, f"no names: {error}") from None
    unpack(pieces)  # which says why
    return ()


def _document(facts: Mapping[str, Any], texts: Sequence[bytes], most_characters: int) -> Document:
    """Raises ValueError, TypeError and KeyError for what is none."""
    labels = [_label(each) for each in facts["labels"]]
    if len(labels) > MOST_PAGES:
        raise ValueError("too many pages")
    pages = tuple(Page(label, _text(piece)) for label, piece in zip(labels, texts, strict=True))
    if _characters(pages) > most_characters:
        raise ValueError("too many characters")
    warnings = tuple(
        Warned(DocumentWarning(warning), tuple(_label(each) for each in about))
        for warning, about in facts["warnings"][:_MOST_WARNINGS]
    )
    return Document(
        DocumentKind(facts["kind"]),
        pages,
        PageUnit(facts["unit"]),
        _label(facts["title"]),
        warnings,
    )


def _cut(document: Document, most_characters: int) -> Document:
    """The document up to the limits of characters and pages, with a warning if that is less."""
    pages = document.pages[:MOST_PAGES]
    if len(pages) == len(document.pages) and _characters(pages) <= most_characters:
        return document
    kept: list[Page] = []
    left = most_characters
    for page in pages:
        kept.append(replace(page, text=page.text[:left]))
        left -= len(page.text) + len(PAGE_BREAK)
        if left <= 0:
            break
    others = [each for each in document.warnings if each.warning is not DocumentWarning.CUT]
    return replace(document, pages=tuple(kept), warnings=(*others, Warned(DocumentWarning.CUT)))


def _characters(pages: Sequence[Page]) -> int:
    return sum(len(page.text) + len(PAGE_BREAK) for page in pages) - len(PAGE_BREAK)


def _utf8(text: str) -> bytes:
    """A text in UTF-8; surrogates become the character that a pair means, or nothing."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        pairs = text.encode("utf-16-le", "surrogatepass")
        return pairs.decode("utf-16-le", "ignore").encode()


def _text(piece: bytes) -> str:
    """The text of a page, in slices: the window goes on between them. Raises ValueError."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    slices = [
        decoder.decode(_clean(piece[at : at + _SLICE_BYTES]))
        for at in range(0, len(piece), _SLICE_BYTES)
    ]
    return "".join((*slices, decoder.decode(b"", final=True)))


def _clean(text: bytes) -> bytes:
    """UTF-8 without control characters, except tabs and ends of lines."""
    return text.translate(None, _CONTROLS) if _CONTROL.search(text) else text  # without a copy


def _line(text: str) -> str:
    """A label or a title: one short line."""
    return " ".join(_clean(_utf8(text[: 2 * _MOST_LABEL])).decode().split())[:_MOST_LABEL].rstrip()


def _label(value: object) -> str:
    """A label or a title as a child told it. Raises ValueError."""
    if not isinstance(value, str) or len(value) > _MOST_LABEL or _line(value) != value:
        raise ValueError("not a label")
    return value
