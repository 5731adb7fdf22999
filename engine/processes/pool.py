"""Child processes as their parent sees them: calls with limits of time, memory and output.

A child does one task at a time, and is used again until it fails or its memory has grown. The
thread that starts a child is the one that reads from it and waits for its end, so that it ends
with the child; Linux ends a child with the thread that started it.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, cast

from engine.processes import frames
from engine.processes.frames import FrameError, read_frame, write_frame
from engine.processes.restrictions import memory_of

FLAG = "--child"  # of the program: be a child process
_POLL_SECONDS = 0.02  # how often a running task is looked at
_END_SECONDS = 1.0  # for a process to end by itself after its last frame
_CLOSE_SECONDS = 2.0
_FRAME_BYTES = 64  # about what a piece takes beside its content
_NEAR = 0.7  # of the memory: a crash beyond it is for want of memory
_log = logging.getLogger(__name__)

Cancelled = Callable[[], bool]
Progress = Callable[[float], None]  # called with how much is done, 0 to 1


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """What one task may use."""

    seconds: float = 60.0  # without any progress
    most_seconds: float = 600.0  # in all
    memory_bytes: int = 1_000_000_000
    output_bytes: int = 250_000_000


class ChildFault(StrEnum):
    """Why a task has no result."""

    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"  # more of it than allowed
    CRASHED = "crashed"
    CANCELLED = "cancelled"
    NOT_STARTED = "not started"


class ChildError(Exception):
    """Raised for a task without a result."""

    def __init__(self, fault: ChildFault, detail: str = "") -> None:
        super().__init__(detail or fault.value)
        self.fault = fault
        self.detail = detail  # technical


class _Ended(Exception):
    """Raised when a child that was idle had ended."""


@dataclass(frozen=True, slots=True)
class _Result:
    pieces: list[bytes]
    is_last: bool


def child_command(package: str = "engine") -> tuple[str, ...]:
    """The command that starts a package as a child process; in a bundle, the executable.

    The child of the engine does the tasks of `engine.child`; that of the app, and so that of a
    bundle, those of the app too.
    """
    if getattr(sys, "frozen", False):
        return (sys.executable, FLAG)
    return (sys.executable, "-E", "-s", "-m", package, FLAG)


class Child:
    """One child process, started when it is made."""

    def __init__(self, command: Sequence[str], limits: ChildLimits) -> None:
        self._command = command
        self._limits = limits
        self._answers: queue.SimpleQueue[_Result | ChildError | float | int] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._started = threading.Event()
        self._peak = 0
        self._calls = 0
        self.is_usable = True
        self._thread = threading.Thread(target=self._run, name="child process", daemon=True)
        self._thread.start()
        self._started.wait()

    @property
    def process_id(self) -> int:
        """0: it was not started."""
        return self._process.pid if self._process is not None else 0

    def call(
        self,
        task: str,
        request: Mapping[str, Any],
        cancelled: Cancelled | None = None,
        progress: Progress | None = None,
        content: bytes = b"",
    ) -> list[bytes]:
        """Do a task; returns the pieces of its result. Raises ChildError.

        `content` is sent along, as the request's "content" unless it is empty. `cancelled` and
        `progress` are called on this thread.
        """
        self._calls += 1
        seconds = self._limits.seconds
        try:
            if content:
                self._send(frames.CONTENT, content)
            self._send(frames.CALL, {"task": task, "request": request, "seconds": seconds})
            return self._wait(cancelled or _never, progress or _ignored)
        except BaseException:
            self.is_usable = False
            self.kill()
            raise

    def kill(self) -> None:
        """End the process and what it started; returns at once."""
        self.is_usable = False
        process = self._process
        if process is None or process.poll() is not None:
            return
        with suppress(OSError):
            if sys.platform == "win32":
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)

    def join(self, seconds: float) -> bool:
        """Wait for the end of the process; False when that takes longer."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _send(self, kind: bytes, content: Mapping[str, Any] | bytes) -> None:
        process = self._process
        if process is None:
            return  # why is in the answers
        stream = cast("BinaryIO", process.stdin)
        with suppress(OSError, ValueError):  # it has ended, which the answers say
            whole = content if isinstance(content, bytes) else json.dumps(content).encode()
            write_frame(stream, kind, whole)
            stream.flush()

    def _wait(self, cancelled: Cancelled, progress: Progress) -> list[bytes]:
        moved = time.monotonic()  # when something was done
        end = moved + self._limits.most_seconds
        while True:
            self._check(min(end, moved + self._limits.seconds), cancelled)
            try:
                answer = self._answers.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            if isinstance(answer, float):
                moved = time.monotonic()
                progress(answer)
                continue
            if isinstance(answer, _Result):
                self.is_usable = not answer.is_last
                return answer.pieces
            if isinstance(answer, ChildError):
                raise answer
            if self._calls > 1 and answer == 0:
                raise _Ended
            raise self._crash(answer)

    def _check(self, limit: float, cancelled: Cancelled) -> None:
        """Raise ChildError if the running task must end."""
        if cancelled():
            raise ChildError(ChildFault.CANCELLED)
        if time.monotonic() > limit:
            raise ChildError(ChildFault.TIMEOUT, "its limit of time")
        self._peak = max(self._peak, memory_of(self.process_id))
        if self._peak > self._limits.memory_bytes:
            raise ChildError(ChildFault.MEMORY, f"more than {self._limits.memory_bytes} bytes")

    def _crash(self, code: int) -> ChildError:
        """Why a process ended in the middle of a task."""
        if sys.platform != "win32" and code == -signal.SIGKILL:
            return ChildError(ChildFault.MEMORY, "ended by the system, for want of memory")
        if self._peak > _NEAR * self._limits.memory_bytes:
            return ChildError(ChildFault.MEMORY, f"ended with {self._peak} bytes")
        if sys.platform != "win32" and code == -signal.SIGXCPU:
            return ChildError(ChildFault.TIMEOUT, "its limit of processor time")
        cause = f"signal {-code}" if code < 0 else f"exit code {code}"
        return ChildError(ChildFault.CRASHED, cause)

    def _run(self) -> None:
        """Start the process, read from it, and wait for its end."""
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=Path(__file__).parents[2] if not getattr(sys, "frozen", False) else None,
                start_new_session=True,
                creationflags=_creation_flags(),
            )
        except (OSError, ValueError, MemoryError, subprocess.SubprocessError) as error:
            self._answers.put(ChildError(ChildFault.NOT_STARTED, str(error)))
            self._started.set()
            return
        self._process = process
        self._send(frames.START, {"memory_bytes": self._limits.memory_bytes})
        self._started.set()
        stdout = cast("BinaryIO", process.stdout)
        try:
            self._receive(stdout)
            process.wait(_END_SECONDS)
        except FrameError as error:
            self._answers.put(ChildError(ChildFault.OUTPUT, str(error)))
        except (OSError, MemoryError, subprocess.TimeoutExpired):
            pass
        self.kill()
        code = process.wait()
        for stream in (stdout, cast("BinaryIO", process.stdin)):
            with suppress(OSError):  # what could not be written any more
                stream.close()
        self._answers.put(code)

    def _receive(self, stream: BinaryIO) -> None:
        """Collect results until the process closes its end. Raises FrameError, OSError."""
        pieces: list[bytes] = []
        left = self._limits.output_bytes
        while (frame := read_frame(stream, left)) is not None:
            kind, content = frame
            if kind == frames.PIECE:
                pieces.append(content)
                left -= len(content) + _FRAME_BYTES
            elif kind in (frames.DONE, frames.LAST):
                self._answers.put(_Result(pieces, kind == frames.LAST))
                pieces, left = [], self._limits.output_bytes
            elif kind == frames.FAULT:
                self._answers.put(_fault(content))
            elif kind == frames.PROGRESS:
                self._answers.put(_fraction(content))
            elif kind == frames.MEMORY and content.isdigit():
                self._peak = max(self._peak, int(content[:20]))
            else:
                raise FrameError("a frame of another kind")


