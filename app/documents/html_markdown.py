"""Markdown of HTML: headings, lists, tables and code of a page, its main content first.

Left out is what is no text of the page: navigation, scripts, styles, hidden elements and notices
about cookies. All other text of the body is kept, in its order. Elements are closed where browsers
close them; no link is followed. Time and memory grow with the markup's length only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice
from urllib.parse import urljoin

from app.documents.decoding import clean
from app.documents.html_tokens import VOID, Token, tokens
from app.documents.source import MOST_CHARACTERS
from app.documents.tables import markdown_table

_DEEPEST = 200  # elements within each other; deeper ones have no effect of their own
_DEEPEST_TABLE = 50
_DEEPEST_PREFIX = 10  # lists and quotes that are indented
_MOST_ADDED_CELLS = 100_000  # by spans, in all tables
_LONGEST_ADDRESS = 200  # characters; of a longer one the query is left out
_LONGEST_NOTICE = 3000  # characters of a notice that may be left out
_LONGEST_FORMULA = 20_000  # characters of TeX
_LONGEST_CELL = 2000  # characters; a table with a longer one is for layout

_ROWS = ("tr", "tbody", "td")
_BREAK = "\0"  # of a line, in the text that is being collected
_SPACES = re.compile(r"[ \t\n\r\f\xa0]+")
_INVISIBLE = re.compile(r"[\xad\u200b\u2060\ufeff]")
_BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "body", "button", "caption", "center"),
        *("dd", "details", "dialog", "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure"),
        *("footer", "form", "frameset", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup"),
        *("hr", "html", "legend", "li", "main", "menu", "nav", "noframes", "ol", "optgroup", "p"),
        *("pre", "search", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead"),
        *("title", "tr", "ul"),
    )
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LISTS = ("ul", "ol", "menu", "dir", "dl")
_CELLS = ("td", "th", "caption")
_NO_ASIDES = ("html", "body", "main", "article", *_CELLS, "tr", "table")
_INDENTED = ("li", "dt", "dd", "blockquote")
_TABLE_PARTS = ("table", "tr", "tbody", "thead", "tfoot")
_QUOTES = {
    "q": ("\u201c", "\u201d"),
    "rt": ("(", ")"),  # how to read the characters before it
    **dict.fromkeys(("s", "del", "strike"), ("~~", "~~")),
}
_INLINE = frozenset(  # without an effect of their own
    (
        *("abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "dfn", "em", "font", "i"),
        *("ins", "label", "mark", "p", "small", "span", "strong", "time", "tt", "u", "var"),
    )
)
_SKIPPED = frozenset(
    (
        *("annotation-xml", "audio", "canvas", "datalist", "iframe", "noembed", "rp", "script"),
        *("select", "style", "svg", "template", "video"),
    )
)
_BODIES = ("tbody", "thead", "tfoot")
_CLOSES = {  # a start closes the nearest of these, up to one of the other names
    "li": (("li",), ("ul", "ol", "menu", "dir")),
    "dt": (("dt", "dd"), ("dl",)),
    "dd": (("dt", "dd"), ("dl",)),
    "td": (("td", "th", "caption"), ("tr", "table")),
    "th": (("td", "th", "caption"), ("tr", "table")),
    "tr": (("tr", "caption"), ("table",)),
    **dict.fromkeys(_BODIES, ((*_BODIES, "caption"), ("table",))),
    **dict.fromkeys(_HEADINGS, (tuple(_HEADINGS), ("div", "section", "article", "li"))),
    "a": (("a",), ()),
}
_HIDDEN = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_NOTICE = re.compile(
    r"(?:cookie|consent|gdpr)s?[\s_-]?(?:banner|notice|bar\b|pop|dialog|modal|overlay|consent"
    r"|message|law|wall|info|layer|alert|disclaimer|policy-?b)|onetrust|cybotcookie|qc-cmp|didomi"
    r"|usercentrics|cc-window|skip-?(?:to-?)?(?:link|nav|content|main)|mw-editsection|breadcrumb",
    re.IGNORECASE,
)
_ANCHORS = (
    "\xa7",
    "\xb6",
    "#",
    "\U0001f517",
    "\u26d3",
)  # labels of links from headings to themselves
_LINE_NUMBERS = re.compile(
    r"(?:^|\s)(?:linenos?|lineno\w*|gutter|blob-num\S*|line-numbers-rows)(?:\s|$)"
)
_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang|highlight-source|brush:)[-\s]?([\w+#-]{1,20})")
_ADDRESS = re.compile(r"(?:https?|ftp|mailto|tel):", re.IGNORECASE)
_NOT_FOLLOWED = re.compile(r"\s*(?:#|(?:javascript|data|blob|about|vbscript|cid|file):|$)", re.I)
_EXPONENT = re.compile(r"[+\u2212-]?\d{1,4}|[nkmxyt]")


@dataclass(frozen=True, slots=True)
class Converted:
    """The Markdown of a page, its title, and whether it was longer than the limit."""

    text: str
    title: str = ""
    cut: bool = False


def markdown(html: str, *, is_book: bool = False) -> Converted:
    """The Markdown of a page; that of a book is XML, has no notices, and leads nowhere outside."""
    made = _Converter(html, is_book=is_book, keep_all=False).convert()
    if not made.text:  # all of it looked like navigation, or was hidden until a script ran
        made = _Converter(html, is_book=is_book, keep_all=True).convert()
    return made


@dataclass(slots=True)
class _Block:
    text: str
    heading: int = 0  # its level, which is not written yet
    is_tight: bool = False  # one line below the block before it
    is_main: bool = False


@dataclass(slots=True)
class _Prefix:
    """How the first line of an item or a quote begins, and how those after it do."""

    first: str
    rest: str
    is_tight: bool = False
    is_used: bool = False


@dataclass(slots=True)
class _List:
    name: str
    number: int  # of its next item
    items: int = 0


@dataclass(slots=True)
class _Frame:
    """Blocks of the page or of a table's cell, and the lists and quotes that are open in it."""

    blocks: list[_Block] = field(default_factory=list)
    prefixes: list[_Prefix] = field(default_factory=list)
    lists: list[_List] = field(default_factory=list)


