"""Block structure of markdown, line by line: each line changes only what is open at the end.

CommonMark with tables, task lists and strikethrough of GitHub, and formulas. HTML stays text. The
containers that are open are a stack of quotes, lists and items, with a leaf below them; so a line
costs the same in a long quote as in a short one. Source of the method: CommonMark, appendix.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial

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
from app.markdown.formulas import BLOCK_ENDS
from app.markdown.inline import MAX_NESTING, References, clean, inline_runs
from app.markdown.leaves import (
    TAB,
    CodeLeaf,
    Cursor,
    FormulaLeaf,
    TableLeaf,
    TextLeaf,
    fence,
    row_runs,
    table,
)
from app.markdown.pieces import PIECE, Pieces
from app.markdown.tail import begins_table, close_markup, is_marker

_ATX = re.compile(r"(#{1,6})(?:[ \t]+|$)")
_ATX_END = re.compile(r"(?:^|[ \t]+)#+[ \t]*$")
_SETEXT = re.compile(r"(=+|-+)[ \t]*$")
_RULE = re.compile(r"(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_ITEM = re.compile(r"(?:([-+*])|(\d{1,9})([.)]))(?=[ \t]|$)")
_TASK = re.compile(r"\[([ xX])\][ \t]+")
_WIDEST_GAP = 4  # columns between a marker and its text; more are an indentation of code
_MOST_LINES = 8  # of a paragraph's beginning that may be link definitions

Leaf = TextLeaf | CodeLeaf | TableLeaf | FormulaLeaf
Make = Callable[[References], list[Block]]
_Bracketed = tuple[int, int, Make]  # block with brackets, references known then


class _Kind(Enum):
    QUOTE = auto()
    LIST = auto()
    ITEM = auto()


@dataclass(slots=True)
class _Open:
    """A container that is open: a quote, a list, or an item of the list above it."""

    kind: _Kind
    filled: bool = False  # something is in it, perhaps only a link definition
    used: bool = False  # a block of the result is in it
    start: int = 0  # line
    is_apart: bool = True  # a blank line is before it
    delimiter: str = ""  # of a list: the bullet, or what follows the numbers
    number: int = 1  # of the next item of a list
    marker: str = ""  # of an item
    indent: int = 0  # of an item: columns before its text
    first: bool = False  # the first item of its list


@dataclass(frozen=True, slots=True)
class _Saved:
    """A state to go back to."""

    stack: list[_Open]
    leaf: Leaf | None
    leaf_lines: int
    counts: tuple[int, int, int, int]  # lines, blocks, references, and blocks with brackets
    after_blank: bool


class Parser:
    """Parses lines into `blocks`."""

    def __init__(self, piece: int = PIECE, passages: frozenset[int] = frozenset()) -> None:
        """`passages` are the numbers of those that the text may cite."""
        self.blocks: list[Block] = []
        self._references = References(passages)
        self._stack: list[_Open] = []
        self._leaf: Leaf | None = None
        self._count = 0  # lines so far
        self._after_blank = True
        self._bracketed: list[_Bracketed] = []
        self._no_formula: set[int] = set()  # lines that begin none although they look like it
        self._piece = piece
        self._pieces = (
            -1,
            Pieces(piece),
        )  # the line of the last paragraph's beginning, and its pieces
        self._is_preview = False
        self._is_end = False  # of a preview: the leaf is open

    @property
    def finished(self) -> int:
        """The number of blocks that later lines cannot change."""
        leaf = self._leaf
        return leaf.blocks_before if isinstance(leaf, FormulaLeaf) else len(self.blocks)

    def add(self, text: str) -> None:
        """Add a complete line."""
        saved = self._save() if "$$" in text or "\\[" in text else None
        if self._add(text, saved):
            self._count += 1
            self._after_blank = not text.strip(" \t>")

    def finish(self) -> int:
        """End the text; returns how many of the first blocks are as they were.

        Links are resolved whose definition came after them.
        """
        kept = self.finished
        while isinstance(self._leaf, FormulaLeaf):
            self._no_formula_after_all(self._leaf, list(self._leaf.source))
        self._close_to(0)
        for at, known, make in self._bracketed:
            if known < len(self._references):
                made = make(self._references)
                if made != self.blocks[at : at + len(made)]:
                    self.blocks[at : at + len(made)] = made
                    kept = min(kept, at)
        return kept

    def preview(self, line: str) -> list[Block]:
        """The blocks that are not finished, as if the text ended with the incomplete line.

        They stand in place of those from `finished` on.
        """
        saved, leaf, finished = self._save(), self._leaf, self.finished
        undone = self._undoable() if isinstance(leaf, FormulaLeaf) else None
        header: list[str] = []  # perhaps of a table, whose delimiters are not complete
        if isinstance(leaf, TextLeaf) and begins_table(leaf.lines, line):
            header.append(leaf.lines.pop())
            line = ""
        self._is_preview = True
        if line and not self._hides(line):
            self.add(line)
            if is_marker(line) and not (isinstance(leaf, CodeLeaf) and self._leaf is leaf):
                self._restore(saved)
        self._is_end = True
        self._close_to(0)
        made = self.blocks[finished:]
        self._restore(saved)
        if undone:
            self._redo(finished, *undone)
        self._is_preview = self._is_end = False
        if isinstance(leaf, TextLeaf):
            leaf.lines += header
        return made

    def _hides(self, line: str) -> bool:
        """Whether the incomplete line may be the first one of a table."""
        leaf = self._leaf
        if not line.lstrip(" \t>").startswith("|") or isinstance(leaf, CodeLeaf | TableLeaf):
            return False
        return not (isinstance(leaf, TextLeaf) and leaf.lines and "|" in leaf.lines[-1])

    # --- states -----------------------------------------------------------------------------------

    def _save(self) -> _Saved:
        return _Saved(
            [replace(each) for each in self._stack],
            self._leaf,
            len(self._leaf.lines) if self._leaf else 0,
            (self._count, len(self.blocks), len(self._references), len(self._bracketed)),
            self._after_blank,
        )

    def _restore(self, saved: _Saved) -> None:
        self._stack = [replace(each) for each in saved.stack]
        self._leaf = saved.leaf
        self._count, blocks, references, bracketed = saved.counts
        self._after_blank = saved.after_blank
        self._no_formula = {line for line in self._no_formula if line < self._count}
        del self.blocks[blocks:], self._bracketed[bracketed:]
        while len(self._references) > references:
            self._references.popitem()
        if saved.leaf:
            saved.leaf.shorten(saved.leaf_lines)

    def _undoable(self) -> tuple[list[Block], list[_Bracketed], References, set[int]]:
        """The state after that of `_save`, for `_redo`: blocks, brackets, references, no formulas."""
        references = References(self._references.passages)
        references.update(self._references)
        return (
            self.blocks[self.finished :],
            list(self._bracketed),
            references,
            set(self._no_formula),
        )

    def _redo(
        self,
        finished: int,
        blocks: list[Block],
        bracketed: list[_Bracketed],
        references: References,
        no_formula: set[int],
    ) -> None:
        """Restore what `_undoable` has returned."""
        self.blocks[finished:] = blocks
        self._bracketed, self._references, self._no_formula = bracketed, references, no_formula

    def _no_formula_after_all(self, leaf: FormulaLeaf, lines: list[str]) -> None:
        """Parse the lines from a formula's first one on again, as text."""
        leaf.undo()
        self._no_formula.add(self._count)
        for line in lines:
            self.add(line)

    # --- lines ------------------------------------------------------------------------------------

    def _add(self, text: str, saved: _Saved | None) -> bool:
        """Add a line; False if it was added together with those before it."""
        cursor = Cursor(text)
        depth = self._matching(cursor)
        leaf = self._leaf
        blank = not cursor.rest
        matched = depth == len(self._stack)
        if isinstance(leaf, FormulaLeaf):
            lines = [*leaf.source, text]
            tex = leaf.add(text, cursor.rest) if matched and not blank else None
            if tex is None:
                self._no_formula_after_all(leaf, lines)
                return False
            if tex:
                self._leaf = None
                self._emit_formula(leaf, tex)
            return True
        if isinstance(leaf, CodeLeaf) and matched and self._goes_on(leaf, cursor):
            return True
        tip = leaf if matched and not blank and isinstance(leaf, TextLeaf | TableLeaf) else None
        while self._opens_container(cursor, depth, tip):
            depth, tip = len(self._stack), None
        lazy = leaf if isinstance(leaf, TextLeaf) and self._leaf is leaf and not blank else None
        if cursor.rest and self._opens_leaf(cursor, depth, tip, saved, may_be_code=lazy is None):
            return True
        if isinstance(tip, TableLeaf):
            tip.add(self._completed(cursor.rest), self._references)
        elif lazy:
            self._continue(lazy, cursor.rest)
        else:
            self._close_to(depth)
            if cursor.rest:
                if self._pieces[0] != self._count:
                    self._pieces = self._count, Pieces(self._piece)
                pieces = self._pieces[1]
                self._begin(TextLeaf(self._count, self._after_blank, pieces, [cursor.rest]))
        return True

    def _matching(self, cursor: Cursor) -> int:
        """How many of the open containers a line continues; the cursor is moved behind their marks."""
        for depth, each in enumerate(self._stack):
            match each.kind:
                case _Kind.QUOTE:
                    if cursor.indent >= TAB or not cursor.rest.startswith(">"):
                        return depth
                    cursor.skip_mark(1)
                    cursor.skip(1)
                case _Kind.ITEM:
                    if cursor.indent >= each.indent:
                        cursor.skip(each.indent)
                    elif cursor.rest or not each.filled:
                        return depth
                    else:
                        cursor.skip(cursor.indent)
                case _Kind.LIST:
                    pass
        return len(self._stack)

    def _opens_container(self, cursor: Cursor, depth: int, tip: Leaf | None) -> bool:
        """Open the quote or list item that begins here; `tip`: the leaf that it interrupts."""
        rest = cursor.rest
        nesting = sum(each.kind is not _Kind.LIST for each in self._stack[:depth])
        if not rest or cursor.indent >= TAB or nesting >= MAX_NESTING:
            return False
        if rest[0] == ">":
            self._close_to(depth)
            cursor.skip_mark(1)
            cursor.skip(1)
            self._push(_Open(_Kind.QUOTE, start=self._count, is_apart=self._after_blank))
            return True
        match = _ITEM.match(rest)
        if match is None or _RULE.match(rest):
            return False
        is_empty = not rest[match.end() :].strip(" \t")
        number = int(match[2] or 1)
        if isinstance(tip, TextLeaf) and (is_empty or number != 1):
            return False
        delimiter = match[1] or match[3]
        around = self._stack[depth - 1] if depth else None
        self._close_to(depth)
        is_first = around is None or around.kind is not _Kind.LIST or around.delimiter != delimiter
        if is_first or around is None:
            around = _Open(_Kind.LIST, delimiter=delimiter, number=number)
            self._push(around)
        marker = BULLET if match[1] else f"{around.number}{delimiter}"
        around.number += 1
        indent = cursor.indent + len(match[0])
        cursor.skip_mark(len(match[0]))
        gap = 1 if is_empty or cursor.indent > _WIDEST_GAP else cursor.indent
        cursor.skip(gap)
        item = _Open(_Kind.ITEM, start=self._count, marker=marker, indent=indent + gap)
        item.first, item.is_apart = is_first, self._after_blank
        self._push(item)
        return True

    def _push(self, opened: _Open) -> None:
        if opened.kind is not _Kind.ITEM:
            self._leave_list()
        if self._stack:
            self._stack[-1].filled = True
        self._stack.append(opened)

    def _leave_list(self) -> None:
        """Close the list whose items have ended: what follows is not an item."""
        if self._stack and self._stack[-1].kind is _Kind.LIST:
            self._stack.pop()

    def _opens_leaf(
        self,
        cursor: Cursor,
        depth: int,
        tip: Leaf | None,
        saved: _Saved | None,
        *,
        may_be_code: bool,
    ) -> bool:
        """Open the block that begins here, unless it is a paragraph."""
        rest, line, apart = cursor.rest, self._count, self._after_blank
        if cursor.indent >= TAB:
            if may_be_code:
                self._close_to(depth)
                code = CodeLeaf(line, apart)
                code.add(cursor)
                self._begin(code)
            return may_be_code
        if atx := _ATX.match(rest):
            self._close_to(depth)
            content = self._completed(_ATX_END.sub("", rest[atx.end() :]).strip(" \t"))
            self._heading(line, apart, len(atx[1]), content)
        elif code := fence(cursor, line, is_apart=apart):
            self._close_to(depth)
            self._begin(code)
        elif isinstance(tip, TextLeaf) and (setext := _SETEXT.match(rest)):
            leaf = self._without_definitions(tip)
            if not leaf.content:
                return False
            self._leaf = None
            self._heading(leaf.start, leaf.is_apart, 1 if setext[1][0] == "=" else 2, leaf.content)
        elif _RULE.match(rest):
            self._close_to(depth)
            self._leave_list()
            self.blocks.append(Rule(self._place(line, line + 1, apart)))
        elif isinstance(tip, TextLeaf) and (made := table(tip.lines[-1], rest, line - 1)):
            made.is_apart = tip.is_apart and len(tip.lines) == 1
            self._leaf = replace(tip, lines=tip.lines[:-1])
            self._close_to(depth)
            made.head = row_runs(made.header, self._references)
            self._begin(made)
        else:
            return self._opens_formula(cursor, depth, tip, saved)
        return True

    def _opens_formula(
        self, cursor: Cursor, depth: int, tip: Leaf | None, saved: _Saved | None
    ) -> bool:
        """Open the display formula that begins here.

        A paragraph in which such a line was none has no other, so that it is not parsed again often.
        """
        first = tip.start if isinstance(tip, TextLeaf) else self._count
        if cursor.rest[:2] not in BLOCK_ENDS or max(self._no_formula, default=-1) >= first:
            return False
        assert saved is not None  # there is one for each line with such a mark
        blocks = saved.counts[1]
        leaf = FormulaLeaf(self._count, self._after_blank, partial(self._restore, saved), blocks)
        tex = leaf.add(cursor.text, cursor.rest)
        if tex is None:
            return False
        self._close_to(depth)
        self._begin(leaf)
        if tex:
            self._leaf = None
            self._emit_formula(leaf, tex)
        return True

    def _goes_on(self, leaf: CodeLeaf, cursor: Cursor) -> bool:
        """Add a line to a code block, or close it by its fence; False if it is behind the block."""
        if leaf.mark and self._is_preview and leaf.may_close(cursor):
            return True
        if leaf.closes(cursor):
            self._leaf = None
            self._emit_code(leaf, closed=True)
            return True
        if leaf.mark or cursor.indent >= TAB or not cursor.rest:
            leaf.add(cursor)
            return True
        return False

    def _continue(self, leaf: TextLeaf, text: str) -> None:
        leaf.lines.append(text)
        may_define = leaf.lines[0].startswith("[") and len(leaf.lines) <= _MOST_LINES
        if may_define and not self._is_preview:
            leaf.take_definitions(self._references, all_lines=False)

    def _begin(self, leaf: Leaf) -> None:
        self._leave_list()
        if self._stack:
            self._stack[-1].filled = True
        self._leaf = leaf

    def _completed(self, text: str) -> str:
        """The text of an incomplete line with its open markup closed."""
        if not self._is_preview:
            return text
        return close_markup("", text, cites=bool(self._references.passages))

    # --- ends -------------------------------------------------------------------------------------

    def _close_to(self, depth: int) -> None:
        """Close the leaf, and all containers but the first `depth`."""
        leaf, self._leaf = self._leaf, None
        match leaf:
            case TextLeaf():
                self._emit_text(self._without_definitions(leaf))
            case CodeLeaf():
                self._emit_code(leaf, closed=not leaf.mark)
            case TableLeaf():
                self._emit_table(leaf)
            case FormulaLeaf():
                place = self._place(leaf.start, leaf.start + len(leaf.lines), leaf.is_apart)
                self.blocks.append(Paragraph(place, (Run(clean("\n".join(leaf.lines))),)))
            case None:
                pass
        while len(self._stack) > depth:
            last = self._stack[-1]
            if last.kind is not _Kind.LIST and not last.used:
                place = self._place(last.start, last.start + 1, last.is_apart)
                self.blocks.append(Paragraph(place, ()))
            self._stack.pop()

    def _without_definitions(self, leaf: TextLeaf) -> TextLeaf:
        if not leaf.lines or not leaf.lines[0].startswith("["):
            return leaf
        leaf = replace(leaf, lines=list(leaf.lines))
        leaf.take_definitions(self._references, all_lines=True)
        return leaf

    def _place(self, start: int, end: int, is_apart: bool) -> Place:
        levels: list[Level] = []
        in_list = new_list = False
        for each in self._stack:
            if each.kind is _Kind.LIST:
                continue
            is_item, begins = each.kind is _Kind.ITEM, not each.used
            if is_item and not in_list:
                in_list, new_list = True, each.first and begins
            marker = each.marker if begins else ""
            numbered = each.marker.endswith((f" {BOX}", f" {TICKED}"))
            levels.append(Level(not is_item, begins, marker, each.first and begins, numbered))
            each.used = each.filled = True
        return Place(start, end, tuple(levels), in_list and not new_list and not is_apart)

    def _emit(self, content: str, make: Make, blocks: list[Block] | None = None) -> None:
        """Add finished blocks; `make` makes them again when more link definitions are known."""
        if "[" in content:
            known = len(self._references) if blocks is None else 0
            self._bracketed.append((len(self.blocks), known, make))
        self.blocks += make(self._references) if blocks is None else blocks

    def _emit_text(self, leaf: TextLeaf) -> None:
        content = leaf.content
        if not content:
            return
        end = leaf.start + len(leaf.lines)
        item = self._stack[-1] if self._stack else None
        if item and item.kind is _Kind.ITEM and not item.used and (task := _TASK.match(leaf.text)):
            box = BOX if task[1] == " " else TICKED
            item.marker = box if item.marker == BULLET else f"{item.marker} {box}"
            content = content[task.end() :].lstrip("\n")
        place = self._place(leaf.start, end, leaf.is_apart)

        def make(references: References) -> list[Block]:
            return _paragraphs(place, Pieces(self._piece).of(content, references))

        pieces = leaf.pieces.of(content, self._references, is_open=self._is_end)
        self._emit(content, make, _paragraphs(place, pieces))

    def _heading(self, start: int, is_apart: bool, level: int, content: str) -> None:
        self._leave_list()
        place = self._place(start, self._count + 1, is_apart)

        def make(references: References) -> list[Block]:
            return [Heading(place, level, inline_runs(content, references))]

        self._emit(content, make)

    def _emit_code(self, leaf: CodeLeaf, *, closed: bool) -> None:
        fences = 1 + closed if leaf.mark else 0
        place = self._place(leaf.start, leaf.start + len(leaf.lines) + fences, leaf.is_apart)
        self.blocks.append(Code(place, leaf.language, leaf.text, closed))

    def _emit_formula(self, leaf: FormulaLeaf, tex: str) -> None:
        place = self._place(leaf.start, leaf.start + len(leaf.lines), leaf.is_apart)
        self.blocks.append(Formula(place, clean("\n".join(leaf.lines)), clean(tex)))

    def _emit_table(self, leaf: TableLeaf) -> None:
        place = self._place(leaf.start, leaf.start + len(leaf.lines) + 2, leaf.is_apart)
        header, lines = leaf.header, list(leaf.lines)

        def make(references: References) -> list[Block]:
            rows = tuple(row_runs(cells, references) for cells in lines)
            return [Table(place, leaf.alignments, row_runs(header, references), rows)]

        known = Table(place, leaf.alignments, leaf.head, tuple(leaf.rows))
        self._emit("".join(map("".join, (header, *lines))), make, [known])


def _paragraphs(place: Place, pieces: list[tuple[str, Runs]]) -> list[Block]:
    """The blocks of a paragraph, which continue each other."""
    made: list[Block] = []
    start, inner = (
        place.start,
        tuple(replace(each, begins=False, marker="", first=False) for each in place.path),
    )
    for text, runs in pieces:
        if made and not runs:
            break
        last = start + text.count("\n")
        end = last if text.endswith("\n") else last + 1
        part = Place(start, end, inner, place.tight, True) if made else replace(place, end=end)
        made.append(Paragraph(part, runs))
        start = last
    return made
