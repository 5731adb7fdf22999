"""Reads exported HTML back as the structure of its blocks, to compare with that of parsed Markdown.

Apart from white space, and from what HTML has no words for: whether numbers end in "." or ")", and
the delimiters of formulas.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from typing import Any

from app.markdown.blocks import (
    BOX,
    BULLET,
    TICKED,
    Block,
    Code,
    Formula,
    Heading,
    Level,
    Paragraph,
    Rule,
    Run,
    Table,
)
from app.markdown.formulas import inline_tex
from app.markdown.stream import parse

STYLES = {"strong": "bold", "em": "italic", "del": "strike", "code": "code"}
VOID = ("meta", "br", "hr", "path", "rect")


def structure(blocks: Sequence[Block]) -> list[Any]:
    """What the blocks of a document are, each with its containers."""
    made: list[Any] = []
    for block in blocks:
        path = [_level(level) for level in block.place.path]
        match block:
            case Paragraph(place, runs) if place.joined and made:
                made[-1][1].extend(_words(runs))
            case Paragraph(_, runs):
                made.append(("p", _words(runs), path))
            case Heading(_, level, runs):
                made.append((f"h{level}", _words(runs), path))
            case Code(_, language, text):
                made.append(("code", language, _lines(text), path))
            case Table(_, alignments, header, rows):
                cells = [[_words(cell) for cell in row] for row in (header, *rows)]
                made.append(("table", list(alignments), cells, path))
            case Formula(_, _, tex):
                made.append(("formula", tex.split(), path))
            case Rule():
                made.append(("rule", path))
    return made


def _level(level: Level) -> tuple[Any, ...]:
    if level.quote:
        return "quote", level.begins
    if not level.begins:
        return "item", False
    number, _, box = level.marker.rpartition(" ")
    if box not in (BOX, TICKED):
        number, box = level.marker, ""
    return "item", True, number.strip(BULLET).rstrip(".)"), box, level.first


def _words(runs: Sequence[Run]) -> list[Any]:
    made: list[Any] = []
    for run in runs:
        if run.formula:
            made.append(("formula", inline_tex(run.text).code.split(), replace(run, text="")))
        else:
            said = re.findall(r"\w+|[^\w\s]", run.text.replace("\0", "\ufffd"))
            made += [replace(run, text=word) for word in said]
    return made


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


@dataclass
class _Container:
    is_quote: bool
    number: str = ""
    first: bool = False
    begun: bool = False


@dataclass
class _List:
    number: int | None
    count: int = 0


@dataclass
class HtmlReader(HTMLParser):
    """The blocks of each section, as `structure` gives them; every tag, attribute and address."""

    sections: list[list[Any]] = field(default_factory=list[list[Any]])
    heads: list[str] = field(default_factory=list[str])
    tags: set[str] = field(default_factory=set[str])
    attributes: set[str] = field(default_factory=set[str])
    addresses: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[tuple[str, dict[str, str]]] = []
        self._around: list[_Container] = []
        self._lists: list[_List] = []
        self._runs: list[Run] | None = None  # of the open paragraph, heading or cell
        self._code: tuple[str, list[str]] | None = None
        self._table: tuple[list[str], list[list[Any]]] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.attributes |= set(named)
        self.addresses += [value for name, value in named.items() if name in ("href", "src")]
        if tag not in VOID:
            self._open.append((tag, named))
        if not any(name == "section" for name, _ in self._open):
            return
        match tag:
            case "section":
                self.sections.append([])
                self.heads.append("")
            case "p" if named.get("class") == "author":
                pass
            case "p" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "td" | "th":
                self._end_text()
                self._runs = []
                if tag == "th" and self._table:
                    self._table[0].append(named["style"].partition(":")[2])
            case "pre":
                self._end_text()
                self._code = ("", [])
            case "code" if self._code:
                self._code = (named.get("class", "").removeprefix("language-"), [])
            case "hr":
                self._end_text()
                self._add("rule")
            case "div" if named.get("role") == "img":
                self._end_text()
                self._add("formula", named["aria-label"].split())
            case "span" if named.get("role") == "img":
                self._text(f"${named['aria-label']}$", formula=True)
            case "ul" | "ol":
                self._end_text()
                start = int(named.get("start", "1")) if tag == "ol" else None
                self._lists.append(_List(start))
            case "li":
                now = self._lists[-1]
                number = "" if now.number is None else str(now.number + now.count)
                self._around.append(_Container(False, number, now.count == 0))
                now.count += 1
                self._runs = []
            case "blockquote":
                self._end_text()
                self._around.append(_Container(True))
            case "table":
                self._end_text()
                self._table = ([], [])
            case "tr":
                assert self._table
                self._table[1].append([])
            case _:
                pass

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        opened, named = self._open.pop()
        assert opened == tag, "a tag is closed that is not open"
        match tag:
            case "p" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" if self._runs is not None:
                runs, self._runs = self._runs, None
                if named.get("class") == "tex":
                    [formula] = parse("".join(run.text for run in runs))
                    assert isinstance(formula, Formula)
                    self._add("formula", formula.tex.split())
                else:
                    self._add(tag, _words(runs))
            case "td" | "th":
                assert self._table
                self._table[1][-1].append(_words(self._runs or []))
                self._runs = None
            case "pre":
                assert self._code
                text = "".join(self._code[1])
                self._add("code", self._code[0], _lines(text.removesuffix("\n")))
                self._code = None
            case "table":
                assert self._table
                self._add("table", *self._table)
                self._table = None
            case "ul" | "ol":
                self._lists.pop()
            case "li" | "blockquote":
                self._end_text()
                if not self._around[-1].begun:
                    self._add("p", [])
                self._around.pop()
            case _:
                pass

    def handle_data(self, data: str) -> None:
        inside = [name for name, _ in self._open]
        if self._code:
            self._code[1].append(data)
        elif "section" not in inside:
            return
        elif any(named.get("class") == "author" for _, named in self._open):
            self.heads[-1] += data
        elif "svg" in inside:
            raise AssertionError("a picture has text")
        elif self._runs is not None:
            self._text(data)
        else:
            assert not data.strip(), f"text outside of blocks: {data!r}"

    def _text(self, text: str, *, formula: bool = False) -> None:
        if self._runs is None:
            return
        styles = {STYLES[name]: True for name, _ in self._open if name in STYLES}
        link = next((named["href"] for name, named in self._open if name == "a"), "")
        formula = formula or any(
            name == "span" and named.get("class") == "tex" for name, named in self._open
        )
        self._runs.append(Run(text, link=link, formula=formula, **styles))

    def _end_text(self) -> None:
        """End the text of an item, which has no tag of its own."""
        runs, self._runs = self._runs, None
        words = _words(runs or [])
        is_box = len(words) == 1 and getattr(words[0], "text", "") in (BOX, TICKED)
        if is_box and self._around and not self._around[-1].begun:
            self._runs = runs  # a box whose item begins with another block
        if words and not is_box:
            self._add("p", words)

    def _add(self, kind: str, *values: Any) -> None:
        path: list[tuple[Any, ...]] = []
        box = ""
        around = self._around[-1] if self._around else None
        if around and not around.begun and not around.is_quote:
            if self._runs is not None:  # a box before another block
                box, self._runs = self._runs[0].text.strip(), None
            elif values and kind == "p" and values[0]:
                first = values[0][0]
                if isinstance(first, Run) and first.text in (BOX, TICKED):
                    box = first.text
                    values = (values[0][1:],)
        for each in self._around:
            if each.is_quote:
                path.append(("quote", not each.begun))
            elif each.begun:
                path.append(("item", False))
            else:
                path.append(("item", True, each.number, box if each is around else "", each.first))
            each.begun = True
        self.sections[-1].append((kind, *values, path))
