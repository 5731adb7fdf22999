"""Documents on their way from a child: what is cut and removed, and that nothing is trusted."""

from __future__ import annotations

import json

import pytest

from app.documents import packing
from app.documents.packing import pack, pack_fault, unpack
from app.documents.source import ExtractionError, ExtractionFault
from app.domain.documents import Document, DocumentKind, DocumentWarning, Page, PageUnit, Warned

DOCUMENT = Document(
    DocumentKind.SHEETS,
    (Page("First", "| ä |\r\n\t😀"), Page("Zweites", "")),
    PageUnit.SHEET,
    "A title",
    (Warned(DocumentWarning.DAMAGED, ("Zweites",)), Warned(DocumentWarning.UNSURE_ENCODING)),
)
FACTS = {"kind": "text", "unit": "", "title": "", "warnings": [], "labels": [""]}


def text(*pages: str, **more: object) -> Document:
    return Document(DocumentKind.TEXT, tuple(Page("", each) for each in pages), **more)


def sent(document: Document, most: int = 1000) -> Document:
    return unpack(list(pack(document, most)), most)


def test_a_document_arrives_as_it_was() -> None:
    assert sent(DOCUMENT) == DOCUMENT


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("a\0b\x01\x07\x0b\x0c\x1b\x7fc", "abc"),
        ("tab\tline\nreturn\r\n", "tab\tline\nreturn\r\n"),
        ("lone \ud83d surrogate \udc80", "lone  surrogate "),
        ("pair \ud83d\ude00", "pair 😀"),
        ("\u00a0\u200b\ufeff\u0085", "\u00a0\u200b\ufeff\u0085"),
    ],
)
def test_only_characters_that_no_text_should_have_are_removed(written: str, read: str) -> None:
    assert sent(text(written)).text == read


def test_a_character_between_two_slices_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_SLICE_BYTES", 3)
    assert sent(text("aä😀日" * 20)).text == "aä😀日" * 20


def test_labels_and_titles_are_short_lines() -> None:
    document = Document(
        DocumentKind.SLIDES,
        (Page(" a\nb\0\ud800 c ", "x"), Page("l" * 1000, "y")),
        PageUnit.SLIDE,
        "t\t" * 300,
    )
    arrived = sent(document)
    assert [page.label for page in arrived.pages] == ["a b c", "l" * 200]
    assert arrived.title == ("t " * 100).strip()


@pytest.mark.parametrize(
    ("most", "kept"),
    [(100, ["aaaa", "bbbb"]), (10, ["aaaa", "bbbb"]), (9, ["aaaa", "bbb"]), (6, ["aaaa"]), (3, ["aaa"])],
)  # fmt: skip
def test_a_long_document_is_cut_with_a_warning(most: int, kept: list[str]) -> None:
    arrived = sent(text("aaaa", "bbbb"), most)
    assert [page.text for page in arrived.pages] == kept
    is_cut = kept != ["aaaa", "bbbb"]
    assert arrived.warnings == ((Warned(DocumentWarning.CUT),) if is_cut else ())
    assert len(arrived.text) <= most


def test_a_document_of_too_many_pages_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MOST_PAGES", 3)
    arrived = sent(text("a", "b", "c", "d"))
    assert (len(arrived.pages), arrived.warnings) == (3, (Warned(DocumentWarning.CUT),))


def test_a_document_without_text_says_so_once() -> None:
    assert sent(text(" \n", "")).warnings == (Warned(DocumentWarning.EMPTY),)
    for said in (DocumentWarning.EMPTY, DocumentWarning.SCANNED):
        assert sent(text("", warnings=(Warned(said),))).warnings == (Warned(said),)


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b""],
        [b"\xff"],
        [b"[]"],
        [b"null"],
        [b"[" * 100_000],
        [json.dumps(FACTS).encode()],
        [json.dumps(FACTS).encode(), b"a", b"b"],
        [json.dumps(FACTS).encode(), b"\xff"],
        [json.dumps(FACTS).encode(), b"\xed\xa0\x80"],
        [json.dumps(FACTS).encode(), b"x" * 1001],
        [json.dumps({**FACTS, "kind": "program"}).encode(), b"a"],
        [json.dumps({**FACTS, "unit": "leaf"}).encode(), b"a"],
        [json.dumps({**FACTS, "title": 5}).encode(), b"a"],
        [json.dumps({**FACTS, "title": "a\nb"}).encode(), b"a"],
        [json.dumps({**FACTS, "labels": ["x" * 300]}).encode(), b"a"],
        [json.dumps({**FACTS, "labels": [None]}).encode(), b"a"],
        [json.dumps({**FACTS, "labels": {"a": 1}}).encode(), b"a", b"b"],
        [json.dumps({**FACTS, "warnings": [["odd", []]]}).encode(), b"a"],
        [json.dumps({**FACTS, "warnings": ["cut"]}).encode(), b"a"],
        [json.dumps({**FACTS, "warnings": [["cut", [1]]]}).encode(), b"a"],
        [b'{"fault": "odd", "detail": ""}'],
        [b'{"fault": "damaged"}'],
    ],
)
def test_what_is_no_document_is_refused(pieces: list[bytes]) -> None:
    with pytest.raises(ExtractionError) as caught:
        unpack(pieces, 1000)
    assert caught.value.fault is ExtractionFault.CRASHED


def test_why_there_is_no_document_arrives() -> None:
    with pytest.raises(ExtractionError) as caught:
        unpack([pack_fault(ExtractionError(ExtractionFault.PROTECTED, "R=6 \udc80"))])
    assert (caught.value.fault, caught.value.detail) == (ExtractionFault.PROTECTED, "R=6 \udc80")
