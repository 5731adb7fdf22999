"""Extraction in a child process: the format of a file, its reader, the document packed; pictures."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from app.documents.detect import detect
from app.documents.packing import pack, pack_fault
from app.documents.source import ExtractionError, ExtractionFault, Source
from app.domain.documents import Document


def read(source: Source) -> Document:
    """The document in a file. Raises ExtractionError, and what its reader did not expect."""
    try:
        reader = importlib.import_module(f"app.documents.readers.{detect(source)}")
        return reader.read(source)
    except RecursionError:
        raise ExtractionError(ExtractionFault.DAMAGED, "nested too deeply") from None
    except OSError as error:
        if error.strerror is None:  # of a decompressor, not of the system
            raise ExtractionError(ExtractionFault.DAMAGED, str(error)) from None
        raise ExtractionError(ExtractionFault.UNREADABLE, error.strerror) from None


def extraction(request: Mapping[str, Any], report: Callable[[float], None]) -> Iterator[bytes]:
    """The document in the file `path`, in pieces, or why there is none."""
    try:
        document = read(Source(Path(request["path"]), request["name"], report))
    except ExtractionError as error:
        yield pack_fault(error)
    else:
        yield from pack(document, request["most_characters"])


def page_picture(request: Mapping[str, Any], report: Callable[[float], None]) -> Iterator[bytes]:
    """A page of the PDF file `path` as a PNG file, or why there is none."""
    from app.documents.pdf import page_picture as pages

    source = Source(Path(request["path"]), report=report)
    yield from _or_fault(lambda: pages.page_picture(source, request["page"], request["longest"]))


def embedded(request: Mapping[str, Any], report: Callable[[float], None]) -> Iterator[bytes]:
    """The names of the pictures in the document `path` as JSON, or the bytes of the one of
    `index`, or why there is none.
    """
    from app.documents import embedded as pictures

    source, index = Source(Path(request["path"]), request["name"], report), request.get("index")
    if index is None:
        yield from _or_fault(lambda: json.dumps({"names": pictures.names(source)}).encode())
    else:
        yield from _or_fault(lambda: pictures.content(source, index))


def _or_fault(make: Callable[[], bytes]) -> Iterator[bytes]:
    try:
        made = make()
    except ExtractionError as error:
        yield pack_fault(error)
    else:
        yield made
