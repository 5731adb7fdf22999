"""NVIDIA's driver asked through its management library."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from engine import nvidia_gpus, version_of
from gpu_packages import build_nvml


def test_without_a_driver_there_are_no_gpus() -> None:
    assert nvidia_gpus("no-such-library.so") == ()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such library")
def test_another_library_of_that_name_lists_no_gpus() -> None:
    assert nvidia_gpus("libc.so.6" if sys.platform == "linux" else "libSystem.dylib") == ()


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs a C compiler")
def test_the_driver_names_its_gpus_and_their_memory(tmp_path: Path) -> None:
    library = build_nvml("cc", tmp_path)
    first, second = nvidia_gpus(str(library))
    assert (first.name, first.capability, first.driver) == ("NVIDIA H100", (9, 0), "580.65.06")
    assert first.total_bytes == 80 << 30
    assert second.total_bytes == 0, "of this one the driver does not know it"


def test_versions_are_compared_by_their_numbers() -> None:
    assert version_of("580.65.06") >= version_of("580.65.06")
    assert version_of("1000.1") > version_of("580.65.06") > version_of("580.9")
    assert version_of("unknown") == ()
