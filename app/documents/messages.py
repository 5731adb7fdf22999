"""Messages of the Internet Message Format and their MIME parts, read as far as they are well formed.

The standard library's `email` reads headers; its parser of bodies takes time that grows with their
depth, so that parts are divided here, in one pass over each level and down to a fixed depth.
"""

from __future__ import annotations

import base64
import binascii
import quopri
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message as Headers
from functools import cached_property

from app.documents.decoding import Decoded, clean, declared, decode, known

_DEEPEST = 30  # parts within each other
_MOST_PARTS = 5_000  # of one message
_LONGEST_HEADER = 4_000  # characters; the library's time grows with the square of it
_LONGEST_NAME = 500  # characters of a file's name
_MOST_HEADER_BYTES = 1 << 20  # of all headers of one part
_BLANK = re.compile(rb"\r?\n\r?\n|\A\r?\n|\r\r")
_FOLD = re.compile(r"[\r\n]+[ \t]*")


@dataclass
class Message:
    """A message or a part of one: its headers, and its body or the parts in it."""

    headers: Headers
    body: bytes
    parts: list[Message] = field(default_factory=list)

    @cached_property
    def type(self) -> str:
        """Its media type, in lower case."""
        return self.headers.get_content_type()

    @property
    def id(self) -> str:
        """Its content id without brackets; "": none."""
        return self.header("Content-ID").strip("<> ")

    def header(self, name: str) -> str:
        """A header with its encoded words decoded, on one line; "": there is none."""
        return header_text(str(self.headers.get(name, "")))

    def parameter(self, name: str) -> str:
        """A parameter of its type; "": there is none."""
        return _parameter(self.headers, name, "content-type")

    @property
    def file_name(self) -> str:
        """By which its sender calls it; "": it has none."""
        found = _parameter(self.headers, "filename", "content-disposition")
        return header_text((found or self.parameter("name"))[:_LONGEST_NAME])

    @property
    def is_attachment(self) -> bool:
        """Whether it is meant to be saved, and not to be read where it stands."""
        disposition = str(self.headers.get("content-disposition", "")).lower()
        return disposition.strip().startswith("attachment")

    def leaves(self) -> Iterator[Message]:
        """The parts that have no parts, in order; itself if it has none."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()

    @property
    def _encoding(self) -> str:
        return str(self.headers.get("content-transfer-encoding", "")).strip().lower()

    @property
    def size(self) -> int:
        """Bytes of its body, of quoted-printable as it is encoded."""
        if self._encoding == "base64":
            ends = sum(map(self.body.count, (b"\n", b"\r", b"=")))
            return (len(self.body) - ends) * 3 // 4
        return len(self.body)

    def data(self) -> bytes:
        """Its body, with its transfer encoding taken off."""
        if self._encoding == "base64":
            plain = re.sub(rb"[^A-Za-z0-9+/]", b"", self.body)
            plain = plain[: len(plain) - (len(plain) % 4 == 1)]
            try:
                return base64.b64decode(plain + b"=" * (-len(plain) % 4))
            except binascii.Error:
                return self.body
        if self._encoding == "quoted-printable":
            return quopri.decodestring(self.body)
        return self.body

    def decoded(self) -> Decoded:
        """The text of its body."""
        data = self.data()
        charset = self.parameter("charset")
        if not known(charset) and self.type in ("text/html", "application/xhtml+xml"):
            charset = declared(data[:4096])
        return decode(data, charset)


def parse(data: bytes, depth: int = 0, left: list[int] | None = None) -> Message:
    """A message of bytes, with its parts."""
    left = left if left is not None else [_MOST_PARTS]
    found = _BLANK.search(data, 0, _MOST_HEADER_BYTES)
    end = found.end() if found else min(len(data), _MOST_HEADER_BYTES)
    message = Message(_headers(data[:end]), data[end:])
    boundary = message.parameter("boundary")
    if depth >= _DEEPEST:
        return message
    if message.type.startswith("multipart/") and boundary:
        for part in _divided(message.body, boundary.encode("utf-8", "surrogateescape")):
            left[0] -= 1
            if left[0] < 0:
                break
            message.parts.append(parse(part, depth + 1, left))
    elif message.type == "message/rfc822" and depth > 0:
        message.parts.append(parse(message.data().lstrip(b"\r\n"), depth + 1, left))
    return message


def _headers(data: bytes) -> Headers:
    """Headers as text, also those whose sender wrote letters without encoding them."""
    made = Headers()
    for name, value in message_from_bytes(data).raw_items():
        text = str(value)[:_LONGEST_HEADER]
        if not text.isascii():
            text = decode(text.encode("utf-8", "surrogateescape")).text
        made[name] = text
    return made


def _divided(body: bytes, boundary: bytes) -> Iterator[bytes]:
    """The parts between lines of a boundary; the last one may lack its end."""
    line = re.compile(rb"(?:\A|\r?\n)--" + re.escape(boundary) + rb"(--)?[ \t]*(?=\r?\n|\Z)")
    begins = -1
    for found in line.finditer(body):
        if begins >= 0:
            yield body[begins : found.start()]
        begins = -1 if found[1] else _after_line(body, found.end())
        if found[1]:
            return
    if begins >= 0:
        yield body[begins:]


def _after_line(body: bytes, at: int) -> int:
    return at + (2 if body[at : at + 2] == b"\r\n" else 1)


def _parameter(headers: Headers, name: str, header: str) -> str:
    """A parameter of a header; its encoding, and pieces of it, as RFC 2231 has them."""
    try:
        found = headers.get_param(name, "", header=header)
    except (ValueError, TypeError, LookupError, UnicodeError):
        return ""
    if isinstance(found, tuple):
        charset, _, value = found
        return value.encode("latin-1", "replace").decode(known(charset or "") or "utf-8", "replace")
    return str(found or "")


def header_text(value: str) -> str:
    """The text of a header: encoded words decoded, what is folded on one line."""
    value = _FOLD.sub(" ", value)
    try:
        pieces = decode_header(value)
    except (HeaderParseError, ValueError, binascii.Error):
        pieces = [(value, None)]
    made: list[str] = []
    for piece, charset in pieces:
        if isinstance(piece, str):
            made.append(piece)
        elif charset == "unknown-8bit" or charset is None:
            made.append(decode(piece).text)
        else:
            made.append(piece.decode(known(charset) or "utf-8", "replace"))
    return " ".join(clean("".join(made)).split())
