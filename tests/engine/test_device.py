"""Memory and cores as the system and its control groups allow them, and plans that fit in them."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from engine.device import (
    available_memory,
    linux_cores,
    linux_memory,
    linux_resident,
    physical_cores,
    plan_memory,
    resident_memory,
)
from engine.errors import OutOfMemory

GB = 10**9
KIB = 1024


def plan(**changed: int):
    sizes = {
        "weights_bytes": 4 * GB,
        "cache_bytes_per_token": 100_000,
        "fixed_cache_bytes": 0,
        "context_wanted": 0,
        "context_model": 32_768,
        "available": 16 * GB,
        "scratch_bytes": GB // 10,
    }
    return plan_memory(**(sizes | changed))


# --- plans --------------------------------------------------------------------------------------


def test_a_model_that_fits_keeps_its_own_context() -> None:
    found = plan(fixed_cache_bytes=1000)
    assert found.context == 32_768
    assert found.cache_bytes == 1000 + 32_768 * 100_000
    assert found.total_bytes == 4 * GB + found.cache_bytes + GB // 10
    assert found.available_bytes == 16 * GB


def test_the_context_is_halved_until_everything_fits_nine_tenths() -> None:
    found = plan(available=6 * GB)
    assert found.context == 8_192
    assert found.total_bytes <= 0.9 * 6 * GB
    assert plan(available=found.total_bytes * 10 // 9 + 1).context == 8_192
    assert plan(available=found.total_bytes * 10 // 9 - 1).context == 4_096


def test_the_context_is_not_lowered_below_512_tokens() -> None:
    least = 4 * GB + GB // 10 + 512 * 100_000
    assert plan(available=least * 10 // 9 + 1).context == 512
    with pytest.raises(OutOfMemory):
        plan(available=least * 10 // 9 - 1)


def test_an_odd_context_stops_at_512_too() -> None:
    least = 4 * GB + GB // 10 + 512 * 100_000
    assert plan(available=least * 10 // 9 + 1, context_model=1_000).context == 512


def test_a_model_with_a_short_context_keeps_it() -> None:
    assert plan(context_model=128).context == 128


def test_weights_that_do_not_fit_are_refused_with_figures() -> None:
    with pytest.raises(OutOfMemory) as caught:
        plan(available=2 * GB)
    assert "4.2 GB" in str(caught.value)
    assert "2.0 GB of memory are free" in str(caught.value)
    assert "smaller model" in caught.value.remedy


def test_a_context_asked_for_is_kept() -> None:
    assert plan(context_wanted=1_000).context == 1_000


def test_a_context_asked_for_that_does_not_fit_is_refused_with_what_would() -> None:
    with pytest.raises(OutOfMemory) as caught:
        plan(available=6 * GB, context_wanted=32_768)
    assert "A context of 32,768 tokens needs 7.4 GB" in str(caught.value)
    assert "6.0 GB of memory are free" in str(caught.value)
    assert "at most 13,000 tokens" in caught.value.remedy
    assert plan(available=6 * GB, context_wanted=13_000).context == 13_000


# --- this machine -------------------------------------------------------------------------------


def test_this_machine_has_memory_and_cores() -> None:
    assert available_memory() > 10_000_000
    assert 1 <= physical_cores() <= (os.cpu_count() or 1)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs processor affinity")
def test_cores_follow_affinity() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert physical_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


# --- other machines, as their system files describe them ----------------------------------------


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path / "proc/meminfo", "MemTotal:  8000 kB\nMemAvailable:    5000 kB\nCached: 1 kB\n")
    return tmp_path


def group(root: Path, lines: str) -> Path:
    put(root / "proc/self/cgroup", lines)
    return root / "sys/fs/cgroup"


def test_without_groups_memory_is_the_kernels_estimate(root: Path) -> None:
    assert linux_memory(root) == 5000 * KIB


def test_a_version_2_limit_caps_memory(root: Path) -> None:
    top = group(root, "0::/app/chat\n")
    put(top / "app/chat/memory.max", "max\n")
    put(top / "app/chat/memory.current", "900000\n")
    put(top / "app/memory.max", "2000000\n")
    put(top / "app/memory.current", "1500000\n")
    put(top / "app/memory.stat", "anon 1\ninactive_file 300000\n")
    assert linux_memory(root) == 800_000


def test_a_version_1_limit_caps_memory(root: Path) -> None:
    top = group(root, "4:memory:/app\n1:cpu,cpuacct:/app\n0::/\n")
    put(top / "memory/app/memory.limit_in_bytes", "1000000\n")
    put(top / "memory/app/memory.usage_in_bytes", "400000\n")
    put(top / "memory/memory.limit_in_bytes", "9223372036854771712\n")
    put(top / "memory/memory.usage_in_bytes", "400000\n")
    assert linux_memory(root) == 600_000


def test_a_limit_at_the_top_counts_where_the_group_is_hidden(root: Path) -> None:
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


def test_processors_without_a_description_count_each(root: Path) -> None:
    assert linux_cores(frozenset({0, 1, 7}), root) == 3


@pytest.mark.parametrize(
    ("quota", "cores"), [("150000 100000", 2), ("50000 100000", 1), ("max 100000", 4)]
)
def test_a_version_2_share_of_time_caps_cores(root: Path, quota: str, cores: int) -> None:
    put(group(root, "0::/app\n") / "app/cpu.max", quota + "\n")
    assert linux_cores(frozenset(range(4)), root) == cores


@pytest.mark.parametrize(("quota", "cores"), [("300000", 3), ("-1", 4)])
def test_a_version_1_share_of_time_caps_cores(root: Path, quota: str, cores: int) -> None:
    top = group(root, "1:cpu,cpuacct:/app\n")
    put(top / "cpu/app/cpu.cfs_quota_us", quota)
    put(top / "cpu/app/cpu.cfs_period_us", "100000")
    assert linux_cores(frozenset(range(4)), root) == cores


# --- what this process holds --------------------------------------------------------------------


def test_resident_memory_grows_and_shrinks_with_what_is_held() -> None:
    before = resident_memory()
    held = bytearray(os.urandom(1 << 20)) * 64
    grown = resident_memory() - before
    del held
    left = resident_memory() - before
    assert 64 << 20 <= grown < 72 << 20
    assert left < 8 << 20


def test_pages_of_a_mapped_file_are_not_resident_memory(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(1 << 26))
    before = resident_memory()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[:: mmap.PAGESIZE]) == 0
        assert resident_memory() - before < 8 << 20


def test_a_kernel_that_tells_no_kinds_of_pages_is_asked_for_all_but_shared_ones(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "proc/self"
    folder.mkdir(parents=True)
    (folder / "status").write_text("Name:\tpython\nVmRSS:\t  4000 kB\n")
    (folder / "statm").write_text("90000 1000 300 1 0 500 0\n")
    assert linux_resident(tmp_path) == 700 * mmap.PAGESIZE
    (folder / "status").write_text("RssAnon:\t    3000 kB\nRssFile:\t 900 kB\nRssShmem:\t   7 kB\n")
    assert linux_resident(tmp_path) == 3007 * 1024
