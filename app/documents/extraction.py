"""Extraction in a child process: the format of a file, its reader, and the document packed."""

from __future__ import annotations

import importlib
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
