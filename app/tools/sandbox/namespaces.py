"""Namespaces of Linux for a process and what it starts: own users, files, processes, network.

Everything is done by the C library's functions, as Python has most of them since 3.12 only.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

WORK, TEMPORARY = "/own", "/tmp"  # the folders that the program may write into
INNER_USER = 1000  # the id that the program's user has inside
_NOBODY = 65534
_USER = 0x10000000
# Mounts, control groups, host name, System V IPC, processes, network.
_OTHERS = 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x20000000 | 0x40000000
_NO_SUID, _NO_DEVICES, _NO_EXEC, _READ_ONLY = 2, 4, 8, 1
_REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 0x20, 0x1000, 0x4000, 0x40000
_KEPT = 8 | 1024 | 2048  # flags of a mount that a remount must repeat: noexec, noatime, nodiratime
_RELATIVE_TIMES, _HAS_RELATIVE_TIMES = 1 << 21, 4096  # of mount and of statvfs
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITIES = 0x20080522  # version 3
_DROP_BOUND, _NO_NEW_PRIVILEGES, _AMBIENT, _CLEAR_AMBIENT = 24, 38, 47, 4  # of prctl
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")

_library = ctypes.CDLL(None, use_errno=True)


def enter(own_user: bool) -> None:
    """Give this process namespaces; its next child is the first process of its own. Raises OSError.

    With `own_user` it becomes the only user of a user namespace, which needs no privileges outside;
    without, it must be root with its capabilities.
    """
    user, group = os.geteuid(), os.getegid()
    _check(_library.unshare(_OTHERS | (_USER if own_user else 0)), "unshare")
    _check(_library.sethostname(b"sandbox", 7), "sethostname")
    if own_user:
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{INNER_USER} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{INNER_USER} {group} 1", encoding="ascii")


def show_only(paths: Sequence[str], hidden: Sequence[str], folder_bytes: int, user: int) -> None:
    """Replace the files that this process sees; raises OSError.

    It sees `paths` read only, without the folders `hidden` in them, and the two folders above,
    which are the user's, are in memory, and hold `folder_bytes` together.
    """
    _mount(None, "/", flags=_RECURSIVE | _PRIVATE)  # nothing here is seen outside
    opened = {path: os.open(path, os.O_PATH) for path in (*_DEVICES, *paths)}
    root = "/tmp"
    plain = _NO_SUID | _NO_DEVICES
    _mount("tmpfs", root, "tmpfs", plain, "size=1m,nr_inodes=256,mode=755")
    both = f"{root}/both"
    os.mkdir(both)
    owned = f"size={folder_bytes},nr_inodes=2048,mode=755,uid={user},gid={user}"
    _mount("tmpfs", both, "tmpfs", plain | _NO_EXEC, owned)
    for place in (WORK, TEMPORARY):
        os.mkdir(both + place)
        os.chown(both + place, user, user)
        os.mkdir(root + place)
        _mount(both + place, root + place, flags=_BIND)
    _check(_library.umount2(both.encode(), _DETACH), "umount")
    os.rmdir(both)
    for path, source in opened.items():
        _bind(source, root + path)
        os.close(source)
    for path in hidden:
        with suppress(FileNotFoundError):
            _mount("tmpfs", root + path, "tmpfs", plain | _NO_EXEC | _READ_ONLY, "size=4k,mode=755")
    os.chdir(root)
    _check(_library.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    _check(_library.umount2(b".", _DETACH), "umount")
    os.chdir("/")
    _mount(None, "/", flags=_REMOUNT | _BIND | _READ_ONLY | plain | _NO_EXEC)


def drop_privileges(user: int) -> None:
    """Become the user for good, without any capability or a way to get one. Raises OSError."""
    is_other = os.geteuid() != user
    if is_other:
        os.setgroups([])
        os.setresgid(user, user, user)
    for capability in range(64):
        if _library.prctl(_DROP_BOUND, capability, 0, 0, 0):
            break  # it is beyond the last one
    _library.prctl(_AMBIENT, _CLEAR_AMBIENT, 0, 0, 0)
    if is_other:
        os.setresuid(user, user, user)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0)
    none = (ctypes.c_uint32 * 6)()
    _check(_library.syscall(_CAPSET[os.uname().machine], header, none), "capset")
    _check(_library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "prctl")


def user_inside(own_user: bool) -> int:
    """The id of the program's user."""
    return INNER_USER if own_user else _NOBODY


def _bind(source: int, place: str) -> None:
    """Show an opened file or folder, read only, at a place that does not exist yet."""
    if os.path.isdir(f"/proc/self/fd/{source}"):
        os.makedirs(place, 0o755, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(place), 0o755, exist_ok=True)
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
    _mount(f"/proc/self/fd/{source}", place, flags=_BIND)
    there = os.statvfs(place).f_flag
    kept = there & _KEPT | (_RELATIVE_TIMES if there & _HAS_RELATIVE_TIMES else 0)
    kept |= 0 if place.endswith(_DEVICES) else _NO_DEVICES
    _mount(None, place, flags=_REMOUNT | _BIND | _READ_ONLY | _NO_SUID | kept)


def _mount(
    source: str | None, place: str, kind: str | None = None, flags: int = 0, options: str = ""
) -> None:
    texts = (os.fsencode(text) if text is not None else None for text in (source, place, kind))
    done = _library.mount(*texts, ctypes.c_ulong(flags), options.encode() or None)
    _check(done, f"mount {place}")


def _check(result: int, what: str) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
