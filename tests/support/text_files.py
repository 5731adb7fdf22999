"""Documents of text-like formats written for tests, and a reader's document of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

from app.documents.source import Source
from app.domain.documents import Document

# Characters of a hostile text; what takes time that grows with the square takes minutes for them.
HOSTILE = [60_000, pytest.param(600_000, marks=pytest.mark.sweep)]
MOST_SECONDS = 30.0  # of the processor, for a text that takes one or two
Read = Callable[..., Document]


def reader(folder: Path, module: str) -> Read:
    """A function that writes bytes (or UTF-8) to a file and returns what the reader makes of it."""
    read = importlib.import_module(f"app.documents.readers.{module}").read

    def document(data: bytes | str, name: str = "file") -> Document:
        path = folder / "document"
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return read(Source(path, name))

    return document


def warned(document: Document) -> list[str]:
    """The warnings of a document."""
    return [each.warning.value for each in document.warnings]
