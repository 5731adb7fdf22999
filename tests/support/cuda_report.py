"""Results of the CUDA benchmark: kept after each step, resumed, and compared with an earlier table.

A step is one thing to check or to measure. What it gave is written to a file when it has succeeded,
and the table anew, so that a run that is cut loses one step. A later run on the same device, with the
same torch, Triton and kernels, goes on behind it; steps that failed are tried again.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| ([^|]+?) \| ([\d,]+) \|", re.MULTILINE)  # name and tokens/s
_SLOWER = 0.95  # of the speed in the earlier table: less is named
_HEAD = """# Speed of the CUDA backend

Written by `python3 packaging/dev.py bench cuda`; the models are synthetic, of real
shapes, with f16 keys and values. tests/benchmarks/cuda_speed.py says what the columns are.
"""


class NotPossible(Exception):
    """A step that cannot be done on this machine, with the reason."""


@dataclass
class Step:
    """The lines that a step adds to the table."""

    checks: list[str] = field(default_factory=list[str])
    rows: list[str] = field(default_factory=list[str])
    kernels: list[str] = field(default_factory=list[str])


@dataclass
class Report:
    """What a run, and the runs before it, have given."""

    machine: Mapping[str, str]  # what has to be the same to resume: device, versions, kernels
    figures: list[str]  # of this run's device, lines of the table's head
    kept: Path  # JSON
    table: Path
    until: float  # time.perf_counter() after which no step is begun
    seconds: float = 0.0  # that earlier runs took
    before: dict[str, float] = field(default_factory=dict[str, float])  # tokens/s, earlier table
    steps: dict[str, Step] = field(default_factory=dict[str, Step])
    missing: list[str] = field(default_factory=list[str])
    started: float = field(default_factory=time.perf_counter)

    def resume(self, committed: Path) -> None:
        """Take over what earlier runs gave; without any, what is compared with is `committed`."""
        try:
            known = json.loads(self.kept.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = {}
        if known.get("machine") == dict(self.machine):
            self.before, self.seconds = known["before"], known["seconds"]
            self.steps = {name: Step(**lines) for name, lines in known["steps"].items()}
            print(f"{len(self.steps)} steps are known from an earlier run.", flush=True)
        elif committed.is_file():
            text = committed.read_text(encoding="utf-8")
            if f"- Device: {self.machine['device']}\n" in text:
                self.before = speeds(text)

    def attempt(self, name: str, do: Callable[[Step], None]) -> None:
        """Do a step, unless it is done; one that fails, or for which no time is left, is named."""
        if name in self.steps:
            return
        if not self.left:
            self.missing.append(f"{name}: no time was left")
            return
        step = Step()
        try:
            do(step)
        except NotPossible as error:
            self.missing.append(f"{name}: {error}")
            return
        except Exception as error:  # noqa: BLE001  a step that fails does not end the run
            traceback.print_exc()
            words = str(error).splitlines() or [""]
            self.missing.append(f"{name}: {type(error).__name__}: {words[0]}")
            return
        print(*step.checks, *step.rows, sep="\n", flush=True)
        self.steps[name] = step
        self.write()

    def write(self) -> None:
        """Write what is known, and the table."""
        known = {
            "machine": dict(self.machine),
            "seconds": self._seconds,
            "before": self.before,
            "steps": {name: asdict(step) for name, step in self.steps.items()},
        }
        for path, text in ((self.kept, json.dumps(known, indent=1)), (self.table, self.text())):
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f"{path.name}.part")
            part.write_text(text, encoding="utf-8")
            part.replace(path)

    def text(self) -> str:
        """The whole table."""
        steps = self.steps.values()
        versions = f"- torch {self.machine['torch']}, Triton {self.machine['triton']}"
        lines = [
            _HEAD,
            f"- Device: {self.machine['device']}",
            f"{versions}, {self._seconds / 60:.1f} minutes",
            *(f"- {line}" for line in self.figures),
            *(f"- {line}" for step in steps for line in step.checks),
            "\n| Model | tokens/s warm | tokens/s cold | GB/s | Of the copy bandwidth |",
            "|---|---:|---:|---:|---:|",
            *(line for step in steps for line in step.rows),
            "\nKernels of a step of one sequence, with their share of its time:\n",
            "| Model | Kernels | Time per kernel |",
            "|---|---:|---|",
            *(line for step in steps for line in step.kernels),
        ]
        if slower := self.slower():
            lines += ["\nSlower than in the table before:\n", *(f"- {line}" for line in slower)]
        if self.missing:
            lines += ["\nNot measured:\n", *(f"- {line}" for line in self.missing)]
        return "\n".join([*lines, ""])

    def slower(self) -> list[str]:
        """The rows that are slower than in the earlier table of the same device."""
        rows = "\n".join(line for step in self.steps.values() for line in step.rows)
        return [
            f"{name}: {speed:,.0f} after {old:,.0f} tokens/s ({100 * (speed / old - 1):+.0f} %)"
            for name, speed in speeds(rows).items()
            if (old := self.before.get(name)) and speed < _SLOWER * old
        ]

    @property
    def left(self) -> float:
        """Seconds in which steps may be begun."""
        return max(self.until - time.perf_counter(), 0.0)

    @property
    def _seconds(self) -> float:
        return self.seconds + time.perf_counter() - self.started


def speeds(text: str) -> dict[str, float]:
    """The tokens per second of the rows of a table, by their names."""
    rows = text.partition("\nKernels of")[0]
    return {name: float(speed.replace(",", "")) for name, speed in _ROW.findall(rows)}


def code_digest() -> str:
    """A digest of all that computes: another one makes earlier figures void."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "kernels").rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]
