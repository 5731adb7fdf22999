"""Detects the export format of files, archives and folders by their content, not by their names.

Nothing of an archive is written to the disk, and its names are used for nothing but sorting and the
titles of chats, so a name that leads elsewhere has no effect.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any

from app.chat.transfer import (
    chatgpt,
    claude,
    jan,
    lm_studio,
    native_json,
    ollama,
    open_webui,
    silly_tavern,
)
from app.chat.transfer.faults import TransferError
from app.chat.transfer.imported import ImportedChat
from app.chat.transfer.json_stream import JsonStream, Report, damaged, lines
from app.chat.transfer.native_json import NO_EXTRAS, Extras
from app.domain.transfer import Dropped, Program
from app.system.translation import tr

_OURS = re.compile(r'\{\s*"format"\s*:\s*"' + native_json.FORMAT + '"')
_ENDINGS = (".json", ".jsonl", ".ndjson")
_MOST_FILES = 100_000  # of a folder or an archive
_DEEPEST = 6  # folders below one that is imported
_LOOKED_AT = 20  # elements of a list, the first of which may be no chat
_LARGEST_RATIO = 250  # of the content of an archive to its size: text is packed to a tenth
_SMALL = 64 << 20  # bytes: content of this size is read whatever the ratio


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file in a folder or an archive."""

    name: str  # its path in it, with "/"
    size: int
    open: Callable[[], IO[bytes]]

    @property
    def stem(self) -> str:
        """Its name without folders and endings."""
        return PurePosixPath(self.name).name.partition(".")[0]


class _Layout(Enum):
    LIST = auto()  # one list of chats
    VALUES = auto()  # one chat, or one after another
    LINES = auto()  # one chat, with a message on each line
    OURS = auto()
    THREAD = auto()  # one chat, whose messages are in a file beside it
    DATABASE = auto()


@dataclass(frozen=True, slots=True)
class _Found:
    """A file with chats."""

    program: Program
    layout: _Layout
    entry: _Entry
    messages: _Entry | None = None  # of a THREAD


_VALUES = {
    Program.CHATGPT: (chatgpt.is_chat, chatgpt.to_chat),
    Program.CLAUDE: (claude.is_chat, claude.to_chat),
    Program.OPEN_WEBUI: (open_webui.is_chat, open_webui.to_chat),
    Program.LM_STUDIO: (lm_studio.is_chat, lm_studio.to_chat),
}


class Source:
    """The files with chats among those that the user chose."""

    def __init__(self, found: Sequence[_Found], problem: TransferError | None = None) -> None:
        """`problem` is why another one of the files was not read."""
        self._found, self._problem = found, problem

    @property
    def programs(self) -> tuple[Program, ...]:
        """Which programs wrote them."""
        return tuple(dict.fromkeys(each.program for each in self._found))

    @property
    def size(self) -> int:
        """Bytes to read."""
        files = (each.entry.size + (each.messages.size if each.messages else 0)
                 for each in self._found)  # fmt: skip
        return sum(files)

    def chats(
        self, report: Report, extras: Extras = NO_EXTRAS
    ) -> Iterator[tuple[Program, ImportedChat]]:
        """All chats; `report` gets the bytes read, and raises Cancelled to stop.

        Raises TransferError where a file is damaged, after the chats before that place.
        """
        problem = self._problem
        for found in self._found:
            try:
                with _translated():
                    for chat in _chats(found, report, extras):
                        yield found.program, chat
            except TransferError as error:
                problem = problem or error
        if problem is not None:
            raise problem


@contextmanager
def opened(paths: Sequence[Path]) -> Generator[Source]:
    """The source of these files and folders. Raises TransferError if there are no chats in them."""
    with ExitStack() as stack:
        found: list[_Found] = []
        problem: TransferError | None = None
        for path in paths:
            try:
                with _translated():
                    found += _look(path, stack)
            except TransferError as error:
                problem = problem or error
        if not found:
            raise problem or TransferError(
                tr("There are no chats in this file that can be imported."),
                tr(
                    "Chats of these programs can be: ChatGPT, Claude, LM Studio, Jan, Open WebUI,"
                    " SillyTavern, Ollama and Tokonoma."
                ),
            )
        yield Source(found, problem)


def has_chats(path: Path) -> bool:
    """Whether there are chats to import in a file, or in the first JSON files of a folder."""
    try:
        with ExitStack() as stack, _translated():
            if path.is_dir():
                files = (each for each in _entries_of(path) if not each.name.endswith(".sqlite"))
                return bool(_recognised([*islice(files, _LOOKED_AT)]))
            return bool(_look(path, stack))
    except TransferError:
        return False


