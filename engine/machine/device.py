"""Memory in use, available memory and CPU cores of this process, cgroup limits included.

The limits of a container or service manager are applied to the operating system's figures: a
process that plans with 256 GB under a 4 GB cgroup limit is killed without an error.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from pathlib import Path
from typing import Any

from engine.errors import OutOfMemory

_ARENA_MAX = -8  # M_ARENA_MAX of glibc's malloc.h


def available_memory() -> int:
    """Bytes this process can allocate without swapping: free memory and reclaimable page cache."""
    if sys.platform == "darwin":
        return macos_memory(ctypes.CDLL(None), os.sysconf("SC_PAGE_SIZE"))
    if sys.platform == "win32":
        return _windows_memory()
    return linux_memory()


def total_memory() -> int:
    """Bytes of memory this computer has, or this process may use of it at most."""
    if sys.platform == "win32":
        return int(_windows_status().total)
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return linux_total(installed) if sys.platform == "linux" else installed


def resident_memory() -> int:
    """Resident bytes of this process, without pages of mapped files.

    The system can reclaim the pages of a mapped model file or library at any time.
    """
    if sys.platform == "darwin":
        return macos_footprint(ctypes.CDLL(None))
    if sys.platform == "win32":
        return _windows_footprint()
    return linux_resident()


def memory_error(error: BaseException) -> OutOfMemory | None:
    """`error` as OutOfMemory if it is a failed allocation; None for other errors."""
    # torch reports a failed allocation as a plain RuntimeError.
    refused = isinstance(error, RuntimeError) and "allocate" in str(error)
    if not refused and not isinstance(error, MemoryError):
        return None
    return OutOfMemory(
        "The memory of this machine ran out.",
        "Close other programs, choose a smaller model, or load this one with a smaller context.",
    )


def trim_heap() -> None:
    """Return freed heap memory to the system; glibc would keep 300 MB of a large vocabulary."""
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(ctypes.c_size_t(0))


def share_heap() -> None:
    """Let threads started later allocate from one heap of glibc, each of which keeps what it freed.

    Blocks of many sizes on heaps of many threads left holes: a server grew by 0.5 MB for each
    connection dropped in mid-answer.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.mallopt(_ARENA_MAX, 1)


def physical_cores() -> int:
    """Physical cores this process may run on; hyper-threads of one core count once."""
    if sys.platform == "darwin":
        return macos_cores(ctypes.CDLL(None))
    if sys.platform == "win32":
        return os.cpu_count() or 1
    return linux_cores(frozenset(os.sched_getaffinity(0)))


def linux_memory(root: Path = Path("/")) -> int:
    """The smaller of MemAvailable and the memory left under this process's cgroup limits."""
    free = _meminfo(root / "proc/meminfo")
    return min([free, *_cgroup_memory(root)])


def linux_total(installed: int, root: Path = Path("/")) -> int:
    """The smaller of the installed memory and this process's cgroup limits."""
    return min([installed, *(limit for limit, _ in _cgroup_limits(root))])


