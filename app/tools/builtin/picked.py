"""Files and folders that the user picked for a chat: finding one by its name, and opening it.

A name is resolved, its links included, and must then be within what was picked. It is opened by one
folder after the other without following links, so that a link put there meanwhile is refused, where
the system can do that; on Windows the opened file is compared with the resolved one. Only plain
files are opened, and no open waits for a pipe.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.domain.tools import CallContext, ToolError
from app.system.file_names import FORBIDDEN, not_reserved

_LONGEST = 1000  # characters of a path
_MOST_NAMED = 8  # picked files and folders in an error
_BY_FOLDER = {os.open, os.stat, os.mkdir, os.rename, os.unlink} <= os.supports_dir_fd
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_CLOSED = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK | _CLOSED
_FILE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | _NO_LINK | _CLOSED
NONE_PICKED = (
    "No file or folder is picked for this chat. Ask the user to pick one below Tools in the chat's"
    " settings."
)


@dataclass(frozen=True, slots=True)
class Root:
    """A file or folder that the user picked, and what it resolves to."""

    given: Path
    real: Path
    is_file: bool


Candidate = tuple[Root, tuple[str, ...]]  # what a name may be: the names from what was picked


@dataclass(frozen=True, slots=True)
class Place:
    """A resolved file or folder within what was picked."""

    base: Path  # the resolved folder that was picked, or that of the picked file
    parts: tuple[str, ...]  # from there
    shown: str  # as the user knows it

    @property
    def path(self) -> Path:
        """The resolved path."""
        return self.base.joinpath(*self.parts)

    @property
    def name(self) -> str:
        """The last part."""
        return self.path.name


def readable(context: CallContext) -> list[Root]:
    """What a chat may read; raises ToolError if that is nothing."""
    return _roots((*context.readable, *context.writable))


def writable(context: CallContext) -> list[Root]:
    """The folders that a chat may write to; raises ToolError if there is none."""
    picks = context.writable
    found = [root for root in _roots(picks) if not root.is_file] if picks else []
    if not found:
        raise ToolError(
            "No folder to write to is picked for this chat. Ask the user to add one below Tools in the"
            " chat's settings, and to let tools write into it."
        )
    return found


def _roots(picked: Sequence[Path]) -> list[Root]:
    made: dict[Path, Root] = {}
    for path in picked:
        given = Path(os.path.abspath(path))
        real = Path(os.path.realpath(given))
        made.setdefault(real, Root(given, real, not os.path.isdir(real)))
    if not made:
        raise ToolError(NONE_PICKED)
    return list(made.values())


def locate(text: str, roots: Sequence[Root], *, creates: bool = False) -> Place:
    """The place that a model names, absolute or from a picked folder; raises ToolError.

    With `creates` it need not exist yet.
    """
    parts = _parts(text)
    found = _candidates(text, parts, roots)
    there = [each for each in found if os.path.lexists(_joined(each[0], each[1]))]
    there = _likeliest(list({_joined(*each): each for each in there}.values()), parts)
    if len(there) > 1:
        names = [_shown(*each) for each in there[:_MOST_NAMED]]
        paths = [_joined(*each) for each in there[:_MOST_NAMED]]
        named = " or ".join(names if len(set(names)) == len(names) else paths)
        raise ToolError(f'"{text}" may be {named}: send one of these.')
    if there:
        return _resolved(*there[0], roots)
    found = _likeliest(found, parts)
    if not creates or not found:
        raise ToolError(f'There is no "{text}" in what is picked for this chat: {_named(roots)}.')
    if len({root for root, _ in found}) > 1:
        raise ToolError(f'Begin "{text}" with the folder it is for: {_named(roots)}.')
    return _resolved(*found[0], roots)


def _likeliest(found: list[Candidate], parts: tuple[str, ...]) -> list[Candidate]:
    """The one that begins with the name of its picked folder, if it is the only such; else all."""
    named = [each for each in found if _shown(*each) == "/".join(parts)]
    return named if len(named) == 1 else found


def _parts(text: str) -> tuple[str, ...]:
    """The names in a path; raises ToolError for one that no picked folder may have."""
    text = text.strip()
    if not text or len(text) > _LONGEST:
        raise ToolError(f'Send a "path" of 1 to {_LONGEST:,} characters.')
    if any(ord(letter) < 32 or "\ud800" <= letter <= "\udfff" for letter in text):
        raise ToolError("A path has no control characters.")
    made = tuple(part for part in text.replace("\\", "/").split("/") if part not in ("", "."))
    if ".." in made:
        raise ToolError('A path has no "..": name the file from a picked folder.')
    if sys.platform == "win32":
        for part in made[bool(Path(text).drive) :]:
            check_name(part)
    return made


def check_name(name: str) -> None:
    """Raise ToolError for a name that is not one on every system."""
    if FORBIDDEN.search(name) or not_reserved(name) != name or name != name.strip(" ").rstrip("."):
        raise ToolError(f'"{name[:60]}" is no name of a file on every system: choose another one.')
    if len(name.encode("utf-8", "replace")) > 200:
        raise ToolError("A name of a file has at most 200 bytes: choose a shorter one.")


def _candidates(text: str, parts: tuple[str, ...], roots: Sequence[Root]) -> list[Candidate]:
    """What a path may be: a picked file or folder and the names from there."""
    path = Path(os.path.expanduser(text.strip())) if text.strip().startswith("~") else None
    path = path or Path(text.strip())
    made: list[Candidate] = []
    if path.is_absolute():
        for root in roots:
            for base in (root.given, root.real):
                if path.is_relative_to(base):
                    made.append((root, path.relative_to(base).parts))
                    break
        return made
    for root in roots:
        if parts and parts[0] == root.given.name and (len(parts) == 1 or not root.is_file):
            made.append((root, parts[1:]))
        if not root.is_file:
            made.append((root, parts))
    return made


def _joined(root: Root, parts: tuple[str, ...]) -> str:
    return str(root.real.joinpath(*parts))


def _shown(root: Root, parts: tuple[str, ...]) -> str:
    return "/".join((root.given.name or str(root.given), *parts))


def _named(roots: Sequence[Root]) -> str:
    """The picked files and folders in an error."""
    names = [root.given.name + ("" if root.is_file else "/") for root in roots]
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _resolved(root: Root, parts: tuple[str, ...], roots: Sequence[Root]) -> Place:
    """The place behind all links; raises ToolError if that is not picked."""
    real = Path(os.path.realpath(root.real.joinpath(*parts)))
    for each in roots:
        if each.is_file and real == each.real:
            return Place(real.parent, (real.name,), _shown(root, parts))
        if not each.is_file and real.is_relative_to(each.real):
            return Place(each.real, real.relative_to(each.real).parts, _shown(root, parts))
    raise ToolError(
        f'"{_shown(root, parts)}" leads outside what is picked for this chat, so it is refused.'
    )


# --- opening --------------------------------------------------------------------------------------


@contextmanager
def faults(shown: str) -> Generator[None]:
    """Errors of the file system as ToolError."""
    try:
        yield
    except FileNotFoundError:
        raise ToolError(f'"{shown}" is not there.') from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise ToolError(
                f'"{shown}" became a link while it was opened, so it is refused.'
            ) from None
        if error.errno in (errno.ENXIO, errno.EOPNOTSUPP):
            raise ToolError(f'"{shown}" is no plain file.') from None
        reason = error.strerror or type(error).__name__
        raise ToolError(f'"{shown}" cannot be used: {reason}.') from None


@contextmanager
def opened_file(place: Place) -> Generator[int]:
    """A handle of a plain file, to read; raises ToolError."""
    with faults(place.shown), opened_folder(place, place.parts[:-1]) as folder:
        name, at = within(folder, place.parts[-1])
        handle = os.open(name, _FILE, **at)
    try:
        with faults(place.shown):
            _check_file(handle, place)
        yield handle
    finally:
        os.close(handle)


def _check_file(handle: int, place: Place) -> None:
    """Raise ToolError for what is no plain file, or not the one that was resolved."""
    found = os.fstat(handle)
    if stat.S_ISDIR(found.st_mode):
        raise ToolError(f'"{place.shown}" is a folder: use list_folder.')
    if not stat.S_ISREG(found.st_mode):
        raise ToolError(f'"{place.shown}" is no plain file.')
    if not _BY_FOLDER and not _is_resolved(place, found):
        raise ToolError(f'"{place.shown}" became a link while it was opened, so it is refused.')


def _is_resolved(place: Place, found: os.stat_result) -> bool:
    """Whether an opened file is the one at the resolved path, which has no link."""
    here = os.stat(place.path, follow_symlinks=False)
    same = (here.st_dev, here.st_ino) == (found.st_dev, found.st_ino)
    return same and os.path.realpath(place.path) == str(place.path)


@contextmanager
def opened_folder(place: Place, parts: tuple[str, ...] | None = None) -> Generator[int | str]:
    """A folder, or the one of these `parts` from its base: its handle, which no link led to.

    Its path where the system does not open files by the handle of their folder. Raises OSError.
    """
    parts = place.parts if parts is None else parts
    if not _BY_FOLDER:
        path = str(place.base.joinpath(*parts))
        if os.path.realpath(path) != path:
            raise OSError(errno.ELOOP, "a link")
        yield path
        return
    handle = os.open(place.base, _FOLDER)
    try:
        for part in parts:
            inner = os.open(part, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def within(folder: int | str, name: str) -> tuple[str, dict[str, int]]:
    """A file of an opened folder, as functions of `os` take it: its path, and `dir_fd`."""
    return (name, {"dir_fd": folder}) if isinstance(folder, int) else (f"{folder}/{name}", {})


def by_folder() -> bool:
    """Whether this system opens files by the handle of their folder."""
    return _BY_FOLDER


def read_all(handle: int, most: int, shown: str) -> bytes:
    """The bytes of an open file; raises ToolError if there are more than `most`."""
    with faults(shown), os.fdopen(os.dup(handle), "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ToolError(f'"{shown}" is larger than {size_words(most)}, which is the limit.')
    return content


def size_words(size: int) -> str:
    """A size in bytes for the model."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("KB", 1000)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size} bytes"
