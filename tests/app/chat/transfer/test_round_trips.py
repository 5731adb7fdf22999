"""Chats written and read again: JSON exactly, Markdown and HTML as the same blocks."""

from __future__ import annotations

import hashlib
import io
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.chat.transfer import native_json
from app.chat.transfer.json_stream import JsonStream
from app.chat.transfer.markdown_export import chat_markdown
from app.domain.chat_tree import ChatTree, FolderRecord, node, renumbered, shown_branch
from app.domain.document import sections
from app.domain.documents import PageUnit, Passage
from app.domain.message import MessageState
from app.domain.parts import (
    ImagePart,
    KeptFile,
    PassagesPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from app.markdown.blocks import Heading, Place, Run
from app.markdown.stream import parse
from app.ui.export.html import chat_html, style_sheet
from chat_makers import blobs, chats, folder_records
from engine import Role
from html_blocks import HtmlReader, structure

MANY = [pytest.param(100, id="100"), pytest.param(300, id="300", marks=pytest.mark.sweep)]


def through_json(
    *trees: ChatTree, folders: Sequence[FolderRecord] = (), files: Sequence[bytes] = ()
) -> list[ChatTree | None]:
    """The chats of an export of these, which has these folders and files as well."""
    file = io.BytesIO()
    named = {hashlib.sha256(each).hexdigest(): each for each in files if each}
    attached = ((name, (each[:7], each[7:])) for name, each in named.items())
    counts = native_json.write(file, trees, 0.0, folders, attached)
    assert list(counts) == list(range(1, len(trees) + 1))
    file.seek(0)
    found_folders: list[FolderRecord] = []
    found_files: dict[str, bytes] = {}

    def keep(name: str, pieces: Iterator[bytes]) -> None:
        found_files[name] = b"".join(pieces)

    extras = native_json.Extras(found_folders.extend, keep)
    found = list(native_json.read(JsonStream(file), extras))
    assert not any(chat.dropped for chat in found)
    assert (found_folders, found_files) == (list(folders), named)
    return [chat.tree for chat in found]


@pytest.mark.parametrize("count", MANY)
def test_json_is_read_back_to_equal_chats(count: int) -> None:
    @settings(max_examples=count, deadline=None, database=None, derandomize=True)
    @given(chats(), chats(), st.lists(folder_records, max_size=3), st.lists(blobs, max_size=3))
    def check(
        one: ChatTree, two: ChatTree, folders: list[FolderRecord], files: list[bytes]
    ) -> None:
        assert through_json(one, two, folders=folders, files=files) == [one, two]

    check()


def test_a_file_of_the_first_version_is_read() -> None:
    chat = ChatTree("t", 1.0, 2.0, (node(1, None, Role.USER, (TextPart("q"),)),), 1)
    head = {"format": native_json.FORMAT, "version": 1, "exported": 0.0}
    file = io.BytesIO(json.dumps({**head, "chats": [native_json.values_of(chat)]}).encode())
    assert [each.tree for each in native_json.read(JsonStream(file))] == [chat]


def test_ids_of_the_store_are_numbered_anew() -> None:
    big = 1 << 62
    tree = ChatTree(
        "t", 1.0, 2.0,
        tuple(renumbered([
            node(1, None, Role.USER, (TextPart("q"),)),
            replace(node(2, 1, Role.ASSISTANT, ()), compared=3, undecided=True),
            replace(node(3, 1, Role.ASSISTANT, ()), compared=2, undecided=True),
        ], [big, big + 1, big + 9], 7)),
        big + 9,
    )  # fmt: skip
    [found] = through_json(tree)
    assert found is not None
    assert found.branch_tip == 3
    assert [each.compared for each in found.messages] == [0, 3, 2]
    assert found.digest == tree.digest


def test_an_answer_that_is_written_is_exported_as_interrupted() -> None:
    written = node(1, None, Role.ASSISTANT, (TextPart("a"),), state=MessageState.STREAMING)
    [found] = through_json(ChatTree("t", 1.0, 2.0, (written,), 1))
    assert found is not None
    assert found.messages[0].state is MessageState.INTERRUPTED


def test_the_digest_is_of_what_was_said() -> None:
    one = node(1, None, Role.USER, (TextPart("a"),))
    tree = ChatTree("t", 1.0, 2.0, (one,), 1)
    more = replace(tree, messages=(one, node(2, 1, Role.USER, (TextPart("b"),))))
    renamed = replace(tree, title="other", updated=9.0, pinned=True)
    assert renamed.digest == tree.digest != more.digest


# --- Markdown ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", MANY)
def test_markdown_is_parsed_back_to_the_same_blocks(count: int) -> None:
    @settings(max_examples=count, deadline=None, database=None, derandomize=True)
    @given(chats())
    def check(tree: ChatTree) -> None:
        text = chat_markdown(replace(tree, title="T"))
        body = text.partition("\n---\n\n")[2]
        wanted = structure(parse("# T"))
        for section in sections(tree):
            heading = Heading(Place(0, 1), 2, (Run(section.heading),))
            wanted += structure([heading, *section.blocks] if section.heading else section.blocks)
        assert structure(parse(body)) == wanted

    check()


# --- HTML ----------------------------------------------------------------------------------------


ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "section", "div", "p", "b",
    "h1", "h2", "h3", "h4", "h5", "h6", "a", "em", "strong", "del", "code", "pre", "span", "br",
    "hr", "ul", "ol", "li", "blockquote", "table", "tr", "th", "td", "svg", "path", "rect",
}  # fmt: skip