def linux_resident(root: Path = Path("/")) -> int:
    """RssAnon and RssShmem; on kernels without these, resident minus shared pages."""
    kinds = {"RssAnon:": 0, "RssShmem:": 0}
    for line in _text(root / "proc/self/status").splitlines():
        name, _, value = line.partition("\t")
        if name in kinds:
            kinds[name] = int(value.split()[0]) * 1024
    if kinds["RssAnon:"]:
        return sum(kinds.values())
    resident, shared = _text(root / "proc/self/statm").split()[1:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def linux_cores(allowed: frozenset[int], root: Path = Path("/")) -> int:
    """Physical cores of the CPU numbers in `allowed`, at most the cgroup's CPU quota.

    On a processor of ARM with cores of several kinds, those of at most half the capacity of the
    largest do not count: they would slow down every parallel loop.
    """
    folder = root / "sys/devices/system/cpu"
    sizes = {number: _text(folder / f"cpu{number}/cpu_capacity") for number in allowed}
    capacity = {number: int(size) for number, size in sizes.items() if size.isdigit()}
    largest = max(capacity.values(), default=0)
    fast = [number for number in allowed if capacity.get(number, largest) * 2 > largest]
    cores = {_core(folder / f"cpu{number}/topology", number) for number in fast or allowed}
    return max(1, min([len(cores), *_cgroup_cores(root)]))


# --- Linux --------------------------------------------------------------------------------------


def _meminfo(path: Path) -> int:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _core(topology: Path, number: int) -> tuple[str, str]:
    """Package and core id of a CPU; its CPU number where the topology is not readable."""
    package, core = _text(topology / "physical_package_id"), _text(topology / "core_id")
    return (package, core) if package and core else ("", str(number))


def _cgroup_memory(root: Path) -> list[int]:
    """Bytes left under each cgroup memory limit of this process and its parents."""
    return [max(limit - used, 0) for limit, used in _cgroup_limits(root)]


def _cgroup_limits(root: Path) -> list[tuple[int, int]]:
    """Each cgroup memory limit (v1 or v2) of this process and its parents, and bytes in use."""
    limits: list[tuple[int, int]] = []
    for folder in _cgroup_folders(root, "memory"):
        for limit_file, used_file, cache_name in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, used = _text(folder / limit_file), _text(folder / used_file)
            if limit.isdigit() and used.isdigit():
                # Inactive page cache counts as used but is reclaimed first.
                cached = _statistic(folder / "memory.stat", cache_name)
                limits.append((int(limit), int(used) - cached))
    return limits


def _cgroup_cores(root: Path) -> list[int]:
    """Each cgroup CPU quota of this process and its parents, rounded up to whole cores."""
    cores: list[int] = []
    for folder in _cgroup_folders(root, "cpu"):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        if not period:
            quota = _text(folder / "cpu.cfs_quota_us")
            period = _text(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            cores.append(math.ceil(int(quota) / int(period)))
    return cores


def _cgroup_folders(root: Path, controller: str) -> list[Path]:
    """The cgroup folders that may limit this process, from its cgroup up to the root."""
    folders: list[Path] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        names, _, group = rest.partition(":")
        if number == "0" and not names:
            top = root / "sys/fs/cgroup"
        elif controller in names.split(","):
            top = root / "sys/fs/cgroup" / controller
        else:
            continue
        folder = top / group.lstrip("/")
        folders += [folder, *(up for up in folder.parents if up == top or top in up.parents)]
    return folders


def _statistic(path: Path, name: str) -> int:
    for line in _text(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return 0


def _text(path: Path) -> str:
    """The text of a small system file; empty if it is missing or not readable."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


# --- macOS and Windows --------------------------------------------------------------------------


def macos_memory(system: Any, page: int) -> int:
    """Bytes of free, inactive and purgeable pages; a quarter of all memory if the call fails.

    `system` is the system's library. Source: vm_statistics64 in xnu's osfmk/mach/vm_statistics.h;
    HOST_VM_INFO64 is flavor 4.
    """
    system.mach_host_self.restype = ctypes.c_uint
    counts = (ctypes.c_uint32 * 64)()
    size = ctypes.c_uint32(len(counts))
    if system.host_statistics64(
        system.mach_host_self(), 4, ctypes.byref(counts), ctypes.byref(size)
    ):
        return os.sysconf("SC_PHYS_PAGES") * page // 4
    free, inactive = counts[0], counts[2]
    # Four 32-bit counts, nine of 64 bits, then purgeable_count and speculative_count.
    purgeable = counts[4 + 2 * 9]
    return (free + inactive + purgeable) * page


def macos_footprint(system: Any) -> int:
    """phys_footprint, the figure that Activity Monitor shows as memory.

    Source: task_vm_info in xnu's osfmk/mach/task_info.h; TASK_VM_INFO is flavor 22.
    """
    task = ctypes.c_uint.in_dll(system, "mach_task_self_")
    counts = (ctypes.c_uint32 * 128)()
    size = ctypes.c_uint32(len(counts))
    if system.task_info(task, 22, counts, ctypes.byref(size)):
        raise OutOfMemory("macOS did not report the memory in use.", "Restart the program.")
    # virtual_size, two 32-bit counts, then sixteen sizes of 64 bits: phys_footprint comes next.
    return ctypes.c_uint64.from_buffer(counts, 8 + 2 * 4 + 16 * 8).value


def macos_cores(system: Any) -> int:
    """Physical performance cores: efficiency cores would slow down every parallel loop."""
    for name in (b"hw.perflevel0.physicalcpu", b"hw.physicalcpu"):
        value, size = ctypes.c_int(0), ctypes.c_size_t(4)
        if not system.sysctlbyname(name, ctypes.byref(value), ctypes.byref(size), None, 0):
            return max(1, value.value)
    return os.cpu_count() or 1


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of the Windows API."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("available", ctypes.c_uint64),
        ("page_total", ctypes.c_uint64),
        ("page_available", ctypes.c_uint64),
        ("virtual_total", ctypes.c_uint64),
        ("virtual_available", ctypes.c_uint64),
        ("extended_available", ctypes.c_uint64),
    )


def _windows_memory() -> int:
    return int(_windows_status().available)


def _windows_status() -> _MemoryStatus:
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    kernel = ctypes.CDLL("kernel32")
    if not kernel.GlobalMemoryStatusEx(ctypes.byref(status)):
        raise OutOfMemory("Windows did not report the free memory.", "Restart the program.")
    return status


class _MemoryCounters(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS_EX of the Windows API."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("page_faults", ctypes.c_uint32),
        ("peak_working_set", ctypes.c_size_t),
        ("working_set", ctypes.c_size_t),
        ("peak_paged_pool", ctypes.c_size_t),
        ("paged_pool", ctypes.c_size_t),
        ("peak_nonpaged_pool", ctypes.c_size_t),
        ("nonpaged_pool", ctypes.c_size_t),
        ("page_file", ctypes.c_size_t),
        ("peak_page_file", ctypes.c_size_t),
        ("private", ctypes.c_size_t),
    )


def _windows_footprint() -> int:
    """Private committed bytes; the working set would shrink whenever the window is hidden.

    PrivateUsage is the same number, but Wine leaves it 0.
    """
    counters = _MemoryCounters(length=ctypes.sizeof(_MemoryCounters))
    kernel = ctypes.CDLL("kernel32")
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    if not kernel.K32GetProcessMemoryInfo(
        ctypes.c_void_p(kernel.GetCurrentProcess()), ctypes.byref(counters), counters.length
    ):
        raise OutOfMemory("Windows did not report the memory in use.", "Restart the program.")
    return int(counters.page_file)
