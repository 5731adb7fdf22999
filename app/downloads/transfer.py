"""One file from the net to the disk: resumed by Range, hashed while it streams, named when it is whole.

Beside the file lie `<name>.part`, what has arrived, and `<name>.part.json`, what it is a part of.
The file gets its name only after length, hash and magic agree, so whatever carries the name can be
used. No Qt, no threads: `run` blocks its caller, `stop` ends it from another thread.
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
from dataclasses import asdict
from pathlib import Path

from app.downloads.partial import Part, drop_part, hash_of, part_of, read_part, sidecar_of
from app.downloads.policy import DownloadError, Limits, Phase, Stopped, disk_error, free_bytes
from app.net.http import Answer, Cancellation, Linked, WebError, ask, refusal
from app.system.byte_size import size
from app.system.json_file import replace_file, sync_folder

MAGIC = b"GGUF"
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_UNSATISFIED = re.compile(r"bytes \*/(\d+)")
_LONGEST_WAIT = 300.0  # seconds, whatever a server asks for


class _Wrong(Exception):
    """An answer that cannot be the file; asked again a few times."""


class FileDownload:
    """One file on its way. `done_bytes`, `size_bytes`, `sha256` may be read from any thread."""

    def __init__(
        self,
        url: str,
        path: Path,
        *,
        size_bytes: int = 0,
        sha256: str = "",
        proxy: str = "",
        limits: Limits | None = None,
        report: Callable[[Phase, str], None] = lambda phase, note: None,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        self.url = url
        self.path = path
        self.size_bytes: int = size_bytes
        self.sha256: str = sha256.lower()
        self._wanted: tuple[int, str] = (
            self.size_bytes,
            self.sha256,
        )  # the rest is learnt from the servers
        self.done_bytes = 0
        self.received_bytes = 0  # over the wire by this object, repeats included
        self.note = ""
        self._proxy = proxy
        self._limits = limits or Limits()
        self._report = report
        self._free = free
        self._part, self._sidecar = part_of(path), sidecar_of(path)
        self._known = Part(url, size_bytes=size_bytes, sha256=self.sha256)
        self._hash = hashlib.sha256()
        self._stop = Cancellation()
        self._inherited = False  # bytes of an earlier run are part of the file
        self._checkpoint = (0, 0.0)  # bytes, time

    def stop(self) -> None:
        """End `run` soon; it raises Stopped. Callable from any thread."""
        self._stop.set()

    def run(self) -> None:
        """Fetch what is missing, verify, and give the file its name.

        Raises Stopped, or DownloadError; what has arrived is kept unless it is known to be wrong.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._take_up()
            self._transfer()
            self._finish()
        except OSError as error:
            raise disk_error(error, self.path) from error

    # --- what is here already -------------------------------------------------------------------

    def _take_up(self) -> None:
        """Read what an earlier run left, and hash it; a part nobody can vouch for is dropped."""
        part = read_part(self._sidecar)
        keep = self._usable(part) if part is not None and self._vouched(part) else 0
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
            os.truncate(self._part, keep)
        self._inherited, self.done_bytes = True, keep
        self._report(Phase.VERIFYING, "Checking what is already here.")
        self._hash = hash_of(self._part, self._check_stop)

    def _usable(self, part: Part) -> int:
        """How many bytes of a part can be built on."""
        here = self._part.stat().st_size if self._part.is_file() else 0
        # A hash finds out what a power cut did to the end of the file; without one it is dropped.
        keep = here if self.sha256 or part.sha256 else min(here, part.done_bytes)
        size = self.size_bytes or part.size_bytes
        return 0 if size and keep > size else keep

    def _vouched(self, part: Part) -> bool:
        """Whether a part is of the file wanted now: its hash says so, or its address."""
        if self.sha256 and part.sha256:
            return self.sha256 == part.sha256
        same_size = not self.size_bytes or part.size_bytes in (0, self.size_bytes)
        return part.url == self.url and same_size

    def _restart(self) -> None:
        """Begin with an empty part; what the servers said of the one before is forgotten."""
        self.size_bytes, self.sha256 = self._wanted
        self._known = Part(self.url, size_bytes=self.size_bytes, sha256=self.sha256)
        self._hash = hashlib.sha256()
        self.done_bytes, self._inherited = 0, False
        drop_part(self.path)

    # --- the transfer ---------------------------------------------------------------------------

    def _transfer(self) -> None:
        """Ask again and again until everything is here."""
        furthest, barren, wrong = self.done_bytes, 0, 0
        while not self._complete():
            self._check_stop()
            try:
                self._fetch()
                continue
            except _Wrong as error:
                wrong += 1
                trouble = WebError(str(error), "Try again later, or choose another file.")
                last = wrong >= self._limits.wrong_attempts
            except WebError as error:
                barren = 0 if self.done_bytes > furthest else barren + 1
                trouble = error
                last = not error.retry or barren >= self._limits.attempts
            furthest = max(furthest, self.done_bytes)
            self._check_stop()
            if last:
                raise DownloadError(str(trouble), trouble.remedy) from trouble
            self._wait(trouble, max(barren, wrong))

    def _complete(self) -> bool:
        return bool(self.size_bytes) and self.done_bytes == self.size_bytes

    def _wait(self, trouble: WebError, attempt: int) -> None:
        """Wait before the next attempt: longer each time, and never in step with others."""
        doubled = self._limits.retry_seconds * 2 ** min(max(attempt - 1, 0), 16)
        seconds = min(doubled, self._limits.longest_retry_seconds) * random.uniform(0.75, 1.25)
        seconds = max(seconds, min(trouble.wait_seconds, _LONGEST_WAIT))
        again = f"Trying again in {seconds:.0f} s." if seconds >= 1 else "Trying again."
        self._report(Phase.WAITING, f"{trouble} {again}")
        self._stop.wait(seconds)

    def _fetch(self) -> None:
        """One request for what is missing, and what comes of it."""
        self._report(Phase.CONNECTING, "")
        answer = ask(
            self.url,
            headers=self._headers(),
            proxy=self._proxy,
            stall_seconds=self._limits.stall_seconds,
            cancellation=self._stop,
        )
        try:
            self._check_stop()
            if self._accept(answer):
                self._receive(answer)
        finally:
            answer.close()

    def _headers(self) -> dict[str, str]:
        if not self.done_bytes:
            return {}
        headers = {"Range": f"bytes={self.done_bytes}-"}
        if self._known.etag and not self._known.etag.startswith("W/"):
            headers["If-Range"] = self._known.etag
        return headers

    def _accept(self, answer: Answer) -> bool:
        """Whether the answer's body is to be taken in, from `done_bytes` on.

        Raises WebError or _Wrong for an answer that is of no use.
        """
        if answer.status == 416:
            self._unsatisfied(answer)
            return False
        if answer.status not in (200, 206):
            raise refusal(answer)
        if answer.header("Content-Encoding") not in ("", "identity"):
            raise _Wrong(f"{answer.host} sent the file in an encoding that was not asked for.")
        etag, linked = answer.header("ETag"), answer.linked.etag
        if answer.status == 206:
            if self._changed(etag, linked):
                self._begin_again("The file on the server has changed; starting again.")
                return False
            total = self._range(answer)
        else:
            if self.done_bytes:
                changed = self._changed(etag, linked)
                why = "has changed" if changed else "cannot be continued"
                self._begin_again(f"The file on the server {why}; starting again.")
            total = answer.length
        self._expect(total, answer)
        self._known = Part(self.url, etag, linked, self.size_bytes, self.sha256)
        return True

    def _changed(self, etag: str, linked: str) -> bool:
        """Whether the server now has another file than the one the part is of."""
        if linked and self._known.linked_etag:  # the hub's own word; its stores come and go
            return linked != self._known.linked_etag
        return bool(etag and self._known.etag and etag != self._known.etag)

    def _begin_again(self, note: str) -> None:
        self.note = note
        self._restart()

    def _unsatisfied(self, answer: Answer) -> None:
        """The server has nothing after what is here: it may be complete, or of another file."""
        match = _UNSATISFIED.fullmatch(answer.header("Content-Range"))
        total = int(match[1]) if match else answer.linked.size_bytes
        if total and total == self.done_bytes and self.size_bytes in (0, total):
            self.size_bytes = total
        elif self.done_bytes:
            self._begin_again("What was here did not belong to the file; starting again.")
        else:
            raise _Wrong(f"{answer.host} has no bytes for this file.")

    def _range(self, answer: Answer) -> int | None:
        """The whole file's size as a partial answer states it; None when it does not."""
        match = _RANGE.fullmatch(answer.header("Content-Range"))
        if match is None or int(match[1]) != self.done_bytes:
            self._restart()
            raise _Wrong(f"{answer.host} sent another part of the file than was asked for.")
        return None if match[3] == "*" else int(match[3])

    def _expect(self, total: int | None, answer: Answer) -> None:
        """Settle size and hash: what the caller knew, else what the servers say."""
        wanted = self.size_bytes or answer.linked.size_bytes
        if total is not None and total != (wanted or total or 1):
            self._restart()
            raise _Wrong(
                f"The file on {answer.host} has {total:,} bytes where {wanted:,} were expected."
                if wanted
                else f"The file on {answer.host} is empty."
            )
        self.size_bytes = wanted or total or 0
        self.sha256 = self.sha256 or answer.linked.sha256
        self._check_room(self._limits.margin_bytes)

    def _check_room(self, margin: int) -> None:
        """Raise DownloadError when the rest of the file and a margin do not fit on the disk."""
        needed = max(self.size_bytes - self.done_bytes, 0) + margin
        free = self._free(self.path.parent)
        if free < needed:
            raise DownloadError(
                f"The disk has {size(free)} free where {size(needed)} are needed.",
                "Make room on the disk, then try again; what has arrived is kept.",
            )

    def _receive(self, answer: Answer) -> None:
        """Write the body as it arrives, and hash it."""
        self._write_sidecar()
        self._checkpoint = (self.done_bytes, time.monotonic())
        self._report(Phase.RUNNING, self.note)
        with self._part.open("r+b" if self.done_bytes else "wb", buffering=0) as file:
            file.seek(self.done_bytes)
            try:
                for piece in answer.pieces():
                    self._check_stop()
                    self._take(file.fileno(), piece, answer)
            finally:
                if self._part.exists():  # else it was of no use
                    with contextlib.suppress(OSError):  # a full disk has been, or will be, reported
                        self._save_point(file.fileno())
        self._check_stop()
        if not self.size_bytes and answer.length is None:
            self.size_bytes = self.done_bytes  # nobody said how long it is: this is all of it
        elif not self._complete():
            raise WebError(
                f"{answer.host} broke off before the end of the file.",
                "Check the connection to the network, then try again.",
                retry=True,
            )

    def _take(self, number: int, piece: bytes, answer: Answer) -> None:
        """Put one piece at the end of the part."""
        self.received_bytes += len(piece)
        if not self.done_bytes and not piece.startswith(MAGIC[: len(piece)]):
            self._drop()
            raise _not_a_model(answer)
        if self.size_bytes and self.done_bytes + len(piece) > self.size_bytes:
            size = self.size_bytes
            self._restart()
            raise _Wrong(f"{answer.host} sent more than the {size:,} bytes of the file.")
        view = memoryview(piece)
        while view:  # a disk that fills up takes less than it is given
            written = os.write(number, view)
            self._hash.update(view[:written])
            self.done_bytes += written
            view = view[written:]
        done, since = self._checkpoint
        if (
            self.done_bytes - done >= self._limits.checkpoint_bytes
            or time.monotonic() - since >= self._limits.checkpoint_seconds
        ):
            self._save_point(number)
            self._check_room(self._limits.margin_bytes // 4)

    def _save_point(self, number: int) -> None:
        """Bring what has arrived to the disk, then say so beside it."""
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

    # --- the end --------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Compare the hash, look for the magic, then give the file its name."""
        self._report(Phase.VERIFYING, "")
        self._check_stop()
        if self.sha256 and self._hash.hexdigest() != self.sha256:
            inherited = self._inherited
            self._drop()
            if inherited:  # a power cut may have spoiled what was here: once more, from nothing
                self._restart()
                self.note = "What was here was damaged; starting again."
                self._transfer()
                self._finish()
                return
            raise DownloadError(
                "The file that arrived is not the one that was promised: its SHA-256 differs.",
                "It was deleted; try again later, or choose another file.",
            )
        with self._part.open("rb+") as file:
            magic = file.read(len(MAGIC))
            os.fsync(file.fileno())
        if magic != MAGIC:
            self._drop()
            raise DownloadError(
                "The file that arrived is not a model: it does not begin with GGUF.",
                "It was deleted; choose a file that ends in .gguf.",
            )
        os.replace(self._part, self.path)
        sync_folder(self.path.parent)
        self._sidecar.unlink(missing_ok=True)
        self.note = "" if self.sha256 else "Not verified by hash: the server names none."

    def _drop(self) -> None:
        drop_part(self.path)
        self.done_bytes = 0

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Stopped


def _not_a_model(answer: Answer) -> DownloadError:
    page = answer.header("Content-Type").split(";")[0].strip().lower() == "text/html"
    return DownloadError(
        f"{answer.host} sent {'a web page' if page else 'something else'} instead of a model file.",
        "Open the link in a browser to see what it asks for, or choose another file.",
    )


def probe(url: str, proxy: str = "") -> Linked:
    """Size and hash of a file as its servers state them, without fetching it; raises WebError."""
    answer = ask(url, method="HEAD", proxy=proxy)
    answer.close()
    if answer.status != 200:
        raise refusal(answer)
    told = answer.linked
    return Linked(told.sha256, told.etag, told.size_bytes or answer.length or 0)
