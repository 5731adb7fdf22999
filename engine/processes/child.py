"""The side of a child process: it restricts itself, and does tasks until its parent ends.

Requests come on the standard input and results go to what was the standard output, which is the
standard error by then: what a library prints is no part of a result.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, BinaryIO, NoReturn

from engine.processes import frames
from engine.processes.frames import read_frame, write_frame
from engine.processes.restrictions import end_with_parent, limit_seconds, peak_memory, restrict

# Does a request, and gives the pieces of its result; it may tell how much is done, 0 to 1. What was
# sent with the request is its "content".
Report = Callable[[float], None]
Task = Callable[[Mapping[str, Any], Report], Iterable[bytes]]

_MOST_REQUEST_BYTES = 1 << 28
_IDLE_SECONDS = 60.0  # without a request, then the child ends
_KEEP_BYTES = 200_000_000  # a child that had more memory ends: its heap does not shrink
_REPORT_SECONDS = 0.1


def serve(tasks: Mapping[str, Task]) -> NoReturn:
    """Do tasks until the parent ends or nothing comes any more; ends the process."""
    gc.enable()  # the start of the app disables it until the first paint
    end_with_parent()
    requests, results = _streams()
    start = read_frame(requests, _MOST_REQUEST_BYTES)
    if start is None:
        os._exit(0)
    calls: queue.SimpleQueue[tuple[bytes, bytes]] = queue.SimpleQueue()
    writing = threading.Lock()
    threading.Thread(target=_read, args=(requests, calls), daemon=True).start()
    if sys.platform == "darwin":  # where the parent cannot read it, and no limit holds
        threading.Thread(target=_report, args=(results, writing), daemon=True).start()
    restrict(json.loads(start[1])["memory_bytes"])
    while True:
        try:
            text, content = calls.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            os._exit(0)
        call = json.loads(text)
        if content:
            call["request"]["content"] = content
            del content
        is_last = _do(tasks[call["task"]], call, results, writing)
        with suppress(OSError):
            results.flush()
        if is_last:
            os._exit(0)


def _do(task: Task, call: Mapping[str, Any], results: BinaryIO, writing: threading.Lock) -> bool:
    """Do one task and write its result; whether the process must end."""
    limit_seconds(call["seconds"])
    reported = 0.0

    def report(done: float) -> None:
        nonlocal reported
        if (now := time.monotonic()) - reported < _REPORT_SECONDS:
            return
        reported = now
        limit_seconds(call["seconds"])
        with writing:
            write_frame(results, frames.PROGRESS, f"{done:.4f}".encode())
            results.flush()

    try:
        for piece in task(call["request"], report):
            with writing:
                write_frame(results, frames.PIECE, piece)
        is_last = peak_memory() > _KEEP_BYTES
        with writing:
            write_frame(results, frames.LAST if is_last else frames.DONE)
    except MemoryError:
        fault = {"fault": "memory", "detail": ""}
    except Exception as error:  # noqa: BLE001  the process ends, and the parent says why
        fault = {"fault": "crashed", "detail": f"{type(error).__name__}: {error}"[:500]}
    else:
        return is_last
    with suppress(OSError), writing:
        write_frame(results, frames.FAULT, json.dumps(fault).encode())
    return True


def _streams() -> tuple[BinaryIO, BinaryIO]:
    """The pipes from and to the parent; descriptors 0 and 1 are others from now on."""
    inside, outside = os.dup(0), os.dup(1)
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(inside, os.O_BINARY)
        msvcrt.setmode(outside, os.O_BINARY)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return os.fdopen(inside, "rb"), os.fdopen(outside, "wb", 1 << 16)


def _read(requests: BinaryIO, calls: queue.SimpleQueue[tuple[bytes, bytes]]) -> None:
    """Pass requests on; at their end the parent is gone, and with it this process."""
    content = b""
    with suppress(Exception):
        while (frame := read_frame(requests, _MOST_REQUEST_BYTES)) is not None:
            if frame[0] == frames.CONTENT:
                content = frame[1]
                continue
            calls.put((frame[1], content))
            content = b""
    os._exit(0)


def _report(results: BinaryIO, writing: threading.Lock) -> None:
    """Tell the parent again and again how much memory this process has had."""
    pause = threading.Event()
    while not pause.wait(_REPORT_SECONDS):
        with suppress(OSError), writing:
            write_frame(results, frames.MEMORY, str(peak_memory()).encode())
            results.flush()
