"""Documents of passages that were found in collections: their texts, to be shown with the passage.

The text is that of the index, as it was searched, if the file is as it was. One that has changed is
read again, to show the passage where it is now. What is no longer to be had of the file is shown as
it was indexed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.chat.documents.collection_reader import CollectionReader, ReadFile
from app.chat.documents.file_texts import TextExtractor
from app.chat.documents.indexing import DocumentText, Indexing
from app.documents.source import ExtractionFault
from app.domain.collection import CollectionFile, FileState
from app.domain.documents import PageUnit, Passage
from app.domain.parts import FilePart
from app.state.collection_faults import problem_of
from app.system.translation import tr
from app.system.worker import BackgroundWorker


@dataclass(frozen=True, slots=True)
class OpenedDocument:
    """A document, and the characters of a passage in it."""

    part: FilePart
    place: range
    note: str = ""  # how the file has changed since


class PassageDocuments(QObject):
    """Reads the documents; every method returns at once."""

    opened = Signal(object, object, object, str)  # Passage, and the fields of `OpenedDocument`

    def __init__(
        self, indexing: Indexing, extractor: Callable[[], TextExtractor], parent: QObject
    ) -> None:
        super().__init__(parent)
        self._indexing = indexing
        self._worker = BackgroundWorker("passage documents", self)
        self._reader = CollectionReader(extractor)
        self._newest: Passage | None = None  # the others are not wanted any more
        self._closed = False

    def open(self, passage: Passage) -> None:
        """Read the document of a passage that has a path; `opened` follows, but for the last only."""
        self._newest = passage

        def look(indexed: DocumentText | None) -> None:
            self._worker.run(lambda: self._look(passage, indexed), show)

        def show(found: OpenedDocument | None) -> None:
            if found is not None and passage is self._newest:
                self.opened.emit(passage, found.part, found.place, found.note)

        self._indexing.read_text(passage.sha256, look)

    def close(self) -> None:
        """Read no more."""
        self._closed = True
        self._worker.close(self._reader.close)

    # --- steps ----------------------------------------------------------------------------------

    def _look(self, passage: Passage, indexed: DocumentText | None) -> OpenedDocument | None:
        """On the worker."""
        known = CollectionFile(passage.path, 0, 0, passage.sha256, version="known")
        read = self._read(passage, {passage.sha256: known} if indexed is not None else {})
        if read.cancelled:
            return None
        file, name = read.file, passage.name
        if file.state is FileState.READY and file.sha256 == passage.sha256:
            return _opened(passage, read.text or indexed)
        if read.text is not None:
            if (at := _found(passage, read.text.text)) >= 0:
                note = tr("{file} has changed since. This is its text as it is now.", file=name)
                length = passage.end - passage.start
                made = _part(passage, read.text, file.sha256, file.unit)
                return OpenedDocument(made, range(at, at + length), note)
            said = tr("{file} has changed since, and the passage is no longer in it.", file=name)
        elif file.fault == ExtractionFault.MISSING:
            said = tr("{file} is no longer there.", file=name)
        else:
            problem = problem_of(file)
            said = problem.sentence if problem else tr("{file} cannot be read.", file=name)
        was = tr("This is the text that was found.")
        return _opened(passage, indexed, f"{said} {was}")

    def _read(self, passage: Passage, known: dict[str, CollectionFile]) -> ReadFile:
        return self._reader.read(
            CollectionFile(passage.path, 0, 0),
            known,
            lambda: self._closed or passage is not self._newest,
        )


def _opened(passage: Passage, text: DocumentText | None, note: str = "") -> OpenedDocument:
    """The document as it was searched, or only the passage."""
    if text is None or not text.text[passage.start : passage.end].strip():
        only = FilePart(passage.name, passage.text, path=passage.path)
        return OpenedDocument(only, range(len(passage.text)), note)
    made = _part(passage, text, passage.sha256, passage.unit)
    return OpenedDocument(made, range(passage.start, passage.end), note)


def _part(passage: Passage, text: DocumentText, sha256: str, unit: PageUnit) -> FilePart:
    name = Path(passage.path).name or passage.name
    return FilePart(name, text.text, sha256, text.kind, unit, text.starts, path=passage.path)


def _found(passage: Passage, text: str) -> int:
    """Where the passage is in a text, the nearest place to where it was; -1: nowhere."""
    inside = passage.text[max(0, len(passage.text) - (passage.end - passage.start)) :]
    if not inside:
        return -1
    behind = text.find(inside, passage.start)
    before = text.rfind(inside, 0, passage.start + len(inside))
    places = [each for each in (before, behind) if each >= 0]
    return min(places, key=lambda at: abs(at - passage.start), default=-1)
