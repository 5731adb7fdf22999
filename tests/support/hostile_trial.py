"""A trial of hostile files: each is extracted, and what must not be touched is watched."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.documents.extract import Extractor
from app.documents.source import ExtractionError
from app.domain.documents import Document
from engine.processes.pool import ChildLimits
from hostile_files import Make, hostile_files
from hostile_packages import Lures

LIMITS = ChildLimits(seconds=4, most_seconds=4, memory_bytes=600_000_000)
MOST_SECONDS = 10.0
SECRET = "the secret that no document contains"


@dataclass(frozen=True)
class Outcome:
    """What became of a file."""

    name: str
    found: Document | ExtractionError
    seconds: float

    @property
    def words(self) -> str:
        if isinstance(self.found, Document):
            warnings = ",".join(each.warning for each in self.found.warnings)
            text = self.found.text
            return f"{self.found.kind}: {len(self.found.pages)} pages, {len(text)} characters, {warnings}"
        return f"{self.found.fault.upper()}: {self.found.detail}"


class Trial:
    """Extracts hostile files in a folder, with one extractor."""

    def __init__(self, folder: Path, server: socket.socket) -> None:
        self._folder = folder
        self._server = server
        secret = folder / "canary" / "secret.txt"
        secret.parent.mkdir(parents=True)
        secret.write_text(SECRET, encoding="utf-8")
        self._place = folder / "files"
        self._place.mkdir()
        port = server.getsockname()[1]
        self.files: dict[str, Make] = hostile_files(Lures(f"http://127.0.0.1:{port}", secret))
        self._extractor = Extractor(LIMITS, most_children=1)

    def outcome(self, name: str) -> Outcome:
        """Try one file; raises AssertionError if anything else was touched."""
        path = self._place / name
        path.write_bytes(self.files[name]())
        before = self._traces(path)
        start = time.monotonic()
        try:
            found: Document | ExtractionError = self._extractor.extract(path)
        except ExtractionError as error:
            found = error
        seconds = time.monotonic() - start
        assert self._traces(path) == before, f"{name} changed files"
        assert not self._was_called(), f"{name} opened a connection"
        if isinstance(found, Document):
            assert SECRET not in found.text, f"{name} read another file"
        path.unlink()
        return Outcome(name, found, seconds)

    def close(self) -> None:
        self._extractor.close()

    def _traces(self, tried: Path) -> set[tuple[str, str]]:
        """All files of the folder with their contents; of the one that is tried, also its time."""
        return {
            (str(path), hashlib.sha256(path.read_bytes()).hexdigest() if path != tried
             else str(path.stat().st_mtime_ns))
            for path in self._folder.rglob("*") if path.is_file()
        }  # fmt: skip

    def _was_called(self) -> bool:
        try:
            self._server.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@contextmanager
def trial(folder: Path) -> Iterator[Trial]:
    """A trial in `folder`, with a server that hears of every connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        made = Trial(folder, server)
        try:
            yield made
        finally:
            made.close()
