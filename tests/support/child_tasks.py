"""A child process with tasks that behave badly, for tests of the room that they run in."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
Report = Callable[[float], None]
COMMAND = (
    sys.executable,
    "-E",
    "-s",
    "-c",
    f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(Path(__file__).parent)!r}]\n"
    "import gc, child_tasks; gc.disable(); child_tasks.main()",
)


def _echo(request: Mapping[str, Any], report: Report) -> Iterator[bytes]:
    yield request["text"].encode()
    yield str(os.getpid()).encode()


def _hash(request: Mapping[str, Any], report: Report) -> Iterator[bytes]:
    yield hashlib.sha256(request.get("content", b"nothing")).hexdigest().encode()


def _collects(request: Mapping[str, Any], report: Report) -> Iterator[bytes]:
    yield str(gc.isenabled()).encode()


def _sleep(request: Mapping[str, Any], report: Report) -> Iterator[bytes]:
    time.sleep(request["seconds"])
    yield b"slept"


def _steps(request: Mapping[str, Any], report: Report) -> Iterator[bytes]:
    for step in range(request["steps"]):
        time.sleep(request["seconds"])
        report((step + 1) / request["steps"])
    yield b"done"


def _never_yields(request: Mapping[str, Any], report: Report) -> Iterator[bytes]:
    """A regular expression that holds the interpreter for ages."""
    re.match(r"(a|a)*$", "a" * 60 + "b")
    yield b""


def _allocate(request: Mapping[str, Any], report: Report) -> Iterator[bytes]:
    blocks = [b"x" * 1_000_000 for _ in range(request["megabytes"])]
    yield str(len(blocks)).encode()


def _print(request: Mapping[str, Any], report: Report) -> Iterator[bytes]:
    """Text from Python, from C and to the descriptors, as libraries print it."""
    print("a stray line", flush=True)
    print("and an error", file=sys.stderr, flush=True)
    library = ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None)
    library.puts(b"from C")
    library.fflush(None)
    os.write(1, b"to the descriptor")
    yield b"result"


def _flood(request: Mapping[str, Any], report: Report) -> Iterator[bytes]:
    while True:
        yield b"x" * request.get("bytes", 1_000_000)


def _raise(request: Mapping[str, Any], report: Report) -> Iterator[bytes]:
    yield b"a piece"
    raise ValueError("this is wrong")


def _die(request: Mapping[str, Any], report: Report) -> Iterator[bytes]:
    yield b"a piece"
    os._exit(request["code"]) if "code" in request else signal.raise_signal(request["signal"])


def _go_idle(request: Mapping[str, Any], report: Report) -> Iterator[bytes]:
    """A result, after which the process ends by itself, as one does to which nothing comes."""
    yield b"going"
    threading.Thread(target=lambda: (time.sleep(0.2), os._exit(0)), daemon=True).start()


def _forbidden(request: Mapping[str, Any], report: Report) -> Iterator[bytes]:
    """The names of what was allowed although it must not be."""
    folder = Path(request["folder"])

    def write() -> None:
        (folder / "written").write_text("x", encoding="utf-8")

    def connect() -> None:
        socket.create_connection(("127.0.0.1", request["port"]), 1)

    attempts = {
        "write": write,
        "append": lambda: os.open(folder / "kept", os.O_WRONLY | os.O_APPEND),
        "remove": lambda: os.remove(folder / "kept"),
        "rename": lambda: os.rename(folder / "kept", folder / "moved"),
        "mkdir": lambda: os.mkdir(folder / "made"),
        "connect": connect,
        "resolve": lambda: socket.getaddrinfo("localhost", 80),
        "run": lambda: subprocess.run(["true"], check=False),
        "shell": lambda: os.system("true"),
        "fork": lambda: os.fork() or os._exit(0),
    }
    done = []
    for name, attempt in attempts.items():
        try:
            attempt()
        except OSError:
            continue
        done.append(name)
    yield ",".join(done).encode()


TASKS = {
    "echo": _echo,
    "hash": _hash,
    "collects": _collects,
    "sleep": _sleep,
    "steps": _steps,
    "never": _never_yields,
    "allocate": _allocate,
    "print": _print,
    "flood": _flood,
    "raise": _raise,
    "die": _die,
    "go idle": _go_idle,
    "forbidden": _forbidden,
}


def main() -> None:
    from engine.processes.child import serve

    serve(TASKS)
