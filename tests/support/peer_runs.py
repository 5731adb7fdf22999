"""Runs the engine's bench and llama-bench on one model, and measures CPU use by other programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class Missing(Exception):
    """A program or a file that a run needs was not found, or the program failed."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Parameters of a benchmark run, equal for the engine and llama-bench."""

    threads: int
    prompt: int = 512  # tokens to prefill; 0: only decode
    generated: int = 128  # tokens to decode
    depth: int = 0  # tokens in the KV cache before prefill and decode
    isa: str = ""  # instruction set the engine's kernels are forced to; "": the best


@dataclass(frozen=True, slots=True)
class Speed:
    """Result of one run, in tokens per second."""

    prefill: float  # 0: not measured
    decode: float
    others: float  # CPUs that other programs kept busy during the run
    read: float = 0.0  # GB/s that decoding read; 0: not reported
    bandwidth: float = 0.0  # GB/s of memory bandwidth
    version: str = ""  # of the program
    cache: str = "f16"  # type of the KV cache, each program's default


def run_engine_bench(model: Path, settings: Settings) -> Speed:
    """One run of `python -m engine bench`; raises Missing with its last line when it failed."""
    line = [sys.executable, "-m", "engine", "bench", "-m", str(model)]
    line += _options(settings, max(settings.prompt, 1))
    isa = {"KERNELS_ISA": settings.isa} if settings.isa else {}
    result, others = _run([*line, "--json"], {"OMP_WAIT_POLICY": "PASSIVE"} | isa)
    return Speed(
        result["prefill_tokens_per_second"] if settings.prompt else 0.0,
        result["decode_tokens_per_second"],
        others,
        result["gigabytes_per_second"],
        result["read_bandwidth_gigabytes_per_second"],
        result["kernels"],
        result["cache"],
    )


def run_llama_bench(program: Path, model: Path, settings: Settings) -> Speed:
    """One run of llama-bench, or of a program with its options; raises Missing."""
    line = [str(program), "-m", str(model), *_options(settings, settings.prompt), "-o", "json"]
    rows, others = _run(line, {}, without=_openmp_settings())
    speeds = {"prefill" if row["n_prompt"] else "decode": row["avg_ts"] for row in rows}
    return _llama_bench_speed(speeds.get("prefill", 0.0), speeds["decode"], others, rows[0])


@contextmanager
def paused_llama_bench(
    program: Path, model: Path, settings: Settings, depths: Sequence[int]
) -> Iterator[Callable[[], Speed]]:
    """One llama-bench process that decodes at each depth in turn; each call runs the next depth.

    It prefills the prompt of a depth once and keeps that cache until a depth other than 0 follows,
    where a new process would prefill it again (20 minutes for some files). Between calls the
    process is suspended, so that other programs can be measured in turn. Needs a system with
    SIGSTOP. Raises Missing, here or from a call, as `run_llama_bench` does.
    """
    if not hasattr(signal, "SIGSTOP"):
        raise Missing("this system has no SIGSTOP to suspend a process between its runs.")
    options = _options(replace(settings, depth=0), 0)
    line = [str(program), "-m", str(model), *options, "-o", "jsonl"]
    line += ["-d", ",".join(map(str, depths))]
    try:
        process = subprocess.Popen(
            line,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={k: v for k, v in os.environ.items() if k not in _openmp_settings()},
        )
    except FileNotFoundError as error:
        raise Missing(f"{line[0]} was not found.") from error

    def decode() -> Speed:
        started, busy, own = time.monotonic(), _busy_seconds(), _seconds_of(process.pid)
        process.send_signal(signal.SIGCONT)
        line = process.stdout.readline() if process.stdout else ""
        # A run begins with an untimed warm-up token, so stopping here delays no timed token.
        process.send_signal(signal.SIGSTOP)
        if not line:
            raise Missing(f"{program.name} ended before its last run.")
        others = (_busy_seconds() - busy) - (_seconds_of(process.pid) - own)
        row = json.loads(line)
        share = max(others / (time.monotonic() - started), 0.0)
        return _llama_bench_speed(0.0, row["avg_ts"], share, row)

    with process:
        try:
            process.send_signal(signal.SIGSTOP)
            yield decode
        finally:
            process.kill()


def _llama_bench_speed(
    prefill: float, decode: float, others: float, row: Mapping[str, Any]
) -> Speed:
    version = f"build {row.get('build_number', '?')} ({row.get('build_commit', '?')})"
    cache = row.get("type_k", "f16")
    return Speed(prefill, decode, others, version=version, cache=cache)


def _openmp_settings() -> set[str]:
    """OpenMP variables to remove for llama-bench: passive waiting suits tests but slows it."""
    return {name for name in os.environ if name.startswith(("OMP_", "GOMP_", "KMP_"))}


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep one core busy with another process."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinning:
        try:
            yield
        finally:
            spinning.kill()


def _options(settings: Settings, prompt: int) -> list[str]:
    numbers = {"-p": prompt, "-n": settings.generated, "-t": settings.threads, "-r": 1}
    if settings.depth:  # ik_llama.cpp's llama-bench has no such option
        numbers["-d"] = settings.depth
    return [part for flag, number in numbers.items() for part in (flag, str(number))]


def _run(
    line: list[str], environment: dict[str, str], without: Collection[str] = ()
) -> tuple[Any, float]:
    """The JSON a program prints, and how many CPUs other programs used while it ran."""
    started, busy, own = time.monotonic(), _busy_seconds(), _children_seconds()
    try:
        done = subprocess.run(
            line,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env={k: v for k, v in os.environ.items() if k not in without} | environment,
        )
    except FileNotFoundError as error:
        raise Missing(f"{line[0]} was not found.") from error
    seconds = time.monotonic() - started
    if done.returncode:
        last = (done.stderr.strip() or "no error output").splitlines()[-1]
        raise Missing(f"{Path(line[0]).name} failed ({done.returncode}): {last}")
    others = (_busy_seconds() - busy) - (_children_seconds() - own)
    return json.loads(done.stdout), max(others / seconds, 0.0)


def _busy_seconds() -> float:
    """CPU seconds of the whole system, from /proc/stat; 0 where that does not exist."""
    try:
        fields = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, interrupts, soft, *_ = map(int, fields)
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


def _seconds_of(process: int) -> float:
    """CPU seconds of a process, from /proc; 0 where that does not exist or the process ended."""
    try:
        # Field 3 and on: they follow the name, which may contain spaces, in parentheses.
        fields = (
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _children_seconds() -> float:
    """CPU seconds of the child processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system
