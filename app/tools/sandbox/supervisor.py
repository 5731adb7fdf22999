"""The process that isolates a program, starts it and reports what comes of it.

It gets its orders as one frame on the standard input, and writes frames to the standard output.
The program is the first process of a process namespace and a child of this one, so that the kernel
ends it with this process, and this one with the app.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import resource
import select
import signal
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from app.tools.sandbox import landlock, namespaces, program, system_calls
from app.tools.sandbox.frames import END, FAULT, FILE, HEADER, NAME, OUTPUT

_MORE_ADDRESSES = 256 << 20  # beyond the memory: libraries, mapped files
_MOST_THREADS, _MOST_OPEN = 64, 64
_NICENESS = 5
_SET_DUMPABLE, _PARENT_DEATH_SIGNAL = 4, 1  # of prctl
_ARENAS = -8  # of mallopt
_PIDFD_OPEN = 434  # a Python that was built with old headers has no function for it
# Modules that are not loaded, with the libraries of terminals, windows and databases.
_NOT_LOADED = ("_test", "xx", "_xx", "_tkinter", "_curses", "readline", "_dbm", "_gdbm", "nis")
_CHUNK = 1 << 16


def main() -> NoReturn:
    """Run one program; ends the process."""
    library = ctypes.CDLL(None)
    library.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    results = os.dup(1)
    os.dup2(2, 1)
    os.umask(0o022)  # what the program is to see, it can
    with suppress(OSError):
        os.nice(_NICENESS)
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    try:
        orders = _orders()
        own_user = bool(orders["own_user"])
        paths, hidden = _interpreter()
        _load_libraries()
        namespaces.enter(own_user)
        user = namespaces.user_inside(own_user)
        namespaces.show_only(paths, hidden, int(orders["folder_bytes"]), user)
    except (OSError, ValueError, KeyError) as error:
        _write(results, FAULT, str(error).encode())
        os._exit(1)
    outside, inside = os.pipe()
    child = os.fork()
    if not child:
        _become_program(orders, inside, user)
    os.close(inside)

    def stop(_number: int, _frame: object) -> None:
        _stop(child)

    signal.signal(signal.SIGTERM, stop)
    try:
        _forward(child, outside, results, orders)
    except OSError:  # the app has ended
        _stop(child)
    os._exit(0)


def _orders() -> dict[str, Any]:
    size = HEADER.unpack(_read(HEADER.size))[1]
    return json.loads(_read(size))


def _read(size: int) -> bytes:
    """As many bytes of the standard input; raises OSError at its end."""
    content = b""
    while len(content) < size:
        piece = os.read(0, size - len(content))
        if not piece:
            raise OSError("the app has ended")
        content += piece
    return content


def _interpreter() -> tuple[list[str], list[str]]:
    """What the interpreter's library consists of, and the folders in it that others fill."""
    if getattr(sys, "frozen", False):
        found = [str(getattr(sys, "_MEIPASS", "")), sys.executable]
    else:
        here = os.getcwd()
        found = [path for path in map(os.path.abspath, sys.path) if path != here]
    found.append("/usr/share/zoneinfo")
    paths: list[str] = []
    for path in sorted({path for path in found if os.path.exists(path)}, key=len):
        if not any(path.startswith(f"{other}/") for other in paths):
            paths.append(path)
    hidden = [f"{path}/{name}" for path in paths for name in ("site-packages", "dist-packages")]
    return paths, [path for path in hidden if os.path.isdir(path)]


def _load_libraries() -> None:
    """Load what a module would need later from folders that the program cannot see."""
    with suppress(OSError):
        ctypes.CDLL("libgcc_s.so.1")  # for the end of a thread
    some = importlib.util.find_spec("_ctypes")
    folder = Path(some.origin or "").parent if some is not None else Path()
    for file in sorted(folder.glob("*.so")):
        if not file.name.startswith(_NOT_LOADED):
            with suppress(OSError):
                ctypes.CDLL(str(file))


