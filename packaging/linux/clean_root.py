"""A minimal Debian in a folder, without Python or a compiler, in which packages are tried.

debootstrap makes it once. Each use sees it through an overlay, so that it stays as it was made.
Programs of this machine show its display and trace it, so that nothing needs to be installed for
that. Needs root.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from environment import Trouble, last_lines, say

SUITES = {"bookworm": "Debian 12", "trixie": "Debian 13"}
# Libraries and data a desktop has and the bundle does not contain; linux/README.txt has this list.
DESKTOP = (
    "libstdc++6",
    "zlib1g",
    "libgl1",
    "libegl1",
    "libx11-6",
    "libx11-xcb1",
    "libxcb1",
    "libfontconfig1",
    "libfreetype6",
    "libexpat1",
    "libdbus-1-3",
    "xkb-data",
)
WAYLAND = ("libwayland-client0", "libwayland-cursor0", "libwayland-egl1")
USER = "someone"
HOME = f"/home/{USER}"
_FOREIGN = ("python3", "gcc", "cc", "ld")  # programs that a bundle must not need
_SENDING = re.compile(r"^\d+ +(connect|bind|sendto|sendmsg|sendmmsg|socket)\(")
# A socket's address as strace writes it: family, port and, of a network's, the number.
_ADDRESS = re.compile(
    r'sa_family=(AF_\w+)(?:, sin6?_port=htons\((\d+)\)(?:[^{}"]*"([^"]*)")?)?'
    r"|^\d+ +socket\((AF_\w+)"
)
_NETWORKS = ("AF_INET", "AF_INET6")
_LOCAL = ("AF_UNIX", "AF_UNSPEC", "AF_NETLINK")
_DNS = 53  # also at an address of this machine, from where it is passed on
_CALL = re.compile(r"^\d+ +(\w+)\((.*)$")
_PLACED = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
_WRITING = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC")
_TRACED = (
    *("network", "open", "openat", "creat", "mkdir", "mkdirat", "rename", "renameat", "renameat2"),
    *("unlink", "unlinkat", "rmdir", "symlink", "symlinkat", "link", "linkat", "truncate"),
)
# Where a program may write: what belongs to the user, and the kernel's own files.
_ALLOWED = re.compile(rf"^({HOME}(/|$)|/dev/(null|tty|shm/|pts/)|/proc/)")


@dataclass(frozen=True)
class Root:
    """A Debian that can be changed and is thrown away."""

    folder: Path

    def run(self, *command: str, user: str = "root", **settings: str) -> str:
        """Run a command; returns its output. Raises Trouble with its last lines when it fails."""
        done = subprocess.run(
            [*self.entry(user), *command],
            env=self.environment(user, **settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=900,
            check=False,
        )
        if done.returncode != 0:
            name = " ".join(command)[:60]
            raise Trouble(f"{last_lines(done.stdout)}\n`{name}` failed in {self.folder}, as above.")
        return done.stdout

    def entry(self, user: str = USER) -> list[str]:
        """The beginning of a command line that runs in the root."""
        return ["chroot", f"--userspec={user}:{user}", str(self.folder)]

    def environment(self, user: str = USER, **settings: str) -> dict[str, str]:
        """The environment of a command in the root."""
        home = HOME if user == USER else "/root"
        return {
            "HOME": home,
            "LANG": "C.UTF-8",
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "DEBIAN_FRONTEND": "noninteractive",
            "TMPDIR": f"{HOME}/tmp" if user == USER else "/tmp",
            "XDG_RUNTIME_DIR": f"{HOME}/run",
            **settings,
        }

    def install(self, *packages: str) -> None:
        """Install packages, or files of packages, with what they depend on."""
        self.run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages)

    def home(self) -> Path:
        """The user's home, seen from outside."""
        return self.folder / HOME.lstrip("/")

    def check_bare(self) -> None:
        """Check that the root has neither Python nor a compiler. Raises Trouble."""
        for name in _FOREIGN:
            if any(
                (self.folder / at / name).exists() for at in ("usr/bin", "usr/local/bin", "bin")
            ):
                raise Trouble(f"{self.folder} contains {name}, so it proves nothing.")


