"""Pictures of messages: copies of their kept files for the window, and files saved elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject

from app.chat.documents.file_texts import TextExtractor
from app.documents.source import ExtractionError
from app.domain.parts import FilePart, ImagePart, KeptFile
from app.domain.picture_types import BEGINNING, ENDINGS, media_type
from app.state.chat import Notice, State
from app.state.document_faults import fault_sentence
from app.state.pictures import EmbeddedPictures, PictureCopy, PicturesState, embedded_key
from app.store.blobs import Blobs
from app.store.schema import StoreError
from app.system.file_advice import advice
from app.system.translation import tr
from app.system.worker import BackgroundWorker
from engine import disk_files

NOTICE = "pictures"  # kind of the notice that a picture could not be saved
_log = logging.getLogger(__name__)


class Pictures:
    """Reads pictures one after another on a thread; lives on the GUI thread."""

    def __init__(
        self,
        state: State,
        shown: PicturesState,
        blobs: Blobs,
        extractor: Callable[[], TextExtractor],
        parent: QObject,
    ) -> None:
        """`extractor` makes what decodes pictures, when the first one is read."""
        self._state, self._shown, self._blobs = state, shown, blobs
        self._make = extractor
        self._extractor: TextExtractor | None = None
        self._worker = BackgroundWorker("pictures", parent)
        self._wanted: list[tuple[ImagePart, int]] = []  # the next one last
        self._document = ""  # hash of the one whose pictures are wanted
        self._closed = False

    def read(self, image: ImagePart, longest: int) -> None:
        """Read a copy with sides of `longest` pixels at most; the state tells when it is there.

        The newest one first: what was scrolled away meanwhile can wait.
        """
        self._wanted.append((image, longest))
        self._worker.run(self._read_next, self._shown.read.emit)

    def list_embedded(self, part: FilePart) -> None:
        """List the pictures in a kept document; the state tells if there are some."""
        self._document = part.sha256

        def listed(found: EmbeddedPictures | None) -> None:
            if found is not None and found.names:
                self._shown.embedded.emit(found)

        self._worker.run(lambda: self._list(part), listed)

    def read_embedded(self, part: FilePart, indexes: Sequence[int], longest: int) -> None:
        """Read copies of pictures in a document, one after another, while it is the shown one."""
        self._document = part.sha256

        def read(found: PictureCopy | None) -> None:
            if found is not None:
                self._shown.read.emit(found)

        for index in indexes:
            self._worker.run(partial(self._embedded_copy, part, index, longest), read)

    def save(self, file: ImagePart | KeptFile, path: Path) -> None:
        """Write a kept file to a path; a notice says why it could not be written."""

        def pieces() -> Iterable[bytes]:
            if isinstance(file, KeptFile) and self._blobs.find(file.sha256) is None:
                words = tr("{file} is not there any more.", file=file.name)
                raise StoreError(words, tr("Let the tool make it again."))
            return self._blobs.pieces(file.sha256)

        self._write(pieces, path)

    def save_made(self, make: Callable[[], bytes], path: Path) -> None:
        """Write a file whose content `make` makes on the thread, as `save` does."""
        self._write(lambda: [make()], path)

    def _write(self, pieces: Callable[[], Iterable[bytes]], path: Path) -> None:
        def written(fault: Notice | None) -> None:
            self._state.set_notice(NOTICE, fault)

        self._worker.run(lambda: _write(pieces, path), written)

    def close(self) -> None:
        """Read no more."""
        self._closed = True
        self._wanted.clear()
        self._worker.end(self._end)

    # --- on the thread --------------------------------------------------------------------------

    def _end(self) -> None:
        if self._extractor is not None:
            self._extractor.close()

    def _read_next(self) -> PictureCopy:
        try:
            image, longest = self._wanted.pop()
        except IndexError:  # closed
            return PictureCopy("", 0)
        name = image.name or tr("Pasted picture")
        try:
            return self._copy(image, longest)
        except ExtractionError as error:
            fault, _ = fault_sentence(name, error.fault, error.detail)
        except Exception:  # noqa: BLE001  (any fault is shown; later pictures are read)
            _log.exception("A picture cannot be read")
            fault = tr("{file} could not be read.", file=name)
        return PictureCopy(image.sha256, longest, fault=fault)

    def _list(self, part: FilePart) -> EmbeddedPictures | None:
        path = self._blobs.find(part.sha256)
        if path is None or self._closed or self._document != part.sha256:
            return None
        try:
            names = self._reader.embedded_names(path, part.name, lambda: self._closed)
        except ExtractionError:
            return None  # its text was read, and says what is wrong with it
        return EmbeddedPictures(part.sha256, names)

    def _embedded_copy(self, part: FilePart, index: int, longest: int) -> PictureCopy | None:
        path, key = self._blobs.find(part.sha256), embedded_key(part.sha256, index)
        if path is None or self._closed or self._document != part.sha256:
            return None
        try:
            found = self._reader.embedded_copy(
                path, part.name, index, longest, lambda: self._closed
            )
        except ExtractionError as error:
            fault, _ = fault_sentence(part.name, error.fault, error.detail)
            return PictureCopy(key, longest, fault=fault)
        return PictureCopy(key, longest, *found.size, found.pixels)

    @property
    def _reader(self) -> TextExtractor:
        if self._extractor is None:
            self._extractor = self._make()
        return self._extractor

    def _copy(self, image: ImagePart, longest: int) -> PictureCopy:
        path = self._blobs.find(image.sha256) if image.sha256 else None
        if path is None:
            return PictureCopy(image.sha256, longest, fault=gone_words())
        found = self._reader.copy(path, longest, lambda: self._closed)
        with path.open("rb") as file:
            ending = ENDINGS.get(media_type(file.read(BEGINNING)), "")
        return PictureCopy(image.sha256, longest, *found.size, found.pixels, ending)


def _write(pieces: Callable[[], Iterable[bytes]], path: Path) -> Notice | None:
    """Write a file, on the thread; returns why it could not be written, and raises nothing."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        with open(disk_files.system_path(fresh), "wb") as file:
            for piece in pieces():
                file.write(piece)
        disk_files.replace(fresh, path)
    except StoreError as error:
        disk_files.delete(fresh)
        return Notice(str(error), error.remedy)
    except (OSError, ValueError) as error:
        disk_files.delete(fresh)
        if isinstance(error, ValueError):  # it has no hash
            return Notice(gone_words())
        sentence = tr(
            "{path} could not be written: {reason}.",
            path=path,
            reason=error.strerror or error,
        )
        way = tr("Check that the folder can be written to and that the disk is not full.")
        return Notice(sentence, advice(error, way))
    return None


def gone_words() -> str:
    """Why a picture is not shown whose file is not kept."""
    return tr("The file of this picture is not there any more.")
