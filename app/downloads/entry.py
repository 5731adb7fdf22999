"""A queued download: its pieces, progress, measured speed and remaining time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote

from app.downloads.names import safe_name
from app.downloads.policy import Phase
from app.downloads.transfer import FileDownload
from app.net.hub import Piece, Source, file_address, piece_names

ACTIVE = (Phase.QUEUED, Phase.CONNECTING, Phase.RUNNING, Phase.WAITING, Phase.VERIFYING)
_WINDOW_SECONDS = 5.0  # moving average of the speed
_SILENT_SECONDS = 2.0  # without a byte, until the speed is 0


@dataclass(frozen=True, slots=True)
class Download:
    """Snapshot of a download, for the window."""

    id: int
    url: str
    file: str  # name on disk, of the first piece
    path: Path  # final path of the first piece
    repository: str  # "": a direct link
    size_bytes: int  # of all pieces; 0: unknown
    done_bytes: int
    bytes_per_second: float  # over the last seconds; 0 while nothing arrives
    seconds_left: float | None  # None: unknown
    phase: Phase
    note: str  # details of the phase; reason and delay for WAITING
    error: str  # for FAILED, one sentence
    remedy: str
    sha256: str  # expected, of a file in one piece; "": unknown

    def is_of(self, source: Source) -> bool:
        """Whether it downloads this file, in any revision: not only one of the same name."""
        if source.url:
            return self.url == source.url
        path = unquote(self.url.partition("/resolve/")[2].partition("/")[2])
        return (self.repository, path) == (source.repository, source.file)


@dataclass
class Run:
    """One attempt at a download, on a separate thread."""

    live: bool = True  # False: stopped, its reports are ignored
    index: int = 0  # of the current piece
    job: FileDownload | None = None

    def stop(self) -> None:
        """Stop it soon."""
        self.live = False
        if self.job is not None:
            self.job.stop()


@dataclass
class Entry:
    """A download in the queue; guarded by the queue's lock."""

    id: int
    source: Source
    path: Path  # of the first piece
    phase: Phase = Phase.QUEUED
    note: str = ""
    error: str = ""
    remedy: str = ""
    pieces: list[Piece] = field(default_factory=list[Piece])
    done: dict[str, int] = field(default_factory=dict[str, int])  # bytes by name of the piece
    fetched: list[str] = field(default_factory=list[str])  # complete pieces
    run: Run | None = None
    _samples: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])
    _last_growth: float = 0.0  # time of the last received byte

    def __post_init__(self) -> None:
        self.pieces = self.pieces or pieces_of(self.source)
        self.source = replace(self.source, file=self.pieces[0].file)

    @property
    def key(self) -> tuple[str, ...]:
        """Identity of a download: two with the same key are the same."""
        source = self.source
        return (source.url,) if source.url else (source.repository, source.revision, source.file)

    @property
    def size_bytes(self) -> int:
        """Size of all pieces; 0 when any is unknown."""
        sizes = [piece.size_bytes for piece in self.pieces]
        return sum(sizes) if all(sizes) else self.source.size_bytes

    @property
    def done_bytes(self) -> int:
        """Received bytes of all pieces."""
        return sum(self.done.values())

    def place(self, index: int) -> Path:
        """Final path of a piece."""
        return (
            self.path.with_name(safe_name(self.pieces[index].file, self.path.parent))
            if index
            else self.path
        )

    def address(self, index: int, endpoint: str) -> str:
        """URL of a piece."""
        file = "" if self.source.url else self.pieces[index].file
        return file_address(self.source, file, endpoint)

    def update_from_job(self) -> None:
        """Copy progress, size and hash from the running transfer."""
        if self.run is None or self.run.job is None:
            return
        job, piece = self.run.job, self.pieces[self.run.index]
        self.done[piece.file] = job.done_bytes
        if (piece.size_bytes, piece.sha256) != (job.size_bytes, job.sha256):
            self.pieces[self.run.index] = Piece(piece.file, job.size_bytes, job.sha256)

    def sample(self, now: float) -> bool:
        """Record a speed sample; returns whether progress or speed has changed."""
        self.update_from_job()
        before, done = self.speed, self.done_bytes
        last = self._samples[-1][1] if self._samples else -1
        if done < last:  # the transfer was restarted
            self._samples.clear()
        if done != last:
            self._last_growth = now
        self._samples.append((now, done))
        while now - self._samples[0][0] > _WINDOW_SECONDS:
            self._samples.popleft()
        return done != last or before != self.speed

    def forget_speed(self) -> None:
        """Reset the speed measurement."""
        self._samples.clear()

    @property
    def speed(self) -> float:
        """Bytes per second, averaged over `_WINDOW_SECONDS`; 0 when stalled."""
        if self.phase is not Phase.RUNNING or len(self._samples) < 2:
            return 0.0
        (began, first), (now, last) = self._samples[0], self._samples[-1]
        if now - self._last_growth >= _SILENT_SECONDS or now <= began:
            return 0.0
        return max(last - first, 0) / (now - began)

    def snapshot(self, endpoint: str) -> Download:
        """An immutable copy for the window."""
        size, done, speed = self.size_bytes, self.done_bytes, self.speed
        return Download(
            id=self.id,
            url=self.address(0, endpoint),
            file=self.path.name,
            path=self.path,
            repository=self.source.repository,
            size_bytes=size,
            done_bytes=done,
            bytes_per_second=speed,
            seconds_left=max(size - done, 0) / speed if size and speed > 0 else None,
            phase=self.phase,
            note=self.note,
            error=self.error,
            remedy=self.remedy,
            sha256=self.pieces[0].sha256 if len(self.pieces) == 1 else "",
        )


def pieces_of(source: Source) -> list[Piece]:
    """The pieces of a source in order; raises HubError for an invalid piece number."""
    if source.pieces:
        return list(source.pieces)
    names = piece_names(source.file) if not source.url else (source.file,)
    if len(names) == 1:
        return [Piece(source.file, source.size_bytes, source.sha256)]
    return [Piece(name) for name in names]
