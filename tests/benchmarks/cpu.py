"""Our speed on a processor beside llama.cpp's: the same files, the same threads, in turn.

Every pair is one short run of ours and one of theirs, A B A B, so that a noisy machine favours
neither; a table shows medians, ranges, and the median of the ratios of pairs. Behind 4,096 tokens
each pair is followed by one at depth 0, because what is asked there is the ratio of the same hour.
The whole takes hours, so sections and rows can be run one at a time: cpu.md keeps all other lines,
and the tables of other machines.

The models are files in a folder: two real ones, and others of real shapes with random weights,
which say as much about speed. A file or program that is missing is named and left out. `--peer`
puts other engines that have a llama-bench beside llama.cpp, such as ik_llama.cpp: every one is to be
slower than ours.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import load_runs
import peer_runs
import speed_table
from peer_runs import Missing, Settings, Speed
from speed_table import Table

TABLE = Path(__file__).with_suffix(".md")
ROOT = Path(__file__).parents[2]
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
BUSY, MEMORY = "one core kept busy by another process", "loading"
BUSY_ROW, MEMORY_ROW = ROWS[0], ROWS[2]
BUSY_SETTINGS = Settings(threads=2, prompt=0, generated=64)
BUSY_WANTED, BUSY_WANTED_OF_ONE = 5.0, 0.9  # beside llama.cpp, and beside ours at one thread
OTHER_WANTED = 1.0  # beside any peer but llama.cpp

Runs = dict[str, list[Speed]]  # by the name of who ran; ours is called "ours"
HEAD = """# Speed on a processor

