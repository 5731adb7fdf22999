"""Passages of a branch: what is searched for a question, numbers, and which go first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.domain.documents import PageStart, PageUnit, Passage
from app.domain.message import Message, MessageState
from app.domain.parts import FilePart, Part, PassagesPart, TextPart, prompt_text
from app.domain.passages import (
    as_read,
    cited,
    document_key,
    first_words,
    numbered,
    passage_file,
    passages_part,
    read_passages,
    searched_words,
    with_passages,
    without_old,
)
from engine import Role

QUESTION = "How long is the warranty of the pump?"


def message(number: int, *parts: Part, role: Role = Role.USER) -> Message:
    return Message(
        number, 1, None, role, parts, MessageState.COMPLETE, 0.0, "", "", 0, 0, 0.0, 1, 1
    )


def asked(number: int, text: str, *passages: Passage) -> Message:
    found = (PassagesPart(passages),) if passages else ()
    return message(number, *found, TextPart(text))


def passage(number: int, start: int = 0, **values: object) -> Passage:
    text = f"Text at {start}."
    made = Passage(number, "a.pdf", text, sha256="a", start=start, end=start + len(text))
    return replace(made, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "and the second one?",
        "Who signed it?",
        "why?",
        "Et la deuxième ?",
        "und das zweite?",
        "那第二个呢？",
        "Tell me more about that, please",
        "What about a service?",
        "What about a windscreen replacement?",
        "What are the best data management libraries for it?",
        "Do you have more courses?",
        "Yes, please",
        "Was ist mit der Batterie?",
    ],
)
def test_a_question_that_refers_to_another_is_searched_with_it(text: str) -> None:
    before = [asked(1, QUESTION), message(2, TextPart("Two years."), role=Role.ASSISTANT)]
    assert searched_words(asked(3, text), before) == f"{QUESTION}\n{text}"
    assert searched_words(asked(3, text), []) == text


@pytest.mark.parametrize(
    "text",
    [
        "What is the warranty period?",
        "Which mechanic changes the battery of that pump at home in cold winters?",
        "Wie lange gilt die Garantie der Pumpe?",
        "泵的保修期是多久？",
        "battery filter",
    ],
)
def test_a_question_with_words_of_its_own_is_searched_alone(text: str) -> None:
    assert searched_words(asked(3, text), [asked(1, QUESTION)]) == text


def test_follow_ups_go_back_to_what_was_searched() -> None:
    first = asked(1, QUESTION)
    part = PassagesPart((), searched=f"{QUESTION}\nwhy?")
    second = message(2, part, TextPart("why?"))
    assert searched_words(asked(3, "and then?"), [first, second]) == f"{QUESTION}\nwhy?\nand then?"


def test_passages_stand_between_files_and_words() -> None:
    pasted, file, text = FilePart("", "pasted"), FilePart("a.pdf", "x"), TextPart("why?")
    part = PassagesPart((passage(1),))
    assert with_passages((file, text), part) == (file, part, text)
    assert with_passages((file, part, text), None) == (file, text)
    assert with_passages((file,), part) == (file, part)
    assert with_passages((file, part, text), PassagesPart()) == (file, PassagesPart(), text)
    assert with_passages((file, text, pasted), part) == (file, part, text, pasted)


def test_numbers_are_unique_along_a_branch() -> None:
    before = [
        asked(1, "a", passage(1, 0), passage(2, 50, struck=True)),
        asked(3, "b", passage(3, 90)),
    ]
    made = numbered([passage(0, 0), passage(0, 50), passage(0, 200)], before)
    assert [(each.number, each.start, each.above) for each in made] == [
        (1, 0, True), (4, 50, False), (5, 200, False)
    ]  # fmt: skip


def test_pinned_passages_come_with_every_later_question() -> None:
    before = [asked(1, "a", passage(1, 0, pinned=True), passage(2, 50))]
    made = numbered([passage(0, 200)], before)
    assert [(each.number, each.above, each.pinned) for each in made] == [
        (1, True, True), (3, False, False)
    ]  # fmt: skip
    later = [*before, asked(3, "b", *made)]
    assert [each.number for each in numbered([], later)] == [1]


def test_answers_may_cite_what_stands_before_them() -> None:
    none = cited({}, asked(1, "hello"))
    first = asked(1, "a", passage(1), passage(2, 50, struck=True))
    second = asked(3, "b", passage(1, above=True), passage(3, 90))
    known = cited(none, first)
    assert list(known) == [1]
    assert cited(known, message(2, TextPart("[9]"), role=Role.ASSISTANT)) is known
    assert list(cited(known, second)) == [1, 3]
    assert list(known) == [1]


def test_the_oldest_are_left_out_and_what_the_last_question_has_moves_to_it() -> None:
    texts = [asked(n, f"q{n}", passage(n, 100 * n)) for n in (1, 2, 3)]
    last = asked(4, "q4", passage(2, 200, above=True), passage(4, 400))
    branch = [*texts, last]
    size = len(prompt_text(texts[0].parts)) - len("q1")
    assert without_old(branch, 0) == (branch, frozenset())
    made, left_out = without_old(branch, size)
    assert left_out == {1}
    assert prompt_text(made[0].parts) == "q1"
    assert made[1:] == branch[1:]
    made, left_out = without_old(branch, 10_000)
    assert left_out == {1, 2, 3}
    assert prompt_text(made[1].parts) == "q2"
    assert passages_part(made[3].parts) == PassagesPart((passage(2, 200), passage(4, 400)))


def test_each_passage_is_read_with_one_question() -> None:
    first = asked(1, "q1", passage(1, 0), passage(2, 50), passage(3, 90, struck=True))
    second = asked(2, "q2", passage(1, 0, above=True), passage(2, 50, above=True, struck=True))
    third = asked(3, "q3", passage(1, 0, above=True), passage(4, 200))
    made = [read_passages(each.parts) for each in as_read([first, second, third])]
    assert made == [
        (passage(1, 0),), (passage(1, 0, above=True),), (passage(1, 0, above=True), passage(4, 200))
    ]  # fmt: skip
    made = [read_passages(each.parts) for each in as_read([second, third])]  # the first was deleted
    assert made[0] == (passage(1, 0),)
    plain = [asked(1, "q1", passage(1, 0)), asked(2, "q2"), asked(3, "q3", passage(2, 50))]
    assert as_read(plain) == plain


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("One\n two.", "One two."),
        ("word " * 20, "word word word word…"),
        ("x" * 40, "x" * 20 + "…"),
        ("| a | b |\n|---|:-:|\n| c | d |", "a · b · c · d"),
        ("a | b", "a · b"),
        ("", ""),
    ],
)
def test_first_words(text: str, words: str) -> None:
    assert first_words(Passage(1, "a", text), 20) == words


def test_the_document_of_a_passage_is_found_by_its_bytes() -> None:
    file, pasted = FilePart("a.txt", "One two three.", "a"), FilePart("b.txt", "Four five.")
    branch = [message(1, pasted, file, TextPart("why?"))]
    first = Passage(1, "a.txt", "two", sha256="a", start=4, end=7)
    assert passage_file(first, branch) == (file, 4, 7)
    second = Passage(2, "b.txt", "five", sha256=document_key(pasted), start=5, end=9)
    assert passage_file(second, branch) == (pasted, 5, 9)
    gone = replace(first, sha256="x", unit=PageUnit.PAGE, page="7")
    alone = FilePart("a.txt", "two", unit=PageUnit.PAGE, pages=(PageStart("7", 0),))
    assert passage_file(gone, branch) == (alone, 0, 3)