@contextmanager
def _translated() -> Generator[None]:
    """Errors of archives and of the file system as TransferError."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise damaged() from error
    except (RuntimeError, NotImplementedError) as error:
        raise TransferError(
            tr("This archive is locked with a password, or packed in a way that is not known."),
            tr("Unpack it, and import the files in it."),
        ) from error
    except OSError as error:
        reason = error.strerror or error
        raise TransferError(tr("The file cannot be read: {reason}.", reason=reason)) from error


def _look(path: Path, stack: ExitStack) -> list[_Found]:
    """The files with chats at a path."""
    if path.is_dir():
        return _recognised(_folder_entries(path))
    with path.open("rb") as file:
        first = file.read(16)
    whole = _Entry(path.name, path.stat().st_size, lambda: path.open("rb"))
    if first.startswith(ollama.MAGIC):
        return [_Found(Program.OLLAMA, _Layout.DATABASE, _Entry(str(path), whole.size, whole.open))]
    if first.startswith(b"PK\3\4"):
        return _recognised(_archive_entries(path, stack))
    found = _recognise(whole)
    beside = path.with_name("messages.jsonl")
    if found and found.layout is _Layout.THREAD and beside.exists():
        lines_beside = _Entry(beside.name, beside.stat().st_size, lambda: beside.open("rb"))
        return [_Found(found.program, found.layout, whole, lines_beside)]
    return [found] if found else []


def _folder_entries(folder: Path) -> list[_Entry]:
    entries = list(islice(_entries_of(folder), _MOST_FILES + 1))
    if len(entries) > _MOST_FILES:
        raise TransferError(tr("There are too many files in this folder to look for chats."))
    return entries


def _entries_of(folder: Path) -> Iterator[_Entry]:
    """The files of a folder that may have chats."""
    for root, folders, names in os.walk(folder):
        place = Path(root)
        depth = len(place.relative_to(folder).parts)
        folders[:] = sorted(folders) if depth < _DEEPEST else []
        for name in sorted(names):
            path = place / name
            if name.lower().endswith((*_ENDINGS, ".sqlite")) and path.is_file():
                size = path.stat().st_size
                inner = path.relative_to(folder).as_posix()
                is_database = name.lower().endswith(".sqlite")
                yield _Entry(str(path) if is_database else inner, size, lambda p=path: p.open("rb"))


def _archive_entries(path: Path, stack: ExitStack) -> list[_Entry]:
    """The files of an archive that may have chats, checked for what would fill the memory."""
    archive = stack.enter_context(zipfile.ZipFile(path))
    infos = [each for each in archive.infolist() if each.filename.lower().endswith(_ENDINGS)]
    if len(infos) > _MOST_FILES:
        raise TransferError(tr("There are too many files in this archive to look for chats."))
    content = sum(each.file_size for each in infos)
    if content > max(_SMALL, _LARGEST_RATIO * path.stat().st_size):
        raise TransferError(
            tr("This archive would unpack to far more than an export, so it was not read.")
        )
    return [
        _Entry(each.filename, each.file_size, lambda each=each: archive.open(each))
        for each in sorted(infos, key=lambda each: _natural(each.filename))
    ]


def _natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts "chat 10" after "chat 9"."""
    pieces = re.split(r"(\d{1,18})", name)
    return [(int(piece), "") if n % 2 else (0, piece) for n, piece in enumerate(pieces)]


def _recognised(entries: Sequence[_Entry]) -> list[_Found]:
    """The files with chats among these; one that cannot be read counts only if there are no others."""
    by_name = {entry.name: entry for entry in entries}
    found: list[_Found] = []
    problem: TransferError | None = None
    for entry in entries:
        name = PurePosixPath(entry.name)
        if name.suffix.lower() == ".sqlite":
            found.append(_Found(Program.OLLAMA, _Layout.DATABASE, entry))
            continue
        try:
            one = _recognise(entry)
        except TransferError as error:
            problem = problem or error
            continue
        if one and one.layout is _Layout.THREAD:
            beside = by_name.get(name.with_name("messages.jsonl").as_posix())
            one = _Found(one.program, one.layout, entry, beside)
        if one:
            found.append(one)
    if not found and problem is not None:
        raise problem
    return found


def _recognise(entry: _Entry) -> _Found | None:
    """What a file is, by its first values; None: no chats."""
    with entry.open() as file:
        stream = JsonStream(file)
        if stream.begins(_OURS):
            return _Found(Program.TOKONOMA, _Layout.OURS, entry)
        mark = stream.peek()
        if mark == "[":
            programs = map(_program, islice(stream.elements(), _LOOKED_AT))
            program = next(filter(None, programs), None)
            return _Found(program, _Layout.LIST, entry) if program else None
        if mark != "{":
            return None
        first = stream.value()
    if silly_tavern.is_header(first):
        return _Found(Program.SILLY_TAVERN, _Layout.LINES, entry)
    if program := _program(first):
        return _Found(program, _Layout.VALUES, entry)
    return _Found(Program.JAN, _Layout.THREAD, entry) if jan.is_thread(first) else None


def _program(value: object) -> Program | None:
    fits = (program for program, (is_chat, _) in _VALUES.items() if is_chat(value))
    return next(fits, None)


def _chats(found: _Found, report: Report, extras: Extras) -> Iterator[ImportedChat]:
    """The chats of one file."""
    entry = found.entry
    if found.layout is _Layout.DATABASE:
        yield from ollama.chats(Path(entry.name), entry.size, report)
        return
    with entry.open() as file:
        if found.layout is _Layout.LINES:
            yield silly_tavern.to_chat(lines(file, report), entry.stem)
            return
        stream = JsonStream(file, report)
        if found.layout is _Layout.OURS:
            yield from native_json.read(stream, extras)
            return
        if found.layout is _Layout.THREAD:
            thread = stream.value()
            with ExitStack() as stack:
                rows: Iterator[Any] = iter(())
                if found.messages:
                    rows = lines(stack.enter_context(found.messages.open()), report)
                yield jan.to_chat(thread, rows)
            return
        values = stream.elements() if found.layout is _Layout.LIST else stream.values()
        to_chat = _VALUES[found.program][1]
        for value in values:
            if found.program is Program.LM_STUDIO:
                yield lm_studio.to_chat(value, entry.stem if found.layout is _Layout.VALUES else "")
            else:
                yield to_chat(value)


def counted(chat: ImportedChat) -> Counter[Dropped]:
    """What of a chat is dropped, itself included if it cannot be read or has no message."""
    dropped = Counter(chat.dropped)
    if chat.tree is None:
        dropped[Dropped.CHATS] += 1
    elif not chat.tree.messages:
        dropped[Dropped.EMPTY] += 1
    return dropped