class ChildPool:
    """The child processes of one use, started when they are needed; any thread may call."""

    def __init__(
        self, limits: ChildLimits | None = None, most: int = 2, command: Sequence[str] | None = None
    ) -> None:
        self._limits = limits or ChildLimits()
        self._command = command or child_command()
        self._free = threading.Semaphore(most)
        self._lock = threading.Lock()  # guards the three below
        self._idle: list[Child] = []
        self._all: set[Child] = set()
        self._closed = False

    def call(
        self,
        task: str,
        request: Mapping[str, Any],
        cancelled: Cancelled | None = None,
        progress: Progress | None = None,
        content: bytes = b"",
    ) -> list[bytes]:
        """Do a task in a child; returns the pieces of its result. Raises ChildError.

        Waits while as many tasks run as there may be children. `content` is sent along, as the
        request's "content" unless it is empty. `cancelled` and `progress` are called on this
        thread.
        """
        cancelled = cancelled or _never
        while not self._free.acquire(timeout=_POLL_SECONDS):
            if self._closed or cancelled():
                raise ChildError(ChildFault.CANCELLED)
        try:
            while True:
                with suppress(_Ended):
                    return self._call(task, request, cancelled, progress or _ignored, content)
        finally:
            self._free.release()

    def close(self) -> None:
        """End all children; calls that run or come later raise ChildError, as cancelled."""
        with self._lock:
            self._closed = True
            children = list(self._all)
        for child in children:
            child.kill()
        limit = time.monotonic() + _CLOSE_SECONDS
        for child in children:
            if not child.join(max(0.0, limit - time.monotonic())):
                _log.warning("child process %d has not ended", child.process_id)

    def _call(
        self,
        task: str,
        request: Mapping[str, Any],
        cancelled: Cancelled,
        progress: Progress,
        content: bytes,
    ) -> list[bytes]:
        child = self._take()
        try:
            return child.call(task, request, cancelled, progress, content)
        except ChildError as error:
            if self._closed:
                raise ChildError(ChildFault.CANCELLED) from None
            if error.fault is not ChildFault.CANCELLED:
                _log.info("%s in a child process: %s (%s)", task, error.fault, error.detail)
            raise
        finally:
            self._give_back(child)

    def _take(self) -> Child:
        with self._lock:
            if self._closed:
                raise ChildError(ChildFault.CANCELLED)
            if self._idle:
                return self._idle.pop()
            child = Child(self._command, self._limits)
            self._all.add(child)
            return child

    def _give_back(self, child: Child) -> None:
        with self._lock:
            if child.is_usable and not self._closed:
                self._idle.append(child)
            else:
                self._all.discard(child)


def _creation_flags() -> int:
    """Of Windows: no console window, and a lower priority."""
    if sys.platform != "win32":
        return 0
    return subprocess.CREATE_NO_WINDOW | subprocess.BELOW_NORMAL_PRIORITY_CLASS


def _never() -> bool:
    return False


def _ignored(done: float) -> None:
    """Progress that nobody asked for."""


def _fraction(content: bytes) -> float:
    """How much is done, as a child told it. Raises FrameError."""
    try:
        return min(1.0, max(0.0, float(content[:20])))
    except ValueError:
        raise FrameError("progress that is no number") from None


def _fault(content: bytes) -> ChildError:
    """A fault as a child told it, which may be anything."""
    with suppress(ValueError, TypeError, KeyError):
        told = json.loads(content)
        return ChildError(ChildFault(told["fault"]), str(told["detail"])[:500])
    return ChildError(ChildFault.CRASHED, "a fault that cannot be read")
