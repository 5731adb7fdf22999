"""Extraction of documents from files, and looks at pictures, by child processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.documents.packing import unpack, unpack_names, unpack_picture
from app.documents.pictures import PictureLook, copy_from, copy_of, look_at
from app.documents.source import (
    MOST_BYTES,
    MOST_CHARACTERS,
    ExtractionError,
    ExtractionFault,
    file_state,
)
from app.domain.documents import MOST_EMBEDDED, Document
from engine import ChildError, ChildFault, ChildLimits, ChildPool, Thumbnail, child_command

PAGE_SIDE = 1600  # pixels of the longer side of a page's picture, at most
_FAULTS = {
    ChildFault.TIMEOUT: ExtractionFault.TOO_SLOW,
    ChildFault.MEMORY: ExtractionFault.MEMORY,
    ChildFault.OUTPUT: ExtractionFault.TOO_LARGE,
    ChildFault.CANCELLED: ExtractionFault.CANCELLED,
}


class Extractor:
    """Extracts documents; any thread may call, and waits. Starts a child when it is needed."""

    def __init__(
        self,
        limits: ChildLimits | None = None,
        *,
        most_bytes: int = MOST_BYTES,
        most_characters: int = MOST_CHARACTERS,
        most_children: int = 2,
    ) -> None:
        self._pool = ChildPool(limits, most_children, child_command("app"))
        self._most_bytes = most_bytes
        self._most_characters = most_characters

    def extract(
        self,
        path: Path,
        name: str = "",
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> Document:
        """The document in the file `path`, which the user knows as `name`. Raises ExtractionError.

        `cancelled` is called every few milliseconds, and `progress` with the share that is done, 0
        to 1, if the format allows it; both on this thread.
        """
        before = file_state(path, self._most_bytes)
        request = {
            "path": str(path.absolute()),
            "name": name,
            "most_characters": self._most_characters,
        }
        try:
            pieces = self._pool.call("extract", request, cancelled, progress)
            document = unpack(pieces, self._most_characters)
        except (ChildError, ExtractionError) as error:
            if error.fault is not ChildFault.CANCELLED:
                _check_unchanged(path, before)  # else that is why
            raise _extraction_error(error) from None
        _check_unchanged(path, before)
        return document

    def look(self, path: Path, cancelled: Callable[[], bool] | None = None) -> PictureLook:
        """The size and the thumbnail of the picture in a file. Raises ExtractionError."""
        before = file_state(path, self._most_bytes)
        found = look_at(path, self._pool, cancelled)
        _check_unchanged(path, before)
        return found

    def copy(
        self, path: Path, longest: int, cancelled: Callable[[], bool] | None = None
    ) -> Thumbnail:
        """A copy of a picture, `longest` pixels at most on a side. Raises ExtractionError."""
        file_state(path, self._most_bytes)
        return copy_of(path, longest, self._pool, cancelled)

    def page(self, path: Path, index: int, cancelled: Callable[[], bool] | None = None) -> bytes:
        """A page of a PDF file as a PNG file. Raises ExtractionError."""
        file_state(path, self._most_bytes)
        request = {"path": str(path.absolute()), "page": index, "longest": PAGE_SIDE}
        return unpack_picture(self._call("page", request, cancelled))

    def embedded_names(
        self, path: Path, name: str, cancelled: Callable[[], bool] | None = None
    ) -> tuple[str, ...]:
        """The names of the pictures in a document. Raises ExtractionError."""
        request = {"path": str(path.absolute()), "name": name}
        return unpack_names(self._call("embedded", request, cancelled), MOST_EMBEDDED)

    def embedded(
        self, path: Path, name: str, index: int, cancelled: Callable[[], bool] | None = None
    ) -> bytes:
        """The bytes of a picture in a document, by its place among the names.

        Raises ExtractionError.
        """
        request = {"path": str(path.absolute()), "name": name, "index": index}
        return unpack_picture(self._call("embedded", request, cancelled))

    def embedded_copy(
        self,
        path: Path,
        name: str,
        index: int,
        longest: int,
        cancelled: Callable[[], bool] | None = None,
    ) -> Thumbnail:
        """A copy of a picture in a document. Raises ExtractionError."""
        content = self.embedded(path, name, index, cancelled)
        return copy_from(content, longest, self._pool, cancelled)

    def _call(
        self, task: str, request: dict[str, Any], cancelled: Callable[[], bool] | None
    ) -> list[bytes]:
        try:
            return self._pool.call(task, request, cancelled)
        except ChildError as error:
            raise _extraction_error(error) from None

    def close(self) -> None:
        """End the child processes; extractions that run raise ExtractionError, as cancelled."""
        self._pool.close()


def _extraction_error(error: ChildError | ExtractionError) -> ExtractionError:
    if isinstance(error, ExtractionError):
        return error
    return ExtractionError(_FAULTS.get(error.fault, ExtractionFault.CRASHED), error.detail)


def _check_unchanged(path: Path, before: os.stat_result) -> None:
    """Raise ExtractionError if a file is not as it was."""
    if _identity(file_state(path)) != _identity(before):
        raise ExtractionError(ExtractionFault.CHANGED)


def _identity(state: os.stat_result) -> tuple[int, int, int, int]:
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns
