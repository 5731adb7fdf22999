"""Measures loading a model: seconds, peak memory, and memory after an unload.

Each measurement is a new process that runs this file with a model's path. Memory is the resident
set size of the process, mapped file pages included.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "packaging"))
sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import fetch
from engine import starter_path
from peer_runs import Missing

CONTEXT = 4_096  # tokens, in a KV cache of the default type
MB = 1e6


@dataclass(frozen=True, slots=True)
class Load:
    """Measurements of one load and unload; sizes in bytes, of resident memory where not stated."""

    file: int  # file size
    cache: int  # KV cache of a full context
    cold_seconds: float  # load time with the file not in the page cache
    warm_seconds: float  # load time with the file in the page cache
    before: int  # with torch and the kernels imported
    peak: int
    answered: int  # after an answer
    unloaded: int

    @property
    def allowed(self) -> int:
        """Limit of the load's peak memory."""
        return int(1.2 * self.file) + self.cache


def measure(path: Path) -> Load:
    """Measure a cold and a warm load, each in a new process; raises Missing when one fails."""
    cold, warm = _child(path, "cold"), _child(path, "warm")
    warm["cold_seconds"] = cold["warm_seconds"]
    return Load(**warm)  # type: ignore[arg-type]


def table_rows(found: dict[str, float]) -> Iterable[tuple[str, str]]:
    """The measurements as rows of a table: label and value."""
    load = Load(**found)  # type: ignore[arg-type]
    return (
        ("File", _mb(load.file)),
        ("Load, file not in memory", f"{load.cold_seconds:.2f} s"),
        ("Load, file in memory", f"{load.warm_seconds:.2f} s"),
        ("Resident before", _mb(load.before)),
        ("Resident at the peak of the load", _mb(load.peak)),
        ("1.2 times the file and a full cache", _mb(load.allowed)),
        ("Resident after an answer", _mb(load.answered)),
        ("Resident after the unload", _mb(load.unloaded)),
    )


def own_models() -> list[Path]:
    """Paths of the starter model and the test model."""
    return [starter_path(), fetch.gemma().path]


def _mb(size: float) -> str:
    return f"{size / MB:,.0f} MB"


def _child(path: Path, how: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, str(path), how],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"},
    )
    if done.returncode:
        raise Missing((done.stderr.strip() or "no error output").splitlines()[-1])
    return json.loads(done.stdout)


# --- in the child process -----------------------------------------------------------------------


def _resident(name: str = "VmRSS:") -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in status if line.startswith(name))
    return int(line.split()[1]) * 1024


def _evict(path: Path) -> None:
    """Evict the file from the page cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _measured(path: Path, cold: bool) -> Load:
    from engine.loading.loader import load
    from engine.machine.device import trim_heap
    from engine.messages import DEFAULT_CACHE

    if cold:
        _evict(path)
    before = _resident()
    model = load(path, context=CONTEXT, cache=DEFAULT_CACHE)
    peak, seconds, cache = _resident("VmHWM:"), model.seconds, model.plan.cache_bytes
    session = model.new_session()
    for token in range(1, 33):
        session.step(token)
    answered, file = _resident(), model.file_bytes
    del model, session
    trim_heap()
    return Load(file, cache, 0.0, seconds, before, peak, answered, _resident())


if __name__ == "__main__":
    print(json.dumps(asdict(_measured(Path(sys.argv[1]), sys.argv[2] == "cold"))))
