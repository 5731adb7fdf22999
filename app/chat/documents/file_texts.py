"""Texts of files: their bytes are kept, and their text is extracted once for all chats.

Works on a thread that may wait for slow drives. The text is read from the bytes that were kept, so
that it is theirs whatever happens to the file meanwhile; the same bytes under a name with the same
ending are not extracted again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from app.documents.source import ExtractionError, ExtractionFault, file_state, pieces, sha256_of
from app.domain.documents import Document, Reads
from app.domain.parts import FilePart
from app.store.blobs import Blobs
from app.store.part_rows import from_row, to_row
from app.store.schema import StoreError
from engine import disk_files

EXTRACTION = 1  # version of the readers: the texts of another one are extracted again


class TextExtractor(Protocol):
    """Extracts the text of a file; see `app.documents.extract.Extractor`."""

    def extract(
        self,
        path: Path,
        name: str = "",
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> Document:
        """The document in a file; blocks. Raises ExtractionError."""
        ...

    def close(self) -> None:
        """End what it runs."""
        ...


class FileTexts:
    """Used by one thread."""

    def __init__(self, blobs: Blobs, extractor: Callable[[], TextExtractor]) -> None:
        """`extractor` makes the extractor when the first file is read."""
        self._blobs, self._make = blobs, extractor
        self._extractor: TextExtractor | None = None

    def read(
        self,
        wanted: FilePart,
        cancelled: Callable[[], bool],
        progress: Callable[[float], None] | None = None,
    ) -> FilePart:
        """The part with its text: of its hash if the bytes are there, or else of its path.

        `progress` is called with 0 to 1 while it is extracted. Raises ExtractionError and StoreError.
        """
        known = self._blobs.find(wanted.sha256) if wanted.sha256 else None
        part = wanted if known else self._kept(wanted, cancelled)
        found = self._extracted_before(part)
        if found is None:
            found = self._extracted(part, cancelled, progress)
            content = [EXTRACTION, _ending(part), to_row(found)]
            with suppress(StoreError):  # then it is extracted again next time
                self._blobs.keep_extracted(part.sha256, json.dumps(content).encode())
        chosen = tuple(each for each in part.chosen if each < len(found.pages))
        return replace(
            part,
            reads=Reads.WHOLE if part.reads is Reads.PAGES and not chosen else part.reads,
            chosen=chosen,
            text=found.text,
            kind=found.kind,
            unit=found.unit,
            pages=found.pages,
            warnings=found.warnings,
        )

    def is_changed(self, part: FilePart) -> bool:
        """Whether the file that a part was attached from is there, with other content."""
        if not part.path or not part.sha256:
            return False
        try:
            path = Path(disk_files.system_path(Path(part.path)))
            now = file_state(path)
            if part.size_bytes not in (0, now.st_size):  # 0: not known
                return True
            is_same = now.st_mtime == part.modified
            return not is_same and sha256_of(path) != part.sha256
        except ExtractionError:
            return False

    def close(self) -> None:
        """Extract no more."""
        if self._extractor is not None:
            self._extractor.close()

    # --- steps ----------------------------------------------------------------------------------

    def _kept(self, wanted: FilePart, cancelled: Callable[[], bool]) -> FilePart:
        """The part with the hash of its file, whose bytes are kept."""
        path = Path(disk_files.system_path(Path(wanted.path)))
        facts = file_state(path)
        sha256 = self._blobs.add(pieces(path, cancelled))
        return replace(wanted, sha256=sha256, modified=facts.st_mtime, size_bytes=facts.st_size)

    def _extracted(
        self,
        part: FilePart,
        cancelled: Callable[[], bool],
        progress: Callable[[float], None] | None,
    ) -> FilePart:
        path = self._blobs.find(part.sha256)
        if path is None:
            raise ExtractionError(ExtractionFault.UNREADABLE)
        if self._extractor is None:
            self._extractor = self._make()
        document = self._extractor.extract(path, part.name, cancelled, progress)
        return FilePart(
            part.name,
            document.text,
            part.sha256,
            document.kind,
            document.unit,
            document.starts,
            warnings=document.warnings,
        )

    def _extracted_before(self, part: FilePart) -> FilePart | None:
        content = self._blobs.extracted(part.sha256)
        try:
            version, ending, row = json.loads(content) if content else (0, "", ())
            found = from_row(*row) if (version, ending) == (EXTRACTION, _ending(part)) else None
        except (ValueError, TypeError):
            return None  # damaged
        return found if isinstance(found, FilePart) else None


def _ending(part: FilePart) -> str:
    """The ending of its name, by which text formats are told apart."""
    return Path(part.name).suffix.lower()
