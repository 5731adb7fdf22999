"""Our speed on a processor beside llama.cpp's: the same files, the same threads, in turn.

Every pair is one short run of ours and one of theirs, A B A B, so that a noisy machine favours
neither; a table shows medians, ranges, and the median of the ratios of pairs. The whole takes
hours, so what was measured is kept in build/bench/cpu.json, sections and rows can be run one at a
time, and cpu.md is written anew from all there is.

The models are files in a folder: two real ones, and others of real shapes with random weights,
which say as much about speed. A file or program that is missing is named and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

import load_runs
import peer_runs
from peer_runs import Missing, Settings, Speed

TABLE = Path(__file__).with_suffix(".md")
ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "bench" / "cpu.json"
PEER = ROOT / "build" / "peer" / "bin" / "llama-bench"
DEPTH = 4_096  # tokens


@dataclass(frozen=True, slots=True)
class Row:
    """One model file, and how many times as fast as llama.cpp ours is to be."""

    words: str
    file: str
    decode: float
    prefill: float
    depth: float = 0.0  # decode behind 4,096 tokens; 0: what it is at depth 0
    prompt: int = 512  # tokens; fewer where llama.cpp would need minutes for so many


ROWS = (
    Row("Qwen3-1.7B shape, Q1_0", "qwen3-1.7b-Q1_0.gguf", 3.0, 5.0, 3.0),
    Row("Qwen3-4B shape, Q1_0", "qwen3-4b-Q1_0.gguf", 3.0, 5.0),
    Row("Qwen3-8B shape, Q1_0", "qwen3-8b-Q1_0.gguf", 3.0, 5.0),
    Row("Qwen3-1.7B shape, TQ2_0", "qwen3-1.7b-TQ2_0.gguf", 1.8, 3.0),
    Row("Qwen3-1.7B shape, Q2_0", "qwen3-1.7b-Q2_0.gguf", 20.0, 60.0, prompt=64),
    Row("Qwen3-1.7B shape, Q4_0", "qwen3-1.7b-Q4_0.gguf", 1.05, 1.4),
    Row("Qwen3-1.7B shape, Q4_K", "qwen3-1.7b-Q4_K.gguf", 1.0, 1.7),
    Row("Qwen3-1.7B shape, Q8_0", "qwen3-1.7b-Q8_0.gguf", 1.4, 2.5),
    Row("SmolLM2-135M Q4_1 (real)", "SmolLM2-135M-Instruct.Q4_1.gguf", 1.3, 4.0),
    Row("gemma-3-270m Q4_K_M (real)", "gemma-3-270m-q4_k_m.gguf", 1.6, 2.0),
)
SECTIONS = {
    "two threads": Settings(threads=2),
    "one thread": Settings(threads=1),
    "two threads, AVX2": Settings(threads=2, isa="avx2"),
    "two threads, depth 4096": Settings(threads=2, prompt=0, generated=64, depth=DEPTH),
}
BUSY, MEMORY = "busy core", "memory"
BUSY_ROW, MEMORY_ROW = ROWS[0], ROWS[2]
BUSY_RUNS = {  # one core is kept busy by another process meanwhile
    "ours, 1 thread": Settings(threads=1, prompt=0, generated=64),
    "ours, 2 threads": Settings(threads=2, prompt=0, generated=64),
}

Kept = dict[str, dict[str, Any]]  # section to row to what was measured


# --- measuring ----------------------------------------------------------------------------------


def measure(
    model: Path, settings: Settings, peers: dict[str, Path], pairs: int
) -> dict[str, list[Speed]]:
    """Runs of ours and of every peer in turn, by name; ours is called "ours"."""
    runs = {"ours": partial(peer_runs.ours, model, settings)}
    for name, program in peers.items():
        runs[name] = partial(peer_runs.theirs, program, model, settings)
    return _in_turn(runs, pairs)


def measure_busy(model: Path, peers: dict[str, Path], pairs: int) -> dict[str, list[Speed]]:
    """Decoding while another process keeps one core busy."""
    runs = {name: partial(peer_runs.ours, model, settings) for name, settings in BUSY_RUNS.items()}
    two = BUSY_RUNS["ours, 2 threads"]
    for name, program in peers.items():
        runs[f"{name}, 2 threads"] = partial(peer_runs.theirs, program, model, two)
    with peer_runs.busy_core():
        return _in_turn(runs, pairs)


def _in_turn(runs: Mapping[str, Callable[[], Speed]], rounds: int) -> dict[str, list[Speed]]:
    found: dict[str, list[Speed]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            found[name].append(run())
            speed = found[name][-1]
            print(
                f"    {name}: {speed.decode:.1f} tokens/s, prefill {speed.prefill:.0f}, "
                f"others {speed.others:.2f}",
                flush=True,
            )
    return found


def run(
    sections: Sequence[str],
    rows: Sequence[Row],
    find: Callable[[Row], Path],
    how: argparse.Namespace,
) -> bool:
    """Measure and keep one thing after the other; whether nothing was missing."""
    whole = True
    peers: dict[str, Path] = how.peers
    for section in sections:
        settings = SECTIONS.get(section)
        chosen = rows if settings else [BUSY_ROW] if section == BUSY else [MEMORY_ROW]
        for row in chosen:
            print(f"  {section}: {row.words}", flush=True)
            try:
                if settings is not None:
                    settings = replace(
                        settings,
                        generated=how.generated or settings.generated,
                        prompt=min(settings.prompt, row.prompt),
                    )
                    found: Any = measure(find(row), settings, peers, how.pairs)
                elif section == BUSY:
                    found = measure_busy(find(row), peers, how.pairs)
                else:
                    found = load_runs.measure(find(row))
            except Missing as missing:
                print(f"    left out: {missing}", flush=True)
                whole = False
                continue
            _keep(section, row, found, how.kept)
    return whole


def _keep(section: str, row: Row, found: Any, path: Path) -> None:
    kept = read(path)
    if isinstance(found, dict):
        found = {name: [asdict(speed) for speed in speeds] for name, speeds in found.items()}
    else:
        found = asdict(found)
    entry = {"date": date.today().isoformat(), "found": found}
    kept.setdefault(section, {})[row.file] = entry
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1), encoding="utf-8")


def read(path: Path) -> Kept:
    """All that was measured so far."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


