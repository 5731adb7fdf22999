"""Record of the versions that ran here: which of them answered, and what was shown and asked.

The file is replaced atomically, and keys that only another version knows stay in it. A version that
is updated stays on the disk until the new one has answered once; then its folder is no longer
needed, and its deletion is offered. A folder is only named if it is of this app, and not this one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from app.domain.release import InstallKind, Version, version_of
from app.system import json_file
from app.updates.install import FORMER, Installed
from engine import disk_files

_MOST = 20  # versions that are remembered
_NONE = Version(-1, 0, 0)
_INTERNAL, _GONE = "_internal", "_internal.deleted"
# All that a package puts beside it; what else is in the folder is the user's.
_FILES = ("tokonoma", "Tokonoma.exe", "install.sh", "README.txt", "LICENSE.txt")
_SHARE = "share"  # menu entry, icons, manual of an archive: files of these names
_OWN = ("tokonoma.", "app.tokonoma.")


@dataclass(frozen=True, slots=True)
class Former:
    """A version that was used before, and is still on the disk."""

    version: str
    folder: Path


class History:
    """The record; methods read and write the file, and raise `JsonFileError`."""

    def __init__(
        self, path: Path, version: str, here: Installed, now: Callable[[], float] = time.time
    ) -> None:
        self._path, self._version, self._here, self._now = path, version, here, now

    @property
    def checked(self) -> float:
        """When a newer version was looked for last, in Unix seconds; 0: never."""
        value: object = self._read().get("checked")
        if isinstance(value, bool) or not isinstance(value, int | float):
            return 0.0
        return float(value) if 0 <= value < 1e12 else 0.0

    @property
    def offered(self) -> str:
        """The newer version that the user was told of last."""
        return str(self._read().get("offered", ""))

    @property
    def has_answered(self) -> bool:
        """Whether this version has answered."""
        row = self._versions().get(self._version, {})
        return row.get("answered") is True and row.get("folder") == str(self._here.folder)

    def note_start(self) -> bool:
        """Note that this version runs; returns whether another one did before it.

        That is said once, at the first start after an update or a downgrade.
        """
        stored = self._read()
        last = stored.get("last")
        versions, folder = self._versions(), str(self._here.folder)
        row = versions.pop(self._version, {})
        if last != self._version or row.get("folder") != folder:
            answered = row.get("answered") is True and row.get("folder") == folder
            # What was in this folder before was replaced by this version.
            versions = {
                name: each for name, each in versions.items() if each.get("folder") != folder
            }
            versions[self._version] = {**row, "folder": folder, "answered": answered}
            newest = sorted(versions, key=self._order)[-_MOST:]
            kept = {version: versions[version] for version in newest}
            json_file.write(self._path, {"last": self._version, "versions": kept})
        return isinstance(last, str) and last != self._version

    def note_answer(self) -> None:
        """Note that this version has answered."""
        if not self.has_answered:
            self._note(folder=str(self._here.folder), answered=True)

    @property
    def newest(self) -> str:
        """The newest version that was found when it was looked for last; "": not known."""
        return str(self._read().get("newest", ""))

    def note_check(self, newest: str) -> None:
        """Note that a newer version was looked for now, and which is the newest."""
        json_file.write(self._path, {"checked": self._now(), "newest": newest})

    def note_offer(self, version: str) -> None:
        """Note that the user was told of a newer version."""
        json_file.write(self._path, {"offered": version})

    def former(self) -> list[Former]:
        """The older versions on the disk that are no longer needed; none before this one answered.

        The folders of packages belong to the system's package manager, and are not among them.
        """
        own, here = version_of(self._version), self._here.folder.resolve()
        if not self.has_answered or own is None:
            return []
        if self._here.kind not in (InstallKind.ARCHIVE, InstallKind.PORTABLE):
            return []
        found: list[Former] = []
        for version, row in self._versions().items():
            folder, other = Path(str(row.get("folder", ""))), version_of(version)
            place = folder.resolve()  # a folder may have two paths, by a link above it
            apart = not here.is_relative_to(place) and not place.is_relative_to(here)
            if other is not None and other < own and apart and is_folder_of_app(folder):
                found.append(Former(version, folder))
        return found

    def clean(self) -> None:
        """Remove what the installer for Windows kept of the version before, once this one answered;
        and finish removals that were interrupted. Raises OSError.
        """
        kept = self._here.folder / FORMER
        if self._here.kind is InstallKind.SETUP and self.has_answered and is_folder_of_app(kept):
            remove(kept)
        for row in self._versions().values():
            if (gone := Path(str(row.get("folder", ""))) / _GONE).is_dir():
                disk_files.delete_folder(gone)

    def _order(self, version: str) -> tuple[bool, Version]:
        """For sorting: what is no version first, this one last."""
        return version == self._version, version_of(version) or _NONE

    def _note(self, **values: object) -> None:
        versions = self._versions()
        versions[self._version] = {**versions.get(self._version, {}), **values}
        json_file.write(self._path, {"versions": versions})

    def _read(self) -> dict[str, Any]:
        return json_file.read(self._path)

    def _versions(self) -> dict[str, dict[str, Any]]:
        stored = self._read().get("versions")
        rows = cast("dict[str, object]", stored) if isinstance(stored, dict) else {}
        return {
            version: cast("dict[str, Any]", row)
            for version, row in rows.items()
            if isinstance(row, dict)
        }


def is_folder_of_app(folder: Path) -> bool:
    """Whether a folder is a whole installation of the app, and no link to one."""
    if not folder.is_absolute() or folder.is_symlink() or not (folder / _INTERNAL).is_dir():
        return False
    return any((folder / name).is_file() for name in ("tokonoma", "Tokonoma.exe"))


def remove(folder: Path) -> None:
    """Delete an installation of the app; other files in its folder stay. Raises OSError.

    Its libraries are renamed first, so that it is whole or none; `History.clean` deletes what a
    crash leaves.
    """
    if not is_folder_of_app(folder):
        raise FileNotFoundError(2, os.strerror(2), str(folder))
    gone = folder / _GONE
    with suppress(OSError):
        disk_files.delete_folder(gone)
    disk_files.rename(folder / _INTERNAL, gone)
    for name in _FILES:
        disk_files.delete(folder / name)
    with suppress(OSError):
        if _is_own_share(folder / _SHARE):
            disk_files.delete_folder(folder / _SHARE)
    disk_files.delete_folder(gone)
    with suppress(OSError):  # there are other files in it
        folder.rmdir()


def _is_own_share(folder: Path) -> bool:
    """Whether all files in a folder are of the app: in ~/.local, "share" has those of all programs."""
    files = (name for _, _, names in os.walk(folder) for name in names)
    return not folder.is_symlink() and all(name.startswith(_OWN) for name in files)
