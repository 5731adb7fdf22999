"""Saver: the background thread that writes to the page store: saved sequences and evicted pages."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.errors import EngineError
from engine.machine.background import BackgroundTask
from engine.machine.device import trim_heap
from engine.messages import Event, Failed, SnapshotSaved
from engine.state.disk.page_file import PageSource, SavedImage, StateKey
from engine.state.disk.store import PageStore

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.02  # between two calls of the checkpoint


@dataclass(frozen=True, slots=True)
class Capture:
    """A sequence at one moment, to be written once or released; its pages stay as they are."""

    conversation: str  # id that snapshots are looked up by
    metadata: Mapping[str, str]  # "model", "adapters" appear in refusals
    tokens: Sequence[int]  # negative ones are rows of the images
    pages: Sequence[PageSource]
    resume: Mapping[str, str] = field(default_factory=dict)  # state to continue an answer
    images: Sequence[SavedImage] = ()

    def release(self) -> None:
        """Give up the pages; may be called again."""
        for page in self.pages:
            page.release()


class Saver:
    """Writes on a background thread, one thing at a time; delivers exactly one event per save."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[Callable[[], None], bool]] = deque()  # whether it is a save
        self._changed = threading.Condition()
        self._is_running = False

    @property
    def is_saving(self) -> bool:
        """Whether a save is in progress: another one would wait for it."""
        with self._changed:
            return any(is_save for _, is_save in self._jobs)

    def wait(
        self, checkpoint: Callable[[], None] = lambda: None, *, saves_only: bool = False
    ) -> None:
        """Wait until nothing, or no save, is in progress; raises only what `checkpoint` raises."""
        while True:
            with self._changed:
                if not any(is_save or not saves_only for _, is_save in self._jobs):
                    return
            checkpoint()
            with self._changed:
                self._changed.wait(_POLL_SECONDS)

    def run_later(self, work: Callable[[], None]) -> None:
        """Run work on the thread after what was begun before; it must not raise.

        Raises RuntimeError or MemoryError if the system has no thread: it is not run then.
        """
        self._add(work, is_save=False)

    def save(
        self,
        request: int,
        deliver: Callable[[Event], None],
        captured: Capture,
        store: PageStore,
        *,
        identify: Callable[[], StateKey],
        budget_bytes: int,
        saved: Callable[[Path], None],
    ) -> None:
        """Start writing `captured`, which is released afterwards; `saved` is called with the path.

        `deliver` is given the final event of the request. `identify` returns the state key on the
        thread, because hashing the model may take seconds.
        """
        assert not any(is_save for _, is_save in self._jobs), "a save is in progress"
        started = time.perf_counter()

        def write() -> SnapshotSaved:
            result = store.save(
                captured.conversation,
                identify(),
                captured.metadata,
                captured.tokens,
                captured.pages,
                captured.resume,
                images=captured.images,
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
                deliver(outcome)
            except BaseException:
                log.exception("the result of save %d cannot be delivered", request)

        try:
            self._add(work, is_save=True)
        except BaseException:
            captured.release()
            raise

    def _add(self, work: Callable[[], None], *, is_save: bool) -> None:
        with self._changed:
            self._jobs.append((work, is_save))
            if self._is_running:
                return
            try:
                BackgroundTask(self._run, "snapshot")
            except BaseException:
                self._jobs.pop()
                raise
            self._is_running = True

    def _run(self) -> None:
        """On the thread: work until there is nothing to do."""
        while True:
            with self._changed:
                if not self._jobs:
                    self._is_running = False
                    return
                work, _ = self._jobs[0]
            try:
                work()
            except BaseException:
                log.exception("the writer of cached contexts has failed")
            with self._changed:
                self._jobs.popleft()
                self._changed.notify_all()


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
