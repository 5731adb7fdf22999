"""Fuzzer of the GGUF reader: mutated small files must open, or be refused with an error message.

Run by `packaging/dev.py fuzz --seconds 600`, or as a script, which also takes `--seed N`. Mutations
mostly hit counts, lengths and offsets, whose positions in the valid files are known: these are the
fields that break a reader. A case that crashes, hangs or uses too much memory is saved in
build/fuzz and makes the exit status 1.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import gguf
import numpy as np

import tiny
from engine.errors import EngineError
from engine.gguf.reader import GGUFFile

ROOT = Path(__file__).resolve().parents[2]
SECONDS_PER_CASE = 2.0
# Memory allowed beyond twice the file size: the cost of opening an empty file.
SLACK_BYTES = 12 << 10
INTERESTING = (
    0, 1, 2, 3, 7, 8, 9, 12, 31, 32, 33, 41, 42, 64, 255, 256, 1 << 15, 1 << 16, (1 << 22) + 1,
    (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 62), (1 << 63) - 1, 1 << 63,
    (1 << 64) - 32, (1 << 64) - 1,
)  # fmt: skip
_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


@dataclass(frozen=True, slots=True)
class Field:
    """A count, length, type or offset in a header, which determines how the rest is parsed."""

    position: int
    width: int  # bytes


@dataclass(frozen=True, slots=True)
class Seed:
    """A valid model to mutate: its files by name, and the fields of the file that is mutated."""

    files: dict[str, bytes]
    mutated: str
    fields: list[Field]
    header: int  # bytes before the tensor data


class Hang(Exception):
    """A case exceeded its time limit."""


# --- valid files --------------------------------------------------------------------------------


def seeds(folder: Path) -> list[Seed]:
    """Valid files, small enough for thousands of mutations per minute."""
    small: dict[str, Any] = {
        "layers": 1,
        "hidden": 32,
        "heads": 2,
        "kv_heads": 1,
        "head_dim": 16,
        "ffn": 32,
    }
    two_bit = {"hidden": 128, "head_dim": 64, "ffn": 128, "vocabulary": 64}
    made = [
        tiny.write(folder / "bpe.gguf", format="Q8_0", **small),
        tiny.write(folder / "spm.gguf", architecture="gemma3", format="Q4_0", **small),
        tiny.write(folder / "bare.gguf", tokenizer=None, format="F16", **small),
        # Type numbers that other programs use for other formats: the metadata decides.
        tiny.write(folder / "marked.gguf", tokenizer=None, format="F8_E5M2", **small),
        tiny.write(folder / "two_bit.gguf", tokenizer=None, format="Q2_0", **(small | two_bit)),
        write_kinds(folder / "kinds.gguf"),
    ]
    found = [_seed([path], path) for path in made]
    parts = write_split(folder / "split.gguf")
    return found + [_seed(parts, part) for part in parts]


def write_kinds(path: Path) -> Path:
    """A file with values of every metadata type, nested arrays, and tensors of 1 to 4 dimensions."""
    kinds = gguf.GGUFValueType
    writer = gguf.GGUFWriter(path, "kinds")
    writer.add_custom_alignment(64)
    for kind in kinds:
        if kind not in (kinds.ARRAY, kinds.STRING):
            value = True if kind is kinds.BOOL else 3
            writer.add_key_value(f"one.{kind.name}", value, kind)
            writer.add_key_value(f"many.{kind.name}", [value] * 5, kinds.ARRAY, kind)
    writer.add_key_value("text", "grüß", kinds.STRING)
    writer.add_key_value("texts", ["", "a", "猫"], kinds.ARRAY, kinds.STRING)
    writer.add_key_value("lists", [[1, 2], [3]], kinds.ARRAY, kinds.ARRAY)
    for dimensions in range(1, 5):
        writer.add_tensor(f"t{dimensions}", np.ones((2,) * dimensions, "float32"))
    _finish(writer)
    return path


def write_split(path: Path, parts: int = 3) -> list[Path]:
    """A split model: `parts` files with one or two tensors each."""
    writer = gguf.GGUFWriter(path, "split", split_max_tensors=2)
    for number in range(2 * parts - 1):
        writer.add_tensor(f"t{number}", np.full((2, 32), number, "float32"))
    _finish(writer)
    return sorted(path.parent.glob(f"{path.stem}-*-of-*.gguf"))


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _seed(paths: list[Path], mutated: Path) -> Seed:
    data = mutated.read_bytes()
    fields, header = fields_of(data)
    return Seed({path.name: path.read_bytes() for path in paths}, mutated.name, fields, header)


@dataclass(slots=True)
class _Walk:
    """Parses a valid file and records every count, length, type and offset as a `Field`."""

    data: bytes
    position: int = 4
    fields: list[Field] = field(default_factory=list)

    def number(self, width: int) -> int:
        self.fields.append(Field(self.position, width))
        self.position += width
        return int.from_bytes(self.data[self.position - width : self.position], "little")

    def text(self) -> None:
        size = self.number(8)
        self.position += size

    def value(self, kind: int) -> None:
        if kind == 8:
            self.text()
        elif kind == 9:
            inner, length = self.number(4), self.number(8)
            for _ in range(length):
                self.value(inner)
        else:
            self.number(_WIDTHS[kind])


def fields_of(data: bytes) -> tuple[list[Field], int]:
    """The fields of a valid file, and the length of its header."""
    walk = _Walk(data)
    walk.number(4)
    tensors, keys = walk.number(8), walk.number(8)
    for _ in range(keys):
        walk.text()
        walk.value(walk.number(4))
    for _ in range(tensors):
        walk.text()
        for _ in range(walk.number(4)):
            walk.number(8)
        walk.number(4)
        walk.number(8)
    return walk.fields, walk.position


# --- mutations ----------------------------------------------------------------------------------


def mutate(seed: Seed, chance: random.Random) -> bytes:
    """The seed's file with one to four mutations, mostly in its header."""
    data = bytearray(seed.files[seed.mutated])
    for _ in range(chance.choice((1, 1, 1, 2, 3, 4))):
        chance.choice(_MUTATIONS)(data, seed, chance)
    return bytes(data)


