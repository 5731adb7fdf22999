"""Whether programs are isolated on this computer: attempts to escape from the sandbox, run in it.

A way of isolation counts when every attempt fails and the program works otherwise.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from enum import StrEnum
from pathlib import Path

from app.system.translation import tr
from app.tools.sandbox.sandbox import (
    Ending,
    SandboxError,
    SandboxLimits,
    SandboxResult,
    run,
)

_LIMITS = SandboxLimits(seconds=20)
_MOST_SECONDS = 90.0  # that the probe may take
_SECRET = "canary"
_log = logging.getLogger(__name__)

# `goal` is what it is to try: a file, its folder, what the home folder has, a port, an abstract name
# and a process of the app.
_ATTEMPTS = r"""
import ctypes, json, os, socket, sqlite3, threading
library = ctypes.CDLL(None, use_errno=True)

def called(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")

def connected(family, kind, address):
    with socket.socket(family, kind) as one:
        one.settimeout(2)
        one.connect(address)
        one.send(b"escaped")

def seen(paths):
    if not any(map(os.path.lexists, paths)):
        raise OSError

attempts = {
    "read a file": lambda: open(goal["file"]).read(),
    "write a file": lambda: open(goal["file"], "a").write("escaped"),
    "make a file": lambda: open(goal["folder"] + "/made", "w").close(),
    "remove a file": lambda: os.remove(goal["file"]),
    "see a file": lambda: os.stat(goal["file"]),
    "list a folder": lambda: os.listdir(goal["folder"]),
    "see the home folder": lambda: seen(goal["home"]),
    "read the system's settings": lambda: open("/etc/passwd").read(),
    "see processes": lambda: os.stat("/proc/1"),
    "see the app": lambda: os.stat("/proc/%d" % goal["process"]),
    "change the library": lambda: open(os.__file__, "a").close(),
    "write elsewhere": lambda: (os.mkdir("/made"), os.rmdir("/made")),
    "connect": lambda: connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", goal["port"])),
    "send": lambda: connected(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", goal["port"])),
    "connect by name": lambda: connected(
        socket.AF_UNIX, socket.SOCK_STREAM, "\0" + goal["name"]
    ),
    "signal the app": lambda: os.kill(goal["process"], 0),
    "signal all": lambda: os.kill(-1, 0),
    "fork": lambda: os.fork() or os._exit(0),
    "run a program": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "trace the app": lambda: called(library.ptrace(16, goal["process"], None, None)),
    "mount": lambda: called(library.mount(b"tmpfs", b"/own", b"tmpfs", 0, None)),
    "unshare": lambda: called(library.unshare(0x10000000)),
    "become root": lambda: os.setuid(0),
}
escaped = []
for name, attempt in attempts.items():
    try:
        attempt()
        escaped.append(name)
    except (OSError, PermissionError):
        pass
thread = threading.Thread(target=open("left", "w").write, args=("here",))
thread.start()
thread.join()
print(json.dumps(escaped))
"""


class _Way(StrEnum):
    """A way of isolation."""

    USER_NAMESPACE = "a user namespace"
    ROOT = "namespaces of root"


class Sandbox:
    """Runs programs where isolation was found to hold; off before that is known, and elsewhere."""

    def __init__(self) -> None:
        self._way: _Way | None = None
        self._ended = threading.Event()  # the probe
        self._started = False
        self._lock = threading.Lock()  # guards `_started`

    def check(self, then: Callable[[], None] | None = None) -> None:
        """Find out on a thread whether programs can be isolated, once; `then` is called on it."""
        with self._lock:
            if self._started:
                return
            self._started = True

        def work() -> None:
            try:
                self._way = find_way()
            finally:
                self._ended.set()
            if then is not None:
                then()

        threading.Thread(target=work, name="sandbox probe", daemon=True).start()

    def wait(self) -> None:
        """Block until it is known whether programs can be isolated."""
        self.check()
        self._ended.wait(_MOST_SECONDS)

    def problem(self) -> str:
        """Why no program can be run, one sentence for the user; "": they can be, or it is not known."""
        return _reason() if self._way is None and self._ended.is_set() else ""

    async def run(
        self,
        code: str,
        limits: SandboxLimits | None = None,
        output: Callable[[str], None] | None = None,
    ) -> SandboxResult:
        """Run a program; raises SandboxError where it cannot be isolated."""
        if self._way is None:
            raise SandboxError("isolation has not been found to hold")
        return await run(code, limits, output, own_user=self._way is _Way.USER_NAMESPACE)


def find_way() -> _Way | None:
    """The first way of isolation that holds on this computer; takes a second."""
    if sys.platform != "linux":
        return None
    ways = (_Way.USER_NAMESPACE,) if os.geteuid() else (_Way.ROOT, _Way.USER_NAMESPACE)
    for way in ways:
        found = escapes(own_user=way is _Way.USER_NAMESPACE)
        if not found:
            _log.info("programs are isolated by %s", way)
            return way
        _log.info("programs are not isolated by %s: %s", way, found)
    return None


def escapes(own_user: bool) -> str:
    """Which attempts succeed, or why they could not be made; "": all fail, as they should."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _try_from(Path(folder), own_user)
    except (OSError, RuntimeError) as error:
        return f"the attempts could not be prepared: {error}"


def _try_from(folder: Path, own_user: bool) -> str:
    canary = folder / "canary"
    canary.write_text(_SECRET, encoding="ascii")
    name = f"tokonoma-{os.urandom(8).hex()}"
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as server,
        closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as named,
    ):
        named.bind(f"\0{name}")
        named.listen()
        server.setblocking(False)
        goal = {
            "file": str(canary),
            "folder": str(folder),
            "home": _home_content(),
            "port": server.getsockname()[1],
            "name": name,
            "process": os.getpid(),
        }
        code = f"goal = {goal!r}\n{_ATTEMPTS}"
        try:
            result = asyncio.run(run(code, _LIMITS, own_user=own_user))
        except SandboxError as error:
            return f"not started: {error}"
        try:
            server.accept()[0].close()
            return "a connection came from inside"
        except BlockingIOError:
            pass
    if sorted(path.name for path in folder.iterdir()) != [canary.name]:
        return "a folder was changed from inside"
    if canary.read_text(encoding="ascii") != _SECRET:
        return "a file was changed from inside"
    return _judged(result)


def _home_content() -> list[str]:
    """What is in the home folder, without the folder that Python or the app itself is in."""
    try:
        home = Path.home()
        found = sorted(home.iterdir())
    except (OSError, RuntimeError):
        return []  # there is none
    own = [sys.base_prefix, sys.prefix, sys.executable, os.__file__]
    kept = {home / Path(path).relative_to(home).parts[0] for path in own if _is_below(path, home)}
    return [str(path) for path in found if path not in kept][:100]


def _is_below(path: str, folder: Path) -> bool:
    return Path(path).is_relative_to(folder) and Path(path) != folder


def _judged(result: SandboxResult) -> str:
    """What the attempts told of themselves."""
    if result.ending is not Ending.FINISHED or result.status:
        return f"the attempts ended: {result.ending}, {result.status}, {result.output[-500:]}"
    try:
        escaped = json.loads(result.output)
    except ValueError:
        return f"the attempts told {result.output[:500]!r}"
    if escaped != []:
        return f"it could {escaped}"
    if [(file.name, file.content) for file in result.files] != [("left", b"here")]:
        return "a file that it left did not come"
    return ""


def _reason() -> str:
    """Why no way holds, as far as the system tells; one sentence."""
    if sys.platform == "win32":
        return tr("Tokonoma cannot isolate programs on Windows yet.")
    if sys.platform == "darwin":
        return tr("Tokonoma cannot isolate programs on macOS yet.")
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return tr(
            "AppArmor on this computer does not let Tokonoma isolate programs:"
            " it forbids user namespaces. The .deb package of Tokonoma has a profile that allows it."
        )
    if "0" in (_setting("kernel/unprivileged_userns_clone"), _setting("user/max_user_namespaces")):
        return tr("Programs cannot be isolated: user namespaces are turned off on this computer.")
    return tr("Programs cannot be isolated on this computer: its kernel does not separate them.")


def _setting(name: str) -> str:
    """A setting of the Linux kernel; "": it has none of this name."""
    try:
        return Path("/proc/sys", name).read_text(encoding="ascii").strip()
    except OSError:
        return ""
