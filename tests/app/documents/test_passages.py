"""Passages: what a text is cut into."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.passages import PARTS, SIZE, Span, parts_of, spans
from app.domain.documents import Document, DocumentKind, Page, PageStart, PageUnit

PIECES = st.sampled_from(
    [
        "a",
        "word ",
        "A sentence of some length, which ends. ",
        "\n",
        "\n\n",
        "# Heading\n",
        "## Lower\n\n",
        "Title\n=====\n",
        "---\n",
        "| a | b |\n|---|---|\n",
        "| 1 | 2 |\n",
        "```\n",
        "- item\n",
        "東京都は日本の首都です。",
        "ภาษาไทย",
        "e\u0301\u0301",
        "\u0301",
        "\U0001f333",
        "שלום עולם ",
        "\t",
        " ",
        "x" * 100,
        "\u2028",
        "\r\n",
    ]
)
TEXTS = st.lists(PIECES, max_size=120).map("".join)


def document(*texts: str, unit: PageUnit = PageUnit.PAGE) -> tuple[str, tuple[PageStart, ...]]:
    pages = tuple(Page(str(number), text) for number, text in enumerate(texts, 1))
    made = Document(DocumentKind.TEXT, pages, unit)
    return made.text, made.starts


def words(count: int, name: str = "word") -> str:
    return " ".join(f"{name}{number}" for number in range(count))


@given(st.lists(TEXTS, min_size=1, max_size=4), st.sampled_from(DocumentKind), st.integers(4, 300))
def test_everything_that_is_not_blank_is_in_a_passage(
    texts: list[str], kind: DocumentKind, size: int
) -> None:
    text, starts = document(*texts)
    found = [*spans(text, starts, kind, size)]
    covered = bytearray(len(text))
    for span in found:
        covered[span.start : span.end] = b"\1" * (span.end - span.start)
    assert all(covered[at] or letter.isspace() for at, letter in enumerate(text))


@given(st.lists(TEXTS, min_size=1, max_size=4), st.integers(4, 300))
def test_passages_are_in_order_of_limited_length_and_not_blank(texts: list[str], size: int) -> None:
    text, starts = document(*texts)
    found = [*spans(text, starts, size=size)]
    for span in found:
        assert text[span.start : span.end].strip()
        assert not text[span.end - 1].isspace()
        assert span.end - span.start <= 2 * size + 40
        page = starts[span.page_index]
        assert page.start <= span.start
        assert span.page_index + 1 == len(starts) or span.start < starts[span.page_index + 1].start
    for before, after in pairwise(found):
        assert before.start < after.start
        assert before.end < after.end


def test_an_empty_text_has_no_passages() -> None:
    assert [*spans("")] == []
    assert [*spans(" \n\n\t ")] == []


def test_short_paragraphs_are_one_passage_and_long_texts_several_of_about_the_same_size() -> None:
    assert [*spans("One.\n\nTwo.")] == [Span(0, 10)]
    text = "\n\n".join(f"Paragraph {number} is about nothing at all." for number in range(100))
    lengths = [span.end - span.start for span in [*spans(text)]]
    assert len(lengths) == 4
    assert max(lengths) < SIZE * 1.1
    assert min(lengths) > SIZE * 0.7


def test_a_page_ends_a_passage() -> None:
    text, starts = document("One page.", "Another page.")
    assert [*spans(text, starts)] == [Span(0, 9, 0), Span(11, 24, 1)]


def test_a_paragraph_that_goes_on_is_in_one_passage_and_nothing_else_of_the_page_is() -> None:
    text, starts = document("First.\n\nThe sentence goes", "on over the page.\n\nThe next one.")
    first, second = [*spans(text, starts)]
    assert text[first.start : first.end].endswith("on over the page.")
    assert text[second.start : second.end] == "The next one."
    assert (first.page_index, second.page_index) == (0, 1)


def test_a_paragraph_over_three_pages_goes_on() -> None:
    text, starts = document("It begins", "and goes on", "and ends.")
    assert [*spans(text, starts)] == [Span(0, len(text), 0)]


def test_a_long_paragraph_is_cut_between_sentences_with_a_little_repeated() -> None:
    text = " ".join(f"Sentence number {number} says something of its own." for number in range(80))
    found = [*spans(text)]
    assert len(found) > 2
    for before, after in pairwise(found):
        assert text[after.start :].startswith("Sentence number")
        assert text[before.end - 1] == "."
        assert 0 < before.end - after.start < SIZE * 0.2


def test_headings_above_a_passage_are_known_and_not_those_in_it() -> None:
    long = "Something is said here. " * 60
    text = f"# Book\n\n## One\n\n{long}\n\n### Deep\n\n{long}\n\n## Two\n\nAn end."
    found = [*spans(text)]
    assert found[0].headings == ""
    assert text[found[0].start :].startswith("# Book")
    headings = list(dict.fromkeys(span.headings for span in found))
    assert headings == ["", "Book > One", "Book > One > Deep", "Book"]
    assert text[found[-1].start : found[-1].end] == "## Two\n\nAn end."


def test_an_underlined_heading_counts() -> None:
    text = "Title\n=====\n\n" + "Something is said here. " * 100
    assert [*spans(text)][-1].headings == "Title"


def test_a_heading_is_never_the_end_of_a_passage() -> None:
    text = words(140) + ".\n\n# Next\n\n" + words(140)
    found = [*spans(text)]
    assert text[found[1].start :].startswith("# Next")
    assert all(not text[span.start : span.end].endswith("# Next") for span in found)


def test_the_name_of_a_page_is_a_heading_and_its_number_is_not() -> None:
    text = "Rows.\n\nMore."
    starts = (PageStart("Budget", 0), PageStart("2", 7))
    assert [span.headings for span in [*spans(text, starts)]] == ["Budget", ""]


@pytest.mark.parametrize("rows", [200, 3000])
def test_a_table_is_cut_between_rows_and_repeats_its_header(rows: int) -> None:
    body = "\n".join(f"| {number} | value of {number} |" for number in range(rows))
    text = f"| Key | Value |\n|---|---|\n{body}"
    first, *rest = [*spans(text, kind=DocumentKind.TABLE)]
    assert first.table_head == ""
    assert rest
    for span in rest:
        assert span.table_head == "| Key | Value |"
        assert text[span.start] == "|"
        assert text[span.end - 1] == "|"


def test_comments_of_code_are_no_headings_and_code_is_cut_at_blank_lines() -> None:
    functions = [
        f"# makes {n}\ndef make_{n}():\n    return {n}\n    # done\n" + "    pass\n" * 20
        for n in range(20)
    ]
    text = "\n".join(functions)
    found = [*spans(text, kind=DocumentKind.CODE)]
    assert len(found) > 2
    assert all(span.headings == "" for span in found)
    assert all(text[span.start :].startswith("# makes") for span in found)


def test_what_is_between_fences_is_no_heading() -> None:
    text = "# Real\n\n```sh\n# not one\n\n# nor this\n```\n\n" + "Something is said here. " * 100
    assert [*spans(text, kind=DocumentKind.MARKDOWN)][-1].headings == "Real"


def test_texts_without_spaces_are_cut_by_letters() -> None:
    text = "東京都は日本の首都です。" * 500
    found = [*spans(text)]
    assert all(200 <= span.end - span.start <= 600 for span in found)
    assert all(text[span.end - 1] == "。" for span in found)
    unbroken = [*spans("東" * 5_000)]
    assert all(span.end - span.start <= 600 for span in unbroken)


def test_a_letter_keeps_its_marks() -> None:
    text = "e\u0301" * 5_000
    for span in [*spans(text)]:
        assert text[span.start] == "e"


@pytest.mark.parametrize(
    "text",
    ["x" * 800_000, ". " * 400_000, "|\n" * 400_000, " " * 800_000, "東" * 800_000],
    ids=["no space", "dots", "rows", "blank", "wide"],
)
def test_time_grows_with_the_text_only(text: str) -> None:
    def seconds(length: int) -> float:
        begun = time.thread_time()
        [*spans(text[:length])]
        return time.thread_time() - begun

    short = min(seconds(len(text) // 8) for _ in range(2))
    assert seconds(len(text)) < 8 * 3 * short + 0.5  # 64 times it, if it were quadratic


def test_parts_are_whole_sentences_that_make_up_the_passage() -> None:
    sentences = [
        f"Sentence {number} says a little more than the one before it." for number in range(20)
    ]
    text = " ".join(sentences)
    found = parts_of(text)
    assert " ".join(found) == text
    assert len(found) == PARTS
    assert max(map(len, found)) < 2 * min(map(len, found))
    assert parts_of("One short sentence.") == ()
    assert parts_of("") == ()
    chinese = "这是一个关于茶厂参观的句子，它很长很长很长。" * 30
    assert "".join(parts_of(chinese)) == chinese
    assert len(parts_of(chinese)) == PARTS
