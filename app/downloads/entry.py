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
from engine import names_beside

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
    lacking: str = ""  # why its picture encoder does not come with it, a sentence

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
    there: set[str] = field(default_factory=set[str])  # pieces that were on the disk before
    encoder_name: str = ""  # of the picture encoder, beside the model; "": not decided yet
    lacking: str = ""
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
        if source.url:
            return (source.url,)
        name = (source.name,) if source.name else ()
        return (source.repository, source.revision, source.file, *name)

    @property
    def encoder_index(self) -> int | None:
        """The place of the picture encoder among the pieces, the last; None: there is none."""
        return len(self.pieces) - 1 if self.source.encoder is not None else None

    @property
    def model_pieces(self) -> list[Piece]:
        """The pieces of the model itself."""
        return self.pieces[: self.encoder_index]

    @property
    def has_model(self) -> bool:
        """Whether the model itself has arrived, which is then of use without its encoder."""
        return self.pieces[0].file in self.fetched

    @property
    def order(self) -> list[int]:
        """Places of the pieces in the order they are fetched.

        The first one comes last, so that an incomplete model is not listed; then its encoder.
        """
        encoder = [] if self.encoder_index is None else [self.encoder_index]
        return [*range(1, len(self.model_pieces)), 0, *encoder]

    @property
    def encoder_names(self) -> tuple[str, ...]:
        """Possible names of the picture encoder beside the model, the preferred one first."""
        if self.encoder_index is None:
            return ()
        names = names_beside(self.path.name, self.pieces[self.encoder_index].file)
        return tuple(safe_name(name, self.path.parent) for name in names)

    def leave_encoder_out(self, lacking: str) -> None:
        """Download the model alone, and say why."""
        self.pieces, self.lacking = self.model_pieces, lacking
        self.source = replace(self.source, encoder=None)

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
        if index == self.encoder_index:
            return self.path.with_name(self.encoder_name or self.encoder_names[0])
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
            sha256=self.pieces[0].sha256 if len(self.model_pieces) == 1 else "",
            lacking=self.lacking,
        )


def pieces_of(source: Source) -> list[Piece]:
    """The pieces of a source in order, its picture encoder last.

    Raises HubError for an invalid piece number.
    """
    encoder = [] if source.encoder is None else [source.encoder]
    return [*_model_pieces(source), *encoder]


def _model_pieces(source: Source) -> list[Piece]:
    if source.pieces:
        return list(source.pieces)
    names = piece_names(source.file) if not source.url else (source.file,)
    if len(names) == 1:
        return [Piece(source.file, source.size_bytes, source.sha256)]
    return [Piece(name) for name in names]
