"""Restrictions that a child process puts on itself before its first task.

It may neither write files, open connections nor start processes, and its memory and CPU time are
limited. The system enforces this as far as it can; an audit hook of Python refuses the rest.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

_NICENESS = 5  # of 19: an answer that is being generated goes first
_OPEN_FILES = 64
_OTHER_ADDRESSES = 1 << 30  # bytes of the address space that are no memory: libraries, mapped files
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_REFUSED = frozenset(
    (
        *("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile"),
        *("os.system", "subprocess.Popen", "pty.spawn", "webbrowser.open", "os.kill", "os.putenv"),
        *("os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir"),
        *("os.symlink", "os.truncate", "os.utime", "pickle.find_class", "sqlite3.connect"),
    )
)
_REFUSED_ROOMS = ("socket", "ftplib", "http", "imaplib", "poplib", "smtplib", "urllib", "winreg")


def restrict(memory_bytes: int) -> None:
    """Restrict this process for good. No thread can be started after it on some systems."""
    sys.dont_write_bytecode = True
    _limit_resources(memory_bytes)
    sys.addaudithook(_refuse)


def memory_of(process: int) -> int:
    """Resident bytes of a process without files it has mapped; 0 where that cannot be read."""
    if sys.platform != "linux":
        return 0
    try:
        resident, shared = Path(f"/proc/{process}/statm").read_bytes().split()[1:3]
    except (OSError, ValueError):
        return 0
    return max(0, int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    """Audit hook: refuse what a task must not do."""
    if event == "open":
        flags = arguments[2]
        if isinstance(flags, int) and flags & _WRITING:
            raise PermissionError("a child process writes no files")
    elif event in _REFUSED or event.partition(".")[0] in _REFUSED_ROOMS:
        raise PermissionError(f"a child process may not use {event}")


def end_with_parent() -> None:
    """End this process when the thread that started it ends, on Linux.

    Elsewhere, and where a parent died before this, the end of the standard input does the same.
    """
    if sys.platform == "linux":
        kill_signal, set_parent_death_signal = 9, 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, kill_signal, 0, 0, 0)


if sys.platform == "win32":
    from engine.processes import windows_job

    def limit_seconds(seconds: float) -> None:
        """Do nothing: the parent measures the time."""

    peak_memory = windows_job.peak_memory
    _limit_resources = windows_job.enter_job

else:
    import resource

    def limit_seconds(seconds: float) -> None:
        """End this process when it has computed for so long from now on, whatever it is doing."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime + seconds) + 2
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        if hard == resource.RLIM_INFINITY or limit < hard:
            resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))

    def peak_memory() -> int:
        """The most memory that this process had, in bytes; 0 where the system does not say."""
        if sys.platform == "darwin":
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with suppress(OSError):  # on Linux, `ru_maxrss` would contain the memory of the parent
            for line in Path("/proc/self/status").read_bytes().splitlines():
                if line.startswith((b"VmHWM:", b"VmRSS:")):
                    return int(line.split()[1]) * 1024
        return 0

    def _limit_resources(memory_bytes: int) -> None:
        with suppress(OSError):
            os.nice(_NICENESS)
        with suppress(OSError):  # of Linux: this process is ended first when memory runs out
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="utf-8")
        limits = {
            resource.RLIMIT_DATA: memory_bytes,
            resource.RLIMIT_AS: memory_bytes + _OTHER_ADDRESSES,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_FSIZE: 0,
            resource.RLIMIT_NPROC: 0,
            resource.RLIMIT_NOFILE: _OPEN_FILES,
        }
        for kind, limit in limits.items():
            with suppress(OSError, ValueError):  # macOS refuses some
                resource.setrlimit(kind, (limit, limit))