def _interesting(data: bytearray, seed: Seed, chance: random.Random) -> None:
    place = chance.choice(seed.fields)
    value = chance.choice(
        (*INTERESTING, len(data), len(data) - place.position, chance.getrandbits(64))
    )
    _put(data, place, value)


def _nudge(data: bytearray, seed: Seed, chance: random.Random) -> None:
    place = chance.choice(seed.fields)
    now = int.from_bytes(data[place.position : place.position + place.width], "little")
    _put(data, place, now + chance.choice((-32, -8, -2, -1, 1, 2, 8, 32)))


def _put(data: bytearray, place: Field, value: int) -> None:
    packed = struct.pack("<Q", value & (1 << 64) - 1)[: place.width]
    data[place.position : place.position + place.width] = packed


def _flip(data: bytearray, seed: Seed, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 8)):
        if data:
            data[_place(data, seed, chance)] ^= 1 << chance.randrange(8)


def _truncate(data: bytearray, seed: Seed, chance: random.Random) -> None:
    if data:
        del data[_place(data, seed, chance) :]


def _cut(data: bytearray, seed: Seed, chance: random.Random) -> None:
    if data:
        start = _place(data, seed, chance)
        del data[start : start + chance.randint(1, 64)]


def _insert(data: bytearray, seed: Seed, chance: random.Random) -> None:
    start = _place(data, seed, chance) if data else 0
    data[start:start] = chance.randbytes(chance.randint(1, 64))


def _duplicate(data: bytearray, seed: Seed, chance: random.Random) -> None:
    if data:
        start, target = _place(data, seed, chance), _place(data, seed, chance)
        data[target:target] = data[start : start + chance.randint(1, 512)]


def _splice(data: bytearray, seed: Seed, chance: random.Random) -> None:
    """Copy one range of bytes over another."""
    if data:
        start, target = _place(data, seed, chance), _place(data, seed, chance)
        piece = data[start : start + chance.randint(1, 512)]
        data[target : target + len(piece)] = piece


def _swap(data: bytearray, seed: Seed, chance: random.Random) -> None:
    """Exchange two fields, so that each has a value that is plausible elsewhere."""
    one, other = chance.choice(seed.fields), chance.choice(seed.fields)
    value = int.from_bytes(data[one.position : one.position + one.width], "little")
    _put(data, one, int.from_bytes(data[other.position : other.position + other.width], "little"))
    _put(data, other, value)


def _place(data: bytearray, seed: Seed, chance: random.Random) -> int:
    """A random position: in the header with a probability of 0.9, else anywhere."""
    end = min(seed.header, len(data)) if chance.random() < 0.9 else len(data)
    return chance.randrange(end)


_MUTATIONS: tuple[Callable[[bytearray, Seed, random.Random], None], ...] = (
    _interesting, _interesting, _interesting, _nudge, _flip, _truncate, _cut, _insert, _duplicate,
    _splice, _swap,
)  # fmt: skip


