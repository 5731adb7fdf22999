"""Recorded programs during which the pool drops threads: no work may be done twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernels.cpu import build

DRIVER = Path(__file__).parents[2] / "native" / "dropped_threads.cpp"
FLAGS = ("-std=c++17", "-O1", "-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra")


@pytest.mark.skipif(sys.platform == "win32", reason="the driver is linked as elsewhere")
def test_heads_are_rotated_once_when_threads_are_dropped_before_attention(
    tmp_path: Path,
) -> None:
    try:
        compiler = build.find_compiler()
    except build.NoCompiler as absent:
        pytest.skip(str(absent))
    program = tmp_path / "dropped_threads"
    command = (*compiler.command, *FLAGS, "-I", str(build.NATIVE), str(DRIVER), "-o", str(program))
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    ran = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
