"""How this app was installed: the kind of package, its folder, and the system that it runs on."""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from app.domain.release import InstallKind, Package

FORMER = "former"  # folder in that of a Windows installation, with the version before


@dataclass(frozen=True, slots=True)
class Installed:
    """An installation of the app."""

    kind: InstallKind
    machine: str  # as in `Package`
    program: Path  # what starts it
    system: str = ""  # version of glibc, Windows or macOS; "": not known

    @property
    def folder(self) -> Path:
        """The folder with all its files."""
        return self.program.parents[2] if self.kind is InstallKind.MAC else self.program.parent

    def is_too_old(self, package: Package) -> bool:
        """Whether the system is older than a package needs."""
        if not (package.minimum and self.system):
            return False
        return _numbers(self.system) < _numbers(package.minimum)


def installed(
    system: str = sys.platform,
    program: Path | None = None,
    *,
    frozen: bool | None = None,
    root: Path = Path("/"),
) -> Installed:
    """This installation. The arguments stand for another one: `root` holds the system's files."""
    program = program or Path(sys.executable)
    frozen = bool(getattr(sys, "frozen", False)) if frozen is None else frozen
    kind = _kind(system, program, root) if frozen else InstallKind.SOURCE
    return Installed(kind, _machine(), program, _version(system))


def _kind(system: str, program: Path, root: Path) -> InstallKind:
    if system == "darwin":
        return InstallKind.MAC
    if system == "win32":  # the installer leaves its uninstaller beside the program
        is_setup = (program.parent / "uninstall.exe").is_file()
        return InstallKind.SETUP if is_setup else InstallKind.PORTABLE
    if (root / ".flatpak-info").is_file():
        return InstallKind.FLATPAK
    if program.is_relative_to(root / "usr") and not program.is_relative_to(root / "usr/local"):
        packages = root / "var/lib/dpkg/info/tokonoma.list"
        return InstallKind.DEB if packages.is_file() else InstallKind.RPM
    return InstallKind.ARCHIVE


def _machine() -> str:
    name = platform.machine().lower()
    return {"amd64": "x86_64", "aarch64": "arm64"}.get(name, name)


def _version(system: str) -> str:
    """The version that packages name as the oldest they run on."""
    if system == "darwin":
        return platform.mac_ver()[0]
    if system == "win32":
        return platform.version()
    try:
        return os.confstr("CS_GNU_LIBC_VERSION").removeprefix("glibc ")  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):  # another C library
        return ""


def _numbers(version: str) -> list[int]:
    version = re.sub(r"(\.0)+$", "", version)  # 13 is 13.0
    return [int(each) for each in version.split(".") if each.isdecimal()]
