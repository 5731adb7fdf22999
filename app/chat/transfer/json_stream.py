"""Incremental JSON reader: yields one element of a long list at a time, so no file is loaded whole.

The standard parser reads each element and reports where it stopped: an error at the end of the
buffer means an incomplete element, which needs more input; any other error means a damaged file.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import IO, Any

from app.chat.transfer.faults import TransferError
from app.system.byte_size import size
from app.system.translation import tr

CHUNK = 1 << 18  # bytes
LARGEST_VALUE = 128 << 20  # characters of one value: one chat, if the file is a list of chats
_TAIL = 16  # characters: an error so close to the end may be a value that is cut
_SPACE = re.compile(r"[ \t\r\n]*")
_LONG_NUMBER = 4000  # digits: Python refuses to convert longer ones

Report = Callable[[int], None]  # gets the number of bytes read since the last call


def _integer(text: str) -> int | float:
    return int(text) if len(text) < _LONG_NUMBER else float("inf")


_DECODER = json.JSONDecoder(strict=False, parse_int=_integer)
_PLAIN = json.JSONDecoder(strict=False)  # faster: its numbers are converted in C


class JsonStream:
    """Reads values from a file; raises TransferError for damaged and hostile ones."""

    def __init__(self, file: IO[bytes], report: Report = lambda _: None) -> None:
        self._file = file
        self._report = report
        self._text, self._at = "", 0
        self._ended = False
        first = self._read(max(CHUNK, 4))  # with the whole byte order mark
        name = "utf-8-sig"
        if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            name = "utf-16"
        self._bytes_to_text = codecs.getincrementaldecoder(name)("replace")
        self._text = self._bytes_to_text.decode(first, final=self._ended)

    def _read(self, count: int) -> bytes:
        piece = self._file.read(count)
        self._ended = not piece
        self._report(len(piece))
        return piece

    def _more(self) -> bool:
        """Read on; False at the end of the file."""
        if self._ended:
            return False
        left = len(self._text) - self._at
        if left > LARGEST_VALUE:
            raise TransferError(
                tr("A chat in this file is larger than {size}.", size=size(LARGEST_VALUE)),
                tr("It is not read, because it might fill the memory of this computer."),
            )
        piece = self._read(max(CHUNK, left))
        text = self._bytes_to_text.decode(piece, final=self._ended)
        self._text, self._at = self._text[self._at :] + text, 0
        return True

    def peek(self) -> str:
        """The next character that is not white space; "" at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def begins(self, pattern: re.Pattern[str]) -> bool:
        """Whether what follows matches."""
        self.peek()
        return pattern.match(self._text, self._at) is not None

    def _skip(self, mark: str) -> None:
        if self.peek() != mark:
            raise damaged()
        self._at += 1

    def value(self) -> Any:
        """The next value."""
        if not self.peek():
            raise damaged()
        while True:
            try:
                value, end = _decoded(self._text, self._at)
            except json.JSONDecodeError as error:
                open_text = error.msg.startswith("Unterminated string")
                is_cut = open_text or error.pos >= len(self._text) - _TAIL
                if not is_cut or not self._more():
                    raise damaged() from error
                continue
            if end == len(self._text) and self._more():
                continue  # a number may go on
            self._at = end
            return value

    def elements(self) -> Iterator[Any]:
        """The elements of the list that follows."""
        self._skip("[")
        if self.peek() == "]":
            self._at += 1
            return
        while True:
            yield self.value()
            mark = self.peek()
            self._at += 1
            if mark == "]":
                return
            if mark != ",":
                raise damaged()

    def names(self) -> Iterator[str]:
        """The names of the members of the object that follows; read each value before the next."""
        self._skip("{")
        while self.peek() != "}":
            name = self.value()
            self._skip(":")
            if not isinstance(name, str):
                raise damaged()
            yield name
            if self.peek() == ",":
                self._at += 1

    def values(self) -> Iterator[Any]:
        """All values to the end of the file, one after another."""
        while self.peek():
            yield self.value()


def _decoded(text: str, at: int) -> tuple[Any, int]:
    try:
        try:
            return _PLAIN.raw_decode(text, at)
        except json.JSONDecodeError:
            raise
        except ValueError:  # a number of thousands of digits
            return _DECODER.raw_decode(text, at)
    except RecursionError:
        raise TransferError(
            tr("This file has more levels than any chat export, so it was not read.")
        ) from None


def lines(file: IO[bytes], report: Report = lambda _: None) -> Iterator[Any]:
    """The values of a file with one on each line; None for a line without one."""
    while line := file.readline(LARGEST_VALUE):
        report(len(line))
        if not (text := line.decode("utf-8-sig", "replace").strip()):
            continue
        try:
            yield json.loads(text, strict=False)
        except (ValueError, RecursionError):
            yield None


def damaged() -> TransferError:
    """The error of a file that is not JSON, or only at its beginning."""
    return TransferError(
        tr("The file is damaged or not complete."), tr("Export it again, or download it again.")
    )