@pytest.fixture(scope="module")
def sheet(qapp: object) -> str:
    return style_sheet()


@pytest.mark.parametrize("count", MANY)
def test_html_has_the_same_blocks_and_nothing_that_acts(count: int, sheet: str) -> None:
    @settings(max_examples=count, deadline=None, database=None, derandomize=True)
    @given(chats())
    def check(tree: ChatTree) -> None:
        html = "".join(chat_html(tree, sheet))
        reader = HtmlReader()
        reader.feed(html)
        reader.close()
        assert reader.tags <= ALLOWED
        assert not {name for name in reader.attributes if name.startswith("on")}
        assert all(re.match(r"https?://|mailto:", each) for each in reader.addresses)
        wanted = list(sections(tree))
        assert reader.heads == [f"{section.heading}{section.when}" for section in wanted]
        for found, section in zip(reader.sections, wanted, strict=True):
            assert found == structure(section.blocks)

    check()


def test_formulas_and_code_are_as_on_the_screen(sheet: str) -> None:
    source = "Sum $a^2$:\n\n$$\\frac{a}{b}$$\n\n```python\ndef f(): return '<b>'\n```\n\n$\\nope$"
    tree = ChatTree("T", 1.0, 2.0, (node(1, None, Role.ASSISTANT, (TextPart(source),)),), 1)
    html = "".join(chat_html(tree, sheet))
    assert html.count("<svg") == 2  # wrong TeX is shown as its source
    assert 'aria-label="\\frac{a}{b}"' in html
    assert "currentColor" in html
    assert '<span class="keyword">def</span>' in html
    assert "&lt;b&gt;" in html
    assert "$\\nope$" in html
    assert "prefers-color-scheme: dark" in html
    assert "<script" not in html


def test_only_the_shown_branch_is_a_document() -> None:
    tree = ChatTree(
        "T", 1.0, 2.0,
        (
            node(1, None, Role.USER, (TextPart("q"),)),
            node(2, 1, Role.ASSISTANT, (TextPart("one"),)),
            node(3, 1, Role.ASSISTANT, (TextPart("two"),)),
        ),
        2,
    )  # fmt: skip
    assert [each.id for each in shown_branch(tree)] == [1, 2]
    assert "two" not in chat_markdown(tree)


