"""Parses one section of markdown into blocks, from the tokens of markdown-it.

CommonMark with tables and strikethrough. HTML stays text, images become their alt text and
address, formulas keep their source. The caller passes link definitions, because one may be far below
its use, in another section.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from markdown_it.token import Token

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
    Place,
    Rule,
    Run,
    Runs,
    Table,
)
from app.markdown.formulas import add_rules

MAX_NESTING = 40  # levels that markdown-it parses; deeper markup is shown as text

_DEFINITION = re.compile(
    r" {0,3}\[((?:[^\[\]\\]|\\.){1,200})\]:[ \t]*<?([^\s<>]+)>?[ \t]*(?:\"[^\"]*\"|'[^']*')?[ \t]*$"
)
_ADDRESS = re.compile(r"https?://[^\s<>\"'`|]+")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_TASK = re.compile(r"\[([ xX])\][ \t]+")
_BIDI_OVERRIDES = re.compile("[\u202d\u202e]")
_BIDI_CONTROLS = re.compile("[\u202a-\u202e\u2066-\u2069]")

References = Mapping[str, str]  # normalised label to address


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a list that is a top-level block."""

    line: int
    block: int  # index of its first block
    number: int


@dataclass(slots=True)
class Top:
    """A top-level block of markdown: its first line and the blocks parsed from it."""

    line: int
    kind: str  # type of markdown-it's opening token
    blocks: list[Block] = field(default_factory=list[Block])
    items: list[Item] = field(default_factory=list[Item])  # of a list
    row_lines: list[int] = field(default_factory=list[int])  # of a table, without its header


def definition(line: str) -> tuple[str, str] | None:
    """Parse a link definition `[label]: address`; None when the line is not one."""
    match = _DEFINITION.match(line)
    return (normalizeReference(match[1]), match[2]) if match else None


def make_parser() -> MarkdownIt:
    """A markdown-it parser with the rules of this app."""
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING})
    parser.enable(["table", "strikethrough"]).disable(["reference", "html_block", "html_inline"])
    add_rules(parser)
    return parser


_PARSER = make_parser()


def read(
    lines: Sequence[str],
    first_line: int,
    references: References,
    before: str = "",
    number: int | None = None,
) -> list[Top]:
    """Parse a section of lines; line numbers of its blocks are relative to `first_line`.

    `before` is the line above the section. `number`, if given, is the number of the section's
    first list item, which continues a list above it.
    """
    known = {label: {"title": "", "href": link} for label, link in references.items()}
    tokens = _PARSER.parse("\n".join(lines) + "\n", {"references": known})
    return _Walk(lines, first_line, before, number).walk(tokens)


# --- blocks -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Open:
    """A quote or list item that is open during the walk."""

    quote: bool
    marker: str = ""
    first: bool = False  # the first item of its list
    used: bool = False  # has a block already


@dataclass(slots=True)
class _List:
    """A list that is open during the walk."""

    number: int  # of the next item
    delimiter: str  # "" for bullets
    started: bool = False  # has an item already


