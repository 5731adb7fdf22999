"""Server-sent events of a response: the parser of its bytes, in pieces of any size."""

from __future__ import annotations

from dataclasses import dataclass

MAX_EVENT = 16 << 20  # bytes of one event; the text of a whole answer is far below


class EventTooLarge(ValueError):
    """One event has more than `MAX_EVENT` bytes."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its data, the lines of it joined by line feeds."""

    data: str
    name: str = ""  # of the field "event"


class EventParser:
    """Bytes in, events out. Comments, such as the pings of proxies, are skipped.

    Lines end with CR LF, LF or CR. Some servers separate events by one line end instead of two:
    each data line that begins a JSON object then is one event. So is a line of JSON without a field
    name, which is how some servers send errors.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[str] = []
        self._name = ""
        self._size = 0
        self._after_cr = False

    def push(self, piece: bytes) -> list[Event]:
        """Add bytes; returns the events that are complete. Raises EventTooLarge."""
        if self._after_cr and piece:
            piece, self._after_cr = piece.removeprefix(b"\n"), False
        self._rest += piece
        if b"\n" not in piece and b"\r" not in piece:
            self._check(len(self._rest))
            return []
        self._after_cr = self._rest.endswith(b"\r")
        *lines, rest = bytes(self._rest).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = bytearray(rest)
        return [event for line in lines for event in self._line(line)]

    def finish(self) -> list[Event]:
        """The last event of a response that ended without an empty line."""
        events = self._line(bytes(self._rest)) if self._rest else []
        self._rest.clear()
        return [*events, *self._end()]

    def _line(self, line: bytes) -> list[Event]:
        self._check(self._size + len(line))
        if not line:
            return self._end()
        if line.startswith(b"\xef\xbb\xbf"):
            line = line[3:]
        text = line.decode("utf-8", "replace")
        if text.startswith(("{", "[")):
            return [*self._end(), Event(text)]
        field, _, value = text.partition(":")
        value = value.removeprefix(" ")
        events: list[Event] = []
        if field == "data":
            if self._data and value.startswith(("{", "[DONE]")):
                events = self._end()
            self._data.append(value)
            self._size += len(line)
        elif field in ("event", "error"):  # llama.cpp once sent errors as "error: {...}"
            if field == "event":
                self._name = value
            else:
                events = [*self._end(), Event(value, "error")]
        return events

    def _end(self) -> list[Event]:
        data, name = self._data, self._name
        self._data, self._name, self._size = [], "", 0
        return [Event("\n".join(data), name)] if data else []

    def _check(self, size: int) -> None:
        if size > MAX_EVENT:
            raise EventTooLarge
