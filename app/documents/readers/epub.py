"""Reader of EPUB 2 and 3: a page for each chapter of the table of contents, in reading order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

from app.documents.decoding import Decoded, declared, decode
from app.documents.html_markdown import markdown
from app.documents.html_tokens import Token, tokens
from app.documents.readers.package import Package, resolved
from app.documents.source import MOST_CHARACTERS, ExtractionError, ExtractionFault, Source
from app.domain.documents import Document, DocumentKind, DocumentWarning, Page, PageUnit, Warned

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_FONTS_ONLY = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#rc")
_TEXTS = (".xhtml", ".html", ".htm", ".xml")
_HEADING = re.compile(r"#{1,6} (.+)")
_LONGEST_LABEL = 150  # characters
_MOST_ENTRIES = 10_000  # of the table of contents
_ID = re.compile(r"id=([\"'])(.{1,500}?)\1")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of the table of contents."""

    depth: int
    label: str
    path: str
    fragment: str


@dataclass(slots=True)
class _Book:
    title: str
    spine: list[str]  # the files in reading order
    contents: list[_Entry]


def read(source: Source) -> Document:
    """The chapters of a book. Raises ExtractionError."""
    with Package(source) as package:
        book = _book(package)
        if _encrypted(package).intersection(book.spine):
            raise ExtractionError(ExtractionFault.PROTECTED, "the book has a copy protection")
        return _document(package, book)


def _document(package: Package, book: _Book) -> Document:
    chapters: list[tuple[str, list[str]]] = []  # label, texts
    warned: dict[DocumentWarning, None] = {}
    length = 0
    entries: dict[str, list[_Entry]] = {}
    for entry in book.contents:
        entries.setdefault(entry.path, []).append(entry)
    for path in book.spine:
        if path not in package:
            warned[DocumentWarning.DAMAGED] = None
            continue
        try:
            decoded = _decoded(package, path)
        except ExtractionError as error:
            if error.fault is not ExtractionFault.DAMAGED:
                raise
            warned[DocumentWarning.DAMAGED] = None
            continue
        if not decoded.sure:
            warned[DocumentWarning.UNSURE_ENCODING] = None
        for label, html in _pieces(decoded.text, entries.get(path, [])):
            text = markdown(html, is_book=True).text
            length += len(text)
            begins = label is not None or not chapters or not book.contents
            if begins and text:
                chapters.append((label or _heading(text) or str(len(chapters) + 1), [text]))
            elif text:
                chapters[-1][1].append(text)
        if length > MOST_CHARACTERS:
            warned[DocumentWarning.CUT] = None
            break
    pages = tuple(Page(label, "\n\n".join(texts)) for label, texts in chapters)
    if not pages:
        warned[DocumentWarning.EMPTY] = None
    return Document(
        DocumentKind.EPUB,
        pages or (Page("1", ""),),
        PageUnit.CHAPTER,
        title=book.title,
        warnings=tuple(map(Warned, warned)),
    )


def _pieces(html: str, entries: list[_Entry]) -> Iterator[tuple[str | None, str]]:
    """The chapters that begin in a file; without a label, what goes on from the file before."""
    if not entries:
        yield None, html
        return
    top = min(entry.depth for entry in entries)
    ids: dict[str, int] = {}
    for found in _ID.finditer(html):
        ids.setdefault(found[2], found.start())
    labels: dict[int, str] = {}  # by where their chapters begin
    for entry in entries:
        at = html.rfind("<", 0, ids.get(entry.fragment, 0)) if entry.fragment else 0
        if entry.depth == top and at >= 0:
            labels.setdefault(at, entry.label)
    if not labels or (len(labels) == 1 and len(entries) == 1):
        # A fragment of the only chapter stands below its beginning as often as at it.
        labels = {0: entries[0].label}
    begins = sorted(labels)
    if begins[0] > 0:
        yield None, html[: begins[0]]
    for at, end in pairwise((*begins, len(html))):
        yield labels[at], html[at:end]


def _heading(text: str) -> str:
    """The heading that a text begins with, "" without one."""
    found = _HEADING.match(text)
    return found[1][:_LONGEST_LABEL] if found else ""


def _decoded(package: Package, path: str) -> Decoded:
    data = package.read(path)
    return decode(data, declared(data[:4096]))


