"""Writes sessions to the disk beside the engine's work, one at a time.

Two at a time would hold two copies of a cache in memory, so the second one waits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from engine import snapshot
from engine.beside import Beside
from engine.device import give_back_memory
from engine.errors import EngineError
from engine.messages import Event, Failed, SnapshotSaved
from engine.snapshot import Snapshot
from engine.snapshots import Snapshots

log = logging.getLogger(__name__)


class Saver:
    """The thread that writes; every save ends with exactly one event, from that thread."""

    def __init__(self, deliver: Callable[[Event], None]) -> None:
        self._deliver = deliver
        self._work: Beside[None] | None = None

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
        """Write `captured`; `saved` is told where. `identify` hashes the model, which takes a while."""
        assert self._work is None, "a save before the last one was awaited"
        started = time.perf_counter()
        # Taken out when it is written: what is over must not keep a copy of a whole cache.
        waiting = [captured]

        def write() -> SnapshotSaved:
            copy, sha256 = waiting.pop(), identify()
            metadata = copy.metadata
            path, size, evicted = folder.save(
                conversation=metadata["conversation"],
                key=(sha256, metadata["stack"], metadata["cache"]),
                token_bytes=copy.token_bytes,
                budget_bytes=budget_bytes,
                write=lambda path: snapshot.write(copy, path, sha256),
            )
            saved(path)
            return SnapshotSaved(request, copy.tokens, size, time.perf_counter() - started, evicted)

        def work() -> None:
            outcome = _outcome(request, write)
            give_back_memory()
            try:
                self._deliver(outcome)
            except BaseException:
                log.exception("the end of save %d cannot be delivered", request)

        self._work = Beside(work, "snapshot")


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
