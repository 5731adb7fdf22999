"""Benchmark tables: rows round-trip through the Markdown file, and old rows are kept."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from pathlib import Path

import pytest

import peer_runs
import speed_table
from peer_runs import Missing, Settings, Speed
from speed_table import Table

SECTIONS = ["two threads", "one thread", "loading"]
FILES = ["small", "large"]


def _speeds(*decode: float) -> list[Speed]:
    return [Speed(0.0, speed, 0.01, read=20.0, bandwidth=40.0) for speed in decode]


def _line(file: str, mine: tuple[float, ...], its: tuple[float, ...], wanted: float = 1.0):
    return speed_table.line(file, "decode", _speeds(*mine), _speeds(*its), wanted, "2026-01-02")


def test_a_row_has_the_median_of_paired_ratios():
    line = _line("small", (10.0, 30.0, 20.0), (10.0, 15.0, 4.0), wanted=2.5)
    cells = dict(zip(speed_table.COLUMNS, line.cells, strict=True))
    assert cells["Ours"] == "20.0 (10.0-30.0)"
    assert cells["Theirs"] == "10.0 (4.0-15.0)"
    assert cells["Ratio"] == "2.00 (1.00-5.00) **missed**"
    assert (cells["GB/s"], cells["Of the bandwidth"], cells["Pairs"]) == ("20.0", "50%", "3")
    assert (line.ratio, line.wanted, line.missed) == (2.0, 2.5, True)


def test_a_row_without_a_peer_misses_no_target():
    line = speed_table.line("small", "decode", _speeds(5.0), [], 3.0, "2026-01-02")
    assert not line.missed
    assert dict(zip(speed_table.COLUMNS, line.cells, strict=True))["Pairs"] == "1"


def test_tables_round_trip_through_the_file(tmp_path: Path):
    path = tmp_path / "table.md"
    mine = Table("Last run with X.")
    mine.put("two threads", _line("large", (2.0,), (1.0,)))
    mine.put("two threads", _line("small", (3.0,), (4.0,)))
    mine.texts["loading"] = "Words.\n\n| | |\n|---|---:|\n| File | 1 MB |"
    other = Table("Last run with Y.", {"one thread": {}}, {})
    other.put("one thread", _line("small", (1.0,), (1.0,)))
    tables = {"This machine, 2 cores": mine, "Another": other}
    speed_table.write(path, "# Head\n\nWords.\n", tables, SECTIONS, FILES)
    assert speed_table.read(path, SECTIONS) == tables
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Head\n\nWords.\n\n## This machine, 2 cores\n\nLast run with X.\n")
    assert text.index("| small |") < text.index("| large |")
    assert mine.missed() == ["two threads, small, decode: 0.75, not 1.00"]


def test_a_new_row_replaces_only_the_row_of_the_same_measurement():
    table = Table()
    table.put("two threads", _line("small", (1.0,), (1.0,)))
    table.put("two threads", _line("large", (1.0,), (1.0,)))
    table.put("two threads", _line("small", (7.0,), (1.0,)))
    assert [line.ratio for line in table.lines["two threads"].values()] == [7.0, 1.0]


def test_a_row_replaces_the_text_of_its_section(tmp_path: Path):
    path, table = tmp_path / "table.md", Table()
    table.texts["one thread"] = "Words."
    table.texts["loading"] = "Others."
    table.put("one thread", _line("small", (1.0,), (2.0,)))
    speed_table.write(path, "# Head", {"This": table}, SECTIONS, FILES)
    found = speed_table.read(path, SECTIONS)["This"]
    assert found.missed() == ["one thread, small, decode: 0.50, not 1.00"]
    assert found.texts == {"loading": "Others."}


def test_a_missing_file_has_no_tables(tmp_path: Path):
    assert speed_table.read(tmp_path / "table.md", SECTIONS) == {}


@pytest.fixture
def peer(tmp_path: Path) -> Path:
    """A program with llama-bench's options that logs the times at which it ran."""
    script = tmp_path / "peer"
    script.write_text(
        f"#!{sys.executable}\n"
        + textwrap.dedent(
            f"""
            import json, sys, time
            depths = sys.argv[sys.argv.index("-d") + 1].split(",")
            for depth in depths:
                for _ in range(20):
                    time.sleep(0.01)
                    with open({str(tmp_path / "moments")!r}, "a") as moments:
                        moments.write(str(time.monotonic()) + "\\n")
                print(json.dumps({{"avg_ts": 1 + int(depth), "n_depth": int(depth)}}), flush=True)
            """
        ),
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script


@pytest.mark.skipif(os.name != "posix", reason="holding a process between runs needs SIGSTOP")
def test_llama_bench_is_suspended_between_its_runs(peer: Path, tmp_path: Path):
    settings = Settings(threads=1, generated=4, depth=8)
    with peer_runs.paused_llama_bench(peer, Path("model"), settings, [8, 0, 8]) as decode:
        speeds = [decode().decode]
        stopped = time.monotonic()
        time.sleep(0.3)
        resumed = time.monotonic()
        speeds += [decode().decode, decode().decode]
        with pytest.raises(Missing, match="ended before its last run"):
            decode()
    assert speeds == [9.0, 1.0, 9.0]
    moments = [float(line) for line in (tmp_path / "moments").read_text(encoding="utf-8").split()]
    # It may log a time between printing its line and the signal that stops it.
    assert not [moment for moment in moments if stopped + 0.1 < moment < resumed]


@pytest.mark.skipif(os.name != "posix", reason="holding a process between runs needs SIGSTOP")
def test_a_missing_peer_program_raises_missing(tmp_path: Path):
    runs = peer_runs.paused_llama_bench(tmp_path / "no", Path("model"), Settings(threads=1), [0])
    with pytest.raises(Missing, match="was not found"), runs:
        pass


@pytest.mark.skipif(os.name != "posix", reason="a script is a program by its first line")
@pytest.mark.parametrize("depth", [0, 8])
def test_a_peer_without_the_depth_option_runs_at_depth_zero(tmp_path: Path, depth: int):
    script = tmp_path / "peer"
    rows = '[{"n_prompt": 512, "avg_ts": 7}, {"n_prompt": 0, "avg_ts": %d}]'
    code = f"print({rows!r} % (int(sys.argv[sys.argv.index('-d') + 1]) if '-d' in sys.argv else 5))"
    script.write_text(f"#!{sys.executable}\nimport sys\n{code}\n", encoding="utf-8")
    script.chmod(0o755)
    speed = peer_runs.run_llama_bench(script, Path("model"), Settings(threads=1, depth=depth))
    assert (speed.prefill, speed.decode) == (7, depth or 5)