def _tokens(package: Package, path: str) -> Iterator[Token]:
    """The tags of a file that lists others; none if it is missing or cannot be unpacked."""
    try:
        text = _decoded(package, path).text if path in package else ""
    except ExtractionError as error:
        if error.fault is not ExtractionFault.DAMAGED:
            raise
        text = ""
    return tokens(text)


def _book(package: Package) -> _Book:
    """What the package says of itself; without that, all texts in the order of their names."""
    path = ""
    for token in _tokens(package, _CONTAINER):
        if token.name == "rootfile" and not path:
            path = resolved("", token.attributes.get("full-path", ""))
    if path not in package:
        path = next((name for name in package.names if name.lower().endswith(".opf")), "")
    book = _opf(package, path) if path else _Book("", [], [])
    if not book.spine:
        texts = [name for name in package.names if name.lower().endswith(_TEXTS)]
        book.spine = sorted(name for name in texts if not name.startswith("META-INF/"))
        if not book.spine:
            raise ExtractionError(ExtractionFault.DAMAGED, "the book has no chapters")
    return book


def _opf(package: Package, path: str) -> _Book:
    """The package document: title, files in order, and the table of contents it names."""
    files: dict[str, str] = {}
    nav = ncx = title = ""
    spine: list[str] = []
    in_title = False
    for token in _tokens(package, path):
        values = token.attributes
        if token.name == "item":
            target = resolved(path, values.get("href", ""))
            files[values.get("id", "")] = target
            if "nav" in values.get("properties", "").split():
                nav = target
            if "dtbncx" in values.get("media-type", ""):
                ncx = target
        elif token.name == "itemref" and values.get("idref") in files:
            spine.append(files[values["idref"]])
        elif token.name == "title":
            in_title = not token.is_end and not title
        elif in_title:
            title += token.text
    texts = dict.fromkeys(spine)
    listed = islice(_nav(package, nav), _MOST_ENTRIES)
    contents = [entry for entry in listed if entry.path in texts and entry.path != nav]
    if not contents:
        listed = islice(_ncx(package, ncx), _MOST_ENTRIES)
        contents = [entry for entry in listed if entry.path in texts]
    spine = [each for each in texts if each != nav or len(texts) == 1]
    return _Book(" ".join(title.split()), spine, contents)


def _nav(package: Package, path: str) -> Iterator[_Entry]:
    """The table of contents of EPUB 3: links in lists."""
    depth = 0
    in_toc = False
    target: str | None = None
    label = ""
    for token in _tokens(package, path):
        if token.name == "nav":
            in_toc = not token.is_end and token.attributes.get("epub:type", "toc") == "toc"
        elif not in_toc:
            continue
        elif token.name == "ol":
            depth += -1 if token.is_end else 1
        elif token.name == "a" and not token.is_end:
            target, label = token.attributes.get("href", ""), ""
        elif token.name == "a" and target is not None:
            yield _entry(path, depth, label, target)
            target = None
        elif target is not None:
            label += token.text


def _ncx(package: Package, path: str) -> Iterator[_Entry]:
    """The table of contents of EPUB 2: points with a label and a place."""
    depth = 0
    label = ""
    in_text = False
    for token in _tokens(package, path):
        if token.name == "navpoint":
            depth += -1 if token.is_end else 1
            label = "" if not token.is_end else label
        elif token.name == "text":
            in_text = not token.is_end
        elif token.name == "content" and not token.is_end and depth > 0:
            yield _entry(path, depth, label, token.attributes.get("src", ""))
        elif in_text and depth > 0:
            label += token.text


def _entry(path: str, depth: int, label: str, target: str) -> _Entry:
    label = " ".join(label.split())[:_LONGEST_LABEL]
    return _Entry(depth, label, resolved(path, target), target.partition("#")[2])


def _encrypted(package: Package) -> set[str]:
    """The files that are encrypted, but for fonts that are only made hard to take out."""
    made: set[str] = set()
    method = ""
    for token in _tokens(package, _ENCRYPTION):
        if token.name == "encryptionmethod":
            method = token.attributes.get("algorithm", "").lower()
        elif token.name == "cipherreference" and method not in _FONTS_ONLY:
            made.add(resolved("", token.attributes.get("uri", "")))
    return made
