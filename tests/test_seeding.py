"""Seeds of random test data: a failed test shows its seed, which reproduces the data."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent / "support"
WITH_DATA = """
import torch

def test_fails(random):
    assert not torch.randint(0, 1 << 31, (4,), generator=random).tolist()
"""
WITHOUT = "def test_fails(seed): assert not [seed]"


def failed(folder: Path, test: str, *options: str) -> tuple[str, str]:
    """Run a failing test; returns the seed it prints and the data it failed on."""
    (folder / "test_failing.py").write_text(test, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "seeding", "-p", "no:cacheprovider", *options]
    ran = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    seed = re.search(r"repeat with --seed (\d+)$", ran.stdout, re.MULTILINE)
    data = re.search(r"^E +assert not (\[.+\])$", ran.stdout, re.MULTILINE)
    assert seed, ran.stdout
    assert data, ran.stdout
    return seed[1], data[1]


@pytest.mark.sweep
def test_the_printed_seed_reproduces_the_data(tmp_path: Path) -> None:
    seed, data = failed(tmp_path, WITH_DATA)
    assert failed(tmp_path, WITH_DATA, "--seed", seed) == (seed, data)


@pytest.mark.sweep
def test_every_run_has_a_new_seed(tmp_path: Path) -> None:
    assert failed(tmp_path, WITHOUT) != failed(tmp_path, WITHOUT)
