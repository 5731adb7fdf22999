"""Worker: a thread that computes masks beside the forward pass, for as long as answers need it.

Starting a thread for each pass would wait until a busy machine runs it: milliseconds.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue

_IDLE_SECONDS = 1.0  # after which the thread ends


class Task:
    """Work that was given to a worker."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._failed: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def run(self) -> None:
        """Do the work; on the worker's thread."""
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  raised again by `wait`
            self._failed = error
        finally:
            self._done.release()

    def wait(self) -> None:
        """Wait until the work is done; raises its exception."""
        with self._done:
            if self._failed is not None:
                raise self._failed


class Worker:
    """One thread, which ends when nothing refers to the worker any more, or after a while.

    It begins again when there is work. Used by one thread at a time.
    """

    def __init__(self) -> None:
        self._thread = _Thread()
        weakref.finalize(self, self._thread.queue.put, None)

    def do(self, work: Callable[[], None]) -> Task:
        """Give it some work, to be done in order."""
        task = Task(work)
        self._thread.do(task)
        return task


class _Thread:
    def __init__(self) -> None:
        self.queue = SimpleQueue[Task | None]()
        self._lock = threading.Lock()
        self._is_running = False

    def do(self, task: Task) -> None:
        with self._lock:
            self.queue.put(task)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="masks", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                task = self.queue.get(timeout=_IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self.queue.empty():
                        self._is_running = False
                        return
                continue
            if task is None:
                return
            task.run()
            del task  # it may hold the last reference to the worker
