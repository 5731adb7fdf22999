"""Short runs of our engine and of llama-bench on the same file, and how busy the machine was meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


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


def ours(model: Path, settings: Settings) -> Speed:
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


def theirs(program: Path, model: Path, settings: Settings) -> Speed:
    """One run of llama-bench, or of a program that is called like it; raises Missing."""
    line = [str(program), "-m", str(model), *_options(settings, settings.prompt), "-o", "json"]
    # What suits ours in tests, waiting threads that sleep, would cripple theirs.
    own = {name for name in os.environ if name.startswith(("OMP_", "GOMP_", "KMP_"))}
    rows, others = _run(line, {}, without=own)
    speeds = {"prefill" if row["n_prompt"] else "decode": row["avg_ts"] for row in rows}
    version = f"build {rows[0].get('build_number', '?')} ({rows[0].get('build_commit', '?')})"
    cache = rows[0].get("type_k", "f16")
    return Speed(speeds.get("prefill", 0.0), speeds["decode"], others, version=version, cache=cache)


@contextmanager
def busy_core() -> Iterator[None]:
    """While open, another process keeps one core busy."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinning:
        try:
            yield
        finally:
            spinning.kill()


def _options(settings: Settings, prompt: int) -> list[str]:
    numbers = {
        "-p": prompt,
        "-n": settings.generated,
        "-d": settings.depth,
        "-t": settings.threads,
        "-r": 1,
    }
    return [part for flag, number in numbers.items() for part in (flag, str(number))]


def _run(
    line: list[str], environment: Mapping[str, str], without: Collection[str] = ()
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


def _children_seconds() -> float:
    """Seconds the programs that were run here have worked."""
    times = os.times()
    return times.children_user + times.children_system
