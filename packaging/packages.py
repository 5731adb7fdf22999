"""Packages: installers and archives made from the bundle, one function for each format.

`FORMATS` is the list; a format is made on the system whose bundle it contains, and those of Windows
also on Linux.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import bundle
from environment import ROOT, Trouble, say
from linux import archive, deb, rpm
from windows import setup

FOLDER = ROOT / "build" / "packages"


@dataclass(frozen=True)
class Format:
    """One kind of package: its maker, the system of its bundle, and the programs that it needs."""

    make: Callable[[Path, Path], Path]  # folder of the bundle, output folder; returns the file
    system: str  # a value of sys.platform
    text: str  # for whom it is
    tools: tuple[tuple[str, str], ...] = ()  # program, and the package of Debian that has it


FORMATS = {
    "deb": Format(
        deb.make, "linux", "Debian, Ubuntu, Mint", (("dpkg-deb", "dpkg"), ("gzip", "gzip"))
    ),
    "rpm": Format(rpm.make, "linux", "Fedora, openSUSE", (("rpmbuild", "rpm"),)),
    "tar.xz": Format(
        archive.make,
        "linux",
        "any Linux, without an administrator",
        (("tar", "tar"), ("xz", "xz-utils")),
    ),
    "exe": Format(
        setup.make_exe,
        "win32",
        "Windows 10 and 11, without an administrator",
        (("makensis", "nsis"),),
    ),
    "zip": Format(setup.make_zip, "win32", "Windows 10 and 11, without an installation"),
}


def offered(system: str = sys.platform) -> list[str]:
    """The formats that contain the bundle of a system."""
    return [name for name, each in FORMATS.items() if each.system == system]


def of_file(file: Path) -> Format:
    """The format of a package by its name's ending."""
    return next(each for ending, each in FORMATS.items() if file.name.endswith(f".{ending}"))


def by_system(names: Sequence[str], here: str = sys.platform) -> dict[str, list[str]]:
    """Formats to make on this system, by that of their bundle; its own if none is named.

    Raises Trouble for one that is unknown or cannot be made here.
    """
    systems = {here, "win32"} if here == "linux" else {here}
    known = [name for name, each in FORMATS.items() if each.system in systems]
    chosen = list(names) or offered(here)
    for name in chosen:
        if name not in known:
            raise Trouble(
                f"There is no package format {name!r} here; there are {', '.join(known) or 'none'}."
            )
    found = dict.fromkeys(FORMATS[name].system for name in chosen)
    return {system: [name for name in chosen if FORMATS[name].system == system] for system in found}


def make(names: Sequence[str], program: Path, out: Path = FOLDER) -> list[Path]:
    """Make packages of a bundle, by its program; all formats of this system if none is named.

    Raises Trouble for an unknown format, a missing tool, or a failed step.
    """
    chosen = [name for each in by_system(names).values() for name in each]
    for name in chosen:
        for tool, package in FORMATS[name].tools:
            if shutil.which(tool) is None:
                raise Trouble(
                    f"Making {name} needs {tool}: install the package {package} and run the "
                    "command again."
                )
    out.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for name in chosen:
        say(f"Making {name} for {FORMATS[name].text}…")
        started = time.monotonic()
        file = FORMATS[name].make(bundle.root(program), out)
        seconds = time.monotonic() - started
        say(f"  {file}: {file.stat().st_size / 1e6:.0f} MB in {seconds:.0f} s")
        files.append(file)
    return files
