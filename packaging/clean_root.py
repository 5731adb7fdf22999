"""Runs the bundle in a minimal Debian chroot, to prove that it needs only a desktop's libraries.

`sudo python3 packaging/clean_root.py FOLDER` creates the chroot there with debootstrap, without
Python or a compiler, installs the packages that linux/README.txt names, and runs the smoke test
twice: plainly, and under strace, which must record no network sockets.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import bundle
import smoke_frozen
from environment import Trouble, last_lines, say

# Packages a desktop has and the bundle does not contain; linux/README.txt has the same list.
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
_TOOLS = ("xvfb", "strace")  # to run the test
_FOREIGN = ("python3", "gcc", "cc", "ld")  # programs that must not exist in the chroot
_PLACE = "opt/Tokonoma"
_SOCKET = re.compile(r"^\d+ +(\w+)\((?:\d+, )?(?:\{sa_family=)?(AF_\w+)")


def main(arguments: Sequence[str]) -> int:
    """Create the chroot if needed, run the bundle in it, and print the sockets it opened."""
    parser = argparse.ArgumentParser(description="Run the bundle in a minimal Debian chroot.")
    parser.add_argument("folder", type=Path, help="the chroot, created if needed (1 GB)")
    parser.add_argument("--bundle", type=Path, default=bundle.FOLDER)
    parser.add_argument("--mirror", default="", help="Debian mirror; default: debootstrap's")
    options = parser.parse_args(arguments)
    root = options.folder.absolute()
    try:
        program = bundle.built(options.bundle.absolute())
        _make(root, options.mirror)
        with _mounted(root, bundle.root(program)):
            _prepare(root)
            say(_smoke(root))
            say("Once more under strace…")
            _smoke(root, "strace", "-f", "-e", "trace=network", "-o", "/tmp/network.txt")
        used = sockets((root / "tmp" / "network.txt").read_text(errors="replace"))
    except Trouble as trouble:
        print(trouble, file=sys.stderr)
        return 1
    for (call, family), count in sorted(used.items()):
        say(f"  {call} {family}: {count}")
    remote = sorted({family for _, family in used} - {"AF_UNIX"})
    say(f"Sockets beyond this machine's own: {', '.join(remote) or 'none'}.")
    return 1 if remote else 0


def sockets(trace: str) -> Counter[tuple[str, str]]:
    """Count the socket system calls in strace output, by call and address family."""
    return Counter(
        (found[1], found[2]) for line in trace.splitlines() if (found := _SOCKET.match(line))
    )


def _make(root: Path, mirror: str) -> None:
    if (root / "usr" / "bin" / "dpkg").exists():
        return
    say("Creating a minimal Debian (200 MB)…")
    _run("debootstrap", "--variant=minbase", "bookworm", str(root), *([mirror] if mirror else []))


def _prepare(root: Path) -> None:
    """Install a desktop's packages; raises Trouble if Python or a compiler is installed too."""
    quiet = ["-qq", "-o", "APT::Install-Recommends=false"]
    _run("chroot", str(root), "apt-get", "update", *quiet)
    _run("chroot", str(root), "apt-get", "install", "-y", *quiet, *DESKTOP, *_TOOLS)
    for name in _FOREIGN:
        if any((root / place / name).exists() for place in ("usr/bin", "usr/local/bin", "bin")):
            raise Trouble(f"{root} contains {name}, so it proves nothing; name another folder.")


@contextlib.contextmanager
def _mounted(root: Path, folder: Path) -> Iterator[None]:
    """Mount the bundle (read-only), /proc and /dev in the chroot; unmount them at the end."""
    place = root / _PLACE
    place.mkdir(parents=True, exist_ok=True)
    mounts = (
        ("-t", "proc", "proc", str(root / "proc")),
        ("--bind", "/dev", str(root / "dev")),
        ("--bind", str(folder), str(place)),
    )
    with contextlib.ExitStack() as stack:
        for mount in mounts:
            _run("mount", *mount)
            stack.callback(_run, "umount", mount[-1])
        _run("mount", "-o", "remount,ro,bind", str(place))
        yield


def _smoke(root: Path, *before: str) -> str:
    """Run the bundle's smoke test in the chroot under Xvfb; returns its output."""
    home = root / "home" / "someone"
    for name in ("run", "tmp"):
        (home / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    inside = {
        "HOME": "/home/someone",
        "LANG": "C.UTF-8",
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "TMPDIR": "/home/someone/tmp",
        "XDG_RUNTIME_DIR": "/home/someone/run",
    }
    with smoke_frozen.xvfb("chroot", str(root)) as display:
        ran = subprocess.run(
            ["chroot", root, *before, f"/{_PLACE}/tokonoma", "--smoke"],
            env={**inside, "DISPLAY": display},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=600,
            check=False,
        )
    smoke_frozen.check_errors(ran.stderr)
    if ran.returncode != 0:
        raise Trouble(f"The smoke test ended with status {ran.returncode}:\n{ran.stdout}")
    return ran.stdout.strip()


def _run(*command: str) -> None:
    """Run a command without output; raises Trouble with its last lines when it fails."""
    ran = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LANG": "C.UTF-8"},
        check=False,
    )
    if ran.returncode != 0:
        raise Trouble(f"{last_lines(ran.stdout)}\n`{' '.join(command[:3])} …` failed, as above.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