class _Walk:
    """Walks the tokens of a section and collects its blocks."""

    def __init__(
        self, lines: Sequence[str], first_line: int, before: str, number: int | None
    ) -> None:
        self._lines = lines
        self._first = first_line
        self._before = before
        self._number = number
        self._open: list[_Open] = []
        self._lists: list[_List] = []
        self._tops: list[Top] = []

    def walk(self, tokens: Sequence[Token]) -> list[Top]:
        index = 0
        while index < len(tokens):
            token = tokens[index]
            if token.level == 0 and token.nesting >= 0 and token.map:
                self._tops.append(Top(self._first + token.map[0], token.type))
            match token.type:
                case "blockquote_open":
                    self._open.append(_Open(quote=True))
                case "bullet_list_open" | "ordered_list_open":
                    self._begin_list(token)
                case "list_item_open":
                    self._begin_item(token)
                case "blockquote_close" | "list_item_close":
                    self._close_container(token)
                case "bullet_list_close" | "ordered_list_close":
                    self._lists.pop()
                case "paragraph_open":
                    self._paragraph(token, tokens[index + 1])
                    index += 2
                case "heading_open":
                    runs = inline_runs(tokens[index + 1])
                    self._add(Heading(self._place(token), int(token.tag[1]), runs))
                    index += 2
                case "fence" | "code_block":
                    self._code(token)
                case "formula_block":
                    self._formula(token)
                case "hr":
                    self._add(Rule(self._place(token)))
                case "table_open":
                    index = self._table(tokens, index)
                case _:
                    pass
            index += 1
        return self._tops

    def _add(self, block: Block) -> None:
        self._tops[-1].blocks.append(block)

    def _place(self, token: Token) -> Place:
        start, end = token.map or (0, 0)
        while token.type != "fence" and end - 1 > start and not self._lines[end - 1].strip(" >"):
            end -= 1
        before = self._lines[start - 1] if start else self._before
        levels: list[Level] = []
        listed, new_list = False, False
        for at in self._open:
            if not at.quote and not listed:
                listed, new_list = True, at.first and not at.used
            levels.append(Level(at.quote, not at.used, "" if at.used else at.marker))
            at.used = True
        tight = listed and not new_list and bool(before.strip(" >"))
        return Place(self._first + start, self._first + end, tuple(levels), tight)

    def _begin_list(self, token: Token) -> None:
        number = int(token.attrs.get("start", 1))
        continued = self._number is not None and token.level == 0 and len(self._tops) == 1
        if continued and self._number is not None:
            number = self._number
        delimiter = token.markup if token.type == "ordered_list_open" else ""
        self._lists.append(_List(number, delimiter, started=continued))

    def _begin_item(self, token: Token) -> None:
        around = self._lists[-1]
        marker = f"{around.number}{around.delimiter}" if around.delimiter else BULLET
        if token.level == 1 and token.map:
            top = self._tops[-1]
            top.items.append(Item(self._first + token.map[0], len(top.blocks), around.number))
        self._open.append(_Open(quote=False, marker=marker, first=not around.started))
        around.number += 1
        around.started = True

    def _close_container(self, token: Token) -> None:
        """Close a container; an empty one shows its marker, one nested too deep its source."""
        if not self._open[-1].used:
            at = self._lines_of_open
            place = self._place(Token("", "", 0, map=list(at)))
            text = "\n".join(self._lines[at[0] : at[1]]) if token.level >= MAX_NESTING - 2 else ""
            self._add(Paragraph(place, (Run(clean(text)),) if text else ()))
        self._open.pop()

    @property
    def _lines_of_open(self) -> tuple[int, int]:
        """The line of an empty container: the first one after the block before it."""
        blocks = self._tops[-1].blocks
        start = blocks[-1].place.end - self._first if blocks else self._tops[-1].line - self._first
        start = min(max(start, 0), len(self._lines) - 1)
        return start, start + 1

    def _paragraph(self, token: Token, inline: Token) -> None:
        start, end = token.map or (0, 0)
        if all(definition(line) for line in self._lines[start:end]):
            return  # only link definitions
        runs = inline_runs(inline)
        item = self._open[-1] if self._open else None
        if item and item.marker == BULLET and not item.used and runs:
            task = _TASK.match(runs[0].text)
            if task and not (runs[0].code or runs[0].link):
                item.marker = BOX if task[1] == " " else TICKED
                first = Run(runs[0].text[task.end() :], runs[0].bold, runs[0].italic)
                runs = (first, *runs[1:]) if first.text else runs[1:]
        self._add(Paragraph(self._place(token), runs))

    def _code(self, token: Token) -> None:
        start, end = token.map or (0, 0)
        closed = token.type == "code_block" or end - start > token.content.count("\n") + 1
        text = clean_code(token.content.removesuffix("\n"))
        self._add(Code(self._place(token), language_of(token.info), text, closed))

    def _formula(self, token: Token) -> None:
        """Add a formula on lines of its own; one that is not closed yet is text."""
        source = clean(token.content)
        if token.info:
            self._add(Formula(self._place(token), source, clean(token.info)))
        else:
            self._add(Paragraph(self._place(token), (Run(source),)))

    def _table(self, tokens: Sequence[Token], index: int) -> int:
        """Parse a table; returns the index of its closing token."""
        place = self._place(tokens[index])
        rows: list[list[Runs]] = []
        alignments: list[str] = []
        while tokens[index].type != "table_close":
            token = tokens[index]
            if token.type == "tr_open":
                rows.append([])
                if token.map and len(rows) > 1 and token.level == 2:
                    self._tops[-1].row_lines.append(self._first + token.map[0])
            elif token.type in ("th_open", "td_open"):
                if token.type == "th_open":
                    alignments.append(str(token.attrs.get("style", ":left")).split(":")[1])
                rows[-1].append(inline_runs(tokens[index + 1]))
            index += 1
        body = tuple(tuple(row) for row in rows[1:])
        self._add(Table(place, tuple(alignments), tuple(rows[0]), body))
        return index


