"""Keeps the files that tools return, and judges by their content which are pictures."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from app.documents.pictures import PictureLook
from app.documents.source import ExtractionError
from app.domain.parts import KeptFile, Parts, ToolResultPart
from app.domain.picture_types import BEGINNING, ENDINGS, media_type
from app.domain.tool_files import safe_file_name
from app.domain.tools import ToolFile, ToolOutcome
from app.store.blobs import Blobs
from app.store.schema import StoreError

MOST_FILES = 20  # of one call
MOST_BYTES = 32_000_000  # of one call
MOST_ANSWER_BYTES = 128_000_000  # of all calls of an answer
_OTHER_ENDINGS = {"image/jpeg": (".jpeg", ".jpe", ".jfif"), "image/tiff": (".tif",)}
_log = logging.getLogger(__name__)
# Reads the size of a picture in a child process; raises ExtractionError.
LookAt = Callable[[Path, Callable[[], bool]], PictureLook]


@dataclass(frozen=True, slots=True)
class Kept:
    """The files of a result that were kept."""

    files: tuple[KeptFile, ...] = ()
    left_out: int = 0  # files
    told: str = ""  # to the model


@dataclass(slots=True)
class AnswerRoom:
    """How many bytes of files the calls of an answer may still return; used on one thread."""

    left: int = MOST_ANSWER_BYTES

    @classmethod
    def behind(cls, parts: Parts) -> AnswerRoom:
        """The bytes left to the next calls of an answer that has these parts."""
        results = (part for part in parts if isinstance(part, ToolResultPart))
        used = sum(file.size_bytes for result in results for file in result.files)
        return cls(max(MOST_ANSWER_BYTES - used, 0))

    def take(self, files: Sequence[ToolFile]) -> list[ToolFile]:
        """Those of a call for which there is room, which they use up."""
        taken: list[ToolFile] = []
        size = 0
        for file in files:
            more = len(file.data)
            if len(taken) < MOST_FILES and size + more <= min(MOST_BYTES, self.left):
                taken.append(file)
                size += more
        self.left -= size
        return taken


class FileKeeper:
    """Keeps files under their hashes; `keep` is awaited on the tools' thread."""

    def __init__(self, blobs: Blobs, look: LookAt) -> None:
        self._blobs, self._look = blobs, look

    async def keep(self, outcome: ToolOutcome, room: AnswerRoom) -> Kept:
        """Keep the files of an outcome that there is room for."""
        if not outcome.files and not outcome.files_left_out:
            return Kept()
        taken = room.take(outcome.files)
        stopped = threading.Event()
        try:
            kept = await asyncio.to_thread(self._keep, taken, stopped.is_set)
        finally:
            stopped.set()
        missing = len(outcome.files) - len(kept)
        room.left += sum(len(one.data) for one in taken) - sum(one.size_bytes for one in kept)
        told = f"({_files(missing)} not kept.)" if missing else ""
        return Kept(tuple(kept), missing + outcome.files_left_out, told)

    def _keep(self, files: Sequence[ToolFile], stopped: Callable[[], bool]) -> list[KeptFile]:
        kept: list[KeptFile] = []
        for file in files:
            if stopped():
                break
            kind = media_type(file.data[:BEGINNING])
            names = {each.name.casefold() for each in kept}
            name = safe_file_name(_with_ending(file.name, kind), names)
            try:
                sha256 = self._blobs.add(file.data)
            except StoreError:
                _log.exception("A file of a tool cannot be kept")
                break
            made = KeptFile(name, sha256, len(file.data))
            kept.append(self._seen(made, stopped) if kind else made)
        return kept

    def _seen(self, file: KeptFile, stopped: Callable[[], bool]) -> KeptFile:
        """A picture with its size, or with why it cannot be shown."""
        path = self._blobs.find(file.sha256)
        if path is None:
            return file
        try:
            look = self._look(path, stopped)
        except ExtractionError as error:
            return replace(file, fault=error.fault.value)
        return replace(file, width=look.width, height=look.height)


def _with_ending(name: str, kind: str) -> str:
    """The name of a picture with an ending that says what it is, whatever the tool says."""
    endings = (ENDINGS[kind], *_OTHER_ENDINGS.get(kind, ())) if kind else ()
    ending = PurePosixPath(name).suffix.lower()
    return name if not endings or ending in endings else f"{name}{endings[0]}"


def _files(count: int) -> str:
    return "1 file was" if count == 1 else f"{count} files were"
