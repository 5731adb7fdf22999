"""Words for attached files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.domain.documents import (
    Document,
    DocumentKind,
    DocumentWarning,
    Page,
    PageUnit,
    Reads,
    Warned,
)
from app.domain.file_words import (
    file_words,
    kind_words,
    length_words,
    reads_words,
    tokens_words,
    warning_words,
)
from app.domain.parts import FilePart
from sample_files import REPORT


def chosen(*pages: int) -> FilePart:
    return replace(REPORT, reads=Reads.PAGES, chosen=pages)


def test_how_long_a_file_is() -> None:
    assert length_words(REPORT) == "12 pages"
    assert length_words(FilePart("a", "x\n" * 40)) == "40 lines"
    assert length_words(FilePart("a", "x" * 4000)) == "4,000 characters"


def test_what_is_read() -> None:
    assert reads_words(REPORT) == ""
    assert reads_words(chosen(0, 1, 2, 6)) == "pages 1-3, 7"
    assert reads_words(chosen(4)) == "page 5"
    assert reads_words(chosen(*range(12))) == "12 pages"
    assert reads_words(replace(REPORT, reads=Reads.PASSAGES)) == "passages that fit the question"


def test_chosen_pages_with_long_names_are_counted() -> None:
    names = [f"A sheet with a long name, number {n}" for n in range(5)]
    book = Document(DocumentKind.SHEETS, tuple(Page(n, "") for n in names), PageUnit.SHEET)
    part = FilePart("a.xlsx", book.text, unit=book.unit, pages=book.starts)
    assert reads_words(replace(part, reads=Reads.PAGES, chosen=(0, 2))) == "2 of 5 sheets"


def test_a_file_in_one_line() -> None:
    assert file_words(chosen(0)) == "report.pdf, 12 pages · page 1"
    pasted = FilePart("", "\n\n  Dear landlord,\n" + "x\n" * 50)
    assert file_words(pasted) == "Pasted text, 51 lines: Dear landlord,…"


def test_tokens() -> None:
    assert tokens_words(4300) == "4,300 tokens"
    assert tokens_words(1, approximate=True) == "about 1 token"


@pytest.mark.parametrize("warning", list(DocumentWarning))
def test_every_warning_has_words(warning: DocumentWarning) -> None:
    assert warning_words(Warned(warning))
    assert warning_words(Warned(warning, ("4", "5")))


def test_warnings_say_how_many_pages() -> None:
    scanned = Warned(DocumentWarning.SCANNED, ("4", "5", "9"))
    assert warning_words(scanned) == "3 pages are pictures without text"


@pytest.mark.parametrize("kind", list(DocumentKind))
def test_every_kind_has_words(kind: DocumentKind) -> None:
    assert kind_words(kind.value)


def test_an_unknown_kind_has_none() -> None:
    assert kind_words("") == kind_words("hologram") == ""
