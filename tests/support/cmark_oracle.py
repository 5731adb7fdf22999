"""The structure of markdown by cmark-gfm, and that of our blocks, in one form to compare.

A structure is nested tuples: ("p", runs), ("h", level, runs), ("code", language, text), ("hr",),
("table", alignments, rows of runs), ("quote", children) and ("list", first number, items), of which
each item is (box, children). A run is (text, style), where a style has the letters of bold, italic,
strike and code, and the address of a link.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any, cast

import cmarkgfm
from cmarkgfm.cmark import Options

from app.markdown.blocks import (
    BOX,
    BULLET,
    TICKED,
    Block,
    Code,
    Formula,
    Heading,
    Paragraph,
    Rule,
    Runs,
    Table,
)

OMITTED = "raw HTML omitted"
_STYLES = {"strong": "b", "em": "i", "del": "s", "code": "c"}


def cmark_html(text: str) -> str:
    """HTML of cmark-gfm with the extensions that the app has."""
    extensions = ["table", "strikethrough", "tasklist", "autolink"]
    return cmarkgfm.markdown_to_html_with_extensions(
        text, Options.CMARK_OPT_TABLE_PREFER_STYLE_ATTRIBUTES, extensions
    )


def structure_of_html(html: str) -> list[Any]:
    """The structure of the HTML of a renderer of markdown."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    reader.end_text()
    return reader.root


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root: list[Any] = []
        self._into: list[list[Any]] = [self.root]  # children of what is open
        self._runs: list[tuple[str, str]] | None = None
        self._styles: list[str] = []
        self._links: list[str] = []
        self._pre: tuple[str, list[str]] | None = None
        self._table: tuple[list[str], list[list[Any]]] | None = None
        self._heads: list[tuple[str, list[str]]] = []  # what is kept of an opening tag

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag in ("p", "h1", "h2", "h3", "h4", "h5", "h6"):
            self.end_text()
            self._runs = []
        elif tag == "blockquote":
            self.end_text()
            self._into.append([])
        elif tag in ("ul", "ol"):
            self.end_text()
            self._into.append([])
            self._heads.append((tag, [values.get("start", "1") if tag == "ol" else ""]))
        elif tag == "li":
            self.end_text()
            self._into.append([])
            self._heads.append((tag, [""]))
        elif tag == "input":
            self._heads[-1][1][0] = TICKED if "checked" in values else BOX
        elif tag == "pre":
            self.end_text()
            self._pre = ("", [])
        elif tag == "code" and self._pre is not None:
            self._pre = (values.get("class", "").removeprefix("language-"), [])
        elif tag == "table":
            self.end_text()
            self._table = ([], [])
        elif tag == "tr" and self._table:
            self._table[1].append([])
        elif tag in ("td", "th") and self._table:
            if tag == "th":
                style = values.get("style", "").replace(" ", "")
                self._table[0].append(style.removeprefix("text-align:").rstrip(";") or "left")
            self._runs = []
        elif tag == "hr":
            self.end_text()
            self._into[-1].append(("hr",))
        elif tag == "br":
            self._text("\n")
        elif tag == "img":
            self._styles.append("i")
            self._text(values["alt"] + " " if values.get("alt") else "")
            self._styles.remove("i")
            link = self._links or [values.get("src", "")]
            self._links, before = link, self._links
            self._text(values.get("src", ""))
            self._links = before
        elif tag == "a":
            self._links.append(values.get("href", ""))
        elif tag in _STYLES:
            self._styles.append(_STYLES[tag])

    def handle_endtag(self, tag: str) -> None:
        if tag == "p":
            self.end_text()
        elif tag[0] == "h" and tag[1:].isdigit():
            self._into[-1].append(("h", int(tag[1:]), _stripped(self._runs or [])))
            self._runs = None
        elif tag == "blockquote":
            self.end_text()
            children = self._into.pop()
            self._into[-1].append(("quote", children))
        elif tag in ("ul", "ol"):
            items = self._into.pop()
            self._into[-1].append(("list", self._heads.pop()[1][0], items))
        elif tag == "li":
            self.end_text()
            children = self._into.pop()
            self._into[-1].append((self._heads.pop()[1][0], children))
        elif tag == "pre" and self._pre:
            language, text = self._pre
            self._into[-1].append(
                ("code", language.strip("{}.").lower(), "".join(text).removesuffix("\n"))
            )
            self._pre = None
        elif tag == "table" and self._table:
            self._into[-1].append(("table", tuple(self._table[0]), self._table[1]))
            self._table = None
        elif tag in ("td", "th") and self._table:
            self._table[1][-1].append(_stripped(self._runs or []))
            self._runs = None
        elif tag == "a":
            self._links.pop()
        elif tag in _STYLES and not (tag == "code" and self._pre is not None):
            self._styles.remove(_STYLES[tag])

    def handle_data(self, data: str) -> None:
        if self._pre is not None:
            self._pre[1].append(data)
        elif self._table is None or self._runs is not None:
            self._text(data.replace("\n", " "))

    def _text(self, text: str) -> None:
        if self._runs is None:
            if not text.strip(" \n"):
                return
            self._runs = []
        style = "".join(sorted(set(self._styles)))
        link = f" {self._links[-1]}" if self._links and self._links[-1] else ""
        self._runs.append((text, style + link))

    def end_text(self) -> None:
        """End a paragraph, which in a tight list has no tags."""
        if self._runs is not None and _stripped(self._runs):
            self._into[-1].append(("p", _stripped(self._runs)))
        self._runs = None


