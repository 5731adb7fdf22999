"""Saver: writes sequences to the page store on a background thread, one at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.errors import EngineError
from engine.host.background import BackgroundTask
from engine.host.device import trim_heap
from engine.messages import Event, Failed, SnapshotSaved
from engine.snapshot.page_file import PageSource, StateKey
from engine.snapshot.store import PageStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Capture:
    """A sequence at one moment, to be written once or released; its pages stay as they are."""

    conversation: str  # id that snapshots are looked up by
    metadata: Mapping[str, str]  # "model", "adapters" appear in refusals
    tokens: Sequence[int]
    pages: Sequence[PageSource]
    resume: Mapping[str, str] = field(default_factory=dict)  # state to continue an answer

    def release(self) -> None:
        """Give up the pages; may be called again."""
        for page in self.pages:
            page.release()


class Saver:
    """Writes captures on a background thread, which delivers exactly one event per save."""

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
        captured: Capture,
        store: PageStore,
        *,
        identify: Callable[[], StateKey],
        budget_bytes: int,
        saved: Callable[[Path], None],
    ) -> None:
        """Start writing `captured`, which is released afterwards; `saved` is called with the path.

        `identify` returns the state key; the model's hash may take seconds, so it runs on the
        thread.
        """
        assert self._task is None, "a save is in progress"
        started = time.perf_counter()

        def write() -> SnapshotSaved:
            result = store.save(
                captured.conversation,
                identify(),
                captured.metadata,
                captured.tokens,
                captured.pages,
                captured.resume,
                budget_bytes=budget_bytes,
            )
            saved(result.path)
            seconds = time.perf_counter() - started
            tokens, written = len(captured.tokens), result.bytes_written
            return SnapshotSaved(request, tokens, written, seconds, result.evicted)

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
