"""Texts of files: their bytes are kept, and their text is extracted once for all chats.

Works on a thread that may wait for slow drives. The text is read from the bytes that were kept, so
that it is theirs whatever happens to the file meanwhile; the same bytes under a name with the same
ending are not extracted again. Of a picture there is no text, but a thumbnail.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from app.documents.pictures import PictureLook
from app.documents.source import (
    ExtractionError,
    ExtractionFault,
    Look,
    file_state,
    pieces,
    sha256_of,
)
from app.domain.documents import Document, Reads
from app.domain.parts import FileOrImage, FilePart, ImagePart
from app.store.blobs import Blobs
from app.store.part_rows import from_row, to_row
from app.store.schema import StoreError
from engine import Thumbnail, disk_files

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

    def look(self, path: Path, cancelled: Callable[[], bool] | None = None) -> PictureLook:
        """The size and the thumbnail of a picture; blocks. Raises ExtractionError."""
        ...

    def copy(
        self, path: Path, longest: int, cancelled: Callable[[], bool] | None = None
    ) -> Thumbnail:
        """A copy of a picture with sides of `longest` pixels at most; blocks.

        Raises ExtractionError.
        """
        ...

    def page(self, path: Path, index: int, cancelled: Callable[[], bool] | None = None) -> bytes:
        """A page of a PDF file as a PNG file; blocks. Raises ExtractionError."""
        ...

    def embedded_names(
        self, path: Path, name: str, cancelled: Callable[[], bool] | None = None
    ) -> tuple[str, ...]:
        """The names of the pictures in a document; blocks. Raises ExtractionError."""
        ...

    def embedded(
        self, path: Path, name: str, index: int, cancelled: Callable[[], bool] | None = None
    ) -> bytes:
        """The bytes of a picture in a document; blocks. Raises ExtractionError."""
        ...

    def embedded_copy(
        self,
        path: Path,
        name: str,
        index: int,
        longest: int,
        cancelled: Callable[[], bool] | None = None,
    ) -> Thumbnail:
        """A copy of a picture in a document; blocks. Raises ExtractionError."""
        ...

    def close(self) -> None:
        """End what it runs."""
        ...


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file that was read."""

    part: FileOrImage
    thumbnail: bytes = b""  # PNG, of a picture


class FileTexts:
    """Used by one thread."""

    def __init__(self, blobs: Blobs, extractor: Callable[[], TextExtractor]) -> None:
        """`extractor` makes the extractor when the first file is read."""
        self._blobs, self._make = blobs, extractor
        self._extractor: TextExtractor | None = None

    def keep(self, wanted: FileOrImage, content: bytes) -> FileOrImage:
        """The part with the hash of its content, which is kept; raises StoreError."""
        return replace(wanted, sha256=self._blobs.add(content), size_bytes=len(content))

    def read(
        self,
        wanted: FileOrImage,
        cancelled: Callable[[], bool],
        progress: Callable[[float], None] | None = None,
    ) -> ReadFile:
        """The part with its text, or as a picture, of its hash if the bytes are there, or else of
        its path.

        `progress` is called with 0 to 1 while it is extracted. Raises ExtractionError and StoreError.
        """
        known = self._blobs.find(wanted.sha256) if wanted.sha256 else None
        part = wanted if known else self._kept(wanted, cancelled)
        found = self._extracted_before(part)
        if found is None:
            found = self._extracted(part, cancelled, progress)
            content = [EXTRACTION, _ending(part), to_row(found.part)]
            if found.thumbnail:
                content.append(base64.b64encode(found.thumbnail).decode("ascii"))
            with suppress(StoreError):  # then it is extracted again next time
                self._blobs.keep_extracted(part.sha256, json.dumps(content).encode())
        return ReadFile(_completed(part, found.part), found.thumbnail)

    def is_changed(self, part: FileOrImage) -> bool:
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

    def page(self, sha256: str, index: int, cancelled: Callable[[], bool]) -> bytes:
        """A page of a kept PDF file as a PNG file. Raises ExtractionError."""
        extractor, path = self._extractor_of(sha256)
        return extractor.page(path, index, cancelled)

    def embedded(self, sha256: str, name: str, index: int, cancelled: Callable[[], bool]) -> bytes:
        """The bytes of a picture in a kept document. Raises ExtractionError."""
        extractor, path = self._extractor_of(sha256)
        return extractor.embedded(path, name, index, cancelled)

    def close(self) -> None:
        """Extract no more."""
        if self._extractor is not None:
            self._extractor.close()

    # --- steps ----------------------------------------------------------------------------------

    def _kept(self, wanted: FileOrImage, cancelled: Callable[[], bool]) -> FileOrImage:
        """The part with the hash of its file, whose bytes are kept."""
        if not wanted.path:  # it was pasted
            raise ExtractionError(ExtractionFault.MISSING)
        path = Path(disk_files.system_path(Path(wanted.path)))
        facts = file_state(path)
        sha256 = self._blobs.add(pieces(path, cancelled))
        return replace(wanted, sha256=sha256, modified=facts.st_mtime, size_bytes=facts.st_size)

    def _extracted(
        self,
        part: FileOrImage,
        cancelled: Callable[[], bool],
        progress: Callable[[float], None] | None,
    ) -> ReadFile:
        extractor, path = self._extractor_of(part.sha256)
        try:
            document = extractor.extract(path, part.name, cancelled, progress)
        except ExtractionError as error:
            if (error.fault, error.detail) != (ExtractionFault.UNKNOWN, Look.PICTURE):
                raise
            look = extractor.look(path, cancelled)
            image = ImagePart(part.name, part.sha256, width=look.width, height=look.height)
            return ReadFile(image, look.thumbnail)
        return ReadFile(
            FilePart(
                part.name,
                document.text,
                part.sha256,
                document.kind,
                document.unit,
                document.starts,
                warnings=document.warnings,
            )
        )

    def _extractor_of(self, sha256: str) -> tuple[TextExtractor, Path]:
        """What reads a kept file, and its path. Raises ExtractionError if it is not kept."""
        path = self._blobs.find(sha256)
        if path is None:
            raise ExtractionError(ExtractionFault.MISSING)
        if self._extractor is None:
            self._extractor = self._make()
        return self._extractor, path

    def _extracted_before(self, part: FileOrImage) -> ReadFile | None:
        content = self._blobs.extracted(part.sha256)
        try:
            version, ending, row, *thumbnail = json.loads(content) if content else (0, "", ())
            if (version, ending) != (EXTRACTION, _ending(part)):
                return None
            found = from_row(*row)
            read = base64.b64decode("".join(thumbnail), validate=True)
        except (ValueError, TypeError):
            return None  # damaged
        return ReadFile(found, read) if isinstance(found, FilePart | ImagePart) else None


def _completed(part: FileOrImage, found: FileOrImage) -> FileOrImage:
    """A part with what was found in its file."""
    if isinstance(found, ImagePart):
        return replace(
            found,
            name=part.name,
            sha256=part.sha256,
            path=part.path,
            size_bytes=part.size_bytes,
            modified=part.modified,
            detail=part.detail if isinstance(part, ImagePart) else found.detail,
            description=part.description if isinstance(part, ImagePart) else "",
        )
    if isinstance(part, ImagePart):  # a picture of a format that is judged otherwise now
        part = FilePart(part.name, sha256=part.sha256, path=part.path, modified=part.modified)
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


def _ending(part: FileOrImage) -> str:
    """The ending of its name, by which text formats are told apart."""
    return Path(part.name).suffix.lower()
