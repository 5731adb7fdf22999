"""The lateness policy of the thread pool, in simulated time so that the result is deterministic."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernels.cpu import build

DRIVER = Path(__file__).parents[2] / "native" / "pool_lateness.cpp"
FLAGS = ("-std=c++17", "-O2", "-pthread", "-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra")


@pytest.mark.skipif(sys.platform == "win32", reason="the driver is linked as elsewhere")
def test_pool_drops_threads_where_fewer_are_faster(tmp_path: Path) -> None:
    try:
        compiler = build.find_compiler()
    except build.NoCompiler as absent:
        pytest.skip(str(absent))
    program = tmp_path / "pool_lateness"
    command = (*compiler.command, *FLAGS, "-I", str(build.NATIVE), str(DRIVER), "-o", str(program))
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    ran = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
