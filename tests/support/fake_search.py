"""A search of documents that a test answers, with what it says was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from app.chat.documents.indexing import SearchResult
from app.domain.documents import DocumentKind, FoundPassage, PageStart, PageUnit, Reads
from app.domain.parts import FilePart

PAGES = (
    "The warranty of the pump is two years.",
    "The battery is changed by a mechanic.",
    "Clean the filter every week.",
    "The second pump has a warranty of three years.",
)


@dataclass
class Asked:
    """One search."""

    question: str
    keys: list[str]
    then: Callable[[SearchResult], None]
    limit: int


@dataclass
class FakeSearch:
    """Records searches; `found` and `fail` answer the oldest one that is not answered."""

    asked: list[Asked] = field(default_factory=list[Asked])
    open: list[Asked] = field(default_factory=list[Asked])

    def __call__(
        self, question: str, keys: Sequence[str], then: Callable[[SearchResult], None], limit: int
    ) -> None:
        self.asked.append(Asked(question, list(keys), then, limit))
        self.open.append(self.asked[-1])

    def found(self, *passages: FoundPassage, missing: int = 0) -> None:
        self.open.pop(0).then(SearchResult(passages, missing=missing))

    def fail(self, about: str = "disk I/O error") -> None:
        self.open.pop(0).then(SearchResult((), fault=about))


def manual(name: str = "manual.pdf", pages: Sequence[str] = PAGES, key: str = "a1") -> FilePart:
    """A file of which the model reads the passages that fit."""
    starts, at = list[PageStart](), 0
    for number, page in enumerate(pages, 1):
        starts.append(PageStart(str(number), at))
        at += len(page) + 2
    return FilePart(
        name,
        "\n\n".join(pages),
        key,
        DocumentKind.PDF,
        PageUnit.PAGE,
        tuple(starts),
        Reads.PASSAGES,
    )


def page(part: FilePart, number: int, score: float = 0.5) -> FoundPassage:
    """The passage that is a page of a file, counted from 1."""
    start = part.pages[number - 1].start
    end = part.pages[number].start - 2 if number < len(part.pages) else len(part.text)
    return FoundPassage(part.sha256, start, end, score)