def _become_program(orders: Mapping[str, Any], output: int, user: int) -> NoReturn:
    """Limit this process, give up all rights, and run the program."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        path = [namespaces.WORK, *(path for path in sys.path if os.path.exists(path))]
        nothing = os.open("/dev/null", os.O_RDONLY)
        for descriptor, place in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(descriptor, place)
        os.closerange(3, 1 << 16)
        os.chdir(namespaces.WORK)
        os.umask(0o077)
        library = ctypes.CDLL(None)
        library.mallopt(_ARENAS, 2)
        namespaces.drop_privileges(user)
        library.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        library.prctl(_SET_DUMPABLE, 0, 0, 0, 0)
        poll = select.poll()
        poll.register(1, 0)
        if poll.poll(0):  # the other end has gone: the supervisor ended before the call above
            os._exit(1)
        _limit(orders, own_user=bool(orders["own_user"]))
        landlock.lock()
        system_calls.confine(os.uname().machine, os.getpid())
    except (OSError, ValueError) as error:
        os.write(2, f"{error}\n".encode())
        os._exit(1)
    try:
        program.run(str(orders["code"]), path)
    finally:
        os._exit(1)


def _limit(orders: Mapping[str, Any], own_user: bool) -> None:
    memory, folder = int(orders["memory_bytes"]), int(orders["folder_bytes"])
    seconds = int(orders["seconds"])
    limits = {
        resource.RLIMIT_DATA: memory,
        resource.RLIMIT_AS: memory + _MORE_ADDRESSES,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: folder,
        resource.RLIMIT_NOFILE: _MOST_OPEN,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
    }
    # Before 5.14, Linux counted the processes of the user outside of the namespace too.
    version = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    if not own_user or version >= (5, 14):
        limits[resource.RLIMIT_NPROC] = _MOST_THREADS
    for kind, limit in limits.items():
        resource.setrlimit(kind, (limit, limit))


def _forward(child: int, output: int, results: int, orders: Mapping[str, Any]) -> None:
    """Send what the program writes, and at its end how it ended and what it left."""
    left, dropped = int(orders["output_bytes"]), 0
    end = ctypes.CDLL(None).syscall(_PIDFD_OPEN, child, 0)
    if end < 0:
        raise OSError("the kernel has no descriptors of processes")
    poll = select.poll()
    poll.register(0, 0)  # its other end closes with the app
    poll.register(output, select.POLLIN)
    poll.register(end, select.POLLIN)
    while ready := [descriptor for descriptor, _ in poll.poll()]:
        if 0 in ready:
            _stop(child)
        if output in ready:
            piece = os.read(output, _CHUNK)
            if piece:
                kept = piece[:left]
                left -= len(kept)
                dropped += len(piece) - len(kept)
                if kept:
                    _write(results, OUTPUT, kept)
            else:
                poll.unregister(output)
        elif end in ready:
            break
    _, status, used = os.wait4(child, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    most_files, most_bytes = int(orders["files"]), int(orders["file_bytes"])
    left_out = 0
    for path, size in _left_files():
        if not most_files or size > most_bytes:
            left_out += 1
            continue
        content = _content(path, size)
        most_files -= 1
        most_bytes -= len(content)
        _write(results, NAME, os.fsencode(os.path.relpath(path, namespaces.WORK)))
        _write(results, FILE, content)
    told = {
        "status": os.waitstatus_to_exitcode(status),
        "seconds": used.ru_utime + used.ru_stime,
        "dropped": dropped,
        "left_out": left_out,
    }
    _write(results, END, json.dumps(told).encode())


def _left_files() -> Iterator[tuple[str, int]]:
    """The plain files in the program's folder, in order, with their sizes; links are left out."""
    device = os.stat(namespaces.WORK).st_dev  # the interpreter may be below the same name
    for folder, inner, names in os.walk(namespaces.WORK):
        if os.stat(folder).st_dev != device:
            inner.clear()
            continue
        inner.sort()
        for name in sorted(names):
            with suppress(OSError):
                found = os.lstat(path := os.path.join(folder, name))
                if stat.S_ISREG(found.st_mode):
                    yield path, found.st_size


def _content(path: str, size: int) -> bytes:
    """The content of a file, which has not changed since it was listed: all that could has ended."""
    return Path(path).read_bytes()[:size]


def _stop(child: int) -> NoReturn:
    """End the program, and this process after it."""
    with suppress(OSError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    os._exit(1)


def _write(results: int, kind: bytes, content: bytes) -> None:
    """Write a frame; raises OSError."""
    frame = HEADER.pack(kind, len(content)) + content
    while frame:
        frame = frame[os.write(results, frame) :]
