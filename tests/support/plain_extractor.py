"""An extractor of texts for tests: files are plain text, and form feeds separate their pages."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from app.documents.pictures import PictureLook, copy_of
from app.documents.source import ExtractionError, ExtractionFault, Look
from app.domain.documents import Document, DocumentKind, Page, PageUnit
from engine import Thumbnail
from picture_files import SameProcess


class PlainExtractor:
    """Refuses a file whose text is the name of a fault; waits while it is not `free`."""

    def __init__(self) -> None:
        self.names: list[str] = []  # of the files that were extracted
        self.free = threading.Event()
        self.free.set()
        self.closed = False

    def extract(
        self,
        path: Path,
        name: str = "",
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> Document:
        self.names.append(name)
        if progress is not None:
            progress(0.25)
        while not self.free.wait(0.01):
            if cancelled is not None and cancelled():
                raise ExtractionError(ExtractionFault.CANCELLED)
        content = path.read_bytes()
        if content.startswith(b"\x89PNG"):
            raise ExtractionError(ExtractionFault.UNKNOWN, Look.PICTURE)
        text = content.decode("utf-8", "replace")
        if text in list(ExtractionFault):
            raise ExtractionError(ExtractionFault(text))
        texts = text.split("\f")
        unit = PageUnit.PAGE if len(texts) > 1 else PageUnit.NONE
        labels = map(str, range(1, len(texts) + 1)) if unit else [""]
        pages = tuple(Page(*page) for page in zip(labels, texts, strict=True))
        return Document(DocumentKind.TEXT, pages, unit)

    def look(self, path: Path, cancelled: Callable[[], bool] | None = None) -> PictureLook:
        raise ExtractionError(ExtractionFault.UNKNOWN)

    def copy(
        self, path: Path, longest: int, cancelled: Callable[[], bool] | None = None
    ) -> Thumbnail:
        return copy_of(path, longest, SameProcess(), cancelled)

    def page(self, path: Path, index: int, cancelled: Callable[[], bool] | None = None) -> bytes:
        raise ExtractionError(ExtractionFault.UNKNOWN)

    def embedded_names(
        self, path: Path, name: str, cancelled: Callable[[], bool] | None = None
    ) -> tuple[str, ...]:
        return ()

    def embedded(
        self, path: Path, name: str, index: int, cancelled: Callable[[], bool] | None = None
    ) -> bytes:
        raise ExtractionError(ExtractionFault.UNKNOWN)

    def embedded_copy(
        self,
        path: Path,
        name: str,
        index: int,
        longest: int,
        cancelled: Callable[[], bool] | None = None,
    ) -> Thumbnail:
        raise ExtractionError(ExtractionFault.UNKNOWN)

    def close(self) -> None:
        self.closed = True
        self.free.set()
