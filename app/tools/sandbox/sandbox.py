"""Runs a Python program that a model wrote, isolated by the kernel; Linux only.

A thread for each program starts its supervisor and reads from it, as Linux ends a process with the
thread that started it.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, cast

from app.system.file_names import FORBIDDEN, not_reserved
from app.tools.sandbox.frames import END, FAULT, FILE, FLAG, HEADER, NAME, ORDERS, OUTPUT
from engine import child_command

_ENVIRONMENT = {"HOME": "/own", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}
_STOP_SECONDS = 2.0  # for a supervisor to end its program and itself
_MOST_FRAME = 16 << 20
_NAME_BYTES = 120


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one program may use."""

    seconds: float = 30.0  # of the clock, and of the processor
    memory_bytes: int = 512 << 20
    folder_bytes: int = 64 << 20
    output_bytes: int = 100_000  # of both streams together; the rest is dropped
    files: int = 10  # that are returned
    file_bytes: int = 5_000_000  # of these together


class Ending(StrEnum):
    """How a program ended."""

    FINISHED = "finished"  # with an exit status
    CRASHED = "crashed"  # by a signal
    TIMEOUT = "timeout"  # of the clock or of the processor
    MEMORY = "memory"  # ended by the system, for want of it


@dataclass(frozen=True, slots=True)
class SandboxFile:
    """A file that a program left in its folder; its name is safe on every system."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """What came of a program."""

    output: str  # of both streams, in the order in which they were written
    ending: Ending
    status: int = 0  # exit status, or minus the number of a signal
    dropped_bytes: int = 0  # of the output
    files: tuple[SandboxFile, ...] = ()
    files_left_out: int = 0  # as they were too many or too large


class SandboxError(Exception):
    """Raised when a program could not be isolated, and was not run; says why, for the log."""


async def run(
    code: str,
    limits: SandboxLimits | None = None,
    output: Callable[[str], None] | None = None,
    *,
    own_user: bool = True,
) -> SandboxResult:
    """Run a program; raises SandboxError when it cannot be isolated.

    `output` gets what it writes while it runs, on another thread. `own_user`: in a user namespace;
    without it, this process must be root. When cancelled, this returns after all of it has ended.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(lambda: ended.done() or ended.set_result(None))

    one = _Run(code, limits or SandboxLimits(), output or _ignored, own_user, tell)
    try:
        await asyncio.shield(ended)
    except asyncio.CancelledError:
        one.stop()
        while not ended.done():
            with suppress(asyncio.CancelledError):
                await asyncio.shield(ended)
        raise
    finally:
        one.close()
    return one.result()


