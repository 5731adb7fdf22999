"""Available memory and cores under cgroup limits, and resident memory of the process."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import OutOfMemory
from engine.machine.device import (
    available_memory,
    linux_cores,
    linux_memory,
    linux_resident,
    linux_total,
    macos_cores,
    macos_footprint,
    macos_memory,
    physical_cores,
    resident_memory,
    total_memory,
)

KIB = 1024
ROOT = Path(__file__).parents[3]


# --- this machine -------------------------------------------------------------------------------


def test_this_machine_has_memory_and_cores() -> None:
    assert available_memory() > 10_000_000
    assert total_memory() > available_memory() // 2
    assert 1 <= physical_cores() <= (os.cpu_count() or 1)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs processor affinity")
def test_cores_follow_affinity() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert physical_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


# --- other machines, from copies of their system files ------------------------------------------


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path / "proc/meminfo", "MemTotal:  8000 kB\nMemAvailable:    5000 kB\nCached: 1 kB\n")
    return tmp_path


def group(root: Path, lines: str) -> Path:
    put(root / "proc/self/cgroup", lines)
    return root / "sys/fs/cgroup"


def test_without_cgroups_available_memory_is_meminfo_estimate(root: Path) -> None:
    assert linux_memory(root) == 5000 * KIB
    assert linux_total(9_000_000, root) == 9_000_000


def test_cgroup_v2_limit_caps_available_memory(root: Path) -> None:
    top = group(root, "0::/app/chat\n")
    put(top / "app/chat/memory.max", "max\n")
    put(top / "app/chat/memory.current", "900000\n")
    put(top / "app/memory.max", "2000000\n")
    put(top / "app/memory.current", "1500000\n")
    put(top / "app/memory.stat", "anon 1\ninactive_file 300000\n")
    assert linux_memory(root) == 800_000
    assert linux_total(9_000_000, root) == 2_000_000
    assert linux_total(1_000_000, root) == 1_000_000


def test_cgroup_v1_limit_caps_available_memory(root: Path) -> None:
    top = group(root, "4:memory:/app\n1:cpu,cpuacct:/app\n0::/\n")
    put(top / "memory/app/memory.limit_in_bytes", "1000000\n")
    put(top / "memory/app/memory.usage_in_bytes", "400000\n")
    put(top / "memory/memory.limit_in_bytes", "9223372036854771712\n")
    put(top / "memory/memory.usage_in_bytes", "400000\n")
    assert linux_memory(root) == 600_000


def test_limit_of_the_root_cgroup_applies_in_a_cgroup_namespace(root: Path) -> None:
    top = group(root, "0::/\n")
    put(top / "memory.max", "700000")
    put(top / "memory.current", "800000")
    assert linux_memory(root) == 0


def processors(root: Path, cores: dict[int, tuple[int, int]]) -> None:
    for number, (package, core) in cores.items():
        topology = root / f"sys/devices/system/cpu/cpu{number}/topology"
        put(topology / "physical_package_id", f"{package}\n")
        put(topology / "core_id", f"{core}\n")


def test_threads_of_one_core_count_once(root: Path) -> None:
    processors(root, {0: (0, 0), 1: (0, 1), 2: (0, 0), 3: (0, 1), 4: (1, 0), 5: (1, 0)})
    assert linux_cores(frozenset(range(6)), root) == 3
    assert linux_cores(frozenset({0, 2}), root) == 1


def test_cpus_without_topology_count_as_one_core_each(root: Path) -> None:
    assert linux_cores(frozenset({0, 1, 7}), root) == 3


@pytest.mark.parametrize(
    ("quota", "cores"), [("150000 100000", 2), ("50000 100000", 1), ("max 100000", 4)]
)
def test_cgroup_v2_cpu_quota_caps_cores(root: Path, quota: str, cores: int) -> None:
    put(group(root, "0::/app\n") / "app/cpu.max", quota + "\n")
    assert linux_cores(frozenset(range(4)), root) == cores


@pytest.mark.parametrize(("quota", "cores"), [("300000", 3), ("-1", 4)])
def test_cgroup_v1_cpu_quota_caps_cores(root: Path, quota: str, cores: int) -> None:
    top = group(root, "1:cpu,cpuacct:/app\n")
    put(top / "cpu/app/cpu.cfs_quota_us", quota)
    put(top / "cpu/app/cpu.cfs_period_us", "100000")
    assert linux_cores(frozenset(range(4)), root) == cores


# --- resident memory of this process ------------------------------------------------------------


@pytest.mark.skipif(not hasattr(mmap, "MAP_PRIVATE"), reason="needs private mappings")
@pytest.mark.parametrize("kind", ["MAP_PRIVATE", "MAP_SHARED"])
def test_resident_memory_counts_written_pages_only(kind: str) -> None:
    before = resident_memory()
    flags = mmap.MAP_ANONYMOUS | getattr(mmap, kind)
    with mmap.mmap(-1, 1 << 26, flags=flags) as mapping:
        assert resident_memory() - before < 8 << 20, "untouched pages are not resident"
        mapping.write(b"x" * (1 << 26))
        grown = resident_memory() - before
    assert 1 << 26 <= grown < (1 << 27) + (8 << 20)
    assert resident_memory() - before < (1 << 26) + (8 << 20), "only the written bytes may remain"


def test_resident_memory_counts_what_is_allocated() -> None:
    code = (
        "from engine.machine.device import resident_memory\n"
        "before = resident_memory()\n"
        "block = b'x' * (1 << 26)\n"
        "print(resident_memory() - before)\n"
    )
    # In a process of its own: this one may have as much freed memory, which is resident already.
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert 1 << 26 <= int(done.stdout) < (1 << 26) + (8 << 20)


def test_pages_of_a_mapped_file_are_not_resident_memory(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(1 << 26))
    before = resident_memory()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[:: mmap.PAGESIZE]) == 0
        assert resident_memory() - before < 8 << 20


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no /proc")
def test_without_rss_kinds_resident_memory_is_resident_minus_shared_pages(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "proc/self"
    folder.mkdir(parents=True)
    (folder / "status").write_text("Name:\tpython\nVmRSS:\t  4000 kB\n", encoding="utf-8")
    (folder / "statm").write_text("90000 1000 300 1 0 500 0\n", encoding="utf-8")
    assert linux_resident(tmp_path) == 700 * mmap.PAGESIZE
    (folder / "status").write_text(
        "RssAnon:\t    3000 kB\nRssFile:\t 900 kB\nRssShmem:\t   7 kB\n", encoding="utf-8"
    )
    assert linux_resident(tmp_path) == 3007 * 1024


_HEAPS = """
import ctypes, sys, threading
from engine.machine.device import share_heap
if sys.argv[2] == "shared":
    share_heap()