@dataclass(slots=True)
class _Cell:
    blocks: list[_Block]
    text: str
    columns: int
    rows: int


@dataclass(slots=True)
class _Table:
    rows: list[list[_Cell]] = field(default_factory=list)
    is_layout: bool = False


@dataclass(slots=True)
class _Open:
    """An element that is open, and what its end does."""

    name: str
    attributes: dict[str, str]
    at: int = 0  # in the text that is being collected
    flushed: int = 0  # blocks made before it
    frame: _Frame | None = None  # of which the blocks since `block` are left out at its end
    block: int = 0
    mains: int = 0  # main elements begun before it
    is_skipped: bool = False
    is_main: bool = False
    has_prefix: bool = False
    is_table: bool = False  # or a cell of one, which has a frame


class _Converter:
    def __init__(self, html: str, *, is_book: bool, keep_all: bool) -> None:
        self._html = html.replace(_BREAK, "")
        self._is_book = is_book
        self._keep_all = keep_all
        self._is_xml = is_book or bool(re.match(r"\s*<\?xml", html))
        self._main_name = "main" if re.search(r"<main[\s>]", html, re.IGNORECASE) else "article"
        self._stack: list[_Open] = []
        self._counts: dict[str, int] = {}  # of open elements
        self._missed: set[str] = set()  # names whose end closes nothing as the stack is
        self._frames = [_Frame()]
        self._tables: list[_Table] = []
        self._inline: list[str] = []
        self._flushes = 0
        self._skipping = self._main = self._mains = self._pre = self._heading = 0
        self._length = self._added = 0
        self._title = self._base = self._language = ""
        self._formula = ""  # in TeX

    def convert(self) -> Converted:
        for token in tokens(self._html):
            if token.is_end:
                self._end(token.name)
            elif token.name:
                self._start(token)
            elif not self._skipping:
                self._text(token.text)
            if self._length > MOST_CHARACTERS:
                break
        for opened in self._stack:
            opened.frame = None  # what was never closed is kept
        self._close_to(0)
        self._flush()
        blocks = self._frames[0].blocks
        main = [block for block in blocks if block.is_main and not self._is_book]
        rest = [block for block in blocks if not block.is_main or self._is_book]
        text = _joined(main)
        if main and rest:
            text += "\n\n---\n\n"
        text = clean(text + _joined(rest)).strip("\n")
        is_cut = self._length > MOST_CHARACTERS
        return Converted(text[:MOST_CHARACTERS], " ".join(self._title.split()), is_cut)

    # Text

    def _text(self, text: str) -> None:
        if self._counts.get("title") and not self._counts.get("body"):
            self._title += text[: 1000 - len(self._title)]
        elif self._counts.get("annotation"):
            self._formula += text[: _LONGEST_FORMULA - len(self._formula)]
        elif not (self._tables and self._is_between_cells() and text.isspace()):
            self._inline.append(text)

    def _is_between_cells(self) -> bool:
        return bool(self._stack) and self._stack[-1].name in _TABLE_PARTS

    def _end_block(self) -> None:
        """End the block that is being collected; in code, the line."""
        if not self._pre:
            self._flush()
        elif self._inline and not self._inline[-1].endswith("\n"):
            self._inline.append("\n")

    def _flush(self) -> None:
        self._flushes += 1
        if not self._inline:
            return
        text = _INVISIBLE.sub("", "".join(self._inline))
        self._inline.clear()
        lines = [_SPACES.sub(" ", line).strip(" ") for line in text.split(_BREAK)]
        text = "\n".join(lines).strip("\n")
        if not text:
            return
        if self._heading:
            text = text.replace("\n", " ")
        self._emit(text, self._heading)
        self._heading = 0

    def _emit(self, text: str, heading: int = 0) -> None:
        self._length += len(text) + 2
        self._take([_Block(text, heading)])

    def _take(self, blocks: list[_Block]) -> None:
        """Add blocks to the frame, with what its lists and quotes begin lines with."""
        frame = self._frames[-1]
        for block in blocks:
            block.is_main = self._main > 0
            if block.heading and len(self._frames) == 1:  # and not in a table's cell
                block.text = "#" * block.heading + " " + block.text
                block.heading = 0
            if not frame.prefixes:
                continue
            unused = [each for each in frame.prefixes if not each.is_used]
            block.is_tight |= bool(unused) and unused[0].is_tight
            first = "".join(each.rest if each.is_used else each.first for each in frame.prefixes)
            rest = "".join(each.rest for each in frame.prefixes)
            head, *lines = block.text.split("\n")
            block.text = "\n".join([first + head, *((rest + line).rstrip() for line in lines)])
            used = "".join(each.rest for each in frame.prefixes if each.is_used)
            if ">" in used and not block.is_tight:  # a quote goes on
                block.text = f"{used.rstrip()}\n{block.text}"
                block.is_tight = True
            self._length += (len(lines) + 1) * len(rest)
            for each in unused:
                each.is_used = True
        frame.blocks.extend(blocks)

    # Elements

    def _start(self, token: Token) -> None:
        name, attributes = token.name, token.attributes
        is_empty = name in VOID or (token.is_closed and self._is_xml)
        if self._counts.get("p") and name in _BLOCKS:
            self._close_before(("p",), _CELLS)
        if name in _CLOSES:
            self._close_before(*_CLOSES[name])
        if self._skipping:
            if not is_empty and len(self._stack) < 2 * _DEEPEST:
                self._push(_Open(name, attributes))
            return
        if name in _BLOCKS:
            self._end_block()
        if name in VOID:
            self._void(name, attributes)
        if is_empty:
            return
        opened = _Open(name, attributes, len(self._inline), self._flushes)
        if name in _SKIPPED or (not self._keep_all and self._is_hidden(name, attributes)):
            self._skip(opened)
        elif not self._keep_all and self._is_aside(name, attributes):
            if name not in _BLOCKS:
                self._skip(opened)
            elif len(self._stack) < _DEEPEST:
                opened.frame = self._frames[-1]
                opened.block = len(opened.frame.blocks)
                opened.mains = self._mains
                self._open(opened)
                self._push(opened)
        elif len(self._stack) < _DEEPEST and (name not in _INLINE or self._counts.get(name)):
            self._open(opened)
            self._push(opened)

    def _skip(self, opened: _Open) -> None:
        opened.is_skipped = True
        self._skipping += 1
        self._push(opened)

    def _push(self, opened: _Open) -> None:
        self._missed.clear()
        self._stack.append(opened)
        self._counts[opened.name] = self._counts.get(opened.name, 0) + 1

    def _open(self, opened: _Open) -> None:
        """What the start of an element does, beyond ending the block before it."""
        name, attributes = opened.name, opened.attributes
        frame = self._frames[-1]
        if name == self._main_name or attributes.get("role") == "main":
            opened.is_main = True
            self._main += 1
            self._mains += 1
        if name in _HEADINGS:
            self._heading = _HEADINGS[name]
        elif name in _LISTS:
            start = attributes.get("start", "")
            number = int(start) if start.isdecimal() and len(start) < 9 else 1
            frame.lists.append(_List(name, number))
        elif name in _INDENTED and len(frame.prefixes) < _DEEPEST_PREFIX:
            is_quote = name == "blockquote"
            item = _Prefix("> ", "> ") if is_quote else self._item(name, attributes)
            frame.prefixes.append(item)
            opened.has_prefix = True
        elif name in ("pre", "code"):
            self._pre += name == "pre"
            if self._pre and (found := _LANGUAGE.search(attributes.get("class", "")[:200])):
                self._language = found[1]
        elif name == "table":
            is_layout = attributes.get("role") in ("presentation", "none")
            if self._tables:
                self._tables[-1].is_layout = True
            if len(self._tables) < _DEEPEST_TABLE:
                self._tables.append(_Table(is_layout=is_layout))
                opened.is_table = True
        elif name == "tr" and self._tables:
            self._tables[-1].rows.append([])
        elif name in _CELLS and self._tables and len(self._frames) <= _DEEPEST_TABLE:
            self._frames.append(_Frame())
            opened.is_table = True
        elif name in _QUOTES:
            self._inline.append(_QUOTES[name][0])
        elif name == "math":
            self._formula = attributes.get("alttext", "")[:_LONGEST_FORMULA]
        elif name == "annotation":
            self._formula = ""

    def _item(self, name: str, attributes: dict[str, str]) -> _Prefix:
        """How the lines of a list's item begin."""
        lists = self._frames[-1].lists
        within = lists[-1] if lists else _List("ul", 1, items=1)
        within.items += 1
        is_tight = len(lists) > 1 or within.items > 1
        if name == "dt":
            return _Prefix("", "")
        if name == "dd":
            return _Prefix(": ", "  ", is_tight=True)
        value = attributes.get("value", "")
        if value.isdecimal() and len(value) < 9:
            within.number = int(value)
        marker = f"{within.number}. " if within.name == "ol" else "- "
        within.number += 1
        return _Prefix(marker, " " * len(marker), is_tight)

    def _void(self, name: str, attributes: dict[str, str]) -> None:
        if name == "br":
            self._inline.append("\n" if self._pre else _BREAK)
        elif name == "hr":
            self._emit("---")
        elif name == "img":
            alt = _SPACES.sub(" ", attributes.get("alt", "")).strip()
            if alt and not self._counts.get("noscript"):
                self._inline.append(f"![{alt}]")
        elif name == "base" and not self._base:
            self._base = attributes.get("href", "").strip()[:_LONGEST_ADDRESS]
        elif name == "frame":
            address = self._address(attributes.get("src", ""))
            label = attributes.get("title") or attributes.get("name") or "frame"
            if address:
                self._emit(f"[{label}]({address})")
        elif attributes.get("type", "").lower() == "checkbox" and self._counts.get("li"):
            self._inline.append("[x] " if "checked" in attributes else "[ ] ")

    def _is_hidden(self, name: str, attributes: dict[str, str]) -> bool:
        if not attributes or name in ("html", "body", "main", "article"):
            return False
        if _LINE_NUMBERS.search(attributes.get("class", "")[:300]):
            return True
        if name == "annotation":
            return "tex" not in attributes.get("encoding", "").lower()
        if "hidden" in attributes and attributes["hidden"].lower() != "until-found":
            return True
        return bool(_HIDDEN.search(attributes.get("style", "")[:500]))

    def _is_aside(self, name: str, attributes: dict[str, str]) -> bool:
        """Whether an element is navigation or a notice, which is left out when it ends."""
        if name == "nav" or attributes.get("role") == "navigation":
            return True
        if name == "dialog" and "open" not in attributes:
            return True
        if self._is_book or not attributes or name in _NO_ASIDES:
            return False
        if attributes.get("aria-hidden") == "true":
            return True
        names = f"{attributes.get('class', '')[:300]} {attributes.get('id', '')[:100]}"
        return len(names) > 1 and bool(_NOTICE.search(names))

    # Ends

    def _end(self, name: str) -> None:
        if name in self._missed:
            return
        if not self._counts.get(name):
            if self._skipping:
                return
            if name == "br":
                self._void(name, {})
            elif name in _BLOCKS:
                self._end_block()
            return
        for at in range(len(self._stack) - 1, -1, -1):
            each = self._stack[at].name
            if each == name:
                self._close_to(at)
                return
            if name in ("body", "html"):
                continue
            if each == "table" or (each in _CELLS and name not in _TABLE_PARTS):
                self._missed.add(name)
                return

    def _close_before(self, names: tuple[str, ...], bounds: tuple[str, ...]) -> None:
        """Close the nearest element of these names, up to one that bounds it."""
        if not any(self._counts.get(name) for name in names):
            return
        for at in range(len(self._stack) - 1, -1, -1):
            each = self._stack[at].name
            if each in names:
                self._close_to(at)
                return
            if each in bounds or each == "table" or (each in _CELLS and names[0] not in _ROWS):
                return

    def _close_to(self, at: int) -> None:
        self._missed.clear()
        while len(self._stack) > at:
            self._close(self._stack.pop())

    def _close(self, opened: _Open) -> None:
        name = opened.name
        self._counts[name] -= 1
        if opened.is_skipped:
            self._skipping -= 1
            return
        if self._skipping:
            return
        if name in ("a", "code", "kbd", "samp", "sup", *_QUOTES):
            self._close_inline(opened)
        elif name == "math" and self._formula.strip():
            at = opened.at if opened.flushed == self._flushes else 0
            self._inline[at:] = [f"${self._formula.strip()}$"]
            self._formula = ""
        elif name == "pre":
            self._close_code()
        elif opened.is_table and name == "table":
            self._flush()
            self._close_table(self._tables.pop())
        elif opened.is_table:
            self._close_cell(opened)
        elif name in _BLOCKS:
            self._end_block()
            frame = self._frames[-1]
            if name in _HEADINGS:
                self._heading = 0
            elif opened.has_prefix:
                frame.prefixes.pop()
            elif name in _LISTS and frame.lists:
                frame.lists.pop()
        self._main -= opened.is_main
        if opened.frame is not None and opened.frame is self._frames[-1]:
            self._leave_out(opened, opened.frame.blocks)

    def _leave_out(self, opened: _Open, blocks: list[_Block]) -> None:
        """Forget the blocks of navigation or a notice, unless it has the page's content."""
        if self._mains > opened.mains:
            return
        length = 0
        if opened.name != "nav" and opened.attributes.get("role") != "navigation":
            for block in islice(blocks, opened.block, None):
                length += len(block.text)
                if length > _LONGEST_NOTICE:
                    return
        del blocks[opened.block :]

    def _close_inline(self, opened: _Open) -> None:
        name = opened.name
        at = opened.at if opened.flushed == self._flushes else 0
        text = "".join(self._inline[at:])
        if name == "a":
            self._close_link(opened, at, text)
        elif name in ("code", "kbd", "samp"):
            if text.strip() and not self._pre and "`" not in text and _BREAK not in text:
                self._inline[at:] = [f"`{text.strip()}`"]
        elif name == "sup":
            before = "".join(self._inline[max(0, at - 1) : at])[-1:]
            if before.isalnum() and _EXPONENT.fullmatch(text.strip()):
                self._inline[at:] = ["^" + text.strip()]
        elif name in _QUOTES:
            if text.strip(_QUOTES[name][0] + " " + _BREAK):
                self._inline.append(_QUOTES[name][1])
            else:
                del self._inline[at:]

    def _close_link(self, opened: _Open, at: int, text: str) -> None:
        if self._pre:
            return
        address = self._address(opened.attributes.get("href", ""))
        label = _SPACES.sub(" ", text.replace(_BREAK, " ")).strip()
        kind = opened.attributes.get("epub:type", "") + opened.attributes.get("role", "")
        if "noteref" in kind and label.isalnum():
            self._inline[at:] = [f"[{label}]"]
        elif label in _ANCHORS and opened.attributes.get("href", "").startswith("#"):
            del self._inline[at:]
        elif address and _same(label, address):
            pass
        elif address and label and opened.flushed == self._flushes:
            spaces = (" " if text[:1] == " " else "", " " if text[-1:] == " " else "")
            self._inline[at:] = [f"{spaces[0]}[{label}]({address}){spaces[1]}"]
        elif address and opened.flushed != self._flushes:  # around whole blocks
            self._inline.append(f" ({address})" if label else f"({address})")

    def _address(self, href: str) -> str:
        """A link's address as it is written, or "" where it leads nowhere outside."""
        if self._is_book or _NOT_FOLLOWED.match(href):
            return ""
        address = "".join(href[:4000].split())
        if self._base and _ADDRESS.match(self._base) and not _ADDRESS.match(address):
            try:
                address = urljoin(self._base, address)
            except ValueError:
                return ""
        if len(address) > _LONGEST_ADDRESS:
            address = re.split(r"[?#]", address, maxsplit=1)[0][:_LONGEST_ADDRESS]
        return address

    def _close_code(self) -> None:
        text = "".join(self._inline)
        self._inline.clear()
        self._flushes += 1
        self._pre -= 1
        text = text.removeprefix("\n").rstrip()
        if not text.strip():
            return
        self._emit(fenced(text, self._language))
        self._language = ""

    # Tables

    def _close_cell(self, opened: _Open) -> None:
        self._flush()
        blocks = self._frames.pop().blocks
        text = _joined(blocks)
        table = self._tables[-1]
        if opened.name == "caption":
            self._take(blocks)
            return
        if not table.rows:
            table.rows.append([])
        if len(text) > _LONGEST_CELL:
            table.is_layout = True
        columns, rows = (_span(opened.attributes.get(each, "")) for each in ("colspan", "rowspan"))
        table.rows[-1].append(_Cell(blocks, text, columns, rows))

    def _close_table(self, table: _Table) -> None:
        rows = [row for row in table.rows if any(cell.text for cell in row)]
        columns = max((sum(cell.columns for cell in row) for row in rows), default=0)
        if table.is_layout or columns < 2 or len(rows) < 2:
            for row in rows:
                for cell in row:
                    self._take(cell.blocks)
            return
        if text := markdown_table(self._grid(rows)):
            self._emit(text)

    def _grid(self, rows: list[list[_Cell]]) -> list[list[str]]:
        """The cells' texts, where spans put them; what they span is empty, as in other formats."""
        made: list[list[str]] = []
        covered: dict[int, int] = {}  # columns, and the rows that are left of a cell above
        for row in rows:
            line: list[str] = []
            for cell in row:
                self._fill(line, covered)
                columns = cell.columns if self._added < _MOST_ADDED_CELLS else 1
                self._added += columns - 1
                if cell.rows > 1:
                    covered.update((len(line) + at, cell.rows - 1) for at in range(columns))
                line += (cell.text, *([""] * (columns - 1)))
            self._fill(line, covered)
            made.append(line)
        return made

    def _fill(self, line: list[str], covered: dict[int, int]) -> None:
        while len(line) in covered:
            left = covered.pop(len(line))
            self._added += 1
            if left > 1 and self._added < _MOST_ADDED_CELLS:
                covered[len(line)] = left - 1
            line.append("")


def fenced(code: str, language: str = "") -> str:
    """Code between fences that it does not contain."""
    longest = max(map(len, re.findall(r"`{3,}", code)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{code}\n{fence}"


def _joined(blocks: list[_Block]) -> str:
    parts: list[str] = []
    for at, block in enumerate(blocks):
        if at:
            parts.append("\n" if block.is_tight else "\n\n")
        parts.append(block.text)
    return "".join(parts)


def _span(value: str) -> int:
    value = value.strip()
    return min(int(value), 100) or 1 if value.isdecimal() and len(value) < 6 else 1


def _same(label: str, address: str) -> bool:
    """Whether a link's text is its address."""
    plain = [
        _ADDRESS.sub("", each).removeprefix("//").removeprefix("www.").rstrip("/").casefold()
        for each in (label, address)
    ]
    return plain[0] == plain[1]
