"""The packages for Windows: an installer, compiled by NSIS, and a zip with a portable folder."""

from __future__ import annotations

import re
import subprocess
import tempfile
import zipfile
from pathlib import Path

import bundle
from environment import ROOT, Trouble, last_lines
from release_notes import version
from windows import files

_HERE = Path(__file__).resolve().parent
TEXTS = _HERE / "texts.nsh"
_MACHINE = "x86_64"
PORTABLE = "Data"  # as engine/loading/library.py names it
_COMPRESSION = "SetCompressor /SOLID lzma"


def make_exe(folder: Path, out: Path, number: str = "", compression: str = _COMPRESSION) -> Path:
    """Write the installer of a bundle to the folder `out`; returns it. Raises Trouble.

    `number` is the version, of the sources by default; `compression` a command of NSIS.
    """
    number = number or version()
    file = out / f"Tokonoma-{number}-windows-{_MACHINE}-setup.exe"
    with tempfile.TemporaryDirectory(prefix="tokonoma-") as work:
        bundle.draw_icons(Path(work))
        listed = Path(work) / "documents.nsh"
        lines = [f'${{DOCUMENT}} "{ending}" ""\n' for ending in files.documents()]
        listed.write_text("".join(lines), encoding="utf-8")
        facts = {
            "VERSION": number,
            "NUMBERS": ".".join([*re.findall(r"\d+", number), "0", "0", "0", "0"][:4]),
            "BUNDLE": folder,
            "OUT": file,
            "ICON": Path(work) / "tokonoma.ico",
            "LICENCE": ROOT / "LICENSE",
            "DOCUMENTS": listed,
            "FORMER": _HERE / "former.nsh",
            "TEXTS": TEXTS,
        }
        ran = subprocess.run(
            [
                *("makensis", "-V2", "-WX", "-INPUTCHARSET", "UTF8"),
                *(f"-D{name}={value}" for name, value in facts.items()),
                *(f"-X{compression}", str(_HERE / "installer.nsi")),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    if ran.returncode != 0:
        raise Trouble(f"{last_lines(ran.stdout)}\nmakensis could not make the installer, as above.")
    return file


def make_zip(folder: Path, out: Path) -> Path:
    """Write the zip of a bundle to the folder `out`; returns it.

    The same bundle gives the same bytes.
    """
    name = f"Tokonoma-{version()}"
    file = out / f"{name}-windows-{_MACHINE}-portable.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        packed.writestr(zipfile.ZipInfo(f"{name}/{PORTABLE}/"), b"")
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            entry = zipfile.ZipInfo(f"{name}/{path.relative_to(folder).as_posix()}")
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.file_size = path.stat().st_size
            with path.open("rb") as source, packed.open(entry, "w") as target:
                while chunk := source.read(1 << 20):
                    target.write(chunk)
    return file