class _Run:
    """One program, started when this is made."""

    def __init__(
        self,
        code: str,
        limits: SandboxLimits,
        output: Callable[[str], None],
        own_user: bool,
        ended: Callable[[], None],
    ) -> None:
        self._limits, self._output, self._ended = limits, output, ended
        self._orders = {
            "code": code,
            "own_user": own_user,
            "seconds": _whole(limits.seconds),
            "memory_bytes": limits.memory_bytes,
            "folder_bytes": limits.folder_bytes,
            "output_bytes": limits.output_bytes,
            "files": limits.files,
            "file_bytes": limits.file_bytes,
        }
        self._stopped = threading.Event()
        self._timed_out = False
        self._text: list[str] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._files: dict[str, SandboxFile] = {}
        self._name = ""
        self._end: dict[str, Any] = {}
        self._fault = ""
        self._waking, self._wake = os.pipe()
        threading.Thread(target=self._run, name="sandbox", daemon=True).start()

    def stop(self) -> None:
        """End the program; before `close`."""
        self._stopped.set()
        os.write(self._wake, b".")

    def close(self) -> None:
        """Close what `stop` needs, once the program has ended."""
        os.close(self._waking)
        os.close(self._wake)

    def result(self) -> SandboxResult:
        """What came of it, once it has ended; raises SandboxError."""
        text = "".join(self._text)
        if self._timed_out:
            return SandboxResult(text, Ending.TIMEOUT)
        if self._fault or not self._end:
            raise SandboxError(self._fault or "the process that isolates it has ended")
        status = int(self._end["status"])
        ending = Ending.FINISHED if status >= 0 else Ending.CRASHED
        if status == -signal.SIGKILL:  # only the kernel sends it
            is_late = float(self._end["seconds"]) >= _whole(self._limits.seconds) - 0.5
            ending = Ending.TIMEOUT if is_late else Ending.MEMORY
        return SandboxResult(
            text,
            ending,
            status,
            int(self._end["dropped"]),
            tuple(self._files.values()),
            int(self._end["left_out"]),
        )

    def _run(self) -> None:
        try:
            self._supervise()
        except Exception as error:  # noqa: BLE001  of the system, or of who reads the output
            self._fault = str(error) or type(error).__name__
        finally:
            self._ended()

    def _supervise(self) -> None:
        frozen = getattr(sys, "frozen", False)
        process = subprocess.Popen(
            _command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_ENVIRONMENT,
            cwd=None if frozen else Path(__file__).parents[3],
            start_new_session=True,
        )
        stdin, stdout = cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout)
        try:
            orders = json.dumps(self._orders).encode()
            with suppress(BrokenPipeError):
                stdin.write(HEADER.pack(ORDERS, len(orders)) + orders)
                stdin.flush()
            self._receive(stdout.fileno(), time.monotonic() + self._limits.seconds)
        finally:
            _end(process)
            stdout.close()
            with suppress(OSError):
                stdin.close()

    def _receive(self, results: int, limit: float) -> None:
        """Take frames until the supervisor ends, it is too late, or nobody waits any more."""
        poll = select.poll()
        poll.register(results, select.POLLIN)
        poll.register(self._waking, select.POLLIN)
        received = bytearray()
        while not self._stopped.is_set():
            if not poll.poll(max(0.0, limit - time.monotonic()) * 1000):
                self._timed_out = True
                return
            if self._stopped.is_set():
                return
            piece = os.read(results, 1 << 16)
            if not piece:
                self._add(self._decoder.decode(b"", final=True))
                return
            received += piece
            while len(received) >= HEADER.size:
                kind, size = HEADER.unpack_from(received)
                if size > _MOST_FRAME:
                    raise ValueError(f"a frame of {size} bytes")
                if len(received) < HEADER.size + size:
                    break
                self._take(kind, bytes(received[HEADER.size : HEADER.size + size]))
                del received[: HEADER.size + size]

    def _take(self, kind: bytes, content: bytes) -> None:
        if kind == OUTPUT:
            self._add(self._decoder.decode(content))
        elif kind == NAME:
            self._name = _safe_name(content, self._files)
        elif kind == FILE:
            self._files[self._name.casefold()] = SandboxFile(self._name, content)
        elif kind == END:
            self._end = json.loads(content)
        elif kind == FAULT:
            self._fault = content.decode(errors="replace")

    def _add(self, text: str) -> None:
        if text:
            self._text.append(text)
            self._output(text)


def _whole(seconds: float) -> int:
    """A limit of processor time, which is in whole seconds."""
    return max(1, round(seconds))


def _command() -> tuple[str, ...]:
    """The command that starts a supervisor: without packages, of which it needs none."""
    if getattr(sys, "frozen", False):
        return (sys.executable, FLAG)
    *python, _ = child_command("app")
    return (python[0], "-S", *python[1:], FLAG)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a supervisor and its program, and wait until both are gone."""
    if process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            process.terminate()  # it ends the program, and itself when that is gone
            process.wait(_STOP_SECONDS)
    if process.poll() is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _safe_name(path: bytes, others: dict[str, SandboxFile]) -> str:
    """A name for a file by its path in the program's folder, unlike those of the others."""
    text = path.decode("utf-8", "replace").replace("/", "_")
    name = not_reserved(FORBIDDEN.sub("_", text).strip(" .") or "file")
    while len(name.encode()) > _NAME_BYTES:
        name = name[1:]  # its ending says what it is
    name, number = name.strip(" .") or "file", 1
    safe = name
    while safe.casefold() in others:
        number += 1
        safe = f"{number} {name}"
    return safe


def _ignored(_text: str) -> None:
    """Output that nobody reads while it comes."""