@contextlib.contextmanager
def fresh(cache: Path, suite: str, mirror: str = "") -> Iterator[Root]:
    """A Debian of this suite with a user, as new; made in `cache` at the first time (200 MB).

    Raises Trouble.
    """
    base = cache / suite
    if not (base / "made").exists():
        shutil.rmtree(base, ignore_errors=True)
        base.mkdir(parents=True)
        say(f"Creating a minimal {SUITES[suite]} (200 MB)…")
        _run("debootstrap", "--variant=minbase", suite, str(base / "root"), *filter(None, [mirror]))
        (base / "made").touch()
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(dir=cache, prefix=f"{suite}-"))
        upper, work, merged = (Path(place) / name for name in ("upper", "work", "root"))
        for folder in (upper, work, merged):
            folder.mkdir()
        layers = f"lowerdir={base / 'root'},upperdir={upper},workdir={work}"
        mounts = (
            ("-t", "overlay", "overlay", "-o", layers, str(merged)),
            ("-t", "proc", "proc", str(merged / "proc")),
            ("--rbind", "/dev", str(merged / "dev")),
            ("--bind", "/sys", str(merged / "sys")),
        )
        for mount in mounts:
            _run("mount", *mount)
            _run("mount", "--make-rprivate", mount[-1])  # unmounting it leaves this machine's own
            stack.callback(_run, "umount", "--recursive", "--lazy", mount[-1])
        shutil.copy("/etc/resolv.conf", merged / "etc" / "resolv.conf")
        root = Root(merged)
        root.run("apt-get", "update", "-qq")
        root.run("useradd", "--create-home", "--shell", "/bin/sh", USER)
        root.run("mkdir", "-m", "700", f"{HOME}/tmp", f"{HOME}/run", user=USER)
        yield root


@contextlib.contextmanager
def shared_display(root: Root) -> Iterator[None]:
    """Show the sockets of this machine's X servers in the root."""
    sockets = root.folder / "tmp" / ".X11-unix"
    sockets.mkdir(exist_ok=True)
    _run("mount", "--bind", "/tmp/.X11-unix", str(sockets))
    try:
        yield
    finally:
        _run("umount", str(sockets))


def traced(trace: Path) -> list[str]:
    """The beginning of a command line whose network calls and file changes go to a file."""
    return ["strace", "-f", "-y", "-qq", "-e", f"trace={','.join(_TRACED)}", "-o", str(trace)]


def remote(trace: str) -> list[str]:
    """The calls in strace output that reach, or wait for, something beyond this machine.

    Sockets of a network are used inside it too: Windows makes pairs of them. So each address counts
    that something is sent to, or that a socket waits at.
    """
    found: set[str] = set()
    for line in trace.splitlines():
        call = _SENDING.match(line)
        if call is None:
            continue
        for family, port, number, made in _ADDRESS.findall(line):
            if made in _NETWORKS or _is_local(call[1], family or made, int(port or 0), number):
                continue
            place = f"{number or 'an address'}, port {port}" if port else family or made
            found.add(f"{call[1]} {place}")
    return sorted(found)


def _is_local(call: str, family: str, port: int, number: str) -> bool:
    """Whether a call with this address stays in this machine."""
    if family not in _NETWORKS or port == _DNS:
        return family in _LOCAL
    try:
        address = ipaddress.ip_address(number)
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    # Windows wants any address and port before it connects; nobody knows that port.
    return address.is_loopback or (call == "bind" and address.is_unspecified and port == 0)


def writes(trace: str, root: Path) -> list[str]:
    """The paths outside the user's folders that a traced program created, changed or removed.

    strace runs outside the root, so it shows open folders with the root's own path before them.
    """
    found: set[str] = set()
    for line in trace.splitlines():
        call = _CALL.match(line)
        if call is None or re.search(r"\) += -1 ", line):
            continue
        name, rest = call[1], call[2]
        if name in ("open", "openat") and not _WRITING.search(rest):
            continue
        if name not in _TRACED:
            continue
        for folder, path in _PLACED.findall(rest):
            full = os.path.normpath(os.path.join(folder.removeprefix(str(root)) or "/", path))
            if not _ALLOWED.match(full):
                found.add(full)
    return sorted(found)


def _run(*command: str) -> None:
    """Run a command of this machine. Raises Trouble with its last lines when it fails."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        raise Trouble(
            f"This needs {command[0]}: install the package of that name and run the command again."
        ) from error
    if done.returncode != 0:
        raise Trouble(f"{last_lines(done.stdout)}\n`{' '.join(command[:3])} …` failed, as above.")