# --- the table ----------------------------------------------------------------------------------


def written(kept: Kept) -> str:
    """cpu.md of all that was measured."""
    parts = [f"# Speed on a processor\n\n{machine(kept)}\n"]
    for section in SECTIONS:
        if entries := kept.get(section):
            parts.append(_section(section, entries, kept))
    if entries := kept.get(BUSY):
        parts.append(_busy_section(entries))
    if entries := kept.get(MEMORY):
        parts.append(_memory_section(entries))
    return "\n".join(parts)


def machine(kept: Kept) -> str:
    """With what, and when, the figures were measured."""
    import torch

    versions: dict[str, set[str]] = {}
    for section in SECTIONS:
        for entry in kept.get(section, {}).values():
            for name, speeds in entry["found"].items():
                versions.setdefault(name, set()).update(speed["version"] for speed in speeds)
    days = sorted(entry["date"] for entries in kept.values() for entry in entries.values())
    when = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "never"
    programs = "; ".join(f"{name}: {', '.join(sorted(of))}" for name, of in versions.items())
    return (
        f"Measured {when} on {processor()}, {os.cpu_count()} cores, {platform.system()} "
        f"{platform.release()}; Python {platform.python_version()}, torch {torch.__version__}. "
        f"{programs}. Tokens a second, median (range) of runs in turn; ratios are medians of those "
        "of pairs. Caches, ours / theirs: each side holds keys and values as it does unasked. Written by `packaging/dev.py bench cpu`."
    )


def processor() -> str:
    """The processor's own name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return (named or [platform.processor() or platform.machine()])[0].strip()


def _section(section: str, entries: dict[str, Any], kept: Kept) -> str:
    lines = [
        f"## {section.capitalize()}\n",
        "| File | Of | Ours | Theirs | Ratio | Wanted | GB/s | Of the bandwidth | Others | Caches |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in ROWS:
        if row.file not in entries:
            continue
        found = entries[row.file]["found"]
        for peer in [name for name in found if name != "ours"] or [""]:
            for what in ("decode", "prefill"):
                if found["ours"][0][what]:
                    wanted = floor(section, row, what, kept) if peer in ("", "llama.cpp") else 0.0
                    lines.append(_line(row, what, found, peer, wanted))
    return "\n".join(lines) + "\n"


def floor(section: str, row: Row, what: str, kept: Kept) -> float:
    """The ratio that is wanted; 0 where none is stated."""
    if SECTIONS[section].isa:
        return 0.0
    if not SECTIONS[section].depth:
        return row.decode if what == "decode" else row.prefill
    if row.depth:
        return row.depth
    at_start = kept.get("two threads", {}).get(row.file)
    return ratio(at_start["found"], "decode") if at_start else 0.0


def ratio(found: dict[str, list[dict[str, float]]], what: str, peer: str = "llama.cpp") -> float:
    """The median of ours / theirs over the pairs; 0 where there is no such peer."""
    pairs = zip(found["ours"], found.get(peer, []), strict=False)
    return statistics.median([mine[what] / its[what] for mine, its in pairs] or [0.0])


def _line(
    row: Row, what: str, found: dict[str, list[dict[str, float]]], peer: str, wanted: float
) -> str:
    mine, its = found["ours"], found.get(peer, [])
    times = [a[what] / b[what] for a, b in zip(mine, its, strict=False)]
    read = statistics.median(speed["read"] for speed in mine)
    share = statistics.median(speed["read"] / speed["bandwidth"] for speed in mine)
    others = max(speed["others"] for speed in (*mine, *its))
    of_memory = f"{read:.1f} | {share:.0%}" if what == "decode" else " | "
    missed = wanted and times and statistics.median(times) < wanted
    return (
        f"| {row.words} | {what}{f', {peer}' if peer not in ('', 'llama.cpp') else ''} "
        f"| {spread([speed[what] for speed in mine])} | {spread([speed[what] for speed in its])} "
        f"| {spread(times, 2)}{' **missed**' if missed else ''} "
        f"| {f'{wanted:.2f}' if wanted else ''} | {of_memory} | {others:.2f} "
        f"| {_caches(mine)} / {_caches(its)} |"
    )


def _caches(speeds: Sequence[dict[str, Any]]) -> str:
    """What keys and values were held as; runs that do not say so were made with halves."""
    return ", ".join(sorted({speed.get("cache", "f16") for speed in speeds}))


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Median and range; empty where nothing was measured."""
    if not values:
        return ""
    low, high = min(values), max(values)
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def _busy_section(entries: dict[str, Any]) -> str:
    ((_, entry),) = entries.items()
    found: dict[str, list[dict[str, float]]] = entry["found"]
    lines = [
        "## One core kept busy by another process\n",
        f"{BUSY_ROW.words}, decode.\n",
        "| Run | Tokens a second |",
        "|---|---:|",
    ]
    lines += [f"| {name} | {spread([one['decode'] for one in of])} |" for name, of in found.items()]
    return "\n".join(lines) + "\n"


