"""Short runs of our engine and of llama-bench on the same file, and how busy the machine was meanwhile."""

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
    """A program or a file that a run needs is not there."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is run, for all sides alike."""

    threads: int
    prompt: int = 512  # tokens; 0: only decode
    generated: int = 128
    depth: int = 0  # tokens in the cache before either begins
    isa: str = ""  # instruction set that ours is forced to; "": the best


@dataclass(frozen=True, slots=True)
class Speed:
    """What one run came to, in tokens a second; prefill is 0 where there was none."""

    prefill: float
    decode: float
    others: float  # processors that other programs kept busy meanwhile
    read: float = 0.0  # GB/s that decoding read; 0: not said
    bandwidth: float = 0.0  # GB/s that can be read
    version: str = ""  # of the program
    cache: str = "f16"  # how keys and values are held, as each side does unasked


def run_engine_bench(model: Path, settings: Settings) -> Speed:
    """One run of `python -m engine bench`; raises Missing with what it said when it failed."""
    line = [sys.executable, "-m", "engine", "bench", "-m", str(model)]
    line += _options(settings, max(settings.prompt, 1))
    isa = {"KERNELS_ISA": settings.isa} if settings.isa else {}
    said, others = _run([*line, "--json"], {"OMP_WAIT_POLICY": "PASSIVE"} | isa)
    return Speed(
        said["prefill_tokens_per_second"] if settings.prompt else 0.0,
        said["decode_tokens_per_second"],
        others,
        said["gigabytes_per_second"],
        said["read_bandwidth_gigabytes_per_second"],
        said["kernels"],
        said["cache"],
    )


def run_llama_bench(program: Path, model: Path, settings: Settings) -> Speed:
    """One run of llama-bench, or of a program that is called like it; raises Missing."""
    line = [str(program), "-m", str(model), *_options(settings, settings.prompt), "-o", "json"]
    rows, others = _run(line, {}, without=_threading())
    speeds = {"prefill" if row["n_prompt"] else "decode": row["avg_ts"] for row in rows}
    return _their_speed(speeds.get("prefill", 0.0), speeds["decode"], others, rows[0])


@contextmanager
def paused_llama_bench(
    program: Path, model: Path, settings: Settings, depths: Sequence[int]
) -> Iterator[Callable[[], Speed]]:
    """A llama-bench that decodes behind one depth after the other; a call waits for the next.

    It reads the prompt of a depth once and keeps what it read for as long as no other depth but 0
    comes between, where a run of its own would read it again (20 minutes for some files). Between
    calls it stands still, so that other programs can be measured in turn. Needs a system with
    SIGSTOP. Raises Missing, here or from a call, as `run_llama_bench` does.
    """
    if not hasattr(signal, "SIGSTOP"):
        raise Missing("a system that can hold a process between its runs is not there.")
    options = _options(replace(settings, depth=0), 0)
    line = [str(program), "-m", str(model), *options, "-o", "jsonl"]
    line += ["-d", ",".join(map(str, depths))]
    try:
        process = subprocess.Popen(
            line,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={k: v for k, v in os.environ.items() if k not in _threading()},
        )
    except FileNotFoundError as error:
        raise Missing(f"{line[0]} is not there.") from error

    def decode() -> Speed:
        started, busy, own = time.monotonic(), _busy_seconds(), _seconds_of(process.pid)
        process.send_signal(signal.SIGCONT)
        said = process.stdout.readline() if process.stdout else ""
        # A run begins with a token that is not timed: what is stopped here is that at most.
        process.send_signal(signal.SIGSTOP)
        if not said:
            raise Missing(f"{program.name} ended before its last run.")
        others = (_busy_seconds() - busy) - (_seconds_of(process.pid) - own)
        row = json.loads(said)
        share = max(others / (time.monotonic() - started), 0.0)
        return _their_speed(0.0, row["avg_ts"], share, row)

    with process:
        try:
            process.send_signal(signal.SIGSTOP)
            yield decode
        finally:
            process.kill()


def _their_speed(prefill: float, decode: float, others: float, row: Mapping[str, Any]) -> Speed:
    version = f"build {row.get('build_number', '?')} ({row.get('build_commit', '?')})"
    cache = row.get("type_k", "f16")
    return Speed(prefill, decode, others, version=version, cache=cache)


def _threading() -> set[str]:
    """Settings of ours that would cripple theirs: waiting threads that sleep suit tests."""
    return {name for name in os.environ if name.startswith(("OMP_", "GOMP_", "KMP_"))}


@contextmanager
def busy_core() -> Iterator[None]:
    """While open, another process keeps one core busy."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinning:
        try:
            yield
        finally:
            spinning.kill()


def _options(settings: Settings, prompt: int) -> list[str]:
    numbers = {"-p": prompt, "-n": settings.generated, "-t": settings.threads, "-r": 1}
    if settings.depth:  # ik_llama.cpp's has no such option
        numbers["-d"] = settings.depth
    return [part for flag, number in numbers.items() for part in (flag, str(number))]


def _run(
    line: list[str], environment: dict[str, str], without: Collection[str] = ()
) -> tuple[Any, float]:
    """The JSON a program prints, and how many processors other programs used while it ran."""
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
        raise Missing(f"{line[0]} is not there.") from error
    seconds = time.monotonic() - started
    if done.returncode:
        last = (done.stderr.strip() or "no words").splitlines()[-1]
        raise Missing(f"{Path(line[0]).name} failed ({done.returncode}): {last}")
    others = (_busy_seconds() - busy) - (_children_seconds() - own)
    return json.loads(done.stdout), max(others / seconds, 0.0)


def _busy_seconds() -> float:
    """Seconds all processors together have worked; 0 where the system does not tell."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, interrupts, soft, *_ = map(int, fields)
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


def _seconds_of(process: int) -> float:
    """Seconds one process has worked; 0 where the system does not tell, or it has ended."""
    try:
        # What follows the name, which may hold spaces: field 3 and on.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _children_seconds() -> float:
    """Seconds the programs that were run here have worked."""
    times = os.times()
    return times.children_user + times.children_system
