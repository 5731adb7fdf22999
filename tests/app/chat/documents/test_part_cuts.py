"""Parts of documents: tables and code that span parts, texts without spaces, one page."""

from __future__ import annotations

import random

import pytest

from app.chat.documents.long_documents import LongAnswer, LongRequest
from app.chat.documents.part_cuts import about_parts, part_text
from app.chat.documents.part_sizes import part_sizes
from app.domain.deltas import Delta, SectionDelta
from app.domain.documents import PageStart, PageUnit, Reads
from app.domain.parts import FilePart, SectionPart
from long_stage import WISH, read_part
from scripted_door import ScriptedDoor, collect

HEAD = "| Month | Passengers | Income |\n|---|--:|:-:|\n"


class CharacterDoor(ScriptedDoor):
    """An engine whose tokens are characters."""

    async def count(self, text: str) -> int:
        return len(text)


def read(file: FilePart, door: ScriptedDoor) -> list[SectionPart]:
    deltas: list[Delta] = collect(LongAnswer(LongRequest((file,), WISH, (), ""), door))
    return [each.section for each in deltas if isinstance(each, SectionDelta)]


@pytest.mark.parametrize("reads", [Reads.SUMMARY, Reads.REWRITE])
def test_a_table_that_spans_parts_has_its_head_in_each(reads: Reads) -> None:
    rows = "".join(f"| month{n} | {n * 7} | {n * 3} k |\n" for n in range(900))
    text = f"Before the table.\n\n{HEAD}{rows}\nBehind the table."
    door = ScriptedDoor(lambda _: "x", 1024)
    parts = read(FilePart("a.md", text, reads=reads), door)
    assert len(parts) > 3
    assert "".join(text[part.start : part.end] for part in parts) == text
    asked = [read_part(question) for question in door.asked[: len(parts)]]
    for part, shown in zip(parts[1:], asked[1:], strict=True):
        if text[part.start] == "|":
            assert shown.startswith(HEAD)
    assert sum(shown.count(HEAD) for shown in asked) >= len(parts) - 1
    assert all(f"| month{n} |" in "".join(asked) for n in range(900))


def test_code_that_spans_parts_has_its_fence_in_each() -> None:
    code = "".join(f"    value_{n} = compute({n})\n" for n in range(1200))
    text = f"# Code\n\n```python\n{code}```\n\nBehind it.\n\n~~~~\n```\nnot an end\n~~~~\n\nLast."
    door = ScriptedDoor(lambda _: "x", 1024)
    parts = read(FilePart("a.md", text, reads=Reads.SUMMARY), door)
    asked = [read_part(question) for question in door.asked[: len(parts)]]
    inside = [n for n, part in enumerate(parts) if text.startswith("    value_", part.start)]
    assert len(inside) > 1
    assert all(asked[n].startswith("```python\n") for n in inside)
    file = FilePart("a.md", text)
    last = text.index("Last.")
    assert part_text(file, last, len(text)) == "Last."
    within = text.index("not an end")
    assert part_text(file, within, last).startswith("~~~~\nnot an end")


def test_the_beginning_of_a_part_is_its_own_where_nothing_spans() -> None:
    chance = random.Random(3)
    text = "| no head |\n| of a table |\n\nwords\n```\ncode\n```\n\n| a |\n|---|\n| 1 |\n\nend"
    file = FilePart("a.md", text)
    for _ in range(200):
        start = chance.randrange(len(text))
        assert part_text(file, start, len(text)).endswith(text[start:])
    assert part_text(file, 12, len(text)) == text[12:]


def test_a_text_without_spaces_is_cut_between_sentences() -> None:
    text = "".join(
        f"\u6e2f\u53e3\u59d4\u5458\u4f1a\u6279\u51c6\u4e86\u9884\u7b97{n}\u3002" for n in range(900)
    )
    door = CharacterDoor(lambda _: "x", 2048)
    parts = read(FilePart("a.txt", text, reads=Reads.SUMMARY), door)
    assert len(parts) > 3
    assert "".join(text[part.start : part.end] for part in parts) == text
    assert all(text[part.end - 1] == "\u3002" for part in parts)
    assert all(len(question) < 2048 for question in door.asked)


def test_a_text_without_any_border_is_read_all_the_same() -> None:
    text = "\u6e2f" * 9000
    parts = read(FilePart("a.txt", text, reads=Reads.REWRITE), CharacterDoor(lambda _: "x", 2048))
    assert "".join(text[part.start : part.end] for part in parts) == text


def test_a_document_of_one_page_is_one_request() -> None:
    file = FilePart(
        "a.pdf", "One page.", unit=PageUnit.PAGE, pages=(PageStart("1", 0),), reads=Reads.SUMMARY
    )
    door = ScriptedDoor(lambda _: "Short.")
    assert read(file, door) == []
    assert len(door.asked) == 1
    door = ScriptedDoor(lambda _: "Short.")
    [part] = read(FilePart("a.txt", "One page.", reads=Reads.REWRITE), door)
    assert (part.text, part.count) == ("Short.", 1)


@pytest.mark.parametrize("reads", [Reads.SUMMARY, Reads.REWRITE])
@pytest.mark.parametrize("words", [90, 700])
def test_the_parts_are_about_as_many_as_was_said(reads: Reads, words: int) -> None:
    page = " ".join(f"word{n}" for n in range(words)) + "\n\n"
    starts = tuple(PageStart(str(n), n * len(page)) for n in range(40))
    file = FilePart("a.pdf", page * 40, unit=PageUnit.PAGE, pages=starts, reads=reads)
    door = ScriptedDoor(lambda _: "x", 4096)
    parts = read(file, door)
    sizes = part_sizes(4096, 20, reads)
    assert sizes is not None
    about = about_parts(file, 40 * words, sizes.text)
    assert 0.75 * len(parts) <= about <= 1.25 * len(parts)
