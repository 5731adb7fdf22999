"""The CUDA benchmark end to end, in Triton's interpreter with a toy model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.sweep

ROOT = Path(__file__).parents[1]


def test_the_benchmark_writes_its_table(tmp_path: Path) -> None:
    """All rows are measured, and the tokens are the reference's; committed figures are kept."""
    script = ROOT / "tests" / "benchmarks" / "cuda_speed.py"
    before = script.with_name("cuda.md").read_bytes()
    done = subprocess.run(
        [sys.executable, str(script), "--table", str(tmp_path / "cuda.md")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert script.with_name("cuda.md").read_bytes() == before
    text = (tmp_path / "cuda.md").read_text(encoding="utf-8")
    assert "Not measured" not in text, text
    assert text.count("greedy tokens") == 2
    assert "ties" not in text
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| toy")]
    assert rows == [
        "toy Q1_0, 1 sequence, depth 0",
        "toy Q1_0, 1 sequence, depth 300",
        "toy Q1_0, 5 sequences, depth 0",
        "toy Q1_0, prompt of 6",
        "toy Q1_0",
    ]
    assert "attend_step" in text.splitlines()[-1]


def test_a_row_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "benchmarks"))
    import cuda_speed as bench

    report = bench.Report(bench.clock(), 1e9, 1e12)

    def fail() -> None:
        raise RuntimeError("CUDA error: out of memory.\nMore")

    report.attempt("a row", fail)
    report.started -= 1e9
    report.attempt("another", fail)
    assert report.missing == [
        "a row: RuntimeError: CUDA error: out of memory.",
        "another: no time was left",
    ]
    assert "a row: RuntimeError" in report.text()
