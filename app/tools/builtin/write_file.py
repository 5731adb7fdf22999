"""The tool `write_file`: a file in a folder that the user picked, whole or one text in it replaced.

What the file had before is kept by the app first. The new content is written beside it and then
takes its place at once, so that no one ever sees half of it.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.tools import CallContext, Effect, ToolError, ToolSpec
from app.system.byte_size import size
from app.system.translation import tr
from app.tools.builtin import picked
from app.tools.builtin.tool import in_thread, schema, spec
from app.tools.results import harmless
from app.tools.services import Services

MOST_BYTES = 2_000_000  # of a file that is written
_MOST_COMPARED = 100_000_000  # pairs of lines, for which it takes some 50 ms
_MOST_SEARCHED, _MOST_WORDS = 1_000_000, 20  # characters and words of a text that is nearly there
_DEEPEST = 20  # folders from the picked one
_FLAGS = ("O_NOFOLLOW", "O_CLOEXEC", "O_NOINHERIT", "O_BINARY")  # those that the system has
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | sum(getattr(os, name, 0) for name in _FLAGS)
_DESCRIPTION = (
    "Write a text file in a folder that the user picked for this chat. Send text for the whole"
    " file, or old and new to replace one exact part of it."
    ' Example: {"path": "notes.txt", "text": "Milk\\nBread"}'
)


@dataclass(frozen=True, slots=True)
class _Planned:
    """A write: where, what, and what is there now (None: nothing)."""

    place: picked.Place
    content: bytes
    before: bytes | None
    state: tuple[int, int, int] | None  # of the file that is replaced


class WriteFile:
    """Writes files; the one that is replaced is kept."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def spec(self) -> ToolSpec:
        """The tool as it is offered."""
        form = schema(
            ("path",),
            path=("string", "name of the file, from the picked folder"),
            text=("string", "whole new content"),
            old=("string", "exact part to replace; must occur once"),
            new=("string", "what replaces it"),
        )
        return spec("write_file", _DESCRIPTION, form, Effect.WRITES)

    def changes(self, arguments: Mapping[str, Any], context: CallContext) -> Sequence[str]:
        """What is written, and where; raises ToolError."""
        planned = _plan(arguments, context)
        name, folder = planned.place.name, str(planned.place.path.parent)
        made: list[str] = []
        if not os.path.isdir(folder):
            made.append(tr("Makes the folder {folder}.", folder=folder))
        if planned.before is None:
            written = size(len(planned.content)) if len(planned.content) > 999 else ""
            if written:
                made.append(
                    tr(
                        "Writes {name} ({size}) in {folder}.",
                        name=name,
                        size=written,
                        folder=folder,
                    )
                )
            else:
                made.append(tr("Writes {name} in {folder}.", name=name, folder=folder))
        elif (counted := _difference(planned.before, planned.content)) is None:
            made.append(tr("Replaces {name} in {folder}.", name=name, folder=folder))
        else:
            made.append(
                tr(
                    "Replaces {name} in {folder}; lines removed: {removed}, lines added: {added}.",
                    name=name,
                    folder=folder,
                    removed=counted[0],
                    added=counted[1],
                )
            )
        return made

    def scope(self, arguments: Mapping[str, Any]) -> str:
        """Nothing: the folders are picked for the chat."""
        del arguments
        return ""

    async def call(self, arguments: Mapping[str, Any], context: CallContext) -> str:
        """Write the file; what was done, in words. Raises ToolError."""
        planned = await in_thread(lambda _: _plan(arguments, context))
        kept = ""
        if planned.before == planned.content:
            return f"{planned.place.shown} has this content already; nothing was written."
        if planned.before is not None:
            try:
                kept = await self._services.keep(planned.place.path, planned.before)
            except OSError as error:
                reason = error.strerror or type(error).__name__
                shown = planned.place.shown
                raise ToolError(
                    f'"{shown}" cannot be kept, so it is not replaced: {reason}.'
                ) from None
        await in_thread(lambda stopped: _write(planned, stopped))
        done = "Replaced" if planned.before is not None else "Wrote"
        about = f" The version before is kept in {kept}." if kept else ""
        return f"{done} {planned.place.shown} ({picked.size_words(len(planned.content))}).{about}"


# --- what is to be written ------------------------------------------------------------------------


def _plan(arguments: Mapping[str, Any], context: CallContext) -> _Planned:
    """The write that arguments ask for; raises ToolError."""
    place = picked.locate(str(arguments["path"]), picked.writable(context), creates=True)
    if not place.parts:
        raise ToolError("This is a picked folder: add the name of a file.")
    if len(place.parts) > _DEEPEST:
        raise ToolError("The file is in too many folders within each other.")
    text, old, new = (arguments.get(name) for name in ("text", "old", "new"))
    if (text is None) == (old is None):
        raise ToolError('Send either "text" for the whole file, or "old" and "new".')
    before, state = _present(place)
    if before is None:
        for part in place.parts:
            picked.check_name(part)
    if text is not None:
        content = _encoded(str(text))
    else:
        content = _replaced(place.shown, before, str(old), str(new or ""))
    if len(content) > MOST_BYTES:
        raise ToolError(f"At most {picked.size_words(MOST_BYTES)} can be written to a file.")
    return _Planned(place, content, before, state)