def cited_chat() -> ChatTree:
    """An answer that refers to one of two passages, and to one that there is not."""
    first = Passage(1, "manual.pdf", "The warranty is two years. " * 30, "3", PageUnit.PAGE)
    second = Passage(2, "a_b.txt", "Clean the filter.")
    struck = Passage(3, "c.txt", "secret", struck=True)
    return ChatTree(
        "T", 1.0, 2.0,
        (
            node(1, None, Role.USER, (PassagesPart((first, second, struck)), TextPart("How long?"))),
            node(2, 1, Role.ASSISTANT, (TextPart("Two years [1], not [3] or [9]; `a[1]`."),)),
        ),
        2,
    )  # fmt: skip


def test_references_are_notes_behind_the_chat(sheet: str) -> None:
    text = chat_markdown(cited_chat())
    assert "Two years [^1], not [3] or [9]; `a[1]`." in text
    note = text.rpartition("## Passages\n\n")[2]
    assert note.startswith("[^1]: manual.pdf, page 3: The warranty is two years. The")
    assert note.endswith("is two…\n")
    assert len(note) < 300
    assert "*[2] a\\_b.txt*" in text or "*[2] a_b.txt*" in text
    assert "secret" not in text

    html = "".join(chat_html(cited_chat(), sheet))
    assert 'Two years <a href="#passage-1">[1]</a>, not [3] or [9]' in html
    assert '<b id="passage-1">[1]</b>: manual.pdf, page 3: The warranty' in html
    assert "passage-2" not in html


def test_a_chat_without_references_has_no_notes() -> None:
    tree = cited_chat()
    tree = replace(tree, messages=(tree.messages[0], node(2, 1, Role.ASSISTANT, (TextPart("2"),))))
    assert not any(section.are_notes for section in sections(tree))


def test_html_has_the_pictures_that_browsers_show(sheet: str) -> None:
    png, bmp = b"\x89PNG\r\n\x1a\nrest", b"BMrest of it"
    parts = (
        ImagePart("a.png", "a" * 64, "", 4, 3, len(png), description='A "tree"'),
        ImagePart("b.bmp", "b" * 64, "", 4, 3, len(bmp)),
        ImagePart("large.png", "a" * 64, "", 4, 3, 9_000_000),
        ImagePart("gone.png", "c" * 64, "", 4, 3, 10),
    )
    tree = ChatTree("T", 1.0, 2.0, (node(1, None, Role.USER, parts),), 1)
    files = {"a" * 64: png, "b" * 64: bmp}
    html = "".join(chat_html(tree, sheet, lambda sha256: files.get(sha256, b"")))
    assert re.findall('<img src="([^"]*)"', html) == [
        "data:image/png;base64," + b64encode(png).decode()
    ]
    assert 'alt="A &quot;tree&quot;" width="4" height="3"' in html
    for name in ("a.png", "b.bmp", "large.png", "gone.png"):
        assert f"Picture: {name}" in html
    assert "<img" not in "".join(chat_html(tree, sheet))
    assert 'A "tree"' in chat_markdown(tree)


def test_files_of_tools_are_in_documents_pictures_as_such(sheet: str) -> None:
    png = b"\x89PNG\r\n\x1a\nrest"
    result = ToolResultPart(
        "draw", "drawn", "1",
        files=(KeptFile("a.png", "a" * 64, len(png), 4, 3), KeptFile("b.html", "b" * 64, 12_000)),
        files_left_out=1,
    )  # fmt: skip
    parts = (ToolCallPart("draw", "{}", "1"), result)
    tree = ChatTree("T", 1.0, 2.0, (node(1, None, Role.ASSISTANT, parts),), 1)
    html = "".join(chat_html(tree, sheet, lambda sha256: png if sha256 == "a" * 64 else b"<b>"))
    assert html.count("<img ") == 1
    for text in (html, chat_markdown(tree)):
        assert "Picture: a.png" in text
        assert "File: b.html, 12 kB" in text
        assert "1 file was not kept" in text
