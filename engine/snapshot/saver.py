"""Writes sessions to the disk beside the engine's work, one at a time.

One at a time, since a cache has one lease: the second save waits for the first.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from engine.errors import EngineError
from engine.host.background import BackgroundTask
from engine.host.device import give_back_memory
from engine.messages import Event, Failed, SnapshotSaved
from engine.snapshot import capture as snapshot
from engine.snapshot.capture import Snapshot
from engine.snapshot.store import Snapshots

log = logging.getLogger(__name__)


class Saver:
    """The thread that writes; every save ends with exactly one event, from that thread."""

    def __init__(self, deliver: Callable[[Event], None]) -> None:
        self._deliver = deliver
        self._work: BackgroundTask[None] | None = None

    def wait(self, checkpoint: Callable[[], None] = lambda: None) -> None:
        """Until nothing is being written; raises what `checkpoint` raises and nothing else."""
        if self._work is not None:
            self._work.wait(checkpoint)
            self._work = None

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
        """Write and release `captured`; `saved` gets the path. `identify` hashes the model, which takes a while."""
        assert self._work is None, "a save before the last one was awaited"
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
            give_back_memory()
            try:
                self._deliver(outcome)
            except BaseException:
                log.exception("the end of save %d cannot be delivered", request)

        try:
            self._work = BackgroundTask(work, "snapshot")
        except BaseException:
            captured.release()
            raise


def _outcome(request: int, write: Callable[[], SnapshotSaved]) -> SnapshotSaved | Failed:
    """What came of it: a command must be answered whatever happens."""
    try:
        return write()
    except EngineError as error:
        return Failed(request, str(error), error.remedy)
    except OSError as error:
        return Failed(
            request,
            f"The conversation's reading could not be saved: {error.strerror or error}.",
            "Check the disk; the conversation itself is not affected.",
        )
    except BaseException as error:
        log.exception("a snapshot could not be written")
        return Failed(
            request,
            f"The conversation's reading could not be saved ({type(error).__name__}: {error}).",
            "The conversation itself is not affected; the log has the details.",
        )
