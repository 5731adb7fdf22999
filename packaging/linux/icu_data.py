"""Makes ICU's library of data smaller: it leaves out what Qt never asks for.

Qt takes the order of texts and old encodings from ICU, and everything else from its own tables: names
of languages, regions, units, currencies and time zones, and the breaks of words. The library is one
table with a name for each part, so it is linked anew without those. Source of the format: ICU's
udata.h and ucmndata.h (headerSize, magic 0xda27, "CmnD"; then offsets of names and parts).
"""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from pathlib import Path

from environment import Trouble, last_lines

UNUSED = ("brkitr", "curr", "lang", "rbnf", "region", "translit", "unit", "zone")
_HEAD = re.compile(rb"..\xda\x27.{8}CmnD", re.DOTALL)
_ALIGNED = 16  # bytes
_SYMBOL = re.compile(r"^([0-9a-f]+) ([0-9a-f]+) R (icudt\d+_dat)$", re.MULTILINE)
_SOURCE = """\
.section .rodata
.balign 4096
.global {name}
.type {name}, @object
.size {name}, {size}
{name}: .incbin "data"
.section .note.GNU-stack, "", @progbits
"""


def shrink(library: Path) -> int:
    """Link `libicudata.so.N` anew without the unused parts; returns the bytes saved. Raises Trouble."""
    before = library.stat().st_size
    found = _SYMBOL.search(_run("nm", "-D", "--print-size", str(library)))
    if found is None:
        raise Trouble(f"{library} is not ICU's library of data as it was known: leave it as it is.")
    size, name = int(found[2], 16), found[3]
    content = library.read_bytes()
    head = _HEAD.search(content)
    assert head is not None, "the symbol is a table with this head"
    data = without(content[head.start() : head.start() + size], UNUSED)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "data").write_bytes(data)
        (work / "data.s").write_text(_SOURCE.format(name=name, size=len(data)), encoding="utf-8")
        made = work / library.name
        _run("as", "-o", "data.o", "data.s", folder=work)
        options = ("-shared", "-soname", library.name, "-z", "noexecstack", "--build-id=none")
        _run("ld", *options, "-o", str(made), "data.o", folder=work)
        library.write_bytes(made.read_bytes())
    return before - library.stat().st_size


def parts(data: bytes) -> list[tuple[str, bytes]]:
    """The parts of a table, in its order, which is that of their names."""
    start = struct.unpack_from("<H", data)[0]
    count = struct.unpack_from("<I", data, start)[0]
    rows = list(struct.iter_unpack("<II", data[start + 4 : start + 4 + 8 * count]))
    ends = [*(at for _, at in rows[1:]), len(data) - start]
    return [
        (_text(data, start + name), data[start + at : start + end])
        for (name, at), end in zip(rows, ends, strict=True)
    ]


def without(data: bytes, folders: tuple[str, ...]) -> bytes:
    """A table without the parts in some of its folders."""
    start = struct.unpack_from("<H", data)[0]
    kept = [(name, part) for name, part in parts(data) if name.split("/")[1] not in folders]
    names = b"".join(name.encode() + b"\0" for name, _ in kept)
    name_at, at = 4 + 8 * len(kept), -(-(4 + 8 * len(kept) + len(names)) // _ALIGNED) * _ALIGNED
    rows, body = bytearray(struct.pack("<I", len(kept))), bytearray()
    for name, part in kept:
        rows += struct.pack("<II", name_at, at + len(body))
        name_at += len(name.encode()) + 1
        body += part.ljust(-(-len(part) // _ALIGNED) * _ALIGNED, b"\0")
    return data[:start] + (bytes(rows) + names).ljust(at, b"\0") + bytes(body)


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()


def _run(*command: str, folder: Path | None = None) -> str:
    """Run a program of binutils; returns its output. Raises Trouble."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Trouble(f"{last_lines(done.stderr)}\n{command[0]} failed, as above.")
    return done.stdout
