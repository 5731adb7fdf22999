"""The tools `read_file` and `list_folder`: of what the user picked for the chat, no other files."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

from app.domain.tools import CallContext, Effect, ToolError, ToolSpec
from app.tools.builtin import picked
from app.tools.builtin.tool import Changeless, document_text, in_thread, schema, spec
from app.tools.services import Services

MOST_SHOWN = 20_000  # characters of one call
_MOST_BYTES = 64_000_000  # of a text in memory
_MOST_DOCUMENT = 200_000_000
_LONGEST_LINE = 2000  # characters; a longer line is cut, with a note
_MOST_ENTRIES = 300  # shown of a folder
_MOST_VISITED = 20_000  # entries looked at for a pattern
_DEEPEST = 12  # folders within each other
_LATEST = 253_000_000_000  # seconds since 1970, in the year 9987: what a date can be
# How documents begin that are no text but have one.
_DOCUMENTS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"{\\rtf")
_READ = (
    "Read a file that the user picked for this chat, or one in a picked folder. Long files come in"
    ' parts of lines. Example: {"path": "notes.txt", "first_line": 1}'
)
_LIST = (
    "List a folder that the user picked for this chat; without a path: everything picked. With a"
    ' pattern it searches subfolders too. Example: {"path": "project", "pattern": "*.py"}'
)


class ReadFile(Changeless):
    """Reads lines of a text file, or of the text of a document."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def spec(self) -> ToolSpec:
        """The tool as it is offered."""
        form = schema(
            ("path",),
            path=("string", "name of the file, from a picked folder or absolute"),
            first_line=("integer", "default 1"),
            lines=("integer", "how many lines; default as many as fit"),
        )
        return spec("read_file", _READ, form, Effect.READS)

    async def call(self, arguments: Mapping[str, Any], context: CallContext) -> str:
        """The lines, below a line that says which they are; raises ToolError."""
        first = int(arguments.get("first_line") or 1)
        count = int(arguments.get("lines") or 0)
        if first < 1 or count < 0:
            raise ToolError('"first_line" and "lines" are 1 or more.')
        place, content = await in_thread(lambda _: _content(str(arguments["path"]), context))
        text = await in_thread(lambda _: text_of_bytes(content))
        if text is None:
            text = await self._document(place, content)
        return await in_thread(
            lambda _: numbered_part(place.shown, text, len(content), first, count)
        )

    async def _document(self, place: picked.Place, content: bytes) -> str:
        """The text of a document; raises ToolError."""
        ending = Path(place.name).suffix[:12]
        try:
            return await document_text(self._services, content, ending, place.name)
        except ToolError as error:
            size = picked.size_words(len(content))
            raise ToolError(f'"{place.shown}" ({size}) is no text file. {error}') from None


def _content(path: str, context: CallContext) -> tuple[picked.Place, bytes]:
    place = picked.locate(path, picked.readable(context))
    if not place.parts:
        raise ToolError(f'"{place.shown}" is a folder: use list_folder.')
    with picked.opened_file(place) as handle:
        return place, picked.read_all(handle, _MOST_DOCUMENT, place.shown)


def text_of_bytes(content: bytes) -> str | None:
    """The text of a text file in any encoding; None for another file."""
    if content.startswith(_DOCUMENTS) or b"%PDF-" in content[:1024]:
        return None
    if len(content) > _MOST_BYTES:
        return None if b"\0" in content[:8192] else _too_long()
    if b"\0" not in content:
        try:
            return _lines_ended(content.decode("utf-8-sig"))
        except UnicodeDecodeError:
            pass
    from app.documents.decoding import decode, is_text

    found = decode(content).text
    return _lines_ended(found) if found and is_text(found[:100_000]) else None


def _too_long() -> str:
    raise ToolError(f"A text of more than {picked.size_words(_MOST_BYTES)} cannot be read.")


