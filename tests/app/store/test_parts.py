"""Parts of a message: exact texts, rows of the store, search, and every kind through the store."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.domain.documents import (
    NO_QUERY,
    DocumentKind,
    DocumentWarning,
    PageStart,
    PageUnit,
    Passage,
    Reads,
    SearchFault,
    Warned,
)
from app.domain.file_words import attachment_words
from app.domain.growing import append_text
from app.domain.message import Message, MessageState
from app.domain.parts import (
    ErrorPart,
    FilePart,
    ImagePart,
    Part,
    PassagesPart,
    SectionPart,
    TablePart,
    TextPart,
    ThoughtPart,
    ToolCallPart,
    ToolResultPart,
    prompt_text,
    search_text,
    split,
    without_empty_ends,
)
from app.domain.passages import first_words
from app.store.part_rows import error_of_text, from_row, to_row
from app.store.store import Store
from engine import Detail, Fault, FaultKind, FileLook, Role
from store_contents import all_messages

PIECES = (
    "<think>",
    "<think>",
    "</think>",
    "`",
    "```\n",
    "</think>",
    "<thi",
    "nk>",
    "</",
    "a",
    " ",
    "\n",
    "\r\n",
    "天",
    "\x00",
    "\x1c",
    "\u00a0",
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
ERROR = ErrorPart(
    Fault(FaultKind.MEMORY, needed_bytes=5_000_000_000, available_bytes=2_000_000_000),
    "Small.gguf", "Out of memory.", "Close other programs.",
)  # fmt: skip
EVERY: tuple[Part, ...] = (
    ThoughtPart("Which file?", "\n <think>", "</think>"),
    TextPart("\n\nI look.\n"),
    ToolCallPart("read_file", '{"path": "naïve.txt"}', "call-1", "<tool_call>…</tool_call>"),
    ToolResultPart("read_file", "It says so.", "call-1", failed=True),
    ThoughtPart("", ends=""),
    TextPart("Done."),
    FilePart("notes.txt", "line one\nline two"),
    FilePart(
        "report.pdf",
        "One\n\nTwo",
        "a" * 64,
        DocumentKind.PDF,
        PageUnit.PAGE,
        (PageStart("1", 0), PageStart("2", 5)),
        Reads.PAGES,
        (1,),
        (Warned(DocumentWarning.SCANNED, ("2",)),),
        "/files/report.pdf",
        12.5,
        34,
    ),
    PassagesPart(
        (
            Passage(1, "report.pdf", "Two", "2", PageUnit.PAGE, "a" * 64, "", 5, 8, 0.5, True),
            Passage(2, "notes.txt", "line", struck=True),
            Passage(1, "report.pdf", "Two", above=True),
        ),
        "the words",
        3,
    ),
    FilePart("", "pasted"),
    ImagePart("tree.png", "0" * 64, "/pictures/tree.png", 640, 480, 12345),
    ImagePart("", "1" * 64, detail=Detail.HIGH, description="A tree"),
    ImagePart("", "2" * 64, detail=300),
    ERROR,
    ErrorPart(SearchFault("disk I/O error")),
    PassagesPart(skipped=True),
    TablePart("| a |\n| --- |\n| 1 |", "t.csv", '{"show": ["a"]}', '{"rows": 1}', ("a", "b")),
    ErrorPart(SearchFault('There is no column "b".', NO_QUERY)),
)


# --- texts ----------------------------------------------------------------------------------------


@given(TEXTS)
def test_parts_reproduce_the_text_of_a_model_exactly(text: str) -> None:
    parts = split(text)
    assert prompt_text(parts) == text
    assert all(part.text for part in parts if isinstance(part, TextPart))


@given(st.lists(TEXTS, max_size=6))
@example(["<think></think><think>```\n<think></think>```\n", "</think>"])
def test_parts_do_not_depend_on_how_the_text_arrived(texts: list[str]) -> None:
    parts: tuple[Part, ...] = ()
    for text in texts:
        parts = append_text(parts, text)
    assert parts == split("".join(texts))


@given(TEXTS, TEXTS)
def test_text_after_the_result_of_a_tool_is_a_part_by_itself(before: str, after: str) -> None:
    tools = (*split(before), ToolCallPart("f"), ToolResultPart("f", "found"))
    assert append_text((*tools, ERROR), after) == (*tools, *split(after))


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_attached_texts_are_read_as_if_they_had_been_typed(texts: list[str]) -> None:
    *pasted, typed = texts
    typed_parts = (TextPart(typed),) if typed else ()
    parts = without_empty_ends((*(FilePart("", text) for text in pasted if text), *typed_parts))
    whole = "\n\n".join([*(text for text in pasted if text), *([typed] if typed else [])])
    sent = prompt_text(parts)
    assert sent == sent.strip("\r\n")
    assert bool(sent) == bool(whole.strip())
    before, found, after = whole.partition(sent) if sent else ("", "", "")
    assert found == sent  # exactly as typed
    assert not before.strip()
    assert not after.strip()


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("    if ready:\n        go()", "    if ready:\n        go()"),
        ("\tx\n", "\tx"),
        ("\n\r\n  a: 1\n  b: 2  \n\n", "  a: 1\n  b: 2  "),
        ("\u00a0\u2060x\u3000", "\u00a0\u2060x\u3000"),
        ("\u2028x", "\u2028x"),
        (" \u00a0\n\t", ""),
    ],
)
def test_only_empty_lines_at_the_ends_of_a_message_are_removed(text: str, sent: str) -> None:
    for part in (TextPart(text), FilePart("", text)):
        assert prompt_text(without_empty_ends((part,))) == sent


def test_a_call_that_was_not_kept_is_written_in_the_usual_notation() -> None:
    call = ToolCallPart('say "hi"', '{"to": "you"}')
    lines = prompt_text((call,)).split("\n")
    assert (lines[0], lines[-1]) == ("<tool_call>", "</tool_call>")
    assert json.loads(lines[1]) == {"name": 'say "hi"', "arguments": {"to": "you"}}


def test_search_sees_all_parts_without_their_markup() -> None:
    text = search_text(EVERY)
    for word in ("Which file?", "I look.", "read_file", "naïve.txt", "It says so.", "notes.txt",
                 "line two", "pasted", "tree.png"):  # fmt: skip
        assert word in text
    assert "think>" not in text
    assert "memory" not in text


# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", EVERY, ids=lambda part: type(part).__name__)
def test_a_part_is_read_as_stored(part: Part) -> None:
    assert from_row(*to_row(part)) == part


def test_the_usual_thought_and_text_have_no_further_data() -> None:
    for part in split("<think>Hm.</think>Yes."):
        assert to_row(part)[1] == ""


@pytest.mark.parametrize(
    "kind", ["text", "thought", "tool call", "tool result", "file", "image", "error"]
)
@pytest.mark.parametrize(
    "data",
    ["[", "[]", "null", '{"name": 3, "fault": 7, "opens": null, "width": "a"}', "[" * 100_000],
)
def test_damaged_data_does_not_lose_the_part(kind: str, data: str) -> None:
    part = from_row(kind, data, "kept")
    assert to_row(part)[0] == kind
    if kind not in ("image", "error"):
        assert to_row(part)[2] == "kept"


@pytest.mark.parametrize(
    "values",
    [
        {"chosen": [999], "reads": "pages", "unit": "page"},
        {"chosen": [999], "reads": "pages", "pages": [{"label": "1", "start": 0}] * 2},
        {"chosen": [math.inf]},
        {"unit": "page", "pages": [{"label": 1, "start": "x"}]},
        {"unit": "page", "pages": [{"label": "1", "start": 9}, {"label": "2", "start": -1}]},
        {"unit": ["page"], "reads": {}, "warnings": [{"warning": "cut", "pages": 5}]},
    ],
)
def test_a_file_with_damaged_fields_is_read_and_named(values: dict[str, object]) -> None:
    part = from_row("file", json.dumps({"name": "a.pdf", **values}), "kept")
    assert to_row(part)[2] == "kept"
    assert prompt_text((part,)).startswith('<document name="a.pdf"')
    assert attachment_words(part).startswith("a.pdf, ")


@pytest.mark.parametrize(
    "values",
    [{"number": math.inf, "text": "t"}, {"number": 1, "text": 5}, {"number": 1, "text": None}, 5],
)
def test_passages_with_damaged_fields_are_read(values: object) -> None:
    named = {"name": "a.pdf", **values} if isinstance(values, dict) else values
    part = from_row("passages", json.dumps({"passages": [named]}), "")
    assert isinstance(part, PassagesPart)
    assert all(first_words(each, 10) for each in part.passages)


def test_a_part_of_an_unknown_kind_is_a_text() -> None:
    assert from_row("hologram", '{"depth": 3}', "kept") == TextPart("kept")


@pytest.mark.parametrize(
    "fault", [ERROR.fault, Fault(FaultKind.NOT_A_MODEL, FileLook.PDF), Fault()]
)
def test_a_code_stored_as_the_text_of_an_earlier_version_is_read(fault: Fault) -> None:
    values = {name: getattr(fault, name) for name in Fault.__slots__}
    text = json.dumps({"fault": values, "file": "m.gguf", "message": "Exact.", "remedy": "Do."})
    assert error_of_text(text) == ErrorPart(fault, "m.gguf", "Exact.", "Do.")


@pytest.mark.parametrize("text", ["The model broke.", "{not JSON", "{}", "{" * 100_000])
def test_a_sentence_of_an_earlier_version_is_kept(text: str) -> None:
    assert error_of_text(text) == ErrorPart(message=text)


@pytest.mark.parametrize(
    "fault", ["[]", '{"kind": "of a later version"}', '{"kind": "memory", "color": 1}']
)
def test_a_code_of_a_later_version_is_an_error_without_code(fault: str) -> None:
    text = f'{{"fault": {fault}, "message": "Exact.", "remedy": ""}}'
    assert error_of_text(text) == ErrorPart(message="Exact.")


# --- the store ------------------------------------------------------------------------------------


def fill(store: Store) -> dict[int, Message]:
    """A chat whose messages have every kind of part."""
    chat = store.create_conversation("Every kind").id
    own = store.add_message(chat, None, Role.USER, EVERY[6:11]).id
    answer = store.add_message(chat, own, Role.ASSISTANT, EVERY[:4], MessageState.STREAMING).id
    store.append_text(answer, "<think>On")
    store.append_text(answer, "ce more.</thi")
    store.append_text(answer, "nk>Done.")
    store.finish(answer, MessageState.FAILED, error=ERROR)
    store.add_message(chat, answer, Role.USER, "Thanks")
    return all_messages(store)


def test_restarting_keeps_every_kind(path: Path) -> None:
    with closing(Store.open(path)) as store:
        held = fill(store)
        chat = store.conversations()[0].id
        own, answer, _ = store.branch(chat)
        assert own.parts == EVERY[6:11]
        assert answer.parts == (*EVERY[:4], ThoughtPart("Once more."), TextPart("Done."), ERROR)
        assert answer.error == ERROR
    with closing(Store.open(path)) as store:
        assert all_messages(store) == held
    with closing(Store.open_copy(path)) as store:
        assert all_messages(store) == held


def test_every_kind_is_salvaged_and_rewritten(path: Path, tmp_path: Path) -> None:
    with closing(Store.open(path)) as store:
        held = fill(store)
    assert Store.salvage(path, tmp_path / "new.sqlite").partly == 0
    with closing(Store.open(tmp_path / "new.sqlite")) as store:
        assert all_messages(store) == held
        branch = store.branch(store.conversations()[0].id)
        kept = store.conversations()[0]
        store.delete([kept.id])
        store.purge_deleted(-1)
        with closing(sqlite3.connect(tmp_path / "new.sqlite")) as database:
            assert database.execute("SELECT count(*) FROM part").fetchone() == (0,)
        store.rewrite_conversation(kept)
        for message in branch:
            store.rewrite_message(message)
        assert all_messages(store) == held


def test_a_lost_part_is_completed_from_the_search_index(path: Path, tmp_path: Path) -> None:
    with closing(Store.open(path)) as store:
        chat = store.create_conversation("One").id
        asked = store.add_message(chat, None, Role.USER, "Was it LOST?").id
        store.add_message(chat, asked, Role.ASSISTANT, "<think>Kept.</think>Lost, too.")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA secure_delete = ON")
        database.execute("DELETE FROM part WHERE kind = 'text'")
    assert Store.salvage(path, tmp_path / "new.sqlite").partly == 2
    with closing(Store.open(tmp_path / "new.sqlite")) as store:
        assert [m.parts for m in store.branch(chat)] == [
            (TextPart("was it lost?"),),
            (ThoughtPart("Kept."), TextPart("lost, too.")),
        ]


def test_deleting_and_restoring_a_message_keeps_its_parts(store: Store) -> None:
    held = fill(store)
    for message in held:
        store.delete_message(message)
        assert message not in all_messages(store)
        store.restore_message(message)
        assert all_messages(store) == held


def test_continuing_a_failed_answer_drops_its_error(path: Path) -> None:
    with closing(Store.open(path)) as store:
        fill(store)
        _, answer, *_ = store.branch(store.conversations()[0].id)
        store.append_text(answer.id, "")
        streamed = store.branch(answer.conversation)[1]
        assert (streamed.state, streamed.error) == (MessageState.STREAMING, None)
        store.append_text(answer.id, " More.")
    with closing(Store.open(path)) as store:  # after a crash
        left = all_messages(store)[answer.id]
        assert (left.state, left.parts[-1]) == (MessageState.INTERRUPTED, TextPart("Done. More."))


def test_searching_finds_attachments_and_results(store: Store) -> None:
    fill(store)
    for word in ("line two", "tree.png", "it says so", "once more", "naive.txt"):
        assert len(store.conversations(word)) == 1
        assert store.hits(word, [store.conversations()[0].id])
    assert store.conversations("</think>") == []


def test_a_part_is_added_to_an_answer_that_had_failed(tmp_path):
    path = tmp_path / "conversations.sqlite"
    store = Store.open(path)
    chat = store.create_conversation("A")
    question = store.add_message(chat.id, None, Role.USER, "Why?").id
    answer = store.add_message(chat.id, question, Role.ASSISTANT, (SectionPart("One"),)).id
    store.finish(answer, MessageState.FAILED, error=ErrorPart(message="broken"))
    store.add_part(answer, SectionPart("zeppelin", start=1, end=2))
    files = {end: path.with_name(path.name + end).read_bytes() for end in ("", "-wal")}
    store.close()
    for end, content in files.items():  # as after a kill
        path.with_name(path.name + end).write_bytes(content)
    store = Store.open(path)
    found = store.branch(chat.id)[-1]
    assert found.state is MessageState.INTERRUPTED
    assert found.parts == (SectionPart("One"), SectionPart("zeppelin", start=1, end=2))
    assert [each.id for each in store.conversations("zeppelin")] == [chat.id]
    store.close()


@pytest.mark.parametrize("stored", ["finest", 0, -4, True, 1 << 40, None, [300]])
def test_a_detail_of_another_version_is_the_standard_one(stored: object) -> None:
    part = from_row("image", json.dumps({"name": "a.png", "detail": stored, "width": 4}), "")
    assert part == ImagePart("a.png", width=4)


def test_pictures_are_found_by_their_description() -> None:
    assert search_text((ImagePart("a.png", description="A tree"),)) == "a.png\n\nA tree"
