"""Download of one file: resumed with Range requests, hashed while streaming, renamed when verified.

Received bytes are in `<name>.part`, with a JSON sidecar `<name>.part.json`. The file gets its final
name only after its length, SHA-256 and magic were checked, so a file under that name is complete.
No Qt, no threads: `run` blocks the caller, `stop` ends it from another thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path

from app.downloads.partial import Part, delete_part, hash_file, part_path, read_part, sidecar_path
from app.downloads.policy import (
    DownloadError,
    Limits,
    Phase,
    Stopped,
    check_space,
    disk_error,
    free_bytes,
)
from app.net.http import Cancellation, Linked, Response, WebError, send_request, status_error
from app.net.ledger import Purpose
from app.system.json_file import replace_file
from app.system.translation import sentences, tr
from engine import disk_files

_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_UNSATISFIED = re.compile(r"bytes \*/(\d+)")
_LONGEST_WAIT = 300.0  # seconds; limit for Retry-After
_SCAN_SECONDS = 60.0  # for a virus scanner that reads the finished file before it gets its name


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file: how one begins, and what it is downloaded for."""

    magic: bytes
    purpose: Purpose


MODEL = FileKind(b"GGUF", Purpose.DOWNLOAD)
PACKAGE = FileKind(b"PK\x03\x04", Purpose.GPU_SUPPORT)  # a wheel is a ZIP file
UPDATE = FileKind(b"", Purpose.UPDATE)  # of any kind: its hash is known


class _InvalidResponse(Exception):
    """A response that cannot be the file; retried `Limits.wrong_attempts` times."""


