"""A job of Windows: what is in it, and all that it starts, ends with the job's handle.

The system closes the handle when the app ends, also when it is killed. Structures:
https://learn.microsoft.com/windows/win32/api/winnt/ns-winnt-jobobject_extended_limit_information
"""

from __future__ import annotations

import ctypes
import sys

_JOB_EXTENDED_LIMITS = 9  # JobObjectExtendedLimitInformation
_KILL_ON_JOB_CLOSE = 0x2000
_ACCESS = 0x0101  # PROCESS_SET_QUOTA, PROCESS_TERMINATE
_LIMIT_BYTES = 144 if ctypes.sizeof(ctypes.c_void_p) == 8 else 112
_FLAGS_AT = 16  # LimitFlags, after two times of 8 bytes


class Job:
    """The job of one program; without effect on other systems, and where Windows refuses."""

    def __init__(self, process_id: int) -> None:
        self._job: int | None = None
        if sys.platform == "win32":
            kernel = _kernel()
            self._job = kernel.CreateJobObjectW(None, None)
            process = kernel.OpenProcess(_ACCESS, 0, process_id)
            if self._job and process:
                limits = (ctypes.c_ubyte * _LIMIT_BYTES)()
                ctypes.c_uint32.from_buffer(limits, _FLAGS_AT).value = _KILL_ON_JOB_CLOSE
                kernel.SetInformationJobObject(
                    self._job, _JOB_EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)
                )
                kernel.AssignProcessToJobObject(self._job, process)
            if process:
                kernel.CloseHandle(process)

    def close(self) -> None:
        """End all programs of the job."""
        if sys.platform == "win32" and self._job:
            _kernel().CloseHandle(self._job)
            self._job = None


if sys.platform == "win32":

    def _kernel() -> ctypes.WinDLL:
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        handle = ctypes.c_void_p
        kernel.CreateJobObjectW.restype = handle
        kernel.CreateJobObjectW.argtypes = (handle, ctypes.c_wchar_p)
        kernel.OpenProcess.restype = handle
        kernel.OpenProcess.argtypes = (ctypes.c_uint32, ctypes.c_int, ctypes.c_uint32)
        kernel.SetInformationJobObject.argtypes = (handle, ctypes.c_int, handle, ctypes.c_uint32)
        kernel.AssignProcessToJobObject.argtypes = (handle, handle)
        kernel.CloseHandle.argtypes = (handle,)
        return kernel
