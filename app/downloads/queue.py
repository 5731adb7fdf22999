"""Download queue: starts, pauses and resumes downloads, and restores them after a restart.

Each running download has a thread, and one notifier thread calls `changed`, in order, and for
progress at most once per `tick_seconds`. Partial files are written by `app.downloads.transfer`,
the queue itself by `app.downloads.journal`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from app.downloads.entry import ACTIVE, Download, Entry, Run
from app.downloads.journal import read_queue, rows_of, write_rows
from app.downloads.names import safe_folder, safe_name
from app.downloads.partial import delete_part, hash_file
from app.downloads.policy import DownloadError, Limits, Phase, Stopped, disk_error, free_bytes
from app.downloads.transfer import FileDownload, probe
from app.net.http import WebError, parse_proxy
from app.net.hub import HUB, HubError, Piece, Source
from app.net.hub import files as hub_files
from app.net.offline import gate
from app.system.translation import tr
from engine import disk_files

__all__ = ["Download", "Downloads", "Limits", "Phase", "Source"]

_log = logging.getLogger(__name__)
_CLOSE_SECONDS = 3.0
_MAX_FOLDERS = 100  # folders tried when a file name is already in use


class Downloads:
    """The queue. Every method may be called from any thread; none blocks on the network."""

    def __init__(
        self,
        folder: Path,
        changed: Callable[[Download], None],
        *,
        parallel: int = 2,
        endpoint: str = HUB,
        proxy: str = "",
        limits: Limits | None = None,
        tick_seconds: float = 0.25,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        self._folder = folder
        self._changed = changed
        self._parallel = parallel
        self._endpoint = endpoint
        self._proxy = proxy
        self._limits = limits or Limits()
        self._tick_seconds = tick_seconds
        self._free = free
        self._entries: dict[int, Entry] = {}
        self._threads: list[tuple[Entry, threading.Thread]] = []  # running, by download
        self._pending: deque[Download] = deque()
        self._unsaved = False
        self._closing = False
        self._number = 0
        self._wake = threading.Condition(threading.RLock())
        self._notifier: threading.Thread | None = None
        self._leave_gate: Callable[[], None] = gate.follow(self._on_switch)

    # --- public methods -------------------------------------------------------------------------

    def start(self, *, resume: bool = False) -> None:
        """Restore the downloads of an earlier run; `resume` restarts those that were running."""
        with self._wake:
            for entry in read_queue(self._folder, self._endpoint):
                self._number += 1
                entry.id = self._number
                if entry.phase is Phase.QUEUED and not resume:
                    entry.phase = Phase.PAUSED
                self._entries[entry.id] = entry
                self._notify(entry)
            self._notifier = threading.Thread(target=self._loop, name="downloads", daemon=True)
            self._notifier.start()

    def add(self, source: Source) -> int:
        """Queue a download and return its id; one that is queued already is resumed instead.

        Raises HubError for a source that is not a model file.
        """
        if not source.file.lower().endswith(".gguf"):
            raise HubError(tr("This is not a model file."), tr("Choose a file that ends in .gguf."))
        with self._wake:
            fresh = Entry(self._number + 1, source, self._folder)
            for entry in list(self._entries.values()):
                if entry.key != fresh.key:
                    continue
                if entry.phase is Phase.DONE and not entry.path.is_file():
                    del self._entries[entry.id]  # deleted since
                    continue
                self.resume(entry.id)
                return entry.id
            self._number += 1
            fresh.path = next(self._candidate_paths(fresh))
            self._entries[fresh.id] = fresh
            self._notify(fresh)
            return fresh.id

    def pause(self, id: int) -> None:
        """Pause a download; its partial file is kept."""
        with self._wake:
            entry = self._entries.get(id)
            if entry is not None and entry.phase in ACTIVE:
                if entry.run is not None:
                    entry.run.stop()
                self._set(entry, Phase.PAUSED)

    def resume(self, id: int) -> None:
        """Queue a paused or failed download again."""
        with self._wake:
            entry = self._entries.get(id)
            if entry is not None and entry.phase in (Phase.PAUSED, Phase.FAILED):
                self._set(entry, Phase.QUEUED)

    def retry(self, id: int) -> None:
        """Retry a failed download; it resumes its partial file."""
        self.resume(id)

    def cancel(self, id: int) -> None:
        """Cancel a download and delete its partial file; a finished file stays."""
        with self._wake:
            entry = self._entries.pop(id, None)
            if entry is None:
                return
            finished = entry.phase is Phase.DONE
            self._set(entry, Phase.CANCELLED)
            if entry.run is not None:
                entry.run.stop()  # its thread deletes the files
            elif not finished:
                self._start_thread(entry, self._delete_files)

    def all(self) -> tuple[Download, ...]:
        """Every download, the oldest first; finished ones until the app closes or `cancel`."""
        with self._wake:
            return tuple(entry.snapshot(self._endpoint) for entry in self._entries.values())

    def set_endpoint(self, endpoint: str) -> None:
        """Set the hub for downloads that start or resume later."""
        with self._wake:
            self._endpoint = endpoint

    def set_proxy(self, proxy: str) -> None:
        """Set the proxy for later transfers, "" for the system's; raises WebError."""
        if proxy:
            parse_proxy(proxy)
        with self._wake:
            self._proxy = proxy

    def set_parallel(self, parallel: int) -> None:
        """Set how many downloads run at once; running ones are not stopped."""
        with self._wake:
            self._parallel = parallel
            self._wake.notify_all()

    def close(self) -> None:
        """Stop all downloads, keep their partial files, and write the journal."""
        self._leave_gate()
        with self._wake:
            if self._closing:
                return
            self._closing = True
            for entry, _ in self._threads:
                if entry.run is not None and entry.run.job is not None:
                    entry.run.job.stop()
            threads = [thread for _, thread in self._threads]
            self._wake.notify_all()
        until = time.monotonic() + _CLOSE_SECONDS
        for thread in [*threads, *([self._notifier] if self._notifier else [])]:
            if thread is not threading.current_thread():
                thread.join(max(until - time.monotonic(), 0.1))
        if self._notifier is not None:
            self._save()

    def _on_switch(self) -> None:
        """The offline switch was moved: running downloads stop, and continue when it is off."""
        with self._wake:
            for entry in self._entries.values():
                if entry.phase in ACTIVE:
                    if entry.run is not None:
                        entry.run.stop()
                    self._set(entry, Phase.QUEUED)

    # --- the queue (with the lock held; `_save` takes it) -----------------------------------------

    def _set(
        self, entry: Entry, phase: Phase, note: str = "", error: str = "", remedy: str = ""
    ) -> None:
        entry.phase, entry.note, entry.error, entry.remedy = phase, note, error, remedy
        entry.forget_speed()
        self._notify(entry)

    def _notify(self, entry: Entry) -> None:
        if entry.phase is Phase.QUEUED:
            entry.note = _offline_note()
        self._pending.append(entry.snapshot(self._endpoint))
        self._unsaved = True
        self._wake.notify_all()

    def _candidate_paths(self, entry: Entry) -> Iterator[Path]:
        """Possible paths of a download, the plain one first, without those of other downloads.

        A download whose source names its file on the disk has that one path.
        """
        base = self._folder / safe_folder(entry.source.folder)
        if entry.source.name:
            return iter([base / safe_name(entry.source.name, base)])
        subfolder = safe_folder(entry.source.repository.replace("/", "_")) or "other"
        others = {_folded(one.path) for one in self._entries.values() if one is not entry}
        folders = [
            base,
            base / subfolder,
            *(base / f"{subfolder}-{n}" for n in range(2, _MAX_FOLDERS)),
        ]
        places = (folder / safe_name(entry.source.file, folder) for folder in folders)
        return iter([place for place in places if _folded(place) not in others])

    def _start_queued(self) -> None:
        if gate.offline:
            return
        for entry in self._entries.values():
            busy = [one for one, _ in self._threads]
            if self._closing or len(busy) >= self._parallel:
                return
            taken = entry.run is not None or any(
                _folded(one.path) == _folded(entry.path) for one in busy
            )
            if entry.phase is Phase.QUEUED and not taken:
                entry.run = Run()
                self._start_thread(entry, self._run_download)

    def _start_thread(self, entry: Entry, work: Callable[[Entry], None]) -> None:
        """Run `work` on a new thread; `_start_queued` starts no other one for the same files."""

        def run() -> None:
            try:
                work(entry)
            finally:
                with self._wake:
                    self._threads = [pair for pair in self._threads if pair[1] is not thread]
                    self._wake.notify_all()

        thread = threading.Thread(target=run, name=f"download-{entry.id}", daemon=True)
        self._threads.append((entry, thread))
        thread.start()

    def _save(self) -> None:
        """Write the journal; without the lock, since a virus scanner may make it wait."""
        with self._wake:
            self._unsaved = False
            rows = rows_of(self._folder, self._entries.values())
        try:
            write_rows(self._folder, rows)
        except OSError as error:
            _log.warning("the list of downloads could not be saved: %s", error.strerror)

    # --- notifier thread ------------------------------------------------------------------------

    def _loop(self) -> None:
        sampled = 0.0
        while True:
            with self._wake:
                self._start_queued()
                if not self._pending and not self._closing:
                    self._wake.wait(self._tick_seconds if self._threads else None)
                now = time.monotonic()
                if now - sampled >= self._tick_seconds:
                    sampled = now
                    self._sample(now)
                unsaved = self._unsaved
                changes, closing = list(self._pending), self._closing
                self._pending.clear()
            if unsaved:
                self._save()
            for download in changes:
                self._changed(download)
            if closing and not changes:
                return

    def _sample(self, now: float) -> None:
        for entry in self._entries.values():
            if entry.phase is Phase.RUNNING and entry.run is not None and entry.sample(now):
                self._pending.append(entry.snapshot(self._endpoint))

    # --- download threads -----------------------------------------------------------------------

    def _run_download(self, entry: Entry) -> None:
        """Run a download until it is done, stopped or failed."""
        run = entry.run
        assert run is not None
        try:
            note = self._fetch(entry, run)
        except Stopped:
            self._end_run(entry, run, entry.phase, entry.note)
        except (DownloadError, WebError) as error:
            self._end_run(entry, run, Phase.FAILED, error=str(error), remedy=error.remedy)
        except OSError as error:
            trouble = disk_error(error, entry.path)
            self._end_run(entry, run, Phase.FAILED, error=str(trouble), remedy=trouble.remedy)
        else:
            self._end_run(entry, run, Phase.DONE, note)
        if entry.phase is Phase.CANCELLED:
            self._delete_files(entry)

    def _end_run(
        self,
        entry: Entry,
        run: Run,
        phase: Phase,
        note: str = "",
        error: str = "",
        remedy: str = "",
    ) -> None:
        with self._wake:
            entry.update_from_job()
            entry.run = None
            if run.live and not self._closing:
                self._set(entry, phase, note, error, remedy)
            elif phase is Phase.DONE and entry.phase is not Phase.CANCELLED:
                self._set(entry, phase, note)  # finished before the stop took effect
            self._wake.notify_all()

    def _fetch(self, entry: Entry, run: Run) -> str:
        """Download the pieces in their order."""
        self._fetch_piece_sizes(entry)
        note = ""
        if self._is_downloaded(entry, run):
            note = tr("Already downloaded.")
            with self._wake:
                entry.fetched += [each.file for each in entry.model_pieces]
                entry.there.update(entry.fetched)
        for index in entry.order:
            file = entry.pieces[index].file
            if index == entry.encoder_index and not entry.encoder_name:
                self._place_encoder(entry, run, index)
            if file in entry.fetched and entry.place(index).is_file():
                continue
            job = self._job(entry, run, index)
            job.run()
            note = note or job.note
            with self._wake:
                entry.update_from_job()
                entry.fetched.append(file)
                self._unsaved = True
        return note

    def _job(self, entry: Entry, run: Run, index: int) -> FileDownload:
        """The transfer of one piece."""

        def report(phase: Phase, note: str) -> None:
            with self._wake:
                entry.update_from_job()
                if run.live and not self._closing:
                    self._set(entry, phase, note)

        def free(folder: Path) -> int:
            return self._free(folder) - self._reserved_bytes(entry, job)

        with self._wake:
            self._check_stop(run)
            piece = entry.pieces[index]
            job = FileDownload(
                entry.address(index, self._endpoint),
                entry.place(index),
                size_bytes=piece.size_bytes,
                sha256=piece.sha256,
                proxy=self._proxy,
                limits=self._limits,
                report=report,
                free=free,
            )
            job.done_bytes = entry.done.get(piece.file, 0)
            run.index, run.job = index, job
        return job

    def _check_stop(self, run: Run) -> None:
        if not run.live or self._closing:
            raise Stopped

    def _reserved_bytes(self, entry: Entry, job: FileDownload) -> int:
        """Disk space that other running downloads and the remaining pieces will need."""
        with self._wake:
            entry.update_from_job()
            left = sum(
                max(one.size_bytes - one.done_bytes, 0)
                for one in self._entries.values()
                if one.run is not None
            )
            return max(left - max(job.size_bytes - job.done_bytes, 0), 0)

    def _fetch_piece_sizes(self, entry: Entry) -> None:
        """Fetch the sizes of all pieces of a model from the hub, to know its total size.

        The list also has the hash of a picture encoder, or tells that there is none.
        """
        source, encoder = entry.source, entry.encoder_index
        unknown = not all(piece.size_bytes for piece in entry.pieces)
        unknown |= encoder is not None and not entry.pieces[encoder].sha256
        if len(entry.pieces) == 1 or not unknown or not source.repository:
            return
        try:
            found = hub_files(source.repository, self._endpoint, self._proxy, source.revision)
        except HubError:
            return  # the size of each piece is known when its transfer starts
        single = {one.file: Piece(one.file, one.size_bytes, one.sha256) for one in found}
        known = single | {piece.file: piece for one in found for piece in one.pieces}
        with self._wake:
            file = entry.pieces[-1].file
            if encoder is not None and found and file not in known:
                entry.leave_encoder_out(
                    tr("Its repository has no {file}: it cannot see pictures.", file=file)
                )
            entry.pieces = [_completed(piece, known.get(piece.file)) for piece in entry.pieces]

    def _place_encoder(self, entry: Entry, run: Run, index: int) -> None:
        """Decide the name of a picture encoder; one that is there already is used.

        Other formats of the model share it, but not what another repository calls the same.
        """
        for name in entry.encoder_names:
            place = entry.path.with_name(name)
            with self._wake:
                if _folded(place) in self._encoders_of_others(entry):
                    continue
                entry.encoder_name = name
            if not place.exists():
                return
            if self._is_same(entry, run, index):
                with self._wake:
                    entry.fetched.append(entry.pieces[index].file)
                    entry.there.add(entry.pieces[index].file)
                return

    def _encoders_of_others(self, entry: Entry) -> set[str]:
        """Where unfinished downloads of other models write their picture encoders."""
        return {
            _folded(one.path.with_name(one.encoder_name))
            for one in self._entries.values()
            if one is not entry and one.encoder_name and one.phase is not Phase.DONE
        }

    def _is_downloaded(self, entry: Entry, run: Run) -> bool:
        """Whether the same model exists; another file of its name makes it go to a subfolder."""
        if not entry.path.exists() or entry.has_model:
            return False
        with self._wake:
            places = list(self._candidate_paths(entry))
        for place in places:
            with self._wake:
                entry.path = place
            if not place.exists():
                return False
            if all(self._is_same(entry, run, at) for at in range(len(entry.model_pieces))):
                return True
        raise DownloadError(
            tr("There are too many files named {name}.", name=entry.path.name),
            tr("Delete or rename some."),
        )

    def _is_same(self, entry: Entry, run: Run, index: int) -> bool:
        """Whether the file at a piece's path is that piece, by size and, if known, by hash."""
        place, piece = entry.place(index), entry.pieces[index]
        here = place.stat().st_size if place.is_file() else -1
        size, sha256 = piece.size_bytes, piece.sha256
        if here < 0 or (size and size != here):
            return False
        if not size or not sha256:
            linked = probe(entry.address(index, self._endpoint), self._proxy)
            size, sha256 = size or linked.size_bytes, sha256 or linked.sha256
        if size != here:
            return False
        with self._wake:
            self._check_stop(run)
            self._set(entry, Phase.VERIFYING, tr("Checking the existing file…"))
        same = not sha256 or hash_file(place, lambda: self._check_stop(run)).hexdigest() == sha256
        with self._wake:
            if same:
                entry.done[piece.file] = size
                entry.pieces[index] = Piece(piece.file, size, sha256)
        return same

    def _delete_files(self, entry: Entry) -> None:
        """Delete the files of a cancelled download, but not those that were on the disk before.

        A model that has arrived stays: it may be in use while its picture encoder is coming. The
        encoder has files once its name is decided.
        """
        model_stays = entry.has_model and entry.encoder_index is not None
        try:
            for index, piece in enumerate(entry.pieces):
                stays = model_stays
                if index == entry.encoder_index:
                    stays = not entry.encoder_name
                if stays or piece.file in entry.there:
                    continue
                delete_part(entry.place(index))
                if piece.file in entry.fetched:
                    disk_files.delete(entry.place(index))
        except OSError as error:
            _log.warning("a cancelled download could not be deleted: %s", error.strerror)


def _folded(path: Path) -> str:
    """What two paths of one file have in common where names differ by more than their case."""
    return str(path).casefold()


def _offline_note() -> str:
    """Why a queued download does not start; "" when it may."""
    return tr("Offline. It continues when you go online again.") if gate.offline else ""


def _completed(piece: Piece, listed: Piece | None) -> Piece:
    """Fill unknown fields of a piece from the hub's list."""
    if listed is None:
        return piece
    return Piece(piece.file, piece.size_bytes or listed.size_bytes, piece.sha256 or listed.sha256)
