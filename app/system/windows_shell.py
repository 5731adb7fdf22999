"""The Windows shell, through its COM interface and shell32: the taskbar button and its identity.

Qt 6 has neither. Nothing of it fails where the shell does not answer.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from typing import Any

# Windows keeps windows, pinned icons and notifications of one ID together. A bundle has that of its
# program's file, as each shortcut to it; an app that python.exe runs would be in Python's group.
APP_ID = "Tokonoma.Tokonoma"

_SINGLE_THREADED, _IN_PROCESS = 0x2, 0x1  # COINIT_APARTMENTTHREADED, CLSCTX_INPROC_SERVER
_TASKBAR_LIST = "{56FDF344-FD6D-11D0-958A-006097C9A090}"
_TASKBAR_LIST_3 = "{EA1AFB91-9E28-4B86-90E9-9E9F8A5EEFAF}"
# Places of the methods in the interface's table.
_RELEASE, _INITIALISE, _SET_VALUE, _SET_STATE = 2, 3, 9, 10
_NONE, _INDETERMINATE, _NORMAL = 0, 1, 2  # TBPF_NOPROGRESS, …
_WHOLE = 1000  # of a full bar

_log = logging.getLogger(__name__)


def name_program(shell: Any = None) -> None:
    """Give this process an ID unlike Python's, unless it is a bundle; before its first window.

    `shell` is shell32, which a test replaces.
    """
    if getattr(sys, "frozen", False):
        return
    if shell is None:
        if sys.platform != "win32":
            return
        shell = ctypes.CDLL("shell32")
    shell.SetCurrentProcessExplicitAppUserModelID(ctypes.c_wchar_p(APP_ID))


class TaskbarButton:
    """Progress shown in the taskbar button of a window; on Windows only."""

    def __init__(self) -> None:
        """Connect to the taskbar. Raises OSError."""
        ole = ctypes.CDLL("ole32")
        ole.CoInitializeEx(None, _SINGLE_THREADED)  # as Qt's thread already is
        self._object = ctypes.c_void_p()
        wanted = (_guid(ole, _TASKBAR_LIST), None, _IN_PROCESS, _guid(ole, _TASKBAR_LIST_3))
        failed = ole.CoCreateInstance(*wanted, ctypes.byref(self._object))
        if failed or not self._object:
            raise OSError(f"there is no taskbar: {failed & 0xFFFFFFFF:#x}")
        if failed := self._call(_INITIALISE):
            self._call(_RELEASE)
            raise OSError(f"the taskbar does not answer: {failed & 0xFFFFFFFF:#x}")

    def show(self, window: int, progress: float | None) -> None:
        """Show `progress` from 0 to 1 at a window's handle; below 0: not known; None: nothing."""
        handle = ctypes.c_void_p(window)
        if progress is None or progress < 0:
            state = _NONE if progress is None else _INDETERMINATE
            self._call(_SET_STATE, handle, ctypes.c_int(state))
            return
        self._call(_SET_STATE, handle, ctypes.c_int(_NORMAL))
        self._call(
            _SET_VALUE, handle, ctypes.c_uint64(int(progress * _WHOLE)), ctypes.c_uint64(_WHOLE)
        )

    def _call(self, place: int, *values: Any) -> int:
        """Call a method of the interface; returns its HRESULT."""
        table = ctypes.cast(self._object, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0]
        # 64-bit Windows has one calling convention, so that of C is that of COM.
        method = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p, *map(type, values))
        return method(table[place] or 0)(self._object, *values)


def taskbar_button() -> TaskbarButton | None:
    """The button in the taskbar of Windows; None where there is no such taskbar."""
    if sys.platform != "win32":
        return None
    try:
        return TaskbarButton()
    except OSError as error:
        _log.info("%s", error)
        return None


def _guid(ole: Any, text: str) -> Any:
    """The 16 bytes of a written GUID."""
    made = ctypes.create_string_buffer(16)
    ole.CLSIDFromString(ctypes.c_wchar_p(text), made)
    return made
