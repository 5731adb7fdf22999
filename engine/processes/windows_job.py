"""A job of Windows that a child process puts itself into: its memory, and no other process in it.

Structures: https://learn.microsoft.com/windows/win32/api/winnt/ns-winnt-jobobject_extended_limit_information
"""

from __future__ import annotations

import ctypes
import sys

_JOB_EXTENDED_LIMITS = 9  # JobObjectExtendedLimitInformation
_JOB_ACTIVE_PROCESS = 0x8
_JOB_PROCESS_MEMORY = 0x100
_JOB_DIE_ON_UNHANDLED_EXCEPTION = 0x400
_JOB_KILL_ON_JOB_CLOSE = 0x2000


class JobBasicLimits(ctypes.Structure):
    """JOBOBJECT_BASIC_LIMIT_INFORMATION."""

    _fields_ = (
        ("PerProcessUserTimeLimit", ctypes.c_int64),
        ("PerJobUserTimeLimit", ctypes.c_int64),
        ("LimitFlags", ctypes.c_uint32),
        ("MinimumWorkingSetSize", ctypes.c_size_t),
        ("MaximumWorkingSetSize", ctypes.c_size_t),
        ("ActiveProcessLimit", ctypes.c_uint32),
        ("Affinity", ctypes.c_size_t),
        ("PriorityClass", ctypes.c_uint32),
        ("SchedulingClass", ctypes.c_uint32),
    )


class JobLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = (
        ("BasicLimitInformation", JobBasicLimits),
        ("IoInfo", ctypes.c_uint64 * 6),
        ("ProcessMemoryLimit", ctypes.c_size_t),
        ("JobMemoryLimit", ctypes.c_size_t),
        ("PeakProcessMemoryUsed", ctypes.c_size_t),
        ("PeakJobMemoryUsed", ctypes.c_size_t),
    )


class MemoryCounters(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS."""

    _fields_ = (
        ("cb", ctypes.c_uint32),
        ("PageFaultCount", ctypes.c_uint32),
        ("PeakWorkingSetSize", ctypes.c_size_t),
        ("Others", ctypes.c_size_t * 7),
    )


def job_limits(memory_bytes: int) -> JobLimits:
    """The limits of a job of one process, which starts no other one."""
    limits = JobLimits()
    limits.BasicLimitInformation.LimitFlags = (
        _JOB_ACTIVE_PROCESS
        | _JOB_PROCESS_MEMORY
        | _JOB_DIE_ON_UNHANDLED_EXCEPTION
        | _JOB_KILL_ON_JOB_CLOSE
    )
    limits.BasicLimitInformation.ActiveProcessLimit = 1
    limits.ProcessMemoryLimit = memory_bytes
    return limits


if sys.platform == "win32":

    def enter_job(memory_bytes: int) -> None:
        """Put this process into a job of its own, whose handle it keeps until it ends."""
        kernel = _kernel()
        limits = job_limits(memory_bytes)
        job = kernel.CreateJobObjectW(None, None)
        if job and kernel.SetInformationJobObject(
            job, _JOB_EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)
        ):
            kernel.AssignProcessToJobObject(job, kernel.GetCurrentProcess())

    def peak_memory() -> int:
        """The most memory that this process had, in bytes; 0: Windows does not say."""
        kernel = _kernel()
        counters = MemoryCounters()
        counters.cb = ctypes.sizeof(counters)
        asked = ctypes.byref(counters)
        if not kernel.K32GetProcessMemoryInfo(kernel.GetCurrentProcess(), asked, counters.cb):
            return 0
        return int(counters.PeakWorkingSetSize)

    def _kernel() -> ctypes.WinDLL:
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        handle = ctypes.c_void_p
        kernel.CreateJobObjectW.restype = handle
        kernel.CreateJobObjectW.argtypes = (handle, ctypes.c_wchar_p)
        kernel.SetInformationJobObject.argtypes = (handle, ctypes.c_int, handle, ctypes.c_uint32)
        kernel.AssignProcessToJobObject.argtypes = (handle, handle)
        kernel.GetCurrentProcess.restype = handle
        kernel.K32GetProcessMemoryInfo.argtypes = (handle, handle, ctypes.c_uint32)
        return kernel
