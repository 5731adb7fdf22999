"""Reader of web pages saved as files: HTML, and MHTML, which is a message with pages in it."""

from __future__ import annotations

from app.documents.decoding import declared, load
from app.documents.html_markdown import markdown
from app.documents.messages import Message, parse
from app.documents.source import MOST_BYTES, ExtractionError, ExtractionFault, Source
from app.domain.documents import Document, DocumentKind, DocumentWarning, Page, Warned

_MOST_ARCHIVE = 200_000_000  # bytes of an MHTML file


def read(source: Source) -> Document:
    """The Markdown of a page. Raises ExtractionError if it is no text."""
    if _is_archive(source):
        return _read_archive(source)
    decoded = load(source, declared(source.head))
    return _document(decoded.text, decoded.warnings)


def _document(html: str, warnings: tuple[Warned, ...]) -> Document:
    made = markdown(html)
    kept = [each for each in warnings if each.warning is not DocumentWarning.EMPTY]
    if not made.text:
        kept.append(Warned(DocumentWarning.EMPTY))
    if made.cut and not any(each.warning is DocumentWarning.CUT for each in kept):
        kept.append(Warned(DocumentWarning.CUT))
    page = Page("", made.text)
    return Document(DocumentKind.HTML, (page,), title=made.title, warnings=tuple(kept))


def _is_archive(source: Source) -> bool:
    """Whether the file begins with the headers of a message, and not with markup."""
    start = source.head.lstrip(b"\xef\xbb\xbf\r\n\t ")[:4096].lower()
    return not start.startswith(b"<") and b"multipart/related" in start and b"boundary=" in start


def _read_archive(source: Source) -> Document:
    if source.size > min(_MOST_ARCHIVE, MOST_BYTES):
        raise ExtractionError(ExtractionFault.TOO_LARGE, f"{source.size} bytes")
    with source.open() as file:
        message = parse(file.read())
    pages = [part for part in message.leaves() if part.type in _PAGES]
    if not pages:
        raise ExtractionError(ExtractionFault.DAMAGED, "no page in the archive")
    decoded = _main(message, pages).decoded()
    return _document(decoded.text, decoded.warnings)


_PAGES = ("text/html", "application/xhtml+xml")


def _main(message: Message, pages: list[Message]) -> Message:
    """The page that the archive is of: the one it names as its start, else the first."""
    start = message.parameter("start").strip("<>")
    return next((each for each in pages if start and each.id == start), pages[0])