def _memory_section(entries: dict[str, Any]) -> str:
    ((_, entry),) = entries.items()
    lines = [f"## Loading\n\n{MEMORY_ROW.words}.\n", "| | |", "|---|---:|"]
    lines += [f"| {what} | {value} |" for what, value in load_runs.words(entry["found"])]
    return "\n".join(lines) + "\n"


def missed(kept: Kept) -> list[str]:
    """What was measured and is below what is wanted of it."""
    found: list[str] = []
    for section in SECTIONS:
        entries = kept.get(section, {})
        for row in (row for row in ROWS if row.file in entries):
            speeds = entries[row.file]["found"]
            for what in ("decode", "prefill"):
                wanted = floor(section, row, what, kept)
                if speeds["ours"][0][what] and "llama.cpp" in speeds:
                    reached = ratio(speeds, what)
                    if reached < wanted:
                        words = f"{section}, {row.words}, {what}"
                        found.append(f"{words}: {reached:.2f}, not {wanted:.2f}")
    return found


def _places(folder: Path | None) -> Callable[[Row], Path]:
    """Where each row's file is: in the folder, or where the app's own models are."""

    def find(row: Row) -> Path:
        folders = [folder] if folder else []
        if shelf := os.environ.get("TOKONOMA_MODELS"):
            folders.append(Path(shelf))
        for place in (*(place / row.file for place in folders), *load_runs.own_models()):
            if place.name == row.file and place.is_file():
                return place
        raise Missing(f"{row.file} is in none of {', '.join(map(str, folders)) or 'no folders'}.")

    return find


def _peers(named: Sequence[str]) -> dict[str, Path]:
    pairs = [name.partition("=")[::2] for name in named]
    return {name: Path(path) for name, path in pairs}


def main() -> int:
    """Measure what is asked for, and write the table of all that was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, help="the folder of model files")
    default = f"llama.cpp={os.environ.get('LLAMA_BENCH', PEER)}"
    parser.add_argument(
        "--peer", action="append", help=f"NAME=PATH of a llama-bench (default: {default})"
    )
    parser.add_argument("-r", dest="pairs", type=int, default=5, help="pairs")
    parser.add_argument("-n", dest="generated", type=int, default=0, help="generated tokens")
    sections = [*SECTIONS, BUSY, MEMORY]
    parser.add_argument("--section", action="append", choices=sections, help="only these")
    parser.add_argument("--row", action="append", help="only files with this word in their names")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where figures are kept")
    parser.add_argument("--table", type=Path, default=TABLE, help="the table to write")
    how = parser.parse_args()
    how.peers = _peers(how.peer or [default])
    # A whole word: Q2_0 is not TQ2_0.
    words = [re.compile(rf"(?<!\w){re.escape(word)}(?!\w)") for word in how.row or ()]
    rows = [row for row in ROWS if not words or any(word.search(row.file) for word in words)]
    whole = run(how.section or sections, rows, _places(how.models), how)
    kept = read(how.kept)
    if kept:
        how.table.write_text(written(kept), encoding="utf-8")
    for line in missed(kept):
        print(f"below: {line}")
    return 0 if whole and not missed(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