def _present(place: picked.Place) -> tuple[bytes | None, tuple[int, int, int] | None]:
    """What a file has now and its state; None if it is not there."""
    if not os.path.lexists(place.path):
        return None, None
    with picked.opened_file(place) as handle:
        state = _state(os.fstat(handle))
        return picked.read_all(handle, 10 * MOST_BYTES, place.shown), state


def _state(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolError(
            "The text has half a character (a lone surrogate): send it again."
        ) from None


def _replaced(shown: str, before: bytes | None, old: str, new: str) -> bytes:
    """A file's content with one text in it replaced; raises ToolError."""
    if before is None:
        raise ToolError(f'There is no "{shown}" yet: send "text" to write it.')
    if not old:
        raise ToolError('"old" is empty: send the exact text to replace.')
    try:
        text = before.decode("utf-8")
    except UnicodeDecodeError:
        raise ToolError(f'"{shown}" is not UTF-8 text, so no part of it can be replaced.') from None
    if "\r\n" in text and "\r" not in old + new:
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    found = text.count(old)
    if found == 1:
        return _encoded(text.replace(old, new))
    if found:
        raise ToolError(
            f'"old" occurs {found} times in "{shown}": send more of the lines around it.'
        )
    raise ToolError(
        f'"old" is not in "{shown}"{_nearly(text, old)}. Read the file and copy it exactly.'
    )


def _nearly(text: str, old: str) -> str:
    """Where a text is that differs from `old` in its spaces only, for the model."""
    text = text[:_MOST_SEARCHED]
    if old in harmless(text):
        return ', where a mark such as "< |im_end|>" has no space behind its first character'
    words = [re.escape(word) for word in old.split()[:_MOST_WORDS]]
    found = re.search(r"\s+".join(words), text) if words else None
    if found is None:
        return ""
    line = text.count("\n", 0, found.start()) + 1
    return f" with these spaces and line breaks (a similar text is at line {line:,})"


def _difference(before: bytes, content: bytes) -> tuple[int, int] | None:
    """Lines that are removed and added, as few as can be; None if these are no texts.

    If many lines are from the first to the last that differs, all of these.
    """
    try:
        old, new = before.decode("utf-8").splitlines(), content.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        return None
    while old and new and old[-1] == new[-1]:
        del old[-1], new[-1]
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    old, new = old[start:], new[start:]
    if len(old) * len(new) > _MOST_COMPARED:
        return len(old), len(new)
    return len(old) - (same := _common(old, new)), len(new) - same


def _common(one: list[str], other: list[str]) -> int:
    """How many lines are in both in the same order: the length of their longest common subsequence.

    The rows of its table are whole numbers, with a bit for each line of the shorter (Hyyrö, 2004).
    """
    short, long = sorted((one, other), key=len)
    places: dict[str, int] = {}
    for at, line in enumerate(short):
        places[line] = places.get(line, 0) | 1 << at
    every = row = (1 << len(short)) - 1
    for line in long:
        both = row & places.get(line, 0)
        row = ((row + both) | (row - both)) & every
    return len(short) - row.bit_count()


# --- writing --------------------------------------------------------------------------------------


def _write(planned: _Planned, stopped: threading.Event) -> None:
    """Write it beside the file, then put it in its place; raises ToolError."""
    place = planned.place
    with picked.faults(place.shown), _folder_of(place) as folder:
        target, at = picked.within(folder, place.parts[-1])
        source, _ = picked.within(folder, f".{secrets.token_hex(8)}.part")
        mode = _mode(target, at)
        try:
            handle = os.open(source, _NEW, 0o666 if mode is None else mode, **at)
            with os.fdopen(handle, "wb") as file:
                if mode is not None and sys.platform != "win32":
                    os.fchmod(handle, mode)
                file.write(planned.content)
                file.flush()
                os.fsync(file.fileno())
            _check_unchanged(planned, target, at)
            if stopped.is_set():
                raise ToolError("The call was stopped before anything was written.")
            both = {f"{end}_dir_fd": each for end in ("src", "dst") for each in at.values()}
            os.replace(source, target, **both)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(source, **at)
            raise


@contextlib.contextmanager
def _folder_of(place: picked.Place) -> Generator[int | str]:
    """The folder of a file, made if it is missing; raises OSError."""
    for depth in range(len(place.parts) - 1):
        with picked.opened_folder(place, place.parts[:depth]) as above:
            name, at = picked.within(above, place.parts[depth])
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, **at)
    with picked.opened_folder(place, place.parts[:-1]) as folder:
        yield folder


def _mode(target: str, at: dict[str, int]) -> int | None:
    """The permissions of a file that is replaced; None: it is new."""
    try:
        found = os.stat(target, **at, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return stat.S_IMODE(found.st_mode) & 0o777


def _check_unchanged(planned: _Planned, target: str, at: dict[str, int]) -> None:
    """Raise ToolError if the file is no longer what it was when it was kept."""
    try:
        found = os.stat(target, **at, follow_symlinks=False)
    except FileNotFoundError:
        found = None
    if (_state(found) if found else None) != planned.state:
        raise ToolError(f'"{planned.place.shown}" was changed meanwhile, so it was not written.')
