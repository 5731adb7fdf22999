"""Imports of the Windows bundle: what a PE file names, and where Windows would find it."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest

from environment import Trouble
from windows import imports, runtime

_SECTION = 0x1000  # where the one section lies in memory
_HEADERS = 0x200  # bytes before it in the file


def _pe(plain: Sequence[str] = (), delayed: Sequence[str] = (), *, wide: bool = True) -> bytes:
    """A PE file with nothing but lists of imports."""
    body = bytearray(32)  # no name is at the section's first byte

    def add(data: bytes) -> int:
        body.extend(data)
        return _SECTION + len(body) - len(data)

    def table(names: Sequence[str], size: int, place: int) -> int:
        entries = bytearray(size * (len(names) + 1))
        for index, name in enumerate(names):
            struct.pack_into("<I", entries, size * index + place, add(name.encode() + b"\0"))
        return add(bytes(entries)) if names else 0

    first, later = table(plain, 20, 12), table(delayed, 32, 4)
    directories = bytearray(16 * 8)
    struct.pack_into("<I", directories, 8, first)
    struct.pack_into("<I", directories, 13 * 8, later)
    optional = struct.pack("<H", 0x20B if wide else 0x10B).ljust(112 if wide else 96, b"\0")
    optional += directories
    head = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x40)
    head += b"PE\0\0" + struct.pack("<2H12x2H", 0x8664, 1, len(optional), 0x2022) + optional
    section = struct.pack("<8s4I16x", b".rdata", len(body), _SECTION, len(body), _HEADERS)
    return (head + section).ljust(_HEADERS, b"\0") + body


def _bundle(folder: Path, **files: bytes) -> Path:
    """A bundle with these files; `__` stands for a slash, and names end in .dll."""
    for name, data in {"Tokonoma": _pe(["KERNEL32.dll"]), **files}.items():
        path = folder / f"{name.replace('__', '/')}.dll"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


@pytest.mark.parametrize("wide", [True, False], ids=["64 bits", "32 bits"])
def test_imports_are_read_in_both_lists(*, wide: bool) -> None:
    found = imports.read(_pe(["KERNEL32.dll", "a.dll"], ["later.dll"], wide=wide))
    assert found == imports.Imports(("KERNEL32.dll", "a.dll"), ("later.dll",))
    assert imports.read(_pe(wide=wide)) == imports.Imports((), ())


def test_imports_of_a_program_that_a_linker_made() -> None:
    launcher = metadata.distribution("pip").locate_file("pip/_vendor/distlib/t64.exe")
    found = imports.read(Path(str(launcher)).read_bytes())
    assert "KERNEL32.dll" in found.plain


@pytest.mark.parametrize("size", [0, 60, 0x40, 0x60, 0x100, 0x220])
def test_a_damaged_file_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=r"cut off|header|section|found"):
        imports.read(_pe(["a.dll"])[:size])


def test_windows_finds_an_import_beside_the_file_and_in_the_folders_of_the_program(
    tmp_path: Path,
) -> None:
    _bundle(
        tmp_path,
        top=_pe(),
        _internal__inner=_pe(),
        _internal__torch__lib__c10=_pe(["C10_OTHER.dll"]),
        _internal__torch__lib__c10_other=_pe(["inner.dll", "api-ms-win-crt-heap-l1-1-0.dll"]),
        _internal__torch__C=_pe(["c10.dll", "TOP.dll", "user32.DLL"]),
    )
    assert imports.missing(tmp_path) == []


@pytest.mark.parametrize("place", ["_internal__torch__lib__far", "_internal__PySide6__far"])
def test_windows_finds_no_import_in_the_folder_of_another_package(
    tmp_path: Path, place: str
) -> None:
    _bundle(tmp_path, _internal__numpy__core=_pe(["far.dll"]), **{place: _pe()})
    assert imports.missing(tmp_path) == [("_internal/numpy/core.dll", "far.dll")]


def test_one_sentence_names_the_file_and_the_dll_that_it_lacks(tmp_path: Path) -> None:
    _bundle(tmp_path, _internal__torch_python=_pe(["MSVCP140_ATOMIC_WAIT.dll"]))
    with pytest.raises(Trouble) as refused:
        imports.check(tmp_path)
    assert "_internal/torch_python.dll imports MSVCP140_ATOMIC_WAIT.dll, which" in str(
        refused.value
    )
    assert "\n" not in str(refused.value)


def test_a_missing_delayed_import_is_told_and_does_not_fail(tmp_path: Path) -> None:
    _bundle(tmp_path, _internal__a=_pe(["kernel32.dll"], ["absent.dll", "user32.dll"]))
    assert imports.check(tmp_path) == [("_internal/a.dll", "absent.dll")]


def test_the_runtime_is_pinned_by_its_hash() -> None:
    lines = runtime.WHEELS.read_text(encoding="utf-8").splitlines()
    (pinned,) = (line for line in lines if not line.startswith("#"))
    assert re.fullmatch(r"msvc-runtime==[\d.]+ --hash=sha256:[0-9a-f]{64}", pinned)
