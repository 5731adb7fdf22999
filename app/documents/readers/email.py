"""Reader of e-mail: one message, or a mailbox (mbox) with a page for each message."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator

from app.documents.decoding import Decoded, clean, is_text
from app.documents.html_markdown import markdown
from app.documents.messages import Message, parse
from app.documents.source import MOST_CHARACTERS, ExtractionError, ExtractionFault, Look, Source
from app.domain.documents import Document, DocumentKind, DocumentWarning, Page, PageUnit, Warned

_MOST_MESSAGE = 150_000_000  # bytes, attachments included; of a longer one, the beginning
_FROM_LINE = re.compile(rb"(?:\A|\n\r?\n|\r\n\r\n)(?=From [^\r\n]{3,200}\d\d:\d\d)")
_QUOTED_FROM = re.compile(r"^>(>*From )", re.MULTILINE)
_SHOWN = ("From", "To", "Cc", "Date", "Subject")
_LEAST_PLAIN = 40  # characters of a plain text beside one in HTML that is much longer
_ENCRYPTED = ("multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime")
_WINMAIL = "application/ms-tnef"


def read(source: Source) -> Document:
    """The text of each message. Raises ExtractionError if there is none."""
    if source.size == 0:
        empty = (Warned(DocumentWarning.EMPTY),)
        return Document(DocumentKind.EMAIL, (Page("", ""),), warnings=empty)
    is_mailbox = source.head.startswith(b"From ") and source.suffix != ".eml"
    if not is_mailbox:
        with source.open() as file:
            message = parse(file.read(_MOST_MESSAGE))
        text = _Text(message)
        if text.is_encrypted and not text.body.strip():
            raise ExtractionError(ExtractionFault.PROTECTED, "the message is encrypted")
        if not is_text(text.body[: 1 << 20]):
            raise ExtractionError(ExtractionFault.UNKNOWN, Look.BINARY)
        kinds = [*text.warnings, *([DocumentWarning.CUT] if source.size > _MOST_MESSAGE else [])]
        page = Page("", text.whole[:MOST_CHARACTERS])
        return Document(
            DocumentKind.EMAIL,
            (page,),
            title=message.header("Subject"),
            warnings=tuple(Warned(each) for each in dict.fromkeys(kinds)),
        )
    return _mailbox(source)


def _mailbox(source: Source) -> Document:
    pages: list[Page] = []
    warned: dict[DocumentWarning, list[str]] = {}
    length = 0
    for number, data in enumerate(_messages(source), 1):
        text = _Text(parse(data))
        whole = _QUOTED_FROM.sub(r"\1", text.whole)
        if length + len(whole) > MOST_CHARACTERS:
            warned[DocumentWarning.CUT] = []
            whole = whole[: MOST_CHARACTERS - length]
        length += len(whole)
        pages.append(Page(str(number), whole))
        for each in text.warnings:
            warned.setdefault(each, []).append(str(number))
        if DocumentWarning.CUT in warned:
            break
    if DocumentWarning.EMPTY in warned and len(warned[DocumentWarning.EMPTY]) < len(pages):
        del warned[DocumentWarning.EMPTY]
    warnings = tuple(Warned(each, tuple(labels)) for each, labels in warned.items())
    return Document(DocumentKind.EMAIL, tuple(pages), PageUnit.MESSAGE, warnings=warnings)


def _messages(source: Source) -> Iterator[bytes]:
    """The messages of a mailbox, each without the line it begins with."""
    with source.open() as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        begins = -1
        for found in _FROM_LINE.finditer(data):
            if begins >= 0:
                yield _without_first_line(data[begins : min(found.end(), begins + _MOST_MESSAGE)])
            begins = found.end()
        if begins >= 0:
            yield _without_first_line(data[begins : begins + _MOST_MESSAGE])


def _without_first_line(data: bytes) -> bytes:
    return data[data.find(b"\n") + 1 :]


class _Text:
    """What of a message is read: headers, its text, messages in it, and the list of attachments."""

    def __init__(self, message: Message) -> None:
        self.warnings: list[DocumentWarning] = []
        self.is_encrypted = False
        self._attachments: list[str] = []
        self._within: list[str] = []
        self.body = "\n\n".join(each for each in self._texts(message) if each)
        headers = [f"{name}: {value}" for name in _SHOWN if (value := message.header(name))]
        parts = ["\n".join(headers), self.body]
        if self._attachments:
            parts.append("\n".join(["Attachments:", *self._attachments]))
        parts.extend(f"---\n\n{each}" for each in self._within)
        self.whole = "\n\n".join(part for part in parts if part)
        if not self.body and not self._within:
            self.warnings.append(DocumentWarning.EMPTY)

    def _texts(self, message: Message) -> Iterator[str]:
        if message.type in _ENCRYPTED and "signed" not in message.parameter("smime-type"):
            self.is_encrypted = True
        if message.type == "multipart/alternative" and message.parts:
            yield from self._best(message)
        elif message.type == "message/rfc822" and message.parts:
            inner = _Text(message.parts[0])
            self.warnings.extend(
                each for each in inner.warnings if each is not DocumentWarning.EMPTY
            )
            self._within.append(inner.whole)
        elif message.parts:
            for part in message.parts:
                yield from self._texts(part)
        elif message.is_attachment or not _is_shown(message):
            self._attach(message)
        else:
            yield self._shown(message)

    def _best(self, message: Message) -> Iterator[str]:
        """The text of that alternative that reads best: plain, unless it only says to use HTML."""
        plain = [part for part in message.parts if part.type == "text/plain"]
        others = [part for part in message.parts if part.type != "text/plain"]
        text = "\n\n".join(self._shown(part) for part in plain).strip()
        if len(text) >= _LEAST_PLAIN or not others:
            yield text
            return
        rich = "\n\n".join(each for part in others for each in self._texts(part) if each).strip()
        yield text if text and len(rich) < 4 * len(text) else rich or text

    def _shown(self, message: Message) -> str:
        decoded = message.decoded()
        if not decoded.sure:
            self.warnings.append(DocumentWarning.UNSURE_ENCODING)
        if message.type == "text/html":
            return markdown(decoded.text).text
        return clean(_unflowed(message, decoded)).strip("\n")

    def _attach(self, message: Message) -> None:
        name = message.file_name or message.type
        note = ""
        if message.type == _WINMAIL or name.lower() == "winmail.dat":
            note = ", attachments in Outlook's own format"
        self._attachments.append(f"- {name} ({_size(message.size)}{note})")


def _is_shown(message: Message) -> bool:
    if message.type == "text/html" or message.type == "text/plain":
        return True
    return message.type.startswith("text/") and not message.file_name


def _unflowed(message: Message, decoded: Decoded) -> str:
    """The text with the lines joined that its sender's program broke."""
    if message.parameter("format").lower() != "flowed":
        return decoded.text
    deletes = message.parameter("delsp").lower() == "yes"
    made: list[str] = []
    flows = False
    for at, line in enumerate(decoded.text.split("\n")):
        if at and (not flows or line.startswith(">")):
            made.append("\n")
        flows = line.endswith(" ") and line != "-- " and not line.startswith(">")
        plain = line.removeprefix(" ")
        made.append(plain[:-1] if flows and deletes else plain)
    return "".join(made)


def _size(size: int) -> str:
    """A size in the largest unit of which there is one."""
    for unit, name in ((1_000_000, "MB"), (1_000, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"
