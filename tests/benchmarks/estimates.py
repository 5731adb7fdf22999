"""Predicted prefill times beside measured ones, at the first and the third start of the app.

Each start is a process of its own; the starts of one model share an empty data folder. A start asks
for the estimates of all prompts first, as the window does for an opened conversation, and then
measures each prompt `REPEATS` times; `part cached` asks while the first tokens are in the session.
The aim: every prediction within a factor of 1.5 of the median.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import astuple, dataclass
from datetime import date
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).parents[2] / "packaging"))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[2]))

import fetch
from engine import (
    Chat,
    Failed,
    Finished,
    Restore,
    Role,
    Sampling,
    SnapshotLoaded,
    Turn,
    starter_path,
)
from engine_bench import Bench

TABLE = Path(__file__).with_suffix(".md")
CONTEXT = 8_448
LENGTHS = (64, 128, 256, 512, 1_024, 1_536, 2_048, 3_072, 4_096, 8_192)
PART_CACHED = ((512, 64), (1_024, 512), (4_096, 1_024))  # cached tokens, tokens to process
REPEATS = 3
STARTS = (1, 2, 3)
REPORTED = (1, 3)
FACTOR = 1.5
_WORDS = ["the", "sea", "and", "a", "hill", "with", "old", "trees", "by", "the", "long", "way"]


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt of one start; times in seconds."""

    start: int
    cached: int
    tokens: int
    predicted: float
    measured: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Predicted over the median of the measured."""
        return self.predicted / statistics.median(self.measured)


class Measured(Bench):
    """An engine with one model; every prompt begins differently, so that none is cached."""

    def __init__(self, model: Path) -> None:
        super().__init__()
        self._requests = itertools.count(1)
        self.load(model, context=CONTEXT, request=next(self._requests))

    def turns(self, tokens: int, first: str) -> tuple[Turn, ...]:
        """A conversation of about this many tokens."""
        words = itertools.islice(itertools.cycle(_WORDS), max(tokens - 27, 1))
        return (Turn(Role.USER, " ".join([first, *words])),)

    def estimate(self, turns: tuple[Turn, ...]) -> tuple[int, int, float]:
        """Cached tokens, those to process, and the predicted seconds."""
        request = next(self._requests)
        self.send(request, Restore(turns, "none"))
        *_, loaded = self.until(SnapshotLoaded, Failed)
        assert isinstance(loaded, SnapshotLoaded), loaded
        ready, total = loaded.ready_tokens, loaded.total_tokens
        return ready, total - ready, loaded.remaining_prefill_seconds

    def measure(self, turns: tuple[Turn, ...]) -> float:
        """Seconds of prefill."""
        request = next(self._requests)
        self.send(request, Chat(turns, Sampling(temperature=0), 1))
        *_, last = self.until(Finished, Failed)
        assert isinstance(last, Finished), last
        return last.prefill_seconds


def one_start(model: Path, start: int) -> list[Row]:
    """All prompts of one start; in a process of its own."""
    bench = Measured(model)
    predicted = [bench.estimate(bench.turns(length, "0")) for length in LENGTHS]
    rows: list[Row] = []
    for length, (cached, tokens, seconds) in zip(LENGTHS, predicted, strict=True):
        measured = [bench.measure(bench.turns(length, f"{turn}")) for turn in range(REPEATS)]
        rows.append(Row(start, cached, tokens, seconds, tuple(measured)))
    for before, after in PART_CACHED:
        measured, found = [], (0, 0, 0.0)
        for turn in range(REPEATS):
            bench.measure(bench.turns(before, f"{turn}"))
            found = bench.estimate(bench.turns(before + after, f"{turn}"))
            measured.append(bench.measure(bench.turns(before + after, f"{turn}")))
        rows.append(Row(start, *found, tuple(measured)))
    bench.engine.stop()
    return rows


def measure(model: Path) -> list[Row]:
    """The starts of one model, one after another."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as home:
        for start in STARTS:
            done = subprocess.run(
                [sys.executable, __file__, "--start", str(start), str(model)],
                capture_output=True,
                text=True,
                check=False,
                env=os.environ | {"TOKONOMA_HOME": home},
            )
            if done.returncode:
                raise SystemExit(f"start {start} of {model.stem} failed:\n{done.stderr}")
            found = [Row(*fields) for fields in json.loads(done.stdout)]
            rows += [row for row in found if start in REPORTED]
            for row in found:
                print(f"{model.stem:<32} {_line(row)}", flush=True)
    return rows


def _line(row: Row) -> str:
    median = statistics.median(row.measured)
    return (
        f"| {row.start} | {row.cached:,} | {row.tokens:,} | {row.predicted:.3f} | {median:.3f} "
        f"| {min(row.measured):.3f} to {max(row.measured):.3f} | {row.ratio:.2f} |"
    )


def write(tables: dict[str, list[Row]], load: float) -> None:
    """Keep the tables beside this file."""
    lines = [
        "# Prefill time, predicted and measured",
        "",
        f"{date.today().isoformat()}; {os.cpu_count()} cores, other load on the machine at the "
        f"beginning: {load:.1f}. Written by `packaging/dev.py bench estimates`. Seconds; the ratio is "
        f"predicted over the median of {REPEATS} measured. A start is a new process; all its "
        "estimates are made before its first measurement, except for those part cached.",
    ]
    for model, rows in tables.items():
        lines += [
            "",
            f"## {model}",
            "",
            "| Start | Cached | Tokens to process | Predicted | Measured | Range | Ratio |",
            "|---:|---:|---:|---:|---:|---:|---:|",
            *map(_line, rows),
        ]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Measure the two real models, or one start of the one given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--start", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.start:
        print(json.dumps([astuple(row) for row in one_start(options.models[0], options.start)]))
        return 0
    load = os.getloadavg()[0]
    models = options.models or [
        path for path in (starter_path(), fetch.gemma().path) if path.is_file()
    ]
    tables = {model.stem: measure(model) for model in models}
    if not options.models:
        write(tables, load)
    outside = [
        row for rows in tables.values() for row in rows if not 1 / FACTOR <= row.ratio <= FACTOR
    ]
    print(f"{len(outside)} predictions off by more than a factor of {FACTOR}")
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())