# --- one case -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """Counts and worst values of all cases so far."""

    cases: int = 0
    crashes: int = 0
    hangs: int = 0
    refused: int = 0
    opened: int = 0
    worst_seconds: float = 0.0
    worst_memory: float = 0.0  # peak memory of opening / file size, of files above SLACK_BYTES
    worst_excess: int = 0  # peak memory beyond twice the file size, in bytes
    refusals: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return (
            f"{self.cases:,} cases, crashes {self.crashes}, hangs {self.hangs}, "
            f"refused {self.refused:,}, opened {self.opened:,}, "
            f"worst time {self.worst_seconds * 1000:.0f} ms, "
            f"worst memory ratio {self.worst_memory:.2f} "
            f"(and {max(self.worst_excess, 0):,} bytes beyond twice the smallest files)"
        )


def check(path: Path) -> tuple[EngineError | None, int]:
    """Open a file and read all its contents; raises any exception except an `EngineError`.

    Returns that error, if any, and the peak of Python's memory while opening (0 if not traced).
    """
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        file = GGUFFile.open(path)
    except EngineError as error:
        peak = tracemalloc.get_traced_memory()[1] - before
        check_sentence(error)
        return error, peak
    peak = tracemalloc.get_traced_memory()[1] - before
    with file:
        for name, info in file.tensors.items():
            with file.data(name) as view:
                assert len(view) == info.size_bytes > 0, name
                assert view[0] + view[-1] >= 0
        for value in file.metadata.values():
            assert isinstance(value, bool | int | float | str | list)
    return None, peak


def check_sentence(error: EngineError) -> None:
    """Assert that an error has a readable message and remedy: short printable sentences."""
    for text in (str(error), error.remedy):
        assert text.endswith("."), text
        assert text.isprintable(), text
        assert len(text) < 400, text


def _run_case(folder: Path, seed: Seed, data: bytes, tally: Tally) -> str | None:
    """Open one mutated file; returns a description of the failure, or None."""
    path = folder / seed.mutated
    path.unlink(missing_ok=True)  # never overwrite: the old file may still be mapped
    path.write_bytes(data)
    size = sum(file.stat().st_size for file in folder.iterdir())
    signal.setitimer(signal.ITIMER_REAL, SECONDS_PER_CASE)
    started = time.perf_counter()
    try:
        refusal, peak = check(path)
        tally.worst_seconds = max(tally.worst_seconds, time.perf_counter() - started)
    except Hang:
        tally.hangs += 1
        return f"no end after {SECONDS_PER_CASE} s"
    except Exception as error:  # noqa: BLE001 - the fuzzer looks for any other exception
        tally.crashes += 1
        return f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    tally.refused += refusal is not None
    tally.opened += refusal is None
    if size > SLACK_BYTES:  # below, the constant cost of opening dominates
        tally.worst_memory = max(tally.worst_memory, peak / size)
    tally.worst_excess = max(tally.worst_excess, peak - 2 * size)
    if refusal is not None:
        tally.refusals.add("".join(c for c in str(refusal) if not c.isdigit())[:40])
    if peak > 2 * size + SLACK_BYTES:
        tally.crashes += 1
        return f"{peak:,} bytes of memory for {size:,} of file"
    return None


def run(seconds: float, number: int) -> Tally:
    """Fuzz for `seconds` with this random seed; failing cases are saved in build/fuzz."""
    chance, tally = random.Random(number), Tally()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "seeds").mkdir()
        found = seeds(work / "seeds")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            seed = chance.choice(found)
            data = mutate(seed, chance)
            folder = work / "case"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for file, whole in seed.files.items():
                (folder / file).write_bytes(whole)
            tally.cases += 1
            wrong = _run_case(folder, seed, data, tally)
            if wrong is not None:
                kept = ROOT / "build" / "fuzz" / f"{number}-{tally.cases}"
                shutil.copytree(folder, kept, dirs_exist_ok=True)
                print(f"{wrong}\n  kept in {kept}", file=sys.stderr)
    return tally


def _out_of_time(number: int, frame: FrameType | None) -> None:
    raise Hang


def main() -> int:
    """Parse the options, fuzz, report."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--seed", type=int, default=0, help="another number: other mutations")
    chosen = options.parse_args()
    signal.signal(signal.SIGALRM, _out_of_time)
    tracemalloc.start()
    tally = run(chosen.seconds, chosen.seed)
    print(tally)
    print(f"{len(tally.refusals)} kinds of refusal")
    return 1 if tally.crashes or tally.hangs else 0


if __name__ == "__main__":
    sys.exit(main())
