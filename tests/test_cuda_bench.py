"""The CUDA benchmark end to end, in Triton's interpreter with a toy model."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from cuda_report import Report, Step

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
    assert "Kernels agree with the reference: draws 0" in text
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


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, without a GPU."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "benchmarks"))
    return importlib.import_module("cuda_speed")


def report(folder: Path, kernels: str = "1", minutes: float = 1.0) -> Report:
    machine = {"device": "GPU", "torch": "2", "triton": "3", "kernels": kernels}
    until = time.perf_counter() + 60 * minutes
    return Report(machine, ["a figure"], folder / "rows.json", folder / "cuda.md", until)


def row(name: str, speed: int) -> Callable[[Step], None]:
    return lambda step: step.rows.append(f"| {name} | {speed:,} | – | – | – |")


def fail(_: Step) -> None:
    raise RuntimeError("CUDA error: out of memory.\nMore")


def test_a_row_that_fails_is_named(tmp_path: Path) -> None:
    made = report(tmp_path)
    made.attempt("a row", fail)
    made.until = 0.0
    made.attempt("another", fail)
    assert made.missing == [
        "a row: RuntimeError: CUDA error: out of memory.",
        "another: no time was left",
    ]
    assert "a row: RuntimeError" in made.text()


def test_a_run_that_was_cut_goes_on_behind_its_last_row(tmp_path: Path) -> None:
    """Steps that failed are tried again; other kernels begin anew."""
    first = report(tmp_path)
    first.attempt("one", row("one", 1))
    first.attempt("two", fail)
    assert "| one | 1 |" in (tmp_path / "cuda.md").read_text(encoding="utf-8"), "cut here"
    second = report(tmp_path)
    second.resume(tmp_path / "none.md")
    second.attempt("one", fail)
    second.attempt("two", row("two", 2))
    assert second.missing == []
    text = (tmp_path / "cuda.md").read_text(encoding="utf-8")
    assert text.index("| one | 1 |") < text.index("| two | 2 |")
    third = report(tmp_path, kernels="2")
    third.resume(tmp_path / "none.md")
    assert third.steps == {}


def test_rows_slower_than_in_the_committed_table_are_named(tmp_path: Path) -> None:
    committed = tmp_path / "before.md"
    committed.write_text(
        "- Device: GPU\n\n| one | 1,000 | 2 |\n| two | 100 | 2 |\n\nKernels of\n| one | 9 | a |\n",
        encoding="utf-8",
    )
    made = report(tmp_path)
    made.resume(committed)
    made.attempt("one", row("one", 900))
    made.attempt("two", row("two", 99))
    assert made.slower() == ["one: 900 after 1,000 tokens/s (-10 %)"]
    again = report(tmp_path)
    again.resume(tmp_path / "cuda.md")  # which is overwritten row by row
    assert again.slower() == made.slower()
    other = report(tmp_path / "other")
    other.resume(tmp_path / "none.md")
    other.attempt("one", row("one", 1))
    assert other.slower() == [], "there is no table of this device"


def test_hybrids_and_tools_of_the_toolkit_are_rows_too(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = report(tmp_path)
    printed = (
        "| check | routes | worst 0 | ok |\n"
        "| speed | qwen3.5-4b Q4_0 decode | 1,210.5 tokens/s; op by op 30.0 | recorded, captured |\n"
        "| speed | qwen3.5-4b Q4_0 prompt of 512 | 8,125 tokens/s | new kernels |\n"
        "0 of 17 rows failed.\n"
    )
    monkeypatch.setattr(bench, "run", lambda *_: printed)
    step = Step()
    bench.hybrid(step, made, "qwen3.5-4b")
    bench.check_hybrids(step, made)
    assert step.rows == [
        "| qwen3.5-4b Q4_0 decode, recorded, captured | 1,210 | – | – | op by op 30.0 |",
        "| qwen3.5-4b Q4_0 prompt of 512, new kernels | 8,125 | – | – |  |",
    ]
    assert step.checks == ["Hybrids and mixtures: 17 checks, none failed"]
    monkeypatch.setattr(bench.shutil, "which", lambda _: None)
    monkeypatch.setattr(bench.Path, "exists", lambda _: False)
    made.attempt("racecheck", lambda step: bench.sanitize(step, made, "racecheck"))
    assert made.missing == ["racecheck: compute-sanitizer is not installed"]


def test_a_script_that_fails_fails_its_step(bench: ModuleType, tmp_path: Path) -> None:
    made = report(tmp_path)
    with pytest.raises(RuntimeError, match="ended with 3"):
        bench.run(made, sys.executable, "-c", "raise SystemExit(3)")
    assert bench.run(made, sys.executable, "-c", "print(5)") == "5\n"
