"""Machine code of kernels, compiled without a GPU: what it takes of registers and memory, and its loads.

Compiling finds what the interpreter accepts and the compiler does not.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tests" / "benchmarks" / "cuda_code.py"


def rows(*formats: str) -> list[list[str]]:
    """The cells of the table of these formats, and of attention."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *formats],
        capture_output=True,
        text=True,
        env=kept,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr  # 1: a kernel spills
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]


def kernels() -> set[str]:
    """Names of all kernels: the compiled functions whose names begin with no underscore and which
    launches name.
    """
    sources = (ROOT / "kernels" / "cuda").glob("*.py")
    launched = (
        re.findall(
            r"\bjit\.(\w+),|\b(?:dense|norms|products)\.(\w+),", one.read_text(encoding="utf-8")
        )
        for one in sources
    )
    return {name for found in launched for pair in found for name in pair if name}


@pytest.mark.slow
def test_decode_kernels_spill_nothing_and_read_weights_by_16_bytes() -> None:
    found = rows("Q1_0", "Q4_K", "Q8_0")  # fails if one spills or takes too much shared memory
    assert {cells[0] for cells in found} == kernels()
    assert {cells[3] for cells in found} == {"sm_80", "sm_89", "sm_90"}
    for cells in found:
        if (
            not cells[0].startswith(("product", "experts", "attend_step"))
            or cells[2] != "decode"
            or cells[1] == "float32"
        ):
            continue
        loads = dict(one.split(" B × ") for one in cells[8].split(", "))
        assert int(loads["16"]) > 0, cells
        if cells[0].startswith("product"):
            assert int(cells[9]) >= 128, cells
            # A weight of 4 bits and more is read by 16 bytes; only scales are smaller.
            assert int(loads["16"]) >= int(loads.get("2", 0)), cells