Tokens a second, median (range) of runs in turn; ratios are medians of those of pairs. Caches, ours
/ theirs: each side holds keys and values as it does unasked. Others: processors that other
programs kept busy, at most. Theirs is llama.cpp where no other engine is named; "of one thread" is
beside ours at one thread, under the same load. The bandwidth is read before and after each decode;
Intel's rows had it once, in another way.
Written by `packaging/dev.py bench cpu`.
"""
AT_START = ", depth 0"  # what is added to a name for runs in turn with those at a depth
OF_ONE = ", of one thread"  # and for those with one thread


# --- measuring ----------------------------------------------------------------------------------


def measure(model: Path, settings: Settings, peers: Mapping[str, Path], pairs: int) -> Runs:
    """Runs of ours and of every peer in turn."""
    runs = {"ours": partial(peer_runs.run_engine_bench, model, settings)}
    for name, program in peers.items():
        runs[name] = partial(peer_runs.run_llama_bench, program, model, settings)
    return _in_turn(runs, pairs)


def measure_behind(model: Path, settings: Settings, peers: Mapping[str, Path], pairs: int) -> Runs:
    """Decoding behind `settings.depth` tokens and at depth 0, of ours and of every peer in turn."""
    start = replace(settings, depth=0)
    depths = [settings.depth, start.depth] * pairs
    mine = {"": partial(peer_runs.run_engine_bench, model, settings)}
    mine[AT_START] = partial(peer_runs.run_engine_bench, model, start)
    with ExitStack() as stack:
        its = {
            name: stack.enter_context(
                peer_runs.paused_llama_bench(program, model, settings, depths)
            )
            for name, program in peers.items()
        }
        # A peer that stands still goes from one depth to the other by itself, in this order. It
        # reads its prompt before the first, so ours has its turn after that, not minutes before.
        runs: dict[str, Callable[[], Speed]] = {}
        for where, run in mine.items():
            runs |= {f"{name}{where}": decode for name, decode in its.items()}
            runs[f"ours{where}"] = run
        return _in_turn(runs, pairs)


def measure_busy(model: Path, peers: Mapping[str, Path], pairs: int) -> Runs:
    """Decoding while another process keeps one core busy: of ours also with one thread."""
    one = replace(BUSY_SETTINGS, threads=1)
    runs = {
        f"ours{OF_ONE}": partial(peer_runs.run_engine_bench, model, one),
        "ours": partial(peer_runs.run_engine_bench, model, BUSY_SETTINGS),
    }
    for name, program in peers.items():
        runs[name] = partial(peer_runs.run_llama_bench, program, model, BUSY_SETTINGS)
    with peer_runs.busy_core():
        return _in_turn(runs, pairs)


def _in_turn(runs: Mapping[str, Callable[[], Speed]], rounds: int) -> Runs:
    found: Runs = {name: [] for name in runs}
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
    """Measure one thing after the other, and write the table after each; whether none was missing."""
    whole = True
    for section in sections:
        chosen = {BUSY: [BUSY_ROW], MEMORY: [MEMORY_ROW]}.get(section, rows)
        for row in chosen:
            print(f"  {section}: {row.words}", flush=True)
            try:
                put = _measured(section, row, find(row), how)
            except Missing as missing:
                print(f"    left out: {missing}", flush=True)
                whole = False
                continue
            tables = kept(how.table)
            put(tables.setdefault(machine(), Table()))
            words = [row.words for row in ROWS]
            speed_table.write(how.table, HEAD, tables, [*SECTIONS, BUSY, MEMORY], words)
    return whole


def _measured(
    section: str, row: Row, model: Path, how: argparse.Namespace
) -> Callable[[Table], None]:
    """What to do to the table with what was found of a row."""
    if section == MEMORY:
        text = _memory_text(asdict(load_runs.measure(model)))
        return lambda table: table.texts.update({section: text})
    if section == BUSY:
        runs = measure_busy(model, how.peers, how.pairs)
        lines = busy_lines(row, runs)
    else:
        usual = SECTIONS[section]
        settings = replace(
            usual,
            generated=how.generated or usual.generated,
            prompt=min(usual.prompt, row.prompt),
        )
        measure_it = measure_behind if settings.depth else measure
        runs = measure_it(model, settings, how.peers, how.pairs)
        lines = lines_of(row, settings, runs)

    def put(table: Table) -> None:
        for line in lines:
            table.put(section, line)
        table.versions = versions(runs)

    return put


# --- the table ----------------------------------------------------------------------------------


def lines_of(row: Row, settings: Settings, found: Runs) -> list[speed_table.Line]:
    """Lines of the table, one for each peer and each speed that was measured."""
    today = date.today().isoformat()
    starts = ["", AT_START] if settings.depth else [""]
    peers = [name for name in found if name != "ours" and not name.endswith(AT_START)] or [""]
    lines: list[speed_table.Line] = []
    for peer in peers:
        known = f", {peer}" if peer not in ("", "llama.cpp") else ""
        for where in starts:
            mine, its = found[f"ours{where}"], found.get(peer + where, [])
            for what in ("decode", "prefill"):
                if getattr(mine[0], what):
                    wanted = 0.0 if where else floor(row, settings, what, found, peer)
                    of = f"{what}{where}{known}"
                    lines.append(speed_table.line(row.words, of, mine, its, wanted, today))
    return lines


def busy_lines(row: Row, found: Runs) -> list[speed_table.Line]:
    """Lines of the table under a load: beside each peer, and beside ours at one thread."""
    today, mine = date.today().isoformat(), found["ours"]
    wanted = {"llama.cpp": BUSY_WANTED, f"ours{OF_ONE}": BUSY_WANTED_OF_ONE}
    of = {"llama.cpp": "decode", f"ours{OF_ONE}": f"decode{OF_ONE}"}
    return [
        speed_table.line(
            row.words, of.get(name, f"decode, {name}"), mine, its, wanted.get(name, 0.0), today
        )
        for name, its in found.items()
        if name != "ours"
    ]


def floor(row: Row, settings: Settings, what: str, found: Runs, peer: str) -> float:
    """The ratio to a peer that is wanted; 0 where none is stated."""
    if settings.isa:
        return 0.0
    if peer not in ("", "llama.cpp"):
        return OTHER_WANTED
    if not settings.depth:
        return row.decode if what == "decode" else row.prefill
    mine, its = (found.get(f"{name}{AT_START}", []) for name in ("ours", "llama.cpp"))
    return row.depth or statistics.median(speed_table.ratios(mine, its, what) or [0.0])


def kept(path: Path) -> dict[str, Table]:
    """The tables so far, by machine."""
    return speed_table.read(path, [*SECTIONS, BUSY, MEMORY])


def machine() -> str:
    """This machine, in words that tell it from others."""
    return f"{processor()}, {os.cpu_count()} cores, {platform.system()}"


def versions(found: Runs) -> str:
    """With what the last figures were measured."""
    import torch

    said = [f"Python {platform.python_version()}", f"torch {torch.__version__}"]
    of: dict[str, set[str]] = {}  # by who ran, whatever the run was of
    for name, speeds in found.items():
        of.setdefault(name.partition(",")[0], set()).update(speed.version for speed in speeds)
    said += [f"{name}: {', '.join(sorted(those))}" for name, those in of.items()]
    return f"Last run with {'; '.join(said)}."


def processor() -> str:
    """The processor's own name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return (named or [platform.processor() or platform.machine()])[0].strip()


def _memory_text(found: dict[str, float]) -> str:
    lines = [f"{MEMORY_ROW.words}.\n", "| | |", "|---|---:|"]
    lines += [f"| {what} | {value} |" for what, value in load_runs.table_rows(found)]
    return "\n".join(lines)


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
    parser.add_argument("--table", type=Path, default=TABLE, help="the table to write")
    how = parser.parse_args()
    how.peers = _peers(how.peer or [default])
    # A whole word: Q2_0 is not TQ2_0.
    words = [re.compile(rf"(?<!\w){re.escape(word)}(?!\w)") for word in how.row or ()]
    rows = [row for row in ROWS if not words or any(word.search(row.file) for word in words)]
    if not rows:
        files = ", ".join(row.file for row in ROWS)
        parser.error(f"no row has a file with {' or '.join(how.row)} in its name: {files}")
    whole = run(how.section or sections, rows, _places(how.models), how)
    missed = kept(how.table).get(machine(), Table()).missed()
    for line in missed:
        print(f"below: {line}")
    return 0 if whole and not missed else 1


if __name__ == "__main__":
    sys.exit(main())
