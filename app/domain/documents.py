"""Documents: the text of a file by pages, and passages of it.

A document is what a reader extracted from a file; only its text is kept, beside the file's bytes.
Places in it are characters of its whole text, in which a blank line separates pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

PAGE_BREAK = "\n\n"  # between the texts of two pages
MOST_PAGE_PICTURES = 20  # pages or pictures of a document that are attached as pictures at once
MOST_EMBEDDED = 200  # pictures of a document that are listed


class DocumentKind(StrEnum):
    """What a file is, by its content."""

    TEXT = "text"
    CODE = "code"
    MARKDOWN = "markdown"
    TABLE = "table"  # CSV or TSV
    JSON = "json"
    LOG = "log"
    HTML = "html"
    EPUB = "epub"
    PDF = "pdf"
    WORD = "word"  # docx, odt, rtf
    SLIDES = "slides"  # pptx, odp
    SHEETS = "sheets"  # xlsx, ods
    EMAIL = "email"
    NOTEBOOK = "notebook"
    SUBTITLES = "subtitles"
    ARCHIVE = "archive"  # its text is the list of its files


class PageUnit(StrEnum):
    """What the pages of a document are."""

    NONE = ""  # it is one text
    PAGE = "page"
    SHEET = "sheet"
    SLIDE = "slide"
    CHAPTER = "chapter"
    MESSAGE = "message"


class DocumentWarning(StrEnum):
    """What the user should know of a text that could be extracted."""

    SCANNED = "scanned"  # pages are pictures without text
    DAMAGED = "damaged"  # only a part could be read
    CUT = "cut"  # longer than the limit
    EMPTY = "empty"  # there is no text
    UNSURE_ENCODING = "unsure encoding"


class Reads(StrEnum):
    """How much of an attached file the model reads."""

    WHOLE = "whole"
    PAGES = "pages"  # the chosen ones
    PASSAGES = "passages"  # those that fit each question
    SUMMARY = "summary"  # all of it, part by part, and then what was made of the parts
    REWRITE = "rewrite"  # all of it, part by part, each to be replaced by what is made of it
    TABLES = "tables"  # what a query over its tables finds, which answers each question

    @property
    def by_parts(self) -> bool:
        """Whether one answer reads it part by part, and no later prompt has it."""
        return self is Reads.SUMMARY or self is Reads.REWRITE

    @property
    def has_sections(self) -> bool:
        """Whether something is made of each part of it."""
        return self is Reads.SUMMARY or self is Reads.REWRITE

    @property
    def is_counted(self) -> bool:
        """Whether prompts have its text, or that of some pages: how much is known before sending."""
        return self is Reads.WHOLE or self is Reads.PAGES


@dataclass(frozen=True, slots=True)
class Page:
    """One page, sheet, slide, chapter or message."""

    label: str  # its number or name; "" in a document of one text
    text: str


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning, and the labels of the pages it is about; none: all of the document."""

    warning: DocumentWarning
    pages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PageStart:
    """A page of a text: its label, and the character at which it begins."""

    label: str
    start: int


@dataclass(frozen=True, slots=True)
class Document:
    """The text that was extracted from a file."""

    kind: DocumentKind
    pages: tuple[Page, ...]
    unit: PageUnit = PageUnit.NONE
    title: str = ""  # by its author; "": none
    warnings: tuple[Warned, ...] = ()

    @property
    def text(self) -> str:
        """The texts of all pages, with `PAGE_BREAK` between them."""
        return PAGE_BREAK.join(page.text for page in self.pages)

    @property
    def starts(self) -> tuple[PageStart, ...]:
        """Where each page begins in `text`; none for a document of one text."""
        if self.unit is PageUnit.NONE:
            return ()
        made: list[PageStart] = []
        at = 0
        for page in self.pages:
            made.append(PageStart(page.label, at))
            at += len(page.text) + len(PAGE_BREAK)
        return tuple(made)


def page_spans(text: str, starts: tuple[PageStart, ...]) -> Iterator[tuple[str, int, int]]:
    """Label, first character and end of each page of a text; without pages, the whole text."""
    if not starts:
        yield "", 0, len(text)
        return
    ends = [after.start - len(PAGE_BREAK) for _, after in pairwise(starts)] + [len(text)]
    for page, end in zip(starts, ends, strict=True):
        yield page.label, page.start, max(page.start, end)


NO_TABLE = "no table"  # in the documents
NO_QUERY = "no query"  # that fits the table was written
TABLE_FAULTS = (NO_TABLE, NO_QUERY)


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """A passage as the index of documents found it, and its place in the text of its document."""

    key: str  # of the document
    start: int  # characters
    end: int
    score: float  # 0 to 1, how well it fits
    text: str = ""
    page_index: int = 0
    page: str = ""  # label of the page it begins on
    headings: str = ""  # those above it and in it, from the outermost on, with " > " between them
    table_head: str = ""  # of the table that it continues


@dataclass(frozen=True, slots=True)
class SearchFault:
    """The documents of a chat could not be searched, or no table in them be asked."""

    about: str = ""  # the reason, technical
    kind: str = "search"  # beside the kinds of other faults; or one of `TABLE_FAULTS`


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of a document that was found for a question."""

    number: int  # by which an answer refers to it, unique in a branch of a chat
    name: str  # of the file
    text: str
    page: str = ""  # label of the page it begins on
    unit: PageUnit = PageUnit.NONE
    sha256: str = ""  # of the file's bytes
    path: str = ""  # of a file in a collection
    start: int = 0  # characters of the document's text
    end: int = 0
    score: float = 0.0  # 0 to 1, how well it fits
    pinned: bool = False  # the user wants it to be read
    struck: bool = False  # the user does not: the model does not read it
    above: bool = False  # the model reads it with an earlier question, where it has this number
    toggled: bool = False  # the user has changed `struck` since, and not sent the question again
