"""Packages: installers and archives made from the bundle, one function for each format.

`FORMATS` is the list; a format is made on the system whose bundle it contains.
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
}


def offered(system: str = sys.platform) -> list[str]:
    """The formats that can be made on a system."""
    return [name for name, each in FORMATS.items() if each.system == system]


def of_file(file: Path) -> Format:
    """The format of a package by its name's ending."""
    return next(each for ending, each in FORMATS.items() if file.name.endswith(f".{ending}"))


def make(names: Sequence[str], program: Path, out: Path = FOLDER) -> list[Path]:
    """Make packages of a bundle, by its program; all formats of this system if none is named.

    Raises Trouble for an unknown format, a missing tool, or a failed step.
    """
    known = offered()
    chosen = list(names) or known
    for name in chosen:
        if name not in known:
            raise Trouble(
                f"There is no package format {name!r} here; there are {', '.join(known) or 'none'}."
            )
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