def language_of(info: str) -> str:
    """The language of a fence's info string, without attributes."""
    words = info.strip().split()
    return words[0].strip("{}.").lower()[:40] if words else ""


# --- inline -------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """Replace bidi override characters, which reorder the text after them."""
    return _BIDI_OVERRIDES.sub("\ufffd", text)


def clean_code(text: str) -> str:
    """Replace all bidi control characters in code, so that it is shown in its real order."""
    return _BIDI_CONTROLS.sub("\ufffd", text)


def inline_runs(inline: Token) -> Runs:
    """The runs of one inline token."""
    runs: list[Run] = []
    depth = {"strong": 0, "em": 0, "s": 0}
    links: list[str] = []
    for token in inline.children or ():
        name, _, end = token.type.rpartition("_")
        if name in depth:
            depth[name] += 1 if end == "open" else -1
        elif token.type == "link_open":
            links.append(str(token.attrs.get("href", "")))
        elif token.type == "link_close":
            links.pop()
        else:
            style = (depth["strong"] > 0, depth["em"] > 0, depth["s"] > 0)
            _append(runs, token, style, links[-1] if links else "")
    return tuple(runs)


def _append(runs: list[Run], token: Token, style: tuple[bool, bool, bool], link: str) -> None:
    bold, italic, strike = style
    match token.type:
        case "code_inline":
            runs.append(Run(clean_code(token.content), bold, italic, strike, True, link))
        case "softbreak":
            _text(runs, Run(" ", bold, italic, strike, False, link))
        case "hardbreak":
            _text(runs, Run("\n", bold, italic, strike, False, link))
        case "formula":
            runs.append(Run(clean(token.content), bold, italic, strike, False, link, True))
        case "image":
            address = str(token.attrs.get("src", ""))
            shown = address if len(address) <= 80 else f"{address[:77]}…"
            if token.content:
                _text(runs, Run(f"{clean(token.content)} ", bold, True, strike))
            runs.append(Run(clean(shown), bold, italic, strike, False, link or address))
        case _:
            text = clean(_BREAK.sub("\n", token.content))
            for piece, address in _with_addresses(text) if not link else [(text, link)]:
                _text(runs, Run(piece, bold, italic, strike, False, address))


def _text(runs: list[Run], run: Run) -> None:
    """Append a run; merged with the last one if the style is the same."""
    if not run.text:
        return
    if runs and not (runs[-1].code or runs[-1].formula):
        last = runs[-1]
        if (last.bold, last.italic, last.strike, last.link) == (
            run.bold,
            run.italic,
            run.strike,
            run.link,
        ):
            runs[-1] = Run(last.text + run.text, run.bold, run.italic, run.strike, False, run.link)
            return
    runs.append(run)


def _with_addresses(text: str) -> list[tuple[str, str]]:
    """Split text into (text, address) pairs: bare web addresses become links."""
    if "://" not in text:
        return [(text, "")]
    pieces: list[tuple[str, str]] = []
    at = 0
    for match in _ADDRESS.finditer(text):
        address = match[0].rstrip(".,;:!?*_~")
        while address.endswith(")") and address.count(")") > address.count("("):
            address = address[:-1].rstrip(".,;:!?*_~")
        pieces.append((text[at : match.start()], ""))
        at = match.start() + len(address)
        pieces.append((address, address))
    pieces.append((text[at:], ""))
    return pieces
