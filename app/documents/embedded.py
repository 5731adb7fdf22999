"""Pictures in documents: those in packages (Office, OpenDocument, EPUB) and in web pages.

Runs in a child process. Pictures of formats that are not read, such as WMF, are left out, and so
are the previews that programs put beside a document.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from urllib.parse import unquote_to_bytes

from app.documents.detect import detect
from app.documents.readers.package import Package
from app.documents.source import MOST_TEXT_BYTES, ExtractionError, ExtractionFault, Source
from app.domain.documents import MOST_EMBEDDED
from app.domain.picture_types import BEGINNING, ENDINGS, media_type

_PACKAGES = ("docx", "epub", "odp", "ods", "odt", "pptx", "xlsx")
_ENDINGS = (*ENDINGS.values(), ".jpeg", ".tif")
_PREVIEWS = ("docprops/", "thumbnails/")
_ADDRESS = re.compile(rb"data:image/[\w.+-]{1,40};base64,([A-Za-z0-9+/=%\s]+)", re.IGNORECASE)


def names(source: Source) -> list[str]:
    """The names of the pictures of a document, those of the same content too, in its order.

    Raises ExtractionError.
    """
    reader = detect(source)
    if reader in _PACKAGES:
        with Package(source) as package:
            return [PurePosixPath(entry).name for entry in _entries(package)]
    if reader == "html":
        kinds = (media_type(content[:BEGINNING]) for content in _in_page(source))
        return [f"{number}{ENDINGS[kind]}" for number, kind in enumerate(kinds, 1)]
    return []


def content(source: Source, index: int) -> bytes:
    """The bytes of the picture `index` of those that are named. Raises ExtractionError."""
    reader = detect(source)
    if index >= 0 and reader in _PACKAGES:
        with Package(source) as package:
            if entry := next(iter(_entries(package)[index:]), ""):
                return package.read(entry)
    elif index >= 0 and reader == "html":
        for number, found in enumerate(_in_page(source)):
            if number == index:
                return found
    raise ExtractionError(ExtractionFault.DAMAGED, f"no picture {index}")


def _entries(package: Package) -> list[str]:
    found = (
        name
        for name in package.names
        if name.lower().endswith(_ENDINGS) and not name.lower().startswith(_PREVIEWS)
    )
    return sorted(found, key=_by_number)[:MOST_EMBEDDED]


def _by_number(name: str) -> tuple[object, ...]:
    """A key that sorts "image2" before "image10"."""
    pieces = re.split(r"(\d{1,9})", name.lower())
    return tuple((piece.isdigit(), int(piece) if piece.isdigit() else piece) for piece in pieces)


def _in_page(source: Source) -> Iterator[bytes]:
    """The contents of the pictures in the addresses of a web page."""
    if source.size > MOST_TEXT_BYTES:
        raise ExtractionError(ExtractionFault.TOO_LARGE, f"{source.size} bytes")
    with source.open() as file:
        page, count = file.read(), 0
    for match in _ADDRESS.finditer(page):
        try:
            found = binascii.a2b_base64(unquote_to_bytes(match[1]))
        except binascii.Error:
            continue
        if media_type(found[:BEGINNING]) in ENDINGS:
            count += 1
            yield found
        if count == MOST_EMBEDDED:
            return
