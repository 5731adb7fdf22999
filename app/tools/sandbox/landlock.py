"""Landlock of Linux: a second lock on files, network and signals, where the kernel has it."""

from __future__ import annotations

import ctypes
import os
import struct

from app.tools.sandbox.namespaces import TEMPORARY, WORK

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls; the same on every architecture
_VERSION = 1  # flag of the first: which version the kernel has
_BELOW_PATH = 1  # kind of a rule
# Rights, in the order of the kernel: execute, write and read a file, list a folder, remove a folder
# and a file, make a device, a folder, a file, a socket, a pipe, a block device, a link; then since
# version 2 move, since 3 truncate, since 5 control a device.
_READ = 0b1101
_WRITE = 0b111_0001_1011_0010
_WRITE_DEVICE = 0b10
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # how many a version knows; 16: later ones
_NETWORK, _SCOPES = 0b11, 0b11  # bind and connect; sockets with abstract names, signals

_library = ctypes.CDLL(None, use_errno=True)


def lock() -> bool:
    """Lock this process, which has one thread and cannot get privileges; False: there is none.

    It may read everything that it sees, and write into its own folders. Raises OSError.
    """
    version = _library.syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION)
    if version < 1:
        return False
    known = (1 << _RIGHTS.get(version, 16)) - 1
    fields = [known, *([_NETWORK] if version >= 4 else []), *([_SCOPES] if version >= 6 else [])]
    content = struct.pack(f"{len(fields)}Q", *fields)
    rules = _checked(_library.syscall(_CREATE, content, ctypes.c_size_t(len(content)), 0))
    rights = {"/": _READ, "/dev": _WRITE_DEVICE, WORK: _WRITE, TEMPORARY: _WRITE}
    for path, allowed in rights.items():
        folder = os.open(path, os.O_PATH)
        rule = struct.pack("=Qi", allowed & known, folder)
        _checked(_library.syscall(_ADD, rules, _BELOW_PATH, rule, 0))
        os.close(folder)
    _checked(_library.syscall(_RESTRICT, rules, 0))
    os.close(rules)
    return True


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return result
