"""Random interleavings under the sanitizers: no kernel touches a page that was freed.

The pages of a tiny model come from the heap, so that the address sanitizer knows each of them, and
keeps a freed one unused for a while.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.cpu import build

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
SANITIZER = "ERROR: AddressSanitizer: heap-use-after-free"

# Loads the checked library, then runs a program of this file or pytest.
LOADED = """
import sys
from pathlib import Path
sys.path[:0] = ["tests/support", "."]
from kernels.cpu import library
reason = library.load(Path(sys.argv[1]))
assert not reason, reason
"""
INTERLEAVINGS = """
import pytest
path = "tests/engine/core/test_interleavings.py"
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=3000", path]))
"""
READ_AFTER_FREE = """
import torch
from kernels.cpu.ops import attention
from kernels.states.kv_pages import KVLayout, LayerShape, PagedKV, PageTable
layout, table = KVLayout([LayerShape(1, 32)], torch.float32), PageTable()
table.append(torch.zeros(layout.bytes_per_page, dtype=torch.uint8))
attention(torch.ones(1, 1, 32), PagedKV(layout.kv(0), table), 5, 1.0, 0, 0.0)
print("before", flush=True)
table.pages[0] = None  # frees the page; its address stays in the table
attention(torch.ones(1, 1, 32), PagedKV(layout.kv(0), table), 5, 1.0, 0, 0.0)
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The library with sanitizers, and the runtime that a process must preload."""
    compiler = build.find_compiler()
    asked = [*compiler.command, "-print-file-name=libasan.so"]
    ran = subprocess.run(asked, capture_output=True, text=True, check=False)
    runtime = ran.stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip(f"{compiler.name} has no shared address sanitizer")
    folder = tmp_path_factory.mktemp("checked")
    return build.build_library(compiler, folder, checked=True), runtime


def run(checked: tuple[Path, str], program: str) -> subprocess.CompletedProcess[str]:
    """Run a program with the checked library."""
    path, runtime = checked
    # Python itself leaks at its end; torch handles a segmentation fault as it wants.
    options = {"LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0"}
    command = [sys.executable, "-c", LOADED + program, str(path)]
    environment = {**os.environ, **options}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_a_page_that_is_read_after_it_was_freed_is_found(checked: tuple[Path, str]) -> None:
    ran = run(checked, READ_AFTER_FREE)
    assert ran.stdout.strip() == "before"
    assert ran.returncode != 0
    assert SANITIZER in ran.stderr


def test_interleavings_read_no_freed_page(checked: tuple[Path, str]) -> None:
    ran = run(checked, INTERLEAVINGS)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-6_000:]
    assert " passed" in ran.stdout