barrier = threading.Barrier(6)
def work():
    barrier.wait()
    blocks = [bytes(1000 * one) for one in range(1, 40)]
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range(6)]
for one in threads: one.start()
for one in threads: one.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = libc.fopen(sys.argv[1].encode(), b"w")
libc.malloc_info(0, ctypes.c_void_p(file))
libc.fclose(ctypes.c_void_p(file))
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_info"), reason="needs glibc"
)
def test_threads_share_one_heap(tmp_path: Path) -> None:
    counts: dict[str, int] = {}
    for way in ("own", "shared"):
        file = tmp_path / way
        subprocess.run([sys.executable, "-c", _HEAPS, str(file), way], check=True)
        counts[way] = file.read_text(encoding="utf-8").count("<heap nr=")
    assert counts["shared"] == 1 < counts["own"]


# --- ARM and macOS ------------------------------------------------------------------------------


def test_the_small_cores_of_an_arm_processor_do_not_count(tmp_path: Path) -> None:
    for number, capacity in enumerate((397, 397, 397, 397, 1024, 1024, 1000, 1000)):
        put(tmp_path / f"sys/devices/system/cpu/cpu{number}/cpu_capacity", f"{capacity}\n")
    assert linux_cores(frozenset(range(8)), tmp_path) == 4
    assert linux_cores(frozenset(range(4)), tmp_path) == 4, "alone they do"
    assert linux_cores(frozenset(range(10)), tmp_path) == 6, "and what says nothing does"


