"""A release of the app: its version in order of precedence, its notes, and its packages.

The order is that of Semantic Versioning 2.0: 1.0.0-rc.1 is before 1.0.0. Source:
https://semver.org/spec/v2.0.0.html#spec-item-11
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import total_ordering

_NUMBER = r"0|[1-9]\d{0,8}"
_VERSION = re.compile(
    rf"v?({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-([0-9A-Za-z.-]{{1,40}}))?(?:\+[0-9A-Za-z.-]{{1,40}})?"
)


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """A version; what follows a "+" does not count."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()  # identifiers of a pre-release

    @property
    def is_pre_release(self) -> bool:
        """Whether it comes before the release of its number."""
        return bool(self.pre)

    def __lt__(self, other: Version) -> bool:
        return self._key() < other._key()

    def __str__(self) -> str:
        number = f"{self.major}.{self.minor}.{self.patch}"
        return f"{number}-{'.'.join(self.pre)}" if self.pre else number

    def _key(self) -> tuple[object, ...]:
        numbers = (self.major, self.minor, self.patch)
        order = tuple((0, int(each), "") if each.isdecimal() else (1, 0, each) for each in self.pre)
        return (*numbers, not self.pre, order)


def version_of(text: str) -> Version | None:
    """Parse a version; None: the text is none."""
    match = _VERSION.fullmatch(text)
    if match is None:
        return None
    pre = tuple(match[4].split(".")) if match[4] else ()
    if not all(pre) or any(len(each) > 1 and each[0] == "0" and each.isdecimal() for each in pre):
        return None
    return Version(int(match[1]), int(match[2]), int(match[3]), pre)


class InstallKind(Enum):
    """How the app came onto this computer, which says how a newer version does."""

    SOURCE = "source"  # a folder of the source code, or pip
    DEB = "deb"
    RPM = "rpm"
    FLATPAK = "flatpak"
    ARCHIVE = "tar.xz"  # a folder that the user unpacked, Linux
    SETUP = "setup.exe"  # the installer for Windows
    PORTABLE = "zip"  # a folder that the user unpacked, Windows
    MAC = "dmg"


@dataclass(frozen=True, slots=True)
class Package:
    """A file of a release."""

    kind: InstallKind
    machine: str  # "x86_64" or "arm64"
    url: str
    size_bytes: int
    sha256: str
    minimum: str = ""  # the oldest system: a version of glibc, Windows or macOS; "": any

    @property
    def file(self) -> str:
        """The file's name, which the address ends in."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Release:
    """A release, as the update server describes it."""

    version: Version
    notes: str = ""  # Markdown
    page: str = ""  # address of a page about it
    packages: tuple[Package, ...] = ()

    def package(self, kind: InstallKind, machine: str) -> Package | None:
        """The package for an installation; None: there is none."""
        found = (each for each in self.packages if (each.kind, each.machine) == (kind, machine))
        return next(found, None)
