"""Logging setup: log file, crash report, and hooks for uncaught exceptions.

The log must not contain the user's text: an exception's message can quote it, so tracebacks are
logged without messages. Only warnings and errors go to stderr.
"""

from __future__ import annotations

import faulthandler
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import IO

from engine import disk_files

_LARGEST = 1_000_000  # bytes of one log file
_KEPT = 3  # older log files
_START_SECONDS = 0.1  # that a file which is open elsewhere may delay the start
_log = logging.getLogger(__name__)


class _Format(logging.Formatter):
    """Log lines with time and logger; tracebacks without exception messages."""

    def formatException(  # noqa: N802  (logging's own name)
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None]
        | tuple[None, None, None],
    ) -> str:
        lines: list[str] = []
        error, seen = ei[1], set[int]()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            kind = type(error)
            lines += [
                *traceback.format_tb(error.__traceback__),
                f"{kind.__module__}.{kind.__qualname__}\n",
            ]
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
            lines += ["caused by\n"] if error is not None and id(error) not in seen else []
        return "".join(lines).rstrip()


def set_up(path: Path, on_fault: Callable[[BaseException], None]) -> Path | None:
    """Log to `path`, and hook uncaught exceptions; returns an earlier crash report, if any.

    `on_fault` is called on the thread of the exception. If the log cannot be written, the app
    starts with a warning.
    """
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # a full disk must not fill stderr with tracebacks
    if sys.stderr is not None:  # a Windows app without console has none
        _add(root, logging.StreamHandler(sys.stderr), logging.WARNING)
    report = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = _LogFile(path, maxBytes=_LARGEST, backupCount=_KEPT, encoding="utf-8")
        _add(root, handler, logging.INFO)
        report = _watch_crashes(path.with_name("crash.log"))
    except OSError as error:
        _log.warning("the log cannot be written: %s", error.strerror)
    _route_faults(on_fault)
    return report


def close() -> None:
    """Close the log and the file of the crash report; what is logged later is lost."""
    global _crash_file
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each, _LogFile)]:
        root.removeHandler(handler)
        handler.close()
    if _crash_file is not None:
        faulthandler.disable()
        _crash_file.close()
        _crash_file = None


class _LogFile(RotatingFileHandler):
    """A log file that goes on where it is while another program has it or an older one open."""

    def doRollover(self) -> None:  # noqa: N802  (logging's own name)
        try:
            super().doRollover()
        except OSError:
            if self.stream is None:  # pyright: ignore[reportUnnecessaryComparison]
                self.stream = self._open()


def _add(root: logging.Logger, handler: logging.Handler, level: int) -> None:
    handler.setLevel(level)
    handler.setFormatter(_Format("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)


_crash_file: IO[str] | None = None  # kept open for faulthandler


def _watch_crashes(path: Path) -> Path | None:
    """Write the stacks of all threads to `path` on a fatal signal; keeps an earlier report."""
    global _crash_file
    earlier = path.with_name("crash-previous.log")
    if crashed := path.exists() and path.stat().st_size > 0:
        disk_files.replace(path, earlier, seconds=_START_SECONDS)
        _log.warning("the app crashed before, its report is in %s", earlier.name)
    _crash_file = path.open("w", encoding="utf-8")
    faulthandler.enable(_crash_file, all_threads=True)
    return earlier if crashed else None


def _route_faults(on_fault: Callable[[BaseException], None]) -> None:
    """Send uncaught exceptions of any thread to the log and to `on_fault`."""

    def fault(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
            return
        _log.critical("uncaught exception", exc_info=(kind, error, trace))
        on_fault(error)

    def thread_fault(ended: threading.ExceptHookArgs) -> None:
        if ended.exc_value is not None and not issubclass(ended.exc_type, SystemExit):
            fault(ended.exc_type, ended.exc_value, ended.exc_traceback)

    sys.excepthook = fault
    threading.excepthook = thread_fault
