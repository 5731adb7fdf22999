"""Structure of markdown against cmark-gfm: examples of the specifications, and random documents.

`examples.json` has the inputs of the examples of CommonMark 0.31 in our words, without those of raw
HTML, and some of ours for the extensions of GitHub. The results come from cmark-gfm.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.markdown.blocks import BOX, TICKED, Block
from app.markdown.export import to_html, to_markdown
from app.markdown.stream import Stream, parse
from cmark_oracle import OMITTED, cmark_html, structure_of_blocks, structure_of_html, without_spaces

EXAMPLES: list[str] = json.loads(
    Path(__file__).with_name("examples.json").read_text(encoding="utf-8")
)

# What is meant to differ from cmark-gfm: the reason, an example, and our structure of it.
DIFFERENCES: dict[str, tuple[str, list[Any]]] = {
    "HTML stays text": (
        "a <b>c</b>",
        [("p", (("a <b>c</b>", ""),))],
    ),
    "a block of HTML is a paragraph": (
        "<div>\n*a*\n</div>",
        [("p", (("<div> ", ""), ("a", "i"), (" </div>", "")))],
    ),
    "<br> is a line break": (
        "a<br>b",
        [("p", (("a\nb", ""),))],
    ),
    "formulas in a line": (
        r"\[x_1 _y_\] and $a*b*c$",
        [("p", ((r"\[x_1 _y_\] and $a*b*c$", ""),))],
    ),
    "formulas on lines of their own": (
        "$$\n- a\n$$",
        [("formula", "$$\n- a\n$$")],
    ),
    "one tilde is text: it means about": (
        "~5 and 6~",
        [("p", (("~5 and 6~", ""),))],
    ),
    "emphasis beside Chinese and Japanese text": (
        "**“a”**是",
        [("p", (("“a”", "b"), ("是", "")))],
    ),
    "currency signs are punctuation, as in CommonMark 0.31": (
        "*£*b",
        [("p", (("*£*b", ""),))],
    ),
    "a character reference has at most seven digits, as in CommonMark 0.31": (
        "&#87654321;",
        [("p", (("&#87654321;", ""),))],
    ),
    "a bare address ends before full-width punctuation": (
        "https://a.b/c。d",
        [("p", (("https://a.b/c", " https://a.b/c"), ("。d", "")))],
    ),
    "a bare address ends before quotation marks, > and |": (
        'https://a.b/c"d',
        [("p", (("https://a.b/c", " https://a.b/c"), ('"d', "")))],
    ),
    "a bare e-mail address is text": (
        "a@b.cd",
        [("p", (("a@b.cd", ""),))],
    ),
    "a bare address without a scheme is text": (
        "www.a.bc",
        [("p", (("www.a.bc", ""),))],
    ),
    "an address that runs a script is text": (
        "[a](javascript:b)",
        [("p", (("[a](javascript:b)", ""),))],
    ),
    "a task also in a quote, and in a list that begins behind the marker of another": (
        "> - [x] a",
        [("quote", [("list", "", [("☑", [("p", (("a", ""),))])])])],
    ),
    "a box in a task is text": (
        "- [ ] [x] a",
        [("list", "", [("☐", [("p", (("[x] a", ""),))])])],
    ),
    "a heading is no task": (
        "- [x] a\n  ---",
        [("list", "", [("", [("h", 2, (("[x] a", ""),))])])],
    ),
    "tildes before the end of emphasis are punctuation like other marks": (
        "*a ~~*",
        [("p", (("a ~~", "i"),))],
    ),
    "a row of dashes behind a paragraph may be the header of a table": (
        "a\n|---|---|\n|---|---|",
        [("p", (("a", ""),)), ("table", ("left", "left"), [[(("---", ""),), (("---", ""),)]])],
    ),
    "an indented line that continues a paragraph from outside may be a definition": (
        "> [a]: b\n  [c]: d",
        [("quote", [])],
    ),
    "an image in the text of an image has its address": (
        "![a ![b](c)](d)",
        [("p", (("a b c ", "i"), ("d", " d")))],
    ),
}


def by_cmark(text: str) -> list[Any]:
    return structure_of_html(cmark_html(text))


@pytest.mark.parametrize("reason", DIFFERENCES)
def test_what_is_meant_to_differ_does(reason: str) -> None:
    text, ours = DIFFERENCES[reason]
    assert structure_of_blocks(parse(text)) == ours
    assert OMITTED in cmark_html(text) or by_cmark(text) != ours


def test_nesting_ends_at_a_depth() -> None:
    text = ">" * 60 + " a"
    assert structure_of_blocks(parse(text)) != by_cmark(text)


def _is_meant_to_differ(text: str) -> bool:
    """Whether an example is about one of the differences."""
    marks = ("*£*", "*€*", "&#87654321;", r"\[", ".com", "![tea ![", "> - [x]")
    return any(mark in text for mark in marks)


def test_examples_have_the_structure_of_cmark() -> None:
    wrong = [text for text in EXAMPLES if structure_of_blocks(parse(text)) != by_cmark(text)]
    assert [text for text in wrong if not _is_meant_to_differ(text)] == []
    assert len(wrong) <= 8


def copied(blocks: Sequence[Block]) -> list[list[Any]]:
    """The structure of blocks, and that of their copies as HTML and as markdown."""
    html = to_html(blocks).replace(f"<li>{BOX} ", "<li><input>")
    html = html.replace(f"<li>{TICKED} ", "<li><input checked>")
    markdown = structure_of_blocks(parse(to_markdown(blocks)))
    return [structure_of_blocks(blocks), structure_of_html(html), markdown]


def test_examples_are_copied_with_their_structure() -> None:
    for text in EXAMPLES:
        shown, html, _ = copied(parse(text))
        assert html == shown, text


def test_examples_are_copied_as_markdown_with_their_structure() -> None:
    for text in EXAMPLES:
        shown, _, markdown = copied(parse(text))
        assert without_spaces(markdown) == without_spaces(shown), text


PIECES = [
    "a", "b c ", "word ", "\n", "\n", "\n\n", "  \n", "\\\n", "- ", "  - ", "   ", "    ", "\t",
    "+ ", "1. ", "2) ", "10. ", "-\n", "1.\n", "> ", ">", "```\n", "```py\n", "~~~\n", "~~~x",
    "| a | b |\n", "|---|:-:|\n", "| 1 | 2 |\n", "x|y", "\\|", "**", "*", "_", "__", "`", "``",
    "# ", "## x #\n", "---\n", "===\n", "***\n", "* * *\n", "[a]", "[a]: http://x.y\n",
    "[b]: <u v> 'title'\n", "[b](c)", "(u)", "[b](c \"t\")", "[a][b]", "![i](u)", "\\*", "~~",
    "http://a.b/c ", " <http://z.w> ", "&amp;", "!", ".", ":", "'", "[ ] ", "\n- [x] ", "\n1. [ ] ",
]  # fmt: skip


def document(seed: int) -> str:
    """A random document, the same for the same seed."""
    chance = random.Random(seed)
    return "".join(chance.choice(PIECES) for _ in range(chance.randint(2, 14)))


def different(seeds: range) -> list[str]:
    """Documents whose structure is another one."""
    found: list[str] = []
    for text in map(document, seeds):
        html = cmark_html(text)
        if OMITTED in html or _is_odd(text):
            continue
        if structure_of_blocks(parse(text)) != structure_of_html(html):
            found.append(text)
    return found


def _is_odd(text: str) -> bool:
    """Whether a document may have one of the differences above."""
    if re.search(r"~~~*[*_]|[*_]~~~*|:-:\|\n\s*\|---|\n[ \t]+\[a\]:", text):
        return True
    lines = [line.rstrip() for line in text.split("\n")]
    boxes = [line for line in lines if "[x]" in line or "[ ]" in line]
    if any(not line.startswith(("- [x] ", "1. [ ] ")) or line.count("[") > 1 for line in boxes):
        return True
    return bool(boxes) and any(line.strip(" \t>") in ("-", "---", "===") for line in lines)


def test_random_documents_have_the_structure_of_cmark() -> None:
    assert different(range(2500)) == []


@pytest.mark.sweep
def test_many_random_documents_have_the_structure_of_cmark() -> None:
    assert different(range(2500, 20_000)) == []


def test_random_documents_are_copied_with_their_structure() -> None:
    for text in map(document, range(1500)):
        shown, html, markdown = copied(parse(text))
        assert html == shown, text
        assert without_spaces(markdown) == without_spaces(shown), text


def streamed(text: str, size: int) -> Stream:
    stream = Stream()
    for at in range(0, len(text), size):
        stream.feed(text[at : at + size])
    stream.feed("", last=True)
    return stream


@pytest.mark.parametrize("size", [1, 7])
def test_examples_are_the_same_when_they_are_streamed(size: int) -> None:
    for text in EXAMPLES:
        assert streamed(text, size).blocks == parse(text), text
