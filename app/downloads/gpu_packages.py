"""Installation of GPU support: downloads its wheels, unpacks them, tries them, and activates them.

One wheel after another is downloaded (`app.downloads.transfer`), unpacked beside its final place,
and deleted, so that an interrupted installation goes on where it was. The folder gets its final
name when all are unpacked, and is used from the next start on once a trial has succeeded.
No Qt, no threads: `run` blocks the caller, `stop` ends it from another thread.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import cast

from app.downloads.partial import hash_file, part_path
from app.downloads.policy import (
    DownloadError,
    InstallProgress,
    InstallStep,
    Limits,
    Phase,
    Stopped,
    check_space,
    disk_error,
    free_bytes,
)
from app.downloads.transfer import PACKAGE, FileDownload
from app.downloads.unpacking import unpack, verify
from app.net.http import WebError
from app.system.json_file import replace_file
from app.system.translation import tr
from engine import Wheel, WheelList, disk_files, gpu_support

_DOWNLOADS, _UNPACKED = "downloads", "unpacked.json"
_REMOVED = "removed"  # there while a process uses what is to be deleted
_SURE_SECONDS = 3.0  # of a download before its rate predicts its end


class TrialError(DownloadError):
    """All is unpacked, but the GPU does not work with it: `detail` is technical."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            tr("The GPU could not be used in a test."),
            tr("Update the NVIDIA driver, then try again."),
        )
        self.detail = detail


class GPUInstall:
    """One attempt to install the packages of a list in `folder`."""

    def __init__(
        self,
        folder: Path,
        wanted: WheelList,
        *,
        proxy: str = "",
        limits: Limits | None = None,
        report: Callable[[InstallProgress], None] = lambda progress: None,
        free: Callable[[Path], int] = free_bytes,
        trial: Callable[[Path], str] = gpu_support.trial,
    ) -> None:
        self._folder, self._wanted = folder, wanted
        self._proxy, self._limits = proxy, limits or Limits()
        self._report, self._free, self._trial = report, free, trial
        self._stopped = threading.Event()
        self._job: FileDownload | None = None
        self._began, self._received = time.monotonic(), 0
        self._done_bytes = 0  # of wheels that are complete
        self._now = (InstallStep.DOWNLOADING, "")  # and its note

    def stop(self) -> None:
        """Make `run` raise Stopped soon; may be called from any thread."""
        self._stopped.set()
        if (job := self._job) is not None:
            job.stop()

    def progress(self) -> InstallProgress:
        """How far it is; may be called from any thread."""
        job, whole, (step, note) = self._job, self._wanted.size_bytes, self._now
        done = min(self._done_bytes + (job.done_bytes if job is not None else 0), whole)
        received = self._received + (job.received_bytes if job is not None else 0)
        elapsed = time.monotonic() - self._began
        known = received > 0 and elapsed > _SURE_SECONDS and step is InstallStep.DOWNLOADING
        left = (whole - done) * elapsed / received if known else None
        return InstallProgress(step, done, whole, left, note)

    def _enter(self, step: InstallStep, note: str = "") -> None:
        self._now = step, note
        self._report(self.progress())

    def run(self) -> None:
        """Install what is missing. Raises Stopped or DownloadError; what is there is kept."""
        wanted, folder = self._wanted, self._folder
        final = folder / wanted.name
        try:
            if not final.is_dir():
                self._unpack_all(final)
            self._enter(InstallStep.CHECKING)
            if error := self._trial(final):
                raise TrialError(error)
            self._check_stop()
            gpu_support.activate(folder, wanted.name)
        except WebError as error:
            raise DownloadError(str(error), error.remedy) from error
        except OSError as error:
            raise disk_error(error, Path(error.filename or final)) from error

    def _unpack_all(self, final: Path) -> None:
        record = self._folder / _UNPACKED
        unpacking = _unpacking(final)
        (self._folder / _DOWNLOADS).mkdir(parents=True, exist_ok=True)
        done = _read_record(record, self._wanted.name) if unpacking.is_dir() else set[str]()
        was_begun = bool(done)
        waiting = [wheel for wheel in self._wanted.wheels if wheel.name not in done]
        self._done_bytes = self._wanted.size_bytes - sum(wheel.size_bytes for wheel in waiting)
        self._check_space(waiting)
        for wheel in waiting:
            path = self._folder / _DOWNLOADS / wheel.name
            if not self._is_here(path, wheel):
                self._download(path, wheel)
            self._done_bytes += wheel.size_bytes
            self._enter(InstallStep.UNPACKING)
            unpack(path, unpacking, wheel.unpacked_bytes, self._check_stop)
            done.add(wheel.name)
            _write_record(record, self._wanted.name, done)
            disk_files.delete(path)
        if was_begun:  # a power cut may have damaged what an earlier run unpacked
            self._enter(InstallStep.CHECKING)
            if not verify(unpacking, self._check_stop):
                disk_files.delete(record)
                disk_files.delete_folder(unpacking)
                raise DownloadError(
                    tr("The part that was installed before is damaged. It was deleted."),
                    tr("Try again."),
                )
        if hasattr(os, "sync"):
            os.sync()
        disk_files.rename(unpacking, final)
        disk_files.delete(record)

    def _download(self, path: Path, wheel: Wheel) -> None:
        def report(phase: Phase, note: str) -> None:
            waits = phase is Phase.WAITING
            self._enter(InstallStep.WAITING if waits else InstallStep.DOWNLOADING, note)

        self._job = FileDownload(
            wheel.url,
            path,
            size_bytes=wheel.size_bytes,
            sha256=wheel.sha256,
            kind=PACKAGE,
            proxy=self._proxy,
            limits=self._limits,
            report=report,
            free=self._free,
        )
        try:
            self._check_stop()
            self._job.run()
        finally:
            self._received += self._job.received_bytes
            self._job = None

    def _is_here(self, path: Path, wheel: Wheel) -> bool:
        """Whether a wheel was downloaded but not yet unpacked."""
        if not path.is_file() or path.stat().st_size != wheel.size_bytes:
            return False
        return str(hash_file(path, self._check_stop).hexdigest()) == wheel.sha256

    def _check_space(self, waiting: Collection[Wheel]) -> None:
        """Raise DownloadError unless the disk has space for all that is still to come."""
        if not waiting:
            return
        # Only one wheel is on the disk at a time, beside the unpacked files.
        needed = sum(wheel.unpacked_bytes for wheel in waiting) + self._limits.margin_bytes
        needed += max(wheel.size_bytes for wheel in waiting)
        remedy = tr("Free some disk space, then try again.")
        check_space(self._free(self._folder), needed, remedy)

    def _check_stop(self) -> None:
        if self._stopped.is_set():
            raise Stopped


