"""Text selection across blocks and messages, and its Markdown, plain-text and HTML copies.

Wholly selected blocks are copied as Markdown source, partly selected ones as plain text; the
clipboard also gets HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app.markdown.stream import to_html
from app.ui.transcript.message_view import MessageView
from engine import Role

Spot = tuple[int, int, int]  # message, part, position


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

    def in_message(self, index: int, view: MessageView) -> list[tuple[int, int, int]]:
        """The selected parts of a message: part, first and last position."""
        if self.empty:
            return []
        start, end = self.span()
        if not start[0] <= index <= end[0]:
            return []
        first = start[1] if index == start[0] else 0
        last = end[1] if index == end[0] else len(view.parts) - 1
        result: list[tuple[int, int, int]] = []
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
        """The selection as Markdown or plain text."""
        pieces = [text for text, _ in self._pieces(views)]
        return "\n\n".join(pieces)

    def html(self, views: Sequence[MessageView]) -> str:
        """The selection as HTML."""
        return "\n".join(html for _, html in self._pieces(views))

    def _pieces(self, views: Sequence[MessageView]) -> list[tuple[str, str]]:
        """The text and HTML of each run of selected blocks."""
        if self.empty:
            return []
        start, end = self.span()
        pieces: list[tuple[str, str]] = []
        for index in range(start[0], end[0] + 1):
            view = views[index]
            pieces += _copied(view, self.in_message(index, view))
        return pieces


def _copied(view: MessageView, selected: list[tuple[int, int, int]]) -> list[tuple[str, str]]:
    """Text and HTML of selected blocks: source for runs of whole blocks, else plain text."""
    pieces: list[tuple[str, str]] = []
    whole: list[int] = []

    def end_whole() -> None:
        if whole:
            source = view.source(whole[0], whole[-1])
            typed = view.message.role is Role.USER
            pieces.append((source, _typed_html(source) if typed else to_html(source)))
            whole.clear()

    for part, first, last in selected:
        block = view.parts[part].view
        if first == 0 and last >= block.length and (len(selected) > 1 or block.length):
            whole.append(part)
            continue
        end_whole()
        text = block.text(first, last)
        if text:
            pieces.append((text, _typed_html(text)))
    end_whole()
    return pieces


def _typed_html(text: str) -> str:
    return "<p>" + escape(text).replace("\n", "<br>") + "</p>"
