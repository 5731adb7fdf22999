"""Updates: looks for a newer version when asked to, gets its package, and offers to delete former ones.

Nothing is asked before the user does: by a click, or by the setting of a weekly check. A package is
never run by itself. The former version stays until this one has answered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from PySide6.QtCore import QObject, QStandardPaths, QTimer, Signal

from app import UPDATE_ADDRESS, UPDATE_KEY, __version__
from app.domain.release import InstallKind, Release, Version, version_of
from app.downloads.partial import hash_file
from app.downloads.policy import DownloadError, Stopped
from app.downloads.transfer import UPDATE, FileDownload
from app.net.http import Cancellation, WebError
from app.settings.table import Settings
from app.state.chat import Notice, State
from app.state.updates import GetPhase, Leftover, UpdateState
from app.system import paths, restart
from app.system.json_file import JsonFileError
from app.system.translation import sentences, tr
from app.system.worker import BackgroundWorker
from app.updates.feed import fetch
from app.updates.history import History, remove
from app.updates.install import Installed, installed

T = TypeVar("T")
_log = logging.getLogger(__name__)
NOTICE, NEWS_NOTICE = "update", "news"  # a newer version; notes of this one after an update
OTHER_NOTICE = "other version"  # one that was started while this one is open
_WEEK_SECONDS = 7 * 24 * 3600.0
_LOOK_MILLISECONDS = 3600 * 1000
_FIRST_LOOK_MILLISECONDS = 60 * 1000  # after the start
_PROGRESS_MILLISECONDS = 250


@dataclass(frozen=True, slots=True)
class Here:
    """This version and its surroundings; other values stand for another installation."""

    address: str = UPDATE_ADDRESS
    key: str = UPDATE_KEY
    version: str = __version__
    installed: Callable[[], Installed] = installed
    downloads: Callable[[], Path] = lambda: Path(
        QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DownloadLocation)
    )
    start: Callable[[Path], None] = lambda file: restart.request(program=file)
    now: Callable[[], float] = time.time


class _Record(NamedTuple):
    """What the record says at the start."""

    kind: InstallKind
    is_other: bool  # another version ran before
    checked: float
    offered: str
    newest: str
    answered: bool


class Updates(QObject):
    """Keeps `UpdateState` up to date; every method is called on the GUI thread."""

    installing = Signal()  # the installer is started when the app has quit

    def __init__(
        self,
        state: State,
        updates: UpdateState,
        settings: Callable[[], Settings],
        files: BackgroundWorker,
        here: Here | None = None,
        parent: QObject | None = None,
    ) -> None:
        """`files` is the worker for the app's own files."""
        super().__init__(parent)
        self._chat, self.state, self._settings, self._files = state, updates, settings, files
        self._here = here = here or Here()
        self._own = version_of(self._here.version) or Version(0, 0, 0)
        self._worker = BackgroundWorker("updates", self)
        self._receiver = BackgroundWorker("update-package", self)  # a check does not wait for it
        self._history: History | None = None  # used on the thread of `files`
        self._asking: Cancellation | None = None
        self._job: FileDownload | None = None
        self._offered = ""  # the newer version that a notice named last
        self._answered = False
        self._timer = QTimer(self, interval=_LOOK_MILLISECONDS)
        self._timer.timeout.connect(self._check_weekly)
        self._progress = QTimer(self, interval=_PROGRESS_MILLISECONDS)
        self._progress.timeout.connect(self._show_progress)
        self._set(host=urlsplit(here.address).hostname or "")

    # --- life -----------------------------------------------------------------------------------

    def start(self, record: Path | None = None) -> None:
        """Note that this version runs, and look for a newer one if it is time; after the paint."""
        path = record or paths.state() / "updates.json"

        def note() -> _Record:
            found = self._here.installed()
            self._history = history = History(path, self._here.version, found, self._here.now)
            is_other = _tried(history.note_start, False)
            _tried(history.clean, None)
            return _Record(
                found.kind, is_other, history.checked, history.offered, history.newest,
                history.has_answered,
            )  # fmt: skip

        def noted(found: _Record) -> None:
            self._offered, self._answered = found.offered, found.answered
            newest = version_of(found.newest)
            known = str(newest) if newest is not None and self._is_wanted(newest) else ""
            self._set(kind=found.kind, checked=found.checked, known=known)
            if found.is_other:
                sentence = tr("Tokonoma is now version {version}.", version=self._here.version)
                self._chat.set_notice(NEWS_NOTICE, Notice(sentence, "", tr("What is new")))
            self._look_for_leftovers()
            if self._here.address:
                self._timer.start()
                QTimer.singleShot(_FIRST_LOOK_MILLISECONDS, self, self._check_weekly)

        self._files.run(note, noted)

    def close(self) -> None:
        """Stop what is asked or received; a part of a package stays, to go on with later."""
        self._timer.stop()
        if self._asking is not None:
            self._asking.set()
        self.stop_getting()
        self._worker.close()
        self._receiver.close()

    def on_other_version(self, version: str) -> None:
        """Another version was started, which has passed its files on to this one."""
        other = version_of(version)
        if other is None or other == self._own:
            return
        sentence = tr(
            "Version {other} was started while this one, {own}, is open.",
            other=str(other),
            own=str(self._own),
        )
        remedy = tr("Quit this one, then start the other again.")
        self._chat.set_notice(OTHER_NOTICE, Notice(sentence, remedy, tr("Quit Tokonoma")))

    def on_answered(self, generated_tokens: int) -> None:
        """A model on this computer has answered: then this version works."""
        if self._answered or generated_tokens < 1:
            return
        self._answered = True
        self._file(lambda history: history.note_answer())
        self._look_for_leftovers()

    # --- looking for a newer version ------------------------------------------------------------

    def check(self) -> None:
        """Ask the update server for the newest version."""
        self._check(is_asked=True)

    def _check_weekly(self) -> None:
        since = self._here.now() - self.state.status.checked
        is_due = not 0 <= since < _WEEK_SECONDS  # also where the clock was set back
        if self._settings().check_updates and is_due and not self._settings().offline:
            self._check(is_asked=False)

    def _check(self, *, is_asked: bool) -> None:
        if not self._here.address or self._asking is not None:
            return
        self._asking = asking = Cancellation()
        here, proxy = self._here, self._settings().proxy
        self._set(checking=True, fault="")

        def ask() -> Release | WebError:
            try:
                return fetch(here.address, key=here.key, proxy=proxy, cancellation=asking)
            except WebError as error:
                return error

        def asked(found: Release | WebError) -> None:
            self._asking = None
            if isinstance(found, WebError):
                _log.info("no newer version could be looked for: %s", found)
                self._set(checking=False, fault=sentences(str(found), found.remedy))
                return
            self._file(lambda history: history.note_check(str(found.version)))
            self._set(checking=False, checked=self._here.now(), known="")
            self._show(found, is_asked=is_asked)

        self._worker.run(ask, asked)

    def _show(self, release: Release, *, is_asked: bool) -> None:
        """Show a release, if it is newer."""
        if not self._is_wanted(release.version):
            if self._job is None:
                self._set(newer=None, package=None, too_old="", phase=GetPhase.NONE, get_fault="")
            return
        if self.state.status.newer == release:
            return  # what was begun with it goes on
        self.stop_getting()
        here = self._here.installed()
        package = release.package(here.kind, here.machine)
        is_old = package is not None and here.is_too_old(package)
        self._set(
            newer=release,
            package=None if is_old else package,
            too_old=package.minimum if package is not None and is_old else "",
            phase=GetPhase.NONE,
            file=None,
            get_fault="",
        )
        name = str(release.version)
        if is_asked or name == self._offered:
            return
        self._offered = name
        self._file(lambda history: history.note_offer(name))
        sentence = tr("There is a newer version of Tokonoma: {version}.", version=name)
        self._chat.set_notice(NOTICE, Notice(sentence, "", tr("Show")))

    # --- getting its package --------------------------------------------------------------------

    def get(self) -> None:
        """Download the package into the user's folder of downloads, and verify it."""
        package = self.state.status.package
        if package is None or self._job is not None:
            return
        path = self._here.downloads() / package.file
        self._job = job = FileDownload(
            package.url,
            path,
            size_bytes=package.size_bytes,
            sha256=package.sha256,
            kind=UPDATE,
            proxy=self._settings().proxy,
        )
        self._set(phase=GetPhase.GETTING, percent=0, get_fault="")
        self._progress.start()

        def work() -> str | None:
            """Why it failed; "" when it is there, None when it was stopped."""
            try:
                if not _is_there(path, package.sha256):
                    job.run()
            except Stopped:
                return None
            except (DownloadError, WebError) as error:
                return sentences(str(error), error.remedy)
            return ""

        def done(fault: str | None) -> None:
            if self._job is not job:
                return
            self._job = None
            self._progress.stop()
            if fault is None:
                self._set(phase=GetPhase.NONE)
            elif fault:
                self._set(phase=GetPhase.FAILED, get_fault=fault)
            else:
                self._set(phase=GetPhase.READY, file=path, percent=100)

        self._receiver.run(work, done)

    def stop_getting(self) -> None:
        """Stop the download; what is received stays, and is gone on with."""
        if self._job is not None:
            self._job.stop()
            self._job = None
            self._progress.stop()
            self._set(phase=GetPhase.NONE)

    def install(self) -> None:
        """Quit, and then start the installer that was downloaded, if it is what was verified.

        It would find the files of a running app in use.
        """
        file, package = self.state.status.file, self.state.status.package
        if file is None or package is None:
            return

        def checked(is_there: bool) -> None:
            if is_there:
                self._here.start(file)
                self.installing.emit()
            else:
                fault = tr("The downloaded file is not there any more, or was changed.")
                self._set(phase=GetPhase.FAILED, file=None, get_fault=fault)

        self._receiver.run(lambda: _is_there(file, package.sha256), checked)

    def _show_progress(self) -> None:
        if self._job is not None and self._job.size_bytes:
            self._set(percent=100 * self._job.done_bytes // self._job.size_bytes)

    # --- what an update leaves ------------------------------------------------------------------

    def remove_leftover(self, folder: Path) -> None:
        """Delete the folder of a version that is no longer needed."""
        if folder not in {each.folder for each in self.state.status.leftovers}:
            return

        def work() -> str:
            try:
                remove(folder)
            except OSError as error:
                reason = error.strerror or str(error)
                return tr("{folder} could not be deleted: {reason}.", folder=folder, reason=reason)
            return ""

        def done(fault: str) -> None:
            self._set(leftover_fault=fault)
            self._look_for_leftovers()

        self._worker.run(work, done)

    def _look_for_leftovers(self) -> None:
        def look() -> tuple[Leftover, ...]:
            found = self._history.former() if self._history is not None else []
            return tuple(Leftover(each.version, each.folder) for each in found)

        self._files.run(look, lambda found: self._set(leftovers=found))

    # --- steps ----------------------------------------------------------------------------------

    def _is_wanted(self, version: Version) -> bool:
        """Whether a version is newer; a pre-release only for who has one."""
        is_final = self._own.is_pre_release or not version.is_pre_release
        return self._own < version and is_final

    def _file(self, write: Callable[[History], None]) -> None:
        """Change the record on the thread of the app's files."""

        def work() -> None:
            if self._history is not None:
                history = self._history
                _tried(lambda: write(history), None)

        self._files.run(work)

    def _set(self, **values: object) -> None:
        self.state.set_status(replace(self.state.status, **values))  # type: ignore[arg-type]


def _is_there(path: Path, sha256: str) -> bool:
    """Whether the file is there, whole."""
    with suppress(OSError):
        return path.is_file() and hash_file(path, lambda: None).hexdigest() == sha256
    return False


def _tried(call: Callable[[], T], otherwise: T) -> T:
    """What a call on the record returns; a fault of the disk only costs what would be noted."""
    try:
        return call()
    except (JsonFileError, OSError) as error:
        _log.warning("the record of updates failed: %s", error)
        return otherwise
