"""Staying awake: what the system is asked for."""

from __future__ import annotations

import ctypes
import sys

from app.system.awake import Awake


class Kernel:
    """kernel32, which records what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def SetThreadExecutionState(self, state: ctypes.c_uint32) -> int:  # noqa: N802
        self.asked.append(state.value)
        return 1


def test_each_change_is_asked_for_once() -> None:
    kernel = Kernel()
    awake = Awake(kernel)
    for wanted in (False, True, True, False, False, True):
        awake.ask(wanted)
    assert kernel.asked == [0x80000001, 0x80000000, 0x80000001]


def test_this_system_takes_the_request() -> None:
    awake = Awake()
    awake.ask(True)
    if sys.platform == "win32":
        state = ctypes.c_uint32(0x80000000)
        before = ctypes.CDLL("kernel32").SetThreadExecutionState(state)
        assert before & 0xFFFFFFFF == 0x80000001
    awake.ask(False)
