"""Shims for a Wine prefix: three DLLs in place of what Wine lacks and our packages import.

Compiled by zig from shims/*.c. They exist for tests under Wine and are never shipped.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCES = Path(__file__).resolve().with_name("shims")
RENAMED = "ucrtwine.dll"  # Wine's own ucrtbase.dll, to which ours forwards
_LACKING = tuple(
    f"{name}{suffix}"
    for name in (
        *("cabs", "cacos", "cacosh", "carg", "casin", "casinh", "catan", "catanh", "ccos"),
        *("ccosh", "cexp", "cimag", "clog", "conj", "cpow", "cproj", "creal", "csin"),
        *("csinh", "csqrt", "ctan", "ctanh"),
    )
    for suffix in ("", "f", "l")
)
_BUILTIN = b"Wine builtin DLL"  # marks a DLL that Wine loads from its own folder only


def exports(dll: bytes) -> list[str]:
    """Names that a 64-bit Windows DLL exports, sorted."""
    (header,) = struct.unpack_from("<I", dll, 0x3C)
    sections, optional = struct.unpack_from("<2xH12xH", dll, header + 4)
    (directory,) = struct.unpack_from("<I", dll, header + 24 + 112)
    table = [
        struct.unpack_from("<8x4I", dll, header + 24 + optional + 40 * index)
        for index in range(sections)
    ]

    def at(address: int) -> int:
        """Offset in the file of a virtual address."""
        for size, start, _, offset in table:
            if start <= address < start + size:
                return address - start + offset
        raise ValueError(f"The DLL has no section at {address:#x}.")

    count, _, names = struct.unpack_from("<3I", dll, at(directory) + 24)
    found = []
    for place in struct.unpack_from(f"<{count}I", dll, at(names)):
        start = at(place)
        found.append(dll[start : dll.index(b"\0", start)].decode())
    return sorted(found)


def definition(names: Sequence[str]) -> str:
    """Module-definition file: the complex functions from ours, every other name from Wine's."""
    own = [f" {name}=shim_{name}" for name in _LACKING]
    forwarded = [f' "{name}"={RENAMED[:-4]}.{name}' for name in names if name not in _LACKING]
    return "\n".join(["LIBRARY ucrtbase.dll", "EXPORTS", *own, *forwarded, ""])


def make(zig: Sequence[str], wines: Path, system32: Path) -> None:
    """Compile the shims into a prefix's `system32`; `wines` holds Wine's own DLLs.

    Raises subprocess.CalledProcessError with the compiler's output.
    """
    original = (wines / "ucrtbase.dll").read_bytes()
    (system32 / RENAMED).write_bytes(original.replace(_BUILTIN, bytes(len(_BUILTIN)), 1))
    with tempfile.TemporaryDirectory(prefix="shims-") as work:
        forwards = Path(work) / "ucrtbase.def"
        forwards.write_text(definition(exports(original)), encoding="ascii")
        extra = {"ucrtbase": [str(forwards)], "bcryptprimitives": ["-ladvapi32"]}
        for source in sorted(SOURCES.glob("*.c")):
            made = Path(work) / f"{source.stem}.dll"
            _run(
                [*zig, "cc", "-target", "x86_64-windows-gnu", "-O2", "-s", "-shared"],
                [str(source), *extra.get(source.stem, []), "-o", str(made)],
            )
            (system32 / made.name).unlink(missing_ok=True)
            (system32 / made.name).write_bytes(made.read_bytes())


def _run(*parts: Sequence[str]) -> None:
    command = [word for part in parts for word in part]
    subprocess.run(command, capture_output=True, text=True, check=True)
