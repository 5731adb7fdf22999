"""Saver: writes snapshots on a background thread, one at a time.

A cache supports only one lease, so the second save waits for the first.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from engine.errors import EngineError
from engine.host.background import BackgroundTask
from engine.host.device import trim_heap
from engine.messages import Event, Failed, SnapshotSaved
from engine.snapshot import capture as snapshot
from engine.snapshot.capture import Snapshot
from engine.snapshot.store import Snapshots

log = logging.getLogger(__name__)


class Saver:
    """Writes snapshots on a background thread, which delivers exactly one event per save."""

    def __init__(self, deliver: Callable[[Event], None]) -> None:
        self._deliver = deliver
        self._task: BackgroundTask[None] | None = None

    def wait(self, checkpoint: Callable[[], None] = lambda: None) -> None:
        """Wait until no save is in progress; raises only what `checkpoint` raises."""
        if self._task is not None:
            self._task.wait(checkpoint)
            self._task = None

    def save(
        self,
        request: int,
        captured: Snapshot,
        folder: Snapshots,
        *,
        identify: Callable[[], str],
        budget_bytes: int,
        saved: Callable[[Path], None],
    ) -> None:
        """Start writing `captured`, which is released afterwards; `saved` is called with the path.

        `identify` returns the model's SHA-256; it may take seconds, so it runs on the thread.
        """
        assert self._task is None, "a save is in progress"
        started = time.perf_counter()
        metadata = captured.metadata

        def write() -> SnapshotSaved:
            sha256 = identify()
            path, size, evicted = folder.save(
                conversation=metadata["conversation"],
                key=(sha256, metadata["stack"], metadata["cache"]),
                token_bytes=captured.token_bytes,
                budget_bytes=budget_bytes,
                write=lambda path: snapshot.write(captured, path, sha256),
            )
            saved(path)
            return SnapshotSaved(
                request, captured.tokens, size, time.perf_counter() - started, evicted
            )

        def work() -> None:
            outcome = _outcome(request, write)
            captured.release()
            trim_heap()
            try:
                self._deliver(outcome)
            except BaseException:
                log.exception("the result of save %d cannot be delivered", request)

        try:
            self._task = BackgroundTask(work, "snapshot")
        except BaseException:
            captured.release()
            raise


def _outcome(request: int, write: Callable[[], SnapshotSaved]) -> SnapshotSaved | Failed:
    """The final event of a save: its result, or Failed for any exception."""
    try:
        return write()
    except EngineError as error:
        return Failed(request, str(error), error.remedy, fault=error.fault)
    except OSError as error:
        return Failed(
            request,
            f"The conversation's cached context could not be saved: {error.strerror or error}.",
            "Check the disk; the conversation itself is not affected.",
        )
    except BaseException as error:
        log.exception("a snapshot could not be written")
        return Failed(
            request,
            "The conversation's cached context could not be saved "
            f"({type(error).__name__}: {error}).",
            "The conversation itself is not affected; see the log for details.",
        )
