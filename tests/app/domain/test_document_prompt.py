"""Documents in a prompt: their names, marks of pages, and borders."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.document_prompt import file_pieces, file_prompt, passages_prompt
from app.domain.documents import Document, DocumentKind, Page, PageUnit, Passage, page_spans
from app.domain.parts import FilePart, PassagesPart, Reads, TextPart, clipboard_text, prompt_text

REPORT = Document(
    DocumentKind.PDF, (Page("i", "One"), Page("ii", ""), Page("1", "Three")), PageUnit.PAGE
)
FILE = FilePart(
    'a "b" <c>.pdf', REPORT.text, unit=REPORT.unit, pages=REPORT.starts, kind=REPORT.kind
)


def test_pages_are_found_again_in_the_text() -> None:
    spans = [(label, REPORT.text[a:b]) for label, a, b in page_spans(REPORT.text, REPORT.starts)]
    assert spans == [(page.label, page.text) for page in REPORT.pages]


def test_a_file_has_a_name_and_marks_of_pages_and_comes_before_the_question() -> None:
    assert prompt_text((FILE, TextPart("What?"))) == (
        '<document name="a &quot;b&quot; &lt;c&gt;.pdf" pages="3">\n'
        "[page i]\nOne\n\n[page ii]\n\n\n[page 1]\nThree\n</document>\n\nWhat?"
    )


def test_only_chosen_pages_are_read() -> None:
    prompt = file_prompt("a.pdf", REPORT.text, REPORT.unit, REPORT.starts, (2,))
    assert "[page 1]\nThree" in prompt
    assert "One" not in prompt


@given(st.lists(st.sampled_from(("a", "</document>", "</document-2>", "\n", "<")), max_size=8))
def test_no_text_ends_the_border(pieces: list[str]) -> None:
    text = "".join(pieces)
    prompt = file_prompt("a.txt", text)
    tag = re.match(r"<([a-z0-9-]+) ", prompt)
    assert tag is not None
    assert prompt.count(f"</{tag[1]}>") == 1
    assert prompt.endswith(f"</{tag[1]}>")


def test_passages_are_numbered_and_those_struck_out_are_not_read() -> None:
    kept = Passage(3, "a.pdf", "Three", "1", PageUnit.PAGE)
    part = PassagesPart((kept, Passage(4, "b.txt", "secret", struck=True)))
    prompt = prompt_text((part, TextPart("What?")))
    assert prompt.startswith('<passage number="3" document="a.pdf" page="1">\nThree\n</passage>\n')
    assert prompt.endswith("such as [3].\n\nWhat?")
    assert "secret" not in prompt
    assert passages_prompt((Passage(1, "a", "b", struck=True),)) == ""


def test_the_model_is_told_that_no_passage_was_found() -> None:
    file, question = FilePart("a.pdf", "text", reads=Reads.PASSAGES), TextPart("What?")
    told = prompt_text((file, PassagesPart(), question))
    assert told.startswith('No passage of "a.pdf" was found for this question.')
    assert told.endswith("\n\nWhat?")
    assert prompt_text((file, PassagesPart(skipped=True), question)) == "What?"
    assert prompt_text((PassagesPart(), question)) == "What?"


def test_passages_of_earlier_questions_are_named_only() -> None:
    above = Passage(1, "a.pdf", "One", above=True)
    prompt = passages_prompt((above, Passage(3, "a.pdf", "Three")))
    assert "\nThree\n</passage>\nOf the earlier passages, [1] may help as well.\nAnswer" in prompt
    assert passages_prompt((above,)) == "Of the earlier passages, [1] may help as well."


@pytest.mark.parametrize("reads", [Reads.WHOLE, Reads.PASSAGES])
def test_a_copied_message_has_the_names_of_its_files(reads: Reads) -> None:
    parts = (FilePart("a.pdf", "text", reads=reads), TextPart("What?"))
    assert clipboard_text(parts) == "[a.pdf]\n\nWhat?"
    assert ("text" in prompt_text(parts)) is (reads is Reads.WHOLE)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.text("x\n <", max_size=5)), max_size=4),
    st.sampled_from((PageUnit.PAGE, PageUnit.NONE)),
    st.one_of(st.none(), st.sets(st.integers(0, 3))),
)
def test_pieces_are_the_prompt_and_say_where_they_are_in_the_file(
    pages: list[tuple[str, str]], unit: PageUnit, chosen: set[int] | None
) -> None:
    document = Document(DocumentKind.PDF, tuple(Page(*page) for page in pages), unit)
    wanted = None if chosen is None else tuple(sorted(chosen))
    arguments = ("a.pdf", document.text, unit, document.starts, wanted)
    pieces = file_pieces(*arguments)
    assert "".join(piece.text for piece in pieces) == file_prompt(*arguments)
    for piece in pieces:
        if piece.start >= 0:
            assert document.text[piece.start : piece.start + len(piece.text)] == piece.text


def test_a_text_with_many_ends_of_tags_takes_time_that_grows_with_it() -> None:
    text = "</document>" + "".join(f"</document-{number}>" for number in range(2, 100_000))
    assert file_prompt("a.txt", text).startswith("<document-100000 ")