def _stripped(runs: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Runs of different styles, with single spaces, none at the ends and around line breaks."""
    made: list[tuple[str, str]] = []
    for text, style in runs:
        text = re.sub(r"[ \t]+", " ", text)
        if "c" not in style:
            text = re.sub(r" ?\n ?", "\n", text)
        if made and made[-1][0].endswith("\n"):
            text = text.removeprefix(" ")
        if text.startswith("\n") and made and "c" not in made[-1][1]:
            made[-1] = (made[-1][0].rstrip(" "), made[-1][1])
        if not text:
            continue
        if made and made[-1][1] == style:
            made[-1] = (made[-1][0] + text, style)
        else:
            made.append((text, style))
    while made and not made[-1][0].strip(" \n"):
        made.pop()
    while made and not made[0][0].strip(" \n"):
        made.pop(0)
    if made:
        made[-1] = (made[-1][0].rstrip(" \n"), made[-1][1])
        made[0] = (made[0][0].lstrip(" \n"), made[0][1])
    return tuple(made)


def without_spaces(structure: Any) -> Any:
    """The structure with each word of each run, so that it does not matter which run has a space."""
    if isinstance(structure, list):
        return [without_spaces(each) for each in cast("list[Any]", structure)]
    if not isinstance(structure, tuple) or not structure:
        return structure
    kind, *rest = cast("tuple[Any, ...]", structure)
    if kind == "p" or (kind == "h" and len(rest) == 2):
        return (kind, *rest[:-1], _words(rest[-1]))
    if kind == "table":
        return (kind, rest[0], [[_words(cell) for cell in row] for row in rest[1]])
    return (kind, *map(without_spaces, rest))


def _words(runs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(word, style) for text, style in runs for word in re.findall(r"\w|[^\w\s]", text)]


def structure_of_blocks(blocks: Sequence[Block]) -> list[Any]:
    """The structure of our blocks."""
    root: list[Any] = []
    stack: list[list[Any]] = [root]
    kinds: list[bool] = []  # of the open containers: whether each is a quote
    for block in blocks:
        depth = 0
        path = block.place.path
        while depth < min(len(path), len(kinds)) and not path[depth].begins:
            assert path[depth].quote == kinds[depth]
            depth += 1
        del stack[depth + 1 :], kinds[depth:]
        for level in path[depth:]:
            children: list[Any] = []
            if level.quote:
                stack[-1].append(("quote", children))
            else:
                number, _, box = level.marker.rpartition(" ")
                if box not in (BOX, TICKED):
                    number, box = "" if box == BULLET else box, ""
                if level.first:
                    stack[-1].append(("list", number[:-1].lstrip("0") or number[:1], []))
                stack[-1][-1][2].append((box, children))
            stack.append(children)
            kinds.append(level.quote)
        if not (isinstance(block, Paragraph) and not _stripped(_runs(block.runs))):
            if block.place.joined:
                kind, runs = stack[-1].pop()
                assert isinstance(block, Paragraph)
                stack[-1].append((kind, _stripped([*runs, (" ", ""), *_runs(block.runs)])))
            else:
                stack[-1].append(_structure(block))
    return root


def _structure(block: Block) -> tuple[Any, ...]:
    match block:
        case Paragraph():
            return ("p", _stripped(_runs(block.runs)))
        case Heading():
            return ("h", block.level, _stripped(_runs(block.runs)))
        case Code():
            return ("code", block.language, block.text)
        case Table():
            rows = [[_stripped(_runs(cell)) for cell in row] for row in (block.header, *block.rows)]
            return ("table", block.alignments, rows)
        case Formula():
            return ("formula", block.source)
        case Rule():
            return ("hr",)


def _runs(runs: Runs) -> list[tuple[str, str]]:
    made: list[tuple[str, str]] = []
    for run in runs:
        letters = {"b": run.bold, "c": run.code, "i": run.italic, "s": run.strike}
        style = "".join(letter for letter, used in letters.items() if used)
        made.append((run.text, style + (f" {run.link}" if run.link else "")))
    return made
