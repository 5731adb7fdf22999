"""Controls of a message: its rows, links, buttons in blocks and tools, in reading order.

The keyboard and the accessibility tree reach the same ones, and use them in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QRectF
from PySide6.QtGui import QAccessible

from app.domain.file_words import image_words, kind_words
from app.system.translation import listed, sentences, tr
from app.ui.blocks.blocks import ButtonHolder
from app.ui.transcript.layout import TranscriptLayout
from app.ui.transcript.message.placed_block import PlacedBlock
from app.ui.transcript.message.sections import Row
from app.ui.transcript.tools import Tools


@dataclass(frozen=True, slots=True)
class Control:
    """A button, link or static text inside a message."""

    key: str  # within its message
    role: QAccessible.Role
    name: str
    area: QRectF  # relative to the message
    use: Callable[[], object] | None = None
    description: str = ""
    expanded: bool | None = None
    checked: bool | None = None

    @property
    def in_block(self) -> bool:
        """Whether it is in a block of the message."""
        return self.key.startswith(("link ", "button "))


class Controls:
    """Lists the controls of messages."""

    def __init__(self, layout: TranscriptLayout, tools: Tools) -> None:
        self._layout, self._tools = layout, tools

    def of(self, index: int) -> list[Control]:
        """The controls of a message.

        Links and buttons appear once the message is laid out, which may happen in idle time.
        """
        message, roles = self._layout.stack.views[index], QAccessible.Role
        controls: list[Control] = []
        rows = [] if message.hidden_for_edit else list(enumerate(message.rows))
        parts = [] if message.hidden_for_edit else message.parts
        for number, part in enumerate(parts):
            while rows and rows[0][1].section <= part.section:
                controls += self._row(index, *rows.pop(0))
            controls += self._in_part(index, number, part)
        for row in rows:
            controls += self._row(index, *row)
        for tool, area in zip(*self._tools.all(index), strict=True):
            if tool.name == "word":
                controls.append(Control(f"word {tool.text}", roles.StaticText, tool.text, area))
                continue
            use = partial(self._tools.use, index, tool) if tool.can_act else None
            controls.append(Control(f"tool {tool.name}", roles.Button, tool.text, area, use))
        return controls

    def find(self, index: int, key: str) -> Control | None:
        """The control of a message with a key; None if it has none."""
        return next((each for each in self.of(index) if each.key == key), None)

    def _row(self, index: int, number: int, row: Row) -> list[Control]:
        """The row, and the button that stops its call."""
        controls = [self._own_row(index, number, row)]
        if row.call is not None and not row.stop.isEmpty():
            use = partial(self._tools.use_stop, index, number)
            name = tr("Stop {tool}", tool=row.call.title)
            role = QAccessible.Role.Button
            controls.append(Control(f"stop-{number}", role, name, row.stop, use))
        return controls

    def _own_row(self, index: int, number: int, row: Row) -> Control:
        key, roles = f"row-{number}", QAccessible.Role
        words = row.call.words if row.call is not None else row.words
        if not row.usable:
            return Control(key, roles.StaticText, words, row.area)
        use = partial(self._layout.use_row, index, number)
        if row.file is not None:
            name = listed((row.words, kind_words(row.file.kind)))
            return Control(key, roles.Button, name, row.area, use, tr("Shows the text of the file"))
        if row.image is not None:
            about = image_words(row.image) if row.image.description else ""
            about = sentences(about, tr("Shows the picture"))
            return Control(key, roles.Button, row.words, row.area, use, about)
        return Control(key, roles.Button, words, row.area, use, expanded=not row.folded)

    def _in_part(self, index: int, number: int, part: PlacedBlock) -> list[Control]:
        """The links and buttons of a block."""
        roles, controls = QAccessible.Role, list[Control]()
        message = self._layout.stack.views[index]
        for count, link in enumerate(part.view.links()):
            found = link.moved(part.x, part.y)
            use = partial(self._layout.use_link, index, link.address)
            words, key = message.link_words(link.address), f"link {number} {count}"
            controls.append(Control(key, roles.Link, link.text, found.area, use, words))
        if isinstance(part.view, ButtonHolder):
            for button in part.view.buttons():
                area = button.area.translated(part.x, part.y)
                use = partial(self._tools.use_button, index, number, button.name)
                key = f"button {number} {button.name}"
                controls.append(
                    Control(key, roles.Button, button.words, area, use, checked=button.checked)
                )
        return controls
