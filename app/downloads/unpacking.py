"""Unpacking of wheels: every path is checked, and every file against the hash in its RECORD.

Nothing of a wheel is run. What only developers need (headers, tests, scripts) is left out.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import stat
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from app.downloads.policy import DownloadError
from app.system.translation import tr
from engine import disk_files

_CHUNK = 1 << 20  # bytes
_LEFT_OUT = ("torch/include/", "torch/share/", "torch/test/")
_UNHASHED = ("RECORD", "RECORD.jws", "RECORD.p7s")
_RESERVED = set('<>:"|?*\\')
# RuntimeError: an encrypted file, or a compression that is not known.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, csv.Error),
    *(EOFError, LookupError, RuntimeError, ValueError),
)


def unpack(
    wheel: Path, folder: Path, most_bytes: int, check_stop: Callable[[], None] = lambda: None
) -> None:
    """Unpack a wheel into `folder`; files that are there are replaced.

    `most_bytes` is the size of all its files; `check_stop` may raise in between. Raises
    DownloadError for a wheel that is damaged or unsafe, and OSError.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            entries = [each for each in archive.infolist() if not each.is_dir()]
            if sum(each.file_size for each in entries) > most_bytes:
                raise _damaged(wheel, "its files are larger than stated")
            hashes = _hashes(archive, entries, wheel)
            for entry in entries:
                target = _target(entry, wheel)
                if target is not None:
                    _unpack_file(archive, entry, folder / target, hashes, wheel, check_stop)
    except _DAMAGE as error:
        raise _damaged(wheel, str(error)) from error


def verify(folder: Path, check_stop: Callable[[], None] = lambda: None) -> bool:
    """Whether every unpacked file has the hash in the RECORD of its package, and is in one.

    A power cut may have emptied a RECORD too: then files are in none.
    """
    hashes: dict[Path, str] = {}
    try:
        for record in folder.glob("*.dist-info/RECORD"):
            for name, hash in _rows(record.read_bytes()).items():
                if (target := _path(name)) is not None:
                    hashes[folder / target] = hash
        for path, hash in hashes.items():
            if hash and _file_hash(path, check_stop) != hash:
                return False
    except (FileNotFoundError, csv.Error, ValueError):
        return False
    unpacked = (path for path in folder.rglob("*") if not path.is_dir())
    return bool(hashes) and all(path in hashes or path.name in _UNHASHED[1:] for path in unpacked)


def _file_hash(path: Path, check_stop: Callable[[], None]) -> str:
    running = hashlib.sha256()
    with open(disk_files.system_path(path), "rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            check_stop()
            running.update(chunk)
    return _text(running.digest())


def _unpack_file(
    archive: zipfile.ZipFile,
    entry: zipfile.ZipInfo,
    target: Path,
    hashes: dict[str, str],
    wheel: Path,
    check_stop: Callable[[], None],
) -> None:
    disk_files.make_folder(target.parent)
    running, place = hashlib.sha256(), disk_files.system_path(target)
    with archive.open(entry) as packed, open(place, "wb") as file:
        while chunk := packed.read(_CHUNK):
            check_stop()
            running.update(chunk)
            file.write(chunk)
    is_unhashed = PurePosixPath(entry.filename).name in _UNHASHED
    if not is_unhashed and hashes.get(entry.filename) != _text(running.digest()):
        raise _damaged(wheel, entry.filename)
    if entry.external_attr >> 16 & 0o111:  # a program, such as the assembler of Triton
        os.chmod(place, os.stat(place).st_mode | 0o111)


def _hashes(
    archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo], wheel: Path
) -> dict[str, str]:
    """SHA-256 by file name, as the wheel's RECORD has them."""
    records = [
        each.filename
        for each in entries
        if (parts := PurePosixPath(each.filename).parts)[-1] == "RECORD"
        and len(parts) == 2
        and parts[0].endswith(".dist-info")
    ]
    if len(records) != 1:
        raise _damaged(wheel, "RECORD")
    return _rows(archive.read(records[0]))


def _rows(record: bytes) -> dict[str, str]:
    rows = csv.reader(record.decode("utf-8").splitlines())
    return {row[0]: row[1].removeprefix("sha256=") for row in rows if len(row) == 3}


def _target(entry: zipfile.ZipInfo, wheel: Path) -> PurePosixPath | None:
    """Where a file goes below the folder; None if it is left out. Raises DownloadError."""
    path, mode = PurePosixPath(entry.filename), entry.external_attr >> 16
    special = stat.S_IFMT(mode) not in (0, stat.S_IFREG)
    # Windows leaves out spaces and dots at the end of a name, so that ".. " is the folder above.
    odd = any(part[-1] in ". " for part in path.parts)
    if special or path.is_absolute() or odd or _RESERVED & {*entry.filename}:
        raise _damaged(wheel, entry.filename)
    return _path(entry.filename)


def _path(name: str) -> PurePosixPath | None:
    """Path of a wheel's file below the folder; None if it is left out."""
    first, *rest = PurePosixPath(name).parts
    if name.startswith(_LEFT_OUT) or first == "..":  # ".." : scripts, in the RECORD of an installer
        return None
    if not first.endswith(".data"):
        return PurePosixPath(name)
    return PurePosixPath(*rest[1:]) if rest[:1] in (["purelib"], ["platlib"]) else None


def _text(digest: bytes) -> str:
    """A hash as RECORD has it."""
    return base64.urlsafe_b64encode(digest).decode("ascii").rstrip("=")


def _damaged(wheel: Path, what: str) -> DownloadError:
    return DownloadError(
        tr("{name} is damaged: {reason}.", name=wheel.name, reason=what),
        tr("Try again later. If it happens again, report it."),
    )
