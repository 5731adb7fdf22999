"""Text selection across blocks and messages, and its Markdown, plain-text and HTML copies.

A copy is made from the blocks that the screen shows: as Markdown and as HTML. Code alone is copied
without its fences, and a part of one block without markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.markdown.blocks import Block, Code, Heading, Paragraph, Run
from app.markdown.export import to_html, to_markdown
from app.ui.blocks.blocks import BlockView
from app.ui.blocks.text import cut_runs
from app.ui.transcript.message.message_view import MessageView
from engine import Role

Spot = tuple[int, int, int]  # message, part, position
Ranges = list[tuple[int, int, int]]  # parts of a message: part, first and last position


class Selection:
    """A selection from an anchor to a focus; empty if they are equal."""

    def __init__(self) -> None:
        self.anchor: Spot | None = None
        self.focus: Spot | None = None

    def clear(self) -> None:
        """Select nothing."""
        self.anchor = self.focus = None

    def set(self, anchor: Spot, focus: Spot) -> None:
        """Select from one text position to another."""
        self.anchor, self.focus = anchor, focus

    @property
    def empty(self) -> bool:
        """Whether nothing is selected."""
        return self.anchor is None or self.anchor == self.focus

    def span(self) -> tuple[Spot, Spot]:
        """The selection's start and end in text order; must not be empty."""
        assert self.anchor is not None
        assert self.focus is not None
        return min(self.anchor, self.focus), max(self.anchor, self.focus)

    def in_message(self, index: int, view: MessageView) -> Ranges:
        """The selected parts of a message: part, first and last position."""
        if self.empty:
            return []
        start, end = self.span()
        if not start[0] <= index <= end[0]:
            return []
        first = start[1] if index == start[0] else 0
        last = end[1] if index == end[0] else len(view.parts) - 1
        result: Ranges = []
        for part in range(first, min(last, len(view.parts) - 1) + 1):
            from_ = start[2] if (index, part) == start[:2] else 0
            length = view.parts[part].view.length
            to = min(end[2], length) if (index, part) == end[:2] else length
            result.append((part, from_, to))
        return result

    def forget_from(self, index: int) -> None:
        """Clear the selection if it extends to message `index` or beyond."""
        if self.anchor and self.focus and max(self.anchor, self.focus)[0] >= index:
            self.clear()

    # --- copying ----------------------------------------------------------------------------

    def text(self, views: Sequence[MessageView]) -> str:
        """The selection as text: Markdown, or what is shown of a part of a block or of code."""
        selected = self._selected(views)
        if len(selected) == 1 and len(selected[0][1]) == len(selected[0][2]) == 1:
            view, ((part, first, last),), _ = selected[0]
            shown = view.parts[part].view
            if isinstance(shown.block, Code) or (first, last) != (0, shown.length):
                return shown.text(first, last)
        return "\n\n".join(filter(None, (_text(*each) for each in selected)))

    def shown(self, views: Sequence[MessageView]) -> str:
        """The selection as it is shown, without markup: what can be found again."""
        return "\n\n".join(
            view.parts[part].view.text(first, last)
            for view, parts, _ in self._selected(views)
            for part, first, last in parts
        )

    def html(self, views: Sequence[MessageView]) -> str:
        """The selection as HTML."""
        return "\n".join(to_html(_blocks(*each)) for each in self._selected(views))

    def _selected(self, views: Sequence[MessageView]) -> list[tuple[MessageView, Ranges, range]]:
        """The messages with their selected parts and sections, without those of which only an edge
        is in it.
        """
        if self.empty:
            return []
        start, end = self.span()
        found: list[tuple[MessageView, Ranges, range]] = []
        for number in range(start[0], end[0] + 1):
            view = views[number]
            parts = [
                (part, first, last)
                for part, first, last in self.in_message(number, view)
                if first < last or not view.parts[part].view.length
            ]
            sections = self._sections(number, view)
            if parts or (not view.parts and any(view.sections[n].call for n in sections)):
                found.append((view, parts, sections))
        return found

    def _sections(self, number: int, view: MessageView) -> range:
        """The sections of a message that are in the selection, also folded ones."""
        start, end = self.span()
        first, last = 0, len(view.sections)
        whole = start[1:] == (0, 0) and start[:2] != end[:2]
        if number == start[0] and start[1] < len(view.parts) and not whole:
            first = view.parts[start[1]].section
        if number == end[0] and end[1] < len(view.parts):
            last = view.parts[end[1]].section + 1
        return range(first, last)


def _text(view: MessageView, parts: Ranges, sections: range) -> str:
    """The selected parts of a message: as Markdown, or as the user typed them."""
    if view.message.role is Role.ASSISTANT:
        return to_markdown(_blocks(view, parts, sections))
    pieces: list[str] = []
    before = None
    for part, first, last in parts:
        now, shown = view.parts[part], view.parts[part].view
        place = shown.block.place
        if before:
            is_near = before.section == now.section
            lines = place.start - before.view.block.place.end + 1 if is_near else 2
            pieces.append("" if place.joined else "\n" * lines)
        whole_code = isinstance(shown.block, Code) and (first, last) == (0, shown.length)
        pieces.append(view.source(part) if whole_code else shown.text(first, last))
        before = now
    return "".join(pieces)


def _blocks(view: MessageView, parts: Ranges, sections: range) -> list[Block]:
    """The selected blocks, of which the first and the last may be cut, and those of folded calls."""
    made: list[Block] = []
    above = sections.start  # the first section whose call may be missing
    for part, first, last in parts:
        section = view.parts[part].section
        made += _folded_calls(view, range(above, section))
        above = max(above, section + 1)
        shown = view.parts[part].view
        whole = first == 0 and last >= shown.length
        made.append(shown.block if whole else _cut(shown, first, last))
    return [*made, *_folded_calls(view, range(above, sections.stop))]


def _folded_calls(view: MessageView, sections: range) -> list[Block]:
    """The name, arguments and result of each call whose card is folded."""
    calls = (view.sections[n].call for n in sections if view.is_folded(n))
    return [block for call in calls if call is not None for block in call.copied_blocks()]


def _cut(shown: BlockView, first: int, last: int) -> Block:
    """The block between two positions; without the marker of its item if its beginning is not in it."""
    block, place = shown.block, shown.block.place
    if first:
        path = tuple(replace(each, begins=False, marker="") for each in place.path)
        place = replace(place, path=path)
    match block:
        case Paragraph() | Heading():
            return replace(block, place=place, runs=cut_runs(block.runs, first, last))
        case Code():
            return replace(block, place=place, text=shown.text(first, last))
        case _:
            return Paragraph(place, (Run(shown.text(first, last)),))