class VMStatistics64(ctypes.Structure):
    """vm_statistics64 of mach/vm_statistics.h, its first fields."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("free", "active", "inactive", "wire")),
        *((name, ctypes.c_uint64) for name in ("zero_fill", "reactivations", "pageins")),
        *((name, ctypes.c_uint64) for name in ("pageouts", "faults", "cow_faults")),
        *((name, ctypes.c_uint64) for name in ("lookups", "hits", "purges")),
        *((name, ctypes.c_uint32) for name in ("purgeable", "speculative")),
    )


class TaskVMInfo(ctypes.Structure):
    """task_vm_info of mach/task_info.h, its first fields."""

    _fields_ = (
        ("virtual_size", ctypes.c_uint64),
        *((name, ctypes.c_int) for name in ("region_count", "page_size")),
        *((name, ctypes.c_uint64) for name in ("resident", "resident_peak", "device")),
        *((name, ctypes.c_uint64) for name in ("device_peak", "internal", "internal_peak")),
        *((name, ctypes.c_uint64) for name in ("external", "external_peak", "reusable")),
        *((name, ctypes.c_uint64) for name in ("reusable_peak", "volatile_pmap")),
        *((name, ctypes.c_uint64) for name in ("volatile_resident", "volatile_virtual")),
        *((name, ctypes.c_uint64) for name in ("compressed", "compressed_peak")),
        *((name, ctypes.c_uint64) for name in ("compressed_lifetime", "phys_footprint")),
    )


MACOS = """
#include <string.h>
unsigned mach_task_self_ = 259;
unsigned mach_host_self(void) { return 3; }
static char memory[1024], task[1024];
static unsigned sizes[2];
int fast = 0, all = 0;
void tell(const char *a, unsigned na, const char *b, unsigned nb) {
    memcpy(memory, a, na); memcpy(task, b, nb); sizes[0] = na; sizes[1] = nb;
}
int host_statistics64(unsigned host, int flavor, void *out, unsigned *count) {
    if (host != 3 || flavor != 4 || *count * 4 < sizes[0] || !sizes[0]) return 4;
    memcpy(out, memory, sizes[0]); return 0;
}
int task_info(unsigned self, int flavor, void *out, unsigned *count) {
    if (self != 259 || flavor != 22 || *count * 4 < sizes[1] || !sizes[1]) return 4;
    memcpy(out, task, sizes[1]); return 0;
}
int sysctlbyname(const char *name, void *out, unsigned long *size, void *in, unsigned long n) {
    int value = !strcmp(name, "hw.perflevel0.physicalcpu") ? fast
        : !strcmp(name, "hw.physicalcpu") ? all : 0;
    if (!value || *size != 4 || in || n) return -1;
    memcpy(out, &value, 4); return 0;
}
"""


@pytest.fixture(scope="module")
def macos(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """A library with the functions of macOS that are called, laid out as its headers say."""
    folder = tmp_path_factory.mktemp("macos")
    (folder / "system.c").write_text(MACOS, encoding="utf-8")
    command = ["cc", "-shared", "-fPIC", "-fno-builtin", "-o", folder / "system.so"]
    try:
        subprocess.run([*command, folder / "system.c"], check=True, capture_output=True)
    except OSError:
        pytest.skip("needs a C compiler")
    return ctypes.CDLL(str(folder / "system.so"))


def tell(macos: ctypes.CDLL, memory: bytes, task: bytes) -> None:
    macos.tell(memory, len(memory), task, len(task))


@pytest.mark.skipif(sys.platform == "win32", reason="needs a Unix compiler")
def test_memory_of_macos_is_read_as_its_headers_lay_it_out(macos: ctypes.CDLL) -> None:
    memory = VMStatistics64(free=1_000, active=7, inactive=200, wire=9, purges=5, purgeable=30)
    task = TaskVMInfo(resident=5, compressed_lifetime=6, phys_footprint=123_456_789_012)
    tell(macos, bytes(memory), bytes(task))
    assert macos_memory(macos, 16384) == 1_230 * 16384
    assert macos_footprint(macos) == 123_456_789_012
    tell(macos, b"", b"")
    assert macos_memory(macos, 4096) == os.sysconf("SC_PHYS_PAGES") * 4096 // 4
    with pytest.raises(OutOfMemory, match="macOS did not report"):
        macos_footprint(macos)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a Unix compiler")
def test_cores_of_macos_are_the_fast_ones(macos: ctypes.CDLL) -> None:
    fast, every = (ctypes.c_int.in_dll(macos, name) for name in ("fast", "all"))
    fast.value, every.value = 6, 8
    assert macos_cores(macos) == 6
    fast.value = 0  # a processor of Intel
    assert macos_cores(macos) == 8
    every.value = 0
    assert macos_cores(macos) == os.cpu_count()