def is_begun(folder: Path, wanted: WheelList) -> bool:
    """Whether an earlier installation of this list was not finished."""
    final = folder / wanted.name
    parts = (part_path(folder / _DOWNLOADS / wheel.name) for wheel in wanted.wheels)
    return final.is_dir() or _unpacking(final).is_dir() or any(part.is_file() for part in parts)


def begun_bytes(folder: Path, wanted: WheelList) -> int:
    """Bytes of the download that earlier installations have got."""
    if (folder / wanted.name).is_dir():
        return wanted.size_bytes
    done, got = _read_record(folder / _UNPACKED, wanted.name), 0
    for wheel in wanted.wheels:
        path = folder / _DOWNLOADS / wheel.name
        if wheel.name in done or path.is_file():
            got += wheel.size_bytes
        else:
            with suppress(OSError):
                got += part_path(path).stat().st_size
    return min(got, wanted.size_bytes)


def remove(folder: Path, used: str = "") -> None:
    """Use nothing of GPU support from the next start on, and delete it. Raises OSError.

    What this process uses, the packages `used`, is deleted by `finish_removal` of a later one.
    """
    gpu_support.deactivate(folder)
    if used:
        (folder / _REMOVED).touch()
    remove_others(folder, used)


def finish_removal(folder: Path) -> None:
    """Delete what a process used when it was removed; does nothing in another case."""
    if (folder / _REMOVED).exists():
        remove_others(folder)


def remove_others(folder: Path, kept: str = "", wanted: WheelList | None = None) -> None:
    """Delete all in the folder of GPU support but the packages `kept`, and what is unfinished.

    `wanted` is the list whose unfinished installation stays. What cannot be deleted now, because a
    process has it open, is deleted another time.
    """
    stays = {kept, *([_REMOVED] if kept else []), *gpu_support.STATE_FILES}
    if wanted is not None and wanted.name != kept:
        final = folder / wanted.name
        stays |= {_DOWNLOADS, _UNPACKED, final.name, _unpacking(final).name}
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in stays:
            with suppress(OSError):
                is_folder = path.is_dir() and not path.is_symlink()
                (disk_files.delete_folder if is_folder else disk_files.delete)(path)


def _unpacking(final: Path) -> Path:
    """Where the packages are unpacked before they are complete."""
    return final.with_name(f"{final.name}.unpacking")


def _read_record(path: Path, name: str) -> set[str]:
    """The wheels of a list that are unpacked."""
    try:
        stored: object = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return set()
    values = cast("dict[str, object]", stored) if isinstance(stored, dict) else {}
    wheels = values.get("wheels")
    if values.get("folder") != name or not isinstance(wheels, list):
        return set()
    return {each for each in cast("list[object]", wheels) if isinstance(each, str)}


def _write_record(path: Path, name: str, wheels: Collection[str]) -> None:
    values = {"folder": name, "wheels": sorted(wheels)}
    replace_file(path, json.dumps(values, indent=1).encode("ascii"))
