"""The filter of system calls of the sandbox, carried out here for both architectures."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from app.tools.sandbox import system_calls


def test_the_filter_has_the_numbers_of_the_kernel() -> None:
    """Both architectures, against the headers of this computer where it has them."""
    for column, header in ((0, "x86_64-linux-gnu/asm/unistd_64.h"), (1, "asm-generic/unistd.h")):
        path = Path("/usr/include", header)
        if not path.exists():
            pytest.skip("no headers of Linux")
        text = path.read_text(encoding="utf-8")
        numbers = {name: int(n) for name, n in re.findall(r"__NR(?:3264)?_(\w+)\s+(\d+)", text)}
        for call in ",".join(system_calls._ALLOWED.values()).split(","):
            name, *own = call.split()
            generic = {"newfstatat": "fstatat"}.get(name, name) if column else name
            assert own[column] == str(numbers.get(generic, "-")), name


def decision(machine: str, number: int, *arguments: int, architecture: int = 0) -> str:
    """What the filter of a machine says to a call: it is carried out as the kernel does it."""
    own = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]
    data = struct.pack("<IIQ6Q", number, architecture or own, 0, *(*arguments, *[0] * 6)[:6])
    program = system_calls.filter_program(machine, 7)
    assert len(program) // 8 < 4096
    value = at = 0
    while True:
        code, if_true, if_false, operand = struct.unpack_from("<HBBI", program, 8 * at)
        at += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, operand)
            case 0x54:
                value &= operand
            case 0x15:
                at += if_true if value == operand else if_false
            case 0x35:
                at += if_true if value >= operand else if_false
            case _:
                assert code == 0x06
                names = {0x7FFF0000: "allow", 0x80000000: "kill"}
                return names.get(operand) or errno.errorcode[operand & 0xFFFF]


@pytest.mark.parametrize(
    ("numbers", "arguments", "expected"),
    [
        ((0, 63), (), "allow"),  # read
        ((257, 56), (), "allow"),  # openat
        ((439, 439), (), "allow"),  # faccessat2
        ((62, 129), (7, 9), "allow"),  # kill
        ((62, 129), (8, 9), "EPERM"),
        ((62, 129), (0xFFFFFFFF, 9), "EPERM"),
        ((62, 129), (0, 9), "EPERM"),
        ((234, 131), (7, 7, 6), "allow"),  # tgkill
        ((234, 131), (8, 8, 6), "EPERM"),
        ((56, 220), (0x3D0F00,), "allow"),  # clone of a thread
        ((56, 220), (0x1200011,), "EPERM"),  # of a process
        ((56, 220), (0x3D0F00 | 0x10000000,), "EPERM"),  # with a namespace
        ((435, 435), (), "ENOSYS"),  # clone3
        ((425, 425), (), "ENOSYS"),  # io_uring_setup
        ((999, 999), (), "ENOSYS"),
        ((41, 198), (2, 1), "EPERM"),  # socket
        ((42, 203), (), "EPERM"),  # connect
        ((53, 199), (1, 1 | 0x80000), "allow"),  # socketpair
        ((53, 199), (1, 2), "EPERM"),
        ((53, 199), (2, 1), "EPERM"),
        ((16, 29), (1, 0x5401), "allow"),  # ioctl
        ((16, 29), (1, 0x5412), "EPERM"),
        ((72, 25), (1, 2), "allow"),  # fcntl
        ((72, 25), (1, 8), "EPERM"),
        ((157, 167), (15,), "allow"),  # prctl
        ((157, 167), (22,), "EPERM"),
        ((302, 261), (0, 7), "allow"),  # prlimit64
        ((302, 261), (7, 7), "EPERM"),
        ((59, 221), (), "EPERM"),  # execve
        ((101, 117), (), "EPERM"),  # ptrace
        ((165, 40), (), "EPERM"),  # mount
        ((321, 280), (), "EPERM"),  # bpf
    ],
)
def test_the_filter_decides_alike_on_both_architectures(
    numbers: tuple[int, int], arguments: tuple[int, ...], expected: str
) -> None:
    for machine, number in zip(("x86_64", "aarch64"), numbers, strict=True):
        assert decision(machine, number, *arguments) == expected


def test_the_filter_ends_a_call_of_another_architecture() -> None:
    assert decision("x86_64", 0x40000000) == "kill"
    assert decision("x86_64", 3, architecture=0x40000003) == "kill"
    assert decision("aarch64", 63, architecture=0x40000028) == "kill"
    with pytest.raises(ValueError, match="riscv64"):
        system_calls.filter_program("riscv64", 1)
