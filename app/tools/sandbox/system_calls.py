"""The system calls that a sandboxed program may make, as a seccomp filter of classic BPF.

What is not in the table is refused: with EPERM, or with ENOSYS for the calls that Linux got since
5.1, so that the C library falls back to older ones. There is no call that starts a process or a
program, opens a socket, or acts on another process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

_AUDIT_X86_64, _AUDIT_AARCH64 = 0xC000003E, 0xC00000B7
_X32 = 0x40000000  # in the number of a call: the other ABI of x86_64
_SINCE_5_1 = 424  # the first of these; they have the same number on every architecture

_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in `struct seccomp_data`
_ALLOW, _ERROR, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000

_SET_SECCOMP, _MODE_FILTER = 22, 2  # of prctl

# Name, number on x86_64, number on aarch64; "-": it does not have it.
_ALLOWED = {
    "files": """
        read 0 63, write 1 64, open 2 -, close 3 57, stat 4 -, fstat 5 80, lstat 6 -,
        lseek 8 62, pread64 17 67, pwrite64 18 68, readv 19 65, writev 20 66, access 21 -,
        sendfile 40 71, flock 73 32, fsync 74 82, fdatasync 75 83, truncate 76 45,
        ftruncate 77 46, getdents 78 -, getcwd 79 17, chdir 80 49, fchdir 81 50, rename 82 -,
        mkdir 83 -, rmdir 84 -, creat 85 -, link 86 -, unlink 87 -, symlink 88 -,
        readlink 89 -, chmod 90 -, fchmod 91 52, umask 95 166, utime 132 -, statfs 137 43,
        fstatfs 138 44, getdents64 217 61, fadvise64 221 223, utimes 235 -, openat 257 56,
        mkdirat 258 34, newfstatat 262 79, unlinkat 263 35, renameat 264 38, linkat 265 37,
        symlinkat 266 36, readlinkat 267 78, fchmodat 268 53, faccessat 269 48,
        utimensat 280 88, fallocate 285 47, preadv 295 69, pwritev 296 70, renameat2 316 276,
        copy_file_range 326 285, statx 332 291, faccessat2 439 439
    """,
    "descriptors, pipes and waiting": """
        poll 7 -, pipe 22 -, select 23 -, dup 32 23, dup2 33 -, epoll_create 213 -,
        epoll_wait 232 -, epoll_ctl 233 21, pselect6 270 72, ppoll 271 73, epoll_pwait 281 22,
        eventfd 284 -, eventfd2 290 19, epoll_create1 291 20, dup3 292 24, pipe2 293 59,
        close_range 436 436, epoll_pwait2 441 441
    """,
    "the two ends of a socket pair": """
        sendto 44 206, recvfrom 45 207, shutdown 48 210, getsockname 51 204,
        getpeername 52 205, getsockopt 55 209
    """,
    "memory and threads": """
        mmap 9 222, mprotect 10 226, munmap 11 215, brk 12 214, mremap 25 216, msync 26 227,
        madvise 28 233, sched_yield 24 124, futex 202 98, sched_getaffinity 204 123,
        set_tid_address 218 96, set_robust_list 273 99, getcpu 309 168, membarrier 324 283,
        rseq 334 293, exit 60 93, exit_group 231 94
    """,
    "its own signals and timers": """
        rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, pause 34 -,
        getitimer 36 102, alarm 37 -, setitimer 38 103, rt_sigpending 127 136,
        rt_sigtimedwait 128 137, rt_sigsuspend 130 133, sigaltstack 131 132, wait4 61 260,
        waitid 247 95
    """,
    "time, and what it is": """
        nanosleep 35 101, gettimeofday 96 169, times 100 153, time 201 -,
        restart_syscall 219 128, clock_gettime 228 113, clock_getres 229 114,
        clock_nanosleep 230 115, getrandom 318 278, getpid 39 172, uname 63 160,
        getrlimit 97 163, getrusage 98 165, sysinfo 99 179, getuid 102 174, getgid 104 176,
        geteuid 107 175, getegid 108 177, getppid 110 173, getpgrp 111 -, getgroups 115 158,
        getresuid 118 148, getresgid 120 150, getpgid 121 155, getsid 124 156, gettid 186 178
    """,
}


class _Condition(NamedTuple):
    """What one argument must be, of which the low 32 bits under the mask are compared."""

    argument: int  # 0 to 5
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF


_THREAD, _NAMESPACES = 0x10000, 0x7E020000  # flags of clone
_UNIX, _STREAM, _SOCKET_TYPE = 1, 1, 0xF
_TERMINAL_SIZE, _IS_TERMINAL = 0x5413, 0x5401
_SET_NAME, _GET_NAME = 15, 16


def _conditional(process: int) -> dict[tuple[int, int], tuple[_Condition, ...]]:
    """The calls that are allowed with some arguments only, to a process of this id."""
    own = (_Condition(0, (process,)),)
    return {
        (56, 220): (_Condition(0, (_THREAD,), _THREAD | _NAMESPACES),),  # clone
        (62, 129): own,  # kill
        (234, 131): own,  # tgkill
        # Datagram sockets of a pair could send to others.
        (53, 199): (_Condition(0, (_UNIX,)), _Condition(1, (_STREAM,), _SOCKET_TYPE)),
        # ioctl: of no device; bytes to read, blocking or not, inherited or not
        (16, 29): (_Condition(1, (_IS_TERMINAL, _TERMINAL_SIZE, 0x541B, 0x5421, 0x5450, 0x5451)),),
        # fcntl: duplicates, flags, locks, size of a pipe; no signals to owners, no leases
        (72, 25): (_Condition(1, (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1031, 1032)),),
        (157, 167): (_Condition(0, (_SET_NAME, _GET_NAME)),),  # prctl
        (302, 261): (_Condition(0, (0,)),),  # prlimit64
    }


def filter_program(machine: str, process: int) -> bytes:
    """The filter for a machine (`os.uname().machine`): instructions of 8 bytes.

    `process` is the id of the process that will have it. Raises ValueError for a machine whose
    system calls are not known.
    """
    machines = {"x86_64": (0, _AUDIT_X86_64), "aarch64": (1, _AUDIT_AARCH64)}
    if machine not in machines:
        raise ValueError(f"the system calls of {machine} are not known")
    column, architecture = machines[machine]
    refuse = _step(_RETURN, _ERROR | errno.EPERM)
    program = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, architecture, 1, 0),
        _step(_RETURN, _KILL_PROCESS),
        _step(_LOAD, _NUMBER),
        _step(_AT_LEAST, _X32, 0, 1),
        _step(_RETURN, _KILL_PROCESS),
    ]
    for call in ",".join(_ALLOWED.values()).split(","):
        number = call.split()[1 + column]
        if number != "-":
            program += (_step(_EQUAL, int(number), 0, 1), _step(_RETURN, _ALLOW))
    for numbers, conditions in _conditional(process).items():
        block = [step for condition in conditions for step in _checked(condition, refuse)]
        block.append(_step(_RETURN, _ALLOW))
        program += (_step(_EQUAL, numbers[column], 0, len(block)), *block)
    program += (
        _step(_AT_LEAST, _SINCE_5_1, 0, 1),
        _step(_RETURN, _ERROR | errno.ENOSYS),
        refuse,
    )
    return b"".join(program)


def confine(machine: str, process: int) -> None:
    """Put the filter on this process for good; it has one thread, and can get no privileges.

    Raises OSError, and ValueError for a machine whose system calls are not known.
    """
    program = filter_program(machine, process)
    steps = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HP", len(program) // 8, ctypes.addressof(steps))
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_SECCOMP, _MODE_FILTER, head, 0, 0):
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def _checked(condition: _Condition, refuse: bytes) -> Sequence[bytes]:
    """Steps that go on where the condition holds, and refuse the call where it does not."""
    count = len(condition.values)
    return (
        _step(_LOAD, _ARGUMENTS + 8 * condition.argument),
        _step(_AND, condition.mask),
        *(_step(_EQUAL, value, count - at, 0) for at, value in enumerate(condition.values)),
        refuse,
    )


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One instruction; it skips as many of the next ones where its comparison is true or false."""
    return struct.pack("HBBI", code, if_true, if_false, value)
