"""Checks that every DLL that a program or DLL of the bundle imports is in it or in Windows itself.

Wine has DLLs built in that no Windows has from the start, so a bundle that starts there proves
nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from environment import Trouble

_SUFFIXES = (".exe", ".dll", ".pyd")
_INTERNAL = "_internal"
# Folders that packages add to the search of the DLLs that theirs import, below _internal.
_ADDED = {
    "PySide6": ("PySide6", "shiboken6"),
    "shiboken6": ("PySide6", "shiboken6"),
    "numpy": ("numpy.libs",),
    "torch": ("torch/lib",),
}
_SETS = ("api-ms-win-", "ext-ms-win-")  # names that Windows maps to its DLLs
# Of the DLLs of every Windows 10, also without its media features, those that are imported.
WINDOWS = (
    *("advapi32", "authz", "bcrypt", "bcryptprimitives", "comctl32", "comdlg32", "crypt32"),
    *("d3d11", "d3d12", "d3d9", "dbghelp", "dnsapi", "dwmapi", "dwrite", "dxgi", "gdi32"),
    *("icuuc", "imagehlp", "imm32", "iphlpapi", "kernel32", "mpr", "netapi32", "ntdll", "ole32"),
    *("oleaut32", "psapi", "rpcrt4", "secur32", "setupapi", "shell32", "shlwapi"),
    *("uiautomationcore", "user32", "userenv", "uxtheme", "version", "winhttp", "winmm"),
    *("wintrust", "ws2_32", "wtsapi32"),
)
_PLAIN, _DELAYED = (1, 20, 12), (13, 32, 4)  # data directory, bytes of an entry, place of its name


@dataclass(frozen=True)
class Imports:
    """The DLLs that a file imports: at its start, and when a function of theirs is first called."""

    plain: tuple[str, ...]
    delayed: tuple[str, ...]


def read(data: bytes) -> Imports:
    """The imports of a PE file, by name. Raises ValueError for one that is damaged."""
    try:
        (header,) = struct.unpack_from("<I", data, 0x3C)
        if data[header : header + 4] != b"PE\0\0":
            raise ValueError("it has no PE header")
        sections, optional, wide = struct.unpack_from("<2xH12xH2xH", data, header + 4)
        directories = header + 24 + (112 if wide == 0x20B else 96)
        table = [
            struct.unpack_from("<8x4I", data, header + 24 + optional + 40 * index)
            for index in range(sections)
        ]
        return Imports(*(tuple(_names(data, directories, table, *at)) for at in (_PLAIN, _DELAYED)))
    except struct.error as error:
        raise ValueError("it is cut off") from error


def _names(
    data: bytes,
    directories: int,
    table: list[tuple[int, ...]],
    directory: int,
    size: int,
    place: int,
) -> Iterator[str]:
    """The names in one of the two lists of imports."""

    def at(address: int) -> int:
        """Offset in the file of a virtual address."""
        for length, start, stored, offset in table:
            if start <= address < start + max(length, stored):
                return address - start + offset
        raise ValueError(f"it has no section at {address:#x}")

    (entry,) = struct.unpack_from("<I", data, directories + 8 * directory)
    entry = entry and at(entry)
    while entry:
        (name,) = struct.unpack_from("<I", data, entry + place)
        if not name:
            return
        start = at(name)
        yield data[start : data.index(b"\0", start)].decode("ascii")
        entry += size


def missing(bundle: Path, *, delayed: bool = False) -> list[tuple[str, str]]:
    """The imports that no folder of the search has: file, and DLL; of one of the two kinds."""
    paths = [path for path in sorted(bundle.rglob("*")) if path.suffix.lower() in _SUFFIXES]
    names = {path.relative_to(bundle).as_posix().lower() for path in paths}
    found: list[tuple[str, str]] = []
    for path in paths:
        file = path.relative_to(bundle)
        try:
            imports = read(path.read_bytes())
        except ValueError as error:
            raise Trouble(f"{file.as_posix()} is no program or DLL of Windows: {error}.") from error
        for dll in imports.delayed if delayed else imports.plain:
            if not _is_of_windows(dll) and not any(
                (folder / dll).as_posix().lower() in names for folder in _folders(file)
            ):
                found.append((file.as_posix(), dll))
    return found


def check(bundle: Path) -> list[tuple[str, str]]:
    """Check the imports of a bundle; returns the delayed ones that are missing. Raises Trouble."""
    lacking = missing(bundle)
    if lacking:
        file, dll = lacking[0]
        more = f" ({len(lacking) - 1} more imports are missing)" if len(lacking) > 1 else ""
        raise Trouble(
            f"{file} imports {dll}, which is neither in the bundle nor in every Windows 10{more}: "
            "include it, or name it in packaging/windows/imports.py if Windows has it."
        )
    return missing(bundle, delayed=True)


def _is_of_windows(dll: str) -> bool:
    name = dll.lower()
    return name.startswith(_SETS) or name.removesuffix(".dll") in WINDOWS


def _folders(file: Path) -> list[Path]:
    """Where Windows looks for what a file imports: its folder, the program's, those added."""
    internal = Path(_INTERNAL)
    package = file.parts[1] if file.parts[0] == _INTERNAL and len(file.parts) > 2 else ""
    added = [internal / name for name in _ADDED.get(package, ())]
    return [file.parent, Path(), internal, *added]