def _lines_ended(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def numbered_part(shown: str, text: str, size: int, first: int, count: int) -> str:
    """Some lines of a text, with a line above that says which, and one below on how to go on."""
    if not text.strip():
        return f"{shown} ({picked.size_words(size)}) is empty."
    total = text.count("\n") + (not text.endswith("\n"))
    if first > total:
        raise ToolError(f'"{shown}" has {total:,} lines: send a smaller "first_line".')
    start = 0
    for _ in range(first - 1):  # not split: a long file has millions of lines
        start = text.index("\n", start) + 1
    made: list[str] = []
    room, longest = MOST_SHOWN, _LONGEST_LINE if total > 1 else MOST_SHOWN
    cut = False
    while start < len(text) and not 0 < count <= len(made):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        kept = text[start : min(end, start + longest)]
        if room - len(kept) - 1 < 0 and made:
            break
        cut = cut or start + len(kept) < end
        room -= len(kept) + 1
        made.append(kept)
        start = end + 1
    last = first + len(made) - 1
    head = f"{shown}, lines {first:,} to {last:,} of {total:,} ({picked.size_words(size)}):"
    tail = f'\n[To go on, send "first_line": {last + 1}.]' if last < total else ""
    note = "\n[Longer lines were cut.]" if cut else ""
    return "\n".join((head, *made)) + note + tail


# --- folders --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str  # from the listed folder
    mode: int
    size: int
    changed: float


class ListFolder(Changeless):
    """Lists folders; links are named and not followed."""

    @property
    def spec(self) -> ToolSpec:
        """The tool as it is offered."""
        form = schema(
            (),
            path=("string", "a picked folder or one in it"),
            pattern=("string", 'such as "*.txt"; searches subfolders'),
        )
        return spec("list_folder", _LIST, form, Effect.READS)

    async def call(self, arguments: Mapping[str, Any], context: CallContext) -> str:
        """Names, sizes and dates; raises ToolError."""
        path, pattern = str(arguments.get("path") or ""), str(arguments.get("pattern") or "")
        return await in_thread(lambda stopped: _listing(path, pattern, context, stopped))


def _listing(path: str, pattern: str, context: CallContext, stopped: threading.Event) -> str:
    roots = picked.readable(context)
    if path.strip() in ("", ".", "/"):
        if len(roots) > 1 or roots[0].is_file:
            folders = [str(root.given) for root in roots if not root.is_file]
            if pattern and folders:
                return "\n".join(_listing(each, pattern, context, stopped) for each in folders)
            names = sorted(f"{root.given.name}{'' if root.is_file else '/'}" for root in roots)
            return "Picked for this chat:\n" + "\n".join(names)
        path = roots[0].given.name or str(roots[0].given)
    place = picked.locate(path, roots)
    with picked.faults(place.shown):
        # "**/" is any folder, and "*" has "/" in it too.
        found = _entries(place, pattern.casefold().replace("**/", ""), stopped)
    if not found:
        about = f' with a name like "{pattern}"' if pattern else ""
        return f"{place.shown}/ has no files{about}."
    found.sort(key=lambda each: (not stat.S_ISDIR(each.mode), each.name.casefold()))
    lines = [_line(each) for each in found[:_MOST_ENTRIES]]
    more = len(found) - len(lines)
    tail = [f"[{more:,} more are not shown: send a pattern.]"] if more > 0 else []
    return "\n".join((f"{place.shown}/ ({len(found):,} entries):", *lines, *tail))


def _line(entry: _Entry) -> str:
    if stat.S_ISDIR(entry.mode):
        return f"{entry.name}/"
    if stat.S_ISLNK(entry.mode):
        return f"{entry.name} (link)"
    if not stat.S_ISREG(entry.mode):
        return f"{entry.name} (no plain file)"
    changed = f"{datetime.fromtimestamp(min(max(entry.changed, 0), _LATEST)):%Y-%m-%d}"
    return f"{entry.name}  {picked.size_words(entry.size)}  {changed}"


def _entries(place: picked.Place, pattern: str, stopped: threading.Event) -> list[_Entry]:
    """The entries of a folder or, with a pattern, those below it whose names fit.

    Raises ToolError if there are too many to look at, and OSError.
    """
    left = _MOST_VISITED
    made: list[_Entry] = []
    waiting: list[tuple[str, ...]] = [()]
    while waiting and not stopped.is_set():
        inner = waiting.pop()
        try:
            found = _scanned(place, inner, left + 1)
        except OSError:
            if not inner:
                raise
            continue  # it may not be read, or has gone meanwhile
        left -= len(found)
        if left < 0:
            raise ToolError(
                f'"{place.shown}" has more than {_MOST_VISITED:,} entries: list a folder in it.'
            )
        for entry in found:
            name = "/".join((*inner, entry.name))
            if not pattern or fnmatchcase(
                (name if "/" in pattern else entry.name).casefold(), pattern
            ):
                made.append(_Entry(name, entry.mode, entry.size, entry.changed))
            if pattern and stat.S_ISDIR(entry.mode) and len(inner) < _DEEPEST:
                waiting.append((*inner, entry.name))
    return made


def _scanned(place: picked.Place, inner: tuple[str, ...], most: int) -> list[_Entry]:
    """What is in a folder, which is opened without following links; raises OSError."""
    with picked.opened_folder(place, (*place.parts, *inner)) as folder, os.scandir(folder) as all_:
        return [_entry(each) for each in islice(all_, most)]


def _entry(found: os.DirEntry[str]) -> _Entry:
    try:
        about = found.stat(follow_symlinks=False)
    except OSError:  # deleted meanwhile, or not allowed
        return _Entry(found.name, 0, 0, 0.0)
    return _Entry(found.name, about.st_mode, about.st_size, about.st_mtime)
