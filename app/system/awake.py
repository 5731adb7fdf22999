"""Keeps the computer from going to sleep by itself while the app is at work.

The screen may turn off, and what the user asks for, such as closing the lid, is not held up.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

_CONTINUOUS, _SYSTEM_REQUIRED = 0x80000000, 0x1  # ES_CONTINUOUS, ES_SYSTEM_REQUIRED


class Awake:
    """The request to stay awake; of the thread that makes it, which must live on."""

    def __init__(self, kernel: Any = None) -> None:
        """`kernel` is kernel32, which a test replaces; other systems have none and may sleep."""
        if kernel is None and sys.platform == "win32":
            kernel = ctypes.CDLL("kernel32")
        self._kernel = kernel
        self._is_asked = False

    def ask(self, wanted: bool) -> None:
        """Ask the system to stay awake, or no longer."""
        if self._kernel is None or wanted == self._is_asked:
            return
        self._is_asked = wanted
        state = _CONTINUOUS | (_SYSTEM_REQUIRED if wanted else 0)
        self._kernel.SetThreadExecutionState(ctypes.c_uint32(state))