class FileDownload:
    """Downloads one file. `done_bytes`, `size_bytes`, `sha256` may be read from any thread."""

    def __init__(
        self,
        url: str,
        path: Path,
        *,
        size_bytes: int = 0,
        sha256: str = "",
        kind: FileKind = MODEL,
        proxy: str = "",
        limits: Limits | None = None,
        report: Callable[[Phase, str], None] = lambda phase, note: None,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        self.url = url
        self.path = path
        self.size_bytes: int = size_bytes
        self.sha256: str = sha256.lower()
        self._expected: tuple[int, str] = (
            self.size_bytes,
            self.sha256,
        )  # from the caller; the rest comes from response headers
        self.done_bytes = 0
        self.received_bytes = 0  # from the network by this object, repeated bytes included
        self.note = ""
        self._kind = kind
        self._proxy = proxy
        self._limits = limits or Limits()
        self._report = report
        self._free = free
        self._part, self._sidecar = part_path(path), sidecar_path(path)
        self._known = Part(url, size_bytes=size_bytes, sha256=self.sha256)
        self._hash = hashlib.sha256()
        self._stop = Cancellation()
        self._resumed = False  # the part has bytes of an earlier run
        self._checkpoint = (0, 0.0)  # bytes, time

    def stop(self) -> None:
        """Make `run` raise Stopped soon; may be called from any thread."""
        self._stop.set()

    def run(self) -> None:
        """Download the missing bytes, verify the file, and rename it.

        Raises Stopped or DownloadError; the part is kept unless it is known to be invalid.
        """
        try:
            disk_files.make_folder(self.path.parent)
            self._resume_part()
            self._transfer()
            self._finish()
        except OSError as error:
            raise disk_error(error, self.path) from error

    # --- resuming -------------------------------------------------------------------------------

    def _resume_part(self) -> None:
        """Resume the part of an earlier run and hash it; delete one that may be of another file."""
        part = read_part(self._sidecar)
        keep = self._usable_bytes(part) if part is not None and self._is_same_file(part) else 0
        if part is None or not keep:
            self._restart()
            return
        self._known = Part(
            self.url,
            part.etag if part.url == self.url else "",
            part.linked_etag,
            self.size_bytes or part.size_bytes,
            self.sha256 or part.sha256,
        )
        self.size_bytes, self.sha256 = self._known.size_bytes, self._known.sha256
        if keep < self._part.stat().st_size:
            with self._open_part("r+b") as file:
                file.truncate(keep)
        self._resumed, self.done_bytes = True, keep
        self._report(Phase.VERIFYING, tr("Checking the part downloaded before…"))
        self._hash = hash_file(self._part, self._check_stop)

    def _open_part(self, mode: str) -> FileIO:
        """Open the part; a virus scanner that reads it is waited for. Raises OSError, Stopped."""
        path = disk_files.system_path(self._part)
        return disk_files.retried(lambda: FileIO(path, mode), pause=self._pause)

    def _usable_bytes(self, part: Part) -> int:
        """How many bytes of a part can be kept."""
        here = self._part.stat().st_size if self._part.is_file() else 0
        # A power cut may damage bytes after the last checkpoint: without a hash, drop them.
        keep = here if self.sha256 or part.sha256 else min(here, part.done_bytes)
        size = self.size_bytes or part.size_bytes
        return 0 if size and keep > size else keep

    def _is_same_file(self, part: Part) -> bool:
        """Whether a part is of the wanted file: same hash, or same address and size."""
        if self.sha256 and part.sha256:
            return self.sha256 == part.sha256
        same_size = not self.size_bytes or part.size_bytes in (0, self.size_bytes)
        return part.url == self.url and same_size

    def _restart(self) -> None:
        """Start with an empty part, and forget the size and hash from response headers."""
        self.size_bytes, self.sha256 = self._expected
        self._known = Part(self.url, size_bytes=self.size_bytes, sha256=self.sha256)
        self._hash = hashlib.sha256()
        self.done_bytes, self._resumed = 0, False
        with contextlib.suppress(OSError):  # a part that stays is overwritten
            delete_part(self.path)

    # --- the transfer ---------------------------------------------------------------------------

    def _transfer(self) -> None:
        """Send requests until the file is complete."""
        furthest, failures, invalid = self.done_bytes, 0, 0
        while not self._complete():
            self._check_stop()
            try:
                self._fetch()
                continue
            except _InvalidResponse as error:
                invalid += 1
                trouble = WebError(str(error), tr("Try again later, or choose another file."))
                last = invalid >= self._limits.wrong_attempts
            except WebError as error:
                failures = 0 if self.done_bytes > furthest else failures + 1
                trouble = error
                last = not error.retry or failures >= self._limits.attempts
            furthest = max(furthest, self.done_bytes)
            self._check_stop()
            if last:
                raise DownloadError(str(trouble), trouble.remedy) from trouble
            self._wait(trouble, max(failures, invalid))

    def _complete(self) -> bool:
        return bool(self.size_bytes) and self.done_bytes == self.size_bytes

    def _wait(self, trouble: WebError, attempt: int) -> None:
        """Exponential backoff with jitter before the next attempt."""
        doubled = self._limits.retry_seconds * 2 ** min(max(attempt - 1, 0), 16)
        seconds = min(doubled, self._limits.longest_retry_seconds) * random.uniform(0.75, 1.25)
        seconds = max(seconds, min(trouble.wait_seconds, _LONGEST_WAIT))
        again = (
            tr("Trying again in {seconds} s.", seconds=round(seconds))
            if seconds >= 1
            else tr("Trying again.")
        )
        self._report(Phase.WAITING, sentences(str(trouble), again))
        self._stop.wait(seconds)

    def _fetch(self) -> None:
        """Send one request for the missing bytes, and receive its response."""
        self._report(Phase.CONNECTING, "")
        response = send_request(
            self.url,
            headers=self._headers(),
            proxy=self._proxy,
            stall_seconds=self._limits.stall_seconds,
            cancellation=self._stop,
            purpose=self._kind.purpose,
        )
        try:
            self._check_stop()
            if self._accept(response):
                self._receive(response)
        finally:
            response.close()

    def _headers(self) -> dict[str, str]:
        if not self.done_bytes:
            return {}
        headers = {"Range": f"bytes={self.done_bytes}-"}
        if self._known.etag and not self._known.etag.startswith("W/"):
            headers["If-Range"] = self._known.etag
        return headers

    def _accept(self, response: Response) -> bool:
        """Check the response's headers; whether its body continues the part at `done_bytes`.

        Raises WebError or _InvalidResponse for one that cannot be used.
        """
        if response.status == 416:
            self._handle_unsatisfied(response)
            return False
        if response.status not in (200, 206):
            raise status_error(response)
        if response.header("Content-Encoding") not in ("", "identity"):
            raise _InvalidResponse(
                tr("{host} sent the file in an unsupported encoding.", host=response.host)
            )
        if self.done_bytes:
            self._check_answer(response)
        etag, linked = response.header("ETag"), response.linked.etag
        if response.status == 206:
            if self._changed(etag, linked):
                self._restart_with_note(tr("The file on the server has changed; starting again."))
                return False
            total = self._check_range(response)
        else:
            if self.done_bytes and self._changed(etag, linked):
                self._restart_with_note(tr("The file on the server has changed; starting again."))
            elif self.done_bytes:
                self._restart_with_note(tr("The server cannot resume this file; starting again."))
            total = response.length
        self._set_expected(total, response)
        self._known = Part(self.url, etag, linked, self.size_bytes, self.sha256)
        return True

    def _check_answer(self, response: Response) -> None:
        """Refuse what is not the file: a network that sends its page, after the computer slept.

        The part stays, unlike for another file.
        """
        if _is_page(response):
            raise _InvalidResponse(str(_other_file(response, self._kind)))
        total = response.length if response.status == 200 else None
        is_same = self.sha256 and not self._changed(response.header("ETag"), response.linked.etag)
        if is_same and total not in (None, self.size_bytes):
            raise _InvalidResponse(_wrong_size(response.host, total, self.size_bytes))

    def _changed(self, etag: str, linked: str) -> bool:
        """Whether the file on the server has changed since the part was received."""
        if linked and self._known.linked_etag:  # the hub's ETag; storage servers differ
            return linked != self._known.linked_etag
        return bool(etag and self._known.etag and etag != self._known.etag)

    def _restart_with_note(self, note: str) -> None:
        self.note = note
        self._restart()

    def _handle_unsatisfied(self, response: Response) -> None:
        """Status 416: the part is complete, or it is of another file."""
        match = _UNSATISFIED.fullmatch(response.header("Content-Range"))
        total = int(match[1]) if match else response.linked.size_bytes
        if total and total == self.done_bytes and self.size_bytes in (0, total):
            self.size_bytes = total
        elif self.done_bytes:
            self._restart_with_note(
                tr("The part downloaded before is from another file; starting again.")
            )
        else:
            raise _InvalidResponse(
                tr("{host} cannot send the rest of this file.", host=response.host)
            )

    def _check_range(self, response: Response) -> int | None:
        """Check Content-Range; returns the size of the whole file, None when not stated."""
        match = _RANGE.fullmatch(response.header("Content-Range"))
        if match is None or int(match[1]) != self.done_bytes:
            self._restart()
            raise _InvalidResponse(
                tr("{host} sent the wrong part of the file.", host=response.host)
            )
        return None if match[3] == "*" else int(match[3])

    def _set_expected(self, total: int | None, response: Response) -> None:
        """Set expected size and hash: from the caller, else from response headers."""
        expected = self.size_bytes or response.linked.size_bytes
        if total is not None and total != (expected or total or 1):
            self._restart()
            raise _InvalidResponse(_wrong_size(response.host, total, expected))
        self.size_bytes = expected or total or 0
        self.sha256 = self.sha256 or response.linked.sha256
        self._check_free_space(self._limits.margin_bytes)

    def _check_free_space(self, margin: int) -> None:
        """Raise DownloadError when the disk has too little space for the rest and a margin."""
        needed = max(self.size_bytes - self.done_bytes, 0) + margin
        remedy = tr("Free some disk space, then try again. The part downloaded so far is kept.")
        check_space(self._free(self.path.parent), needed, remedy)

    def _receive(self, response: Response) -> None:
        """Write the body to the part while receiving, and hash it."""
        self._write_sidecar()
        self._checkpoint = (self.done_bytes, time.monotonic())
        self._report(Phase.RUNNING, self.note)
        refusal: Exception | None = None
        with self._open_part("r+b" if self.done_bytes else "wb") as file:
            file.seek(self.done_bytes)
            try:
                for piece in response.pieces():
                    self._check_stop()
                    if refusal := self._refusal(piece, response):
                        break
                    self._append(file.fileno(), piece)
            finally:
                with contextlib.suppress(OSError):  # a full disk is reported elsewhere
                    self._write_checkpoint(file.fileno())
        if refusal is not None:
            self._restart()  # not while the part is open: Windows deletes no open file
            raise refusal
        self._check_stop()
        if not self.size_bytes and response.length is None:
            self.size_bytes = self.done_bytes  # no size was stated: the end of the body is the end
        elif not self._complete():
            raise WebError(
                tr("{host} closed the connection before the end of the file.", host=response.host),
                tr("Check your internet connection, then try again."),
                retry=True,
            )

    def _refusal(self, piece: bytes, response: Response) -> Exception | None:
        """Why a chunk, and with it the whole part, is not of the wanted file."""
        self.received_bytes += len(piece)
        if not self.done_bytes and not piece.startswith(self._kind.magic[: len(piece)]):
            return _other_file(response, self._kind)
        if self.size_bytes and self.done_bytes + len(piece) > self.size_bytes:
            return _InvalidResponse(
                tr("{host} sent more than {size} bytes.", host=response.host, size=self.size_bytes)
            )
        return None

    def _append(self, number: int, piece: bytes) -> None:
        """Append a chunk to the part."""
        view = memoryview(piece)
        while view:  # `os.write` may write less, on a full disk
            written = os.write(number, view)
            self._hash.update(view[:written])
            self.done_bytes += written
            view = view[written:]
        done, since = self._checkpoint
        if (
            self.done_bytes - done >= self._limits.checkpoint_bytes
            or time.monotonic() - since >= self._limits.checkpoint_seconds
        ):
            self._write_checkpoint(number)
            self._check_free_space(self._limits.margin_bytes // 4)

    def _write_checkpoint(self, number: int) -> None:
        """Sync the part to the disk, then update the sidecar."""
        os.fsync(number)
        self._checkpoint = (self.done_bytes, time.monotonic())
        self._write_sidecar()

    def _write_sidecar(self) -> None:
        known = Part(
            self.url,
            self._known.etag,
            self._known.linked_etag,
            self.size_bytes,
            self.sha256,
            self.done_bytes,
            time.time(),
        )
        replace_file(self._sidecar, json.dumps(asdict(known), indent=1).encode("ascii"))

    # --- verification ---------------------------------------------------------------------------

    def _finish(self) -> None:
        """Check the hash and the magic, then rename the part to its final name."""
        self._report(Phase.VERIFYING, "")
        self._check_stop()
        if self.sha256 and self._hash.hexdigest() != self.sha256:
            resumed = self._resumed
            self._restart()
            if resumed:  # a power cut may have damaged the old bytes: start again from 0
                self.note = tr("The part downloaded before was damaged; starting again.")
                self._transfer()
                self._finish()
                return
            raise DownloadError(
                tr("The downloaded file is damaged or was replaced (its SHA-256 differs)."),
                tr("It was deleted. Try again later, or choose another file.")
                if self._kind is MODEL
                else tr("It was deleted. Try again later."),
            )
        with self._open_part("r+b") as file:
            magic = file.read(len(self._kind.magic))
            os.fsync(file.fileno())
        if magic != self._kind.magic:
            self._restart()
            raise DownloadError(
                tr("The downloaded file is not a model file (GGUF)."),
                tr("It was deleted. Choose a file that ends in .gguf."),
            )
        disk_files.replace(self._part, self.path, seconds=_SCAN_SECONDS, pause=self._pause)
        disk_files.sync_folder(self.path.parent)
        disk_files.delete(self._sidecar)
        self.note = "" if self.sha256 else tr("Not verified: the server gives no checksum.")

    def _pause(self, seconds: float) -> None:
        self._stop.wait(seconds)
        self._check_stop()

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Stopped


def _is_page(response: Response) -> bool:
    return response.header("Content-Type").split(";")[0].strip().lower() == "text/html"


def _wrong_size(host: str, total: int | None, expected: int) -> str:
    if not expected:
        return tr("The file on {host} is empty.", host=host)
    return tr(
        "The file on {host} has {total} bytes where {expected} were expected.",
        host=host,
        total=total,
        expected=expected,
    )


def _other_file(response: Response, kind: FileKind) -> DownloadError:
    """The error of a response that begins as no such file does."""
    if kind is not MODEL:
        return DownloadError(
            tr("{host} sent something else than the file.", host=response.host),
            tr(
                "A sign-in page or a filter may have answered. Check your connection, then try again."
            ),
        )
    remedy = tr("Open the link in your browser to see what it requires, or choose another file.")
    if _is_page(response):
        return DownloadError(
            tr("{host} sent a web page instead of a model file.", host=response.host), remedy
        )
    return DownloadError(tr("{host} did not send a model file.", host=response.host), remedy)


def probe(url: str, proxy: str = "") -> Linked:
    """Size and hash of a file from a HEAD request; raises WebError."""
    response = send_request(url, method="HEAD", proxy=proxy)
    response.close()
    if response.status != 200:
        raise status_error(response)
    linked = response.linked
    return Linked(linked.sha256, linked.etag, linked.size_bytes or response.length or 0)
