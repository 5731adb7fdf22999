"""Reader of the files of collections: hashes and texts, made on its own thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from app.chat.documents.file_texts import EXTRACTION, TextExtractor
from app.chat.documents.indexing import DocumentText
from app.documents.folder_scan import changed_at
from app.documents.source import ExtractionError, ExtractionFault, file_state, sha256_of
from app.domain.collection import UNSURE, CollectionFile, FileState
from app.domain.documents import DocumentWarning
from engine import disk_files

_log = logging.getLogger(__name__)
_STEP_NANOSECONDS = 2_000_000_000  # the widest step of the times of a file system, that of FAT


@dataclass(frozen=True, slots=True)
class ReadFile:
    """What came of reading a file; without a text if it has none, or is known by its hash."""

    file: CollectionFile
    text: DocumentText | None = None
    cancelled: bool = False


class CollectionReader:
    """Used by one thread."""

    def __init__(self, extractor: Callable[[], TextExtractor]) -> None:
        """`extractor` makes the extractor when the first file is read."""
        self._make = extractor
        self._extractor: TextExtractor | None = None

    def read(
        self,
        file: CollectionFile,
        known: Mapping[str, CollectionFile],
        cancelled: Callable[[], bool],
    ) -> ReadFile:
        """Read a file, unless its text is known by its hash; raises nothing.

        Copies have one text, as the index has one document for them, also where the endings of their
        names differ.
        """
        try:
            return self._read(file, known, cancelled)
        except ExtractionError as error:
            fault, detail = error.fault, error.detail
        except Exception:  # noqa: BLE001  (logged; this file fails, the next is read)
            _log.exception("a file of a collection cannot be read")
            fault, detail = ExtractionFault.CRASHED, ""
        failed = replace(file, state=FileState.FAILED, version="", fault=fault, detail=detail)
        return ReadFile(failed, cancelled=fault is ExtractionFault.CANCELLED)

    def close(self) -> None:
        """Read no more."""
        if self._extractor is not None:
            self._extractor.close()

    # --- steps ----------------------------------------------------------------------------------

    def _read(
        self,
        file: CollectionFile,
        known: Mapping[str, CollectionFile],
        cancelled: Callable[[], bool],
    ) -> ReadFile:
        path = Path(disk_files.system_path(Path(file.path)))
        before = file_state(path)
        changed = changed_at(before)
        # Changes that follow each other at once may have one time: it is looked at again.
        recent = 0 <= time.time_ns() - changed < _STEP_NANOSECONDS
        file = replace(file, size=before.st_size, modified=UNSURE if recent else changed)
        if not before.st_size:
            return ReadFile(
                replace(file, state=FileState.FAILED, version="", fault=DocumentWarning.EMPTY)
            )
        file = replace(file, sha256=sha256_of(path, cancelled))
        if (same := known.get(file.sha256)) is not None:
            ready = replace(file, state=FileState.READY, version=same.version, unit=same.unit)
            return ReadFile(replace(ready, fault="", detail=""))
        if self._extractor is None:
            self._extractor = self._make()
        document = self._extractor.extract(path, path.name, cancelled)
        after = file_state(path)
        if (after.st_size, changed_at(after)) != (before.st_size, changed):
            raise ExtractionError(ExtractionFault.CHANGED)
        text = document.text
        if not text.strip():
            warnings = [each.warning for each in document.warnings]
            scanned = DocumentWarning.SCANNED in warnings
            fault = DocumentWarning.SCANNED if scanned else DocumentWarning.EMPTY
            return ReadFile(
                replace(file, state=FileState.FAILED, version="", fault=fault, detail="")
            )
        ready = replace(
            file,
            state=FileState.READY,
            version=f"{len(text)} {len(document.starts)}",  # as of an attached file with this text
            unit=document.unit,
            fault="",
            detail="",
        )
        return ReadFile(ready, DocumentText(text, document.starts, document.kind))


READER = EXTRACTION  # version of what reads the texts
