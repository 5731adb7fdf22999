"""Section of the panel: a heading, a mark and Reset where it differs, and fields below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAccessible, QFont, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.system.translation import tr
from app.ui.chat.composer.settings_words import part_name
from app.ui.settings.fields import Segments
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.widgets import accessibility
from app.ui.widgets.controls import (
    TextButton,
    align_text_at_end,
    changed_mark,
    label,
    set_margins,
)

if TYPE_CHECKING:
    from app.state.chat_settings import ShownSettings

_START, _END = 16, 8  # pixels beside the fields; at the end is the scroll bar too


class Section(QWidget):
    """The fields of one part of the settings."""

    edited = Signal(object)  # dict of fields of ChatSettings and their new values
    reset_requested = Signal()

    def __init__(self, part: str) -> None:
        """`part` is a key of `PARTS`."""
        super().__init__()
        accessibility.register_role(type(self), QAccessible.Role.Grouping)
        self.part = part
        self.marked: tuple[QWidget, ...] = ()  # fields without marks of their own
        name = part_name(part)
        self.setAccessibleName(name)
        self.heading = label(name, "", BODY, wraps=True)
        self.heading.setFont(font(BODY, QFont.Weight.DemiBold))
        self.mark = changed_mark()
        self.reset = TextButton(tr("Reset"), "link")
        self.reset.setFont(font(SMALL))
        self.reset.setAccessibleName(tr("Reset {name}", name=name))
        kept = self.reset.sizePolicy()
        kept.setRetainSizeWhenHidden(True)
        self.reset.setSizePolicy(kept)
        align_text_at_end(self.reset)
        self.reset.clicked.connect(self._on_reset)
        head = QHBoxLayout()
        head.setSpacing(6)
        head.addWidget(self.heading, 1)
        head.addWidget(self.mark)
        head.addWidget(self.reset)
        self.body = QVBoxLayout()
        self.body.setSpacing(6)
        layout = QVBoxLayout(self)
        set_margins(layout, _START, 14, _END, 14)
        layout.setSpacing(4)
        layout.addLayout(head)
        layout.addLayout(self.body)
        self.show_changed(False)

    def show_changed(self, changed: bool) -> None:
        """Show whether the part differs from what is usual."""
        self.mark.setVisible(changed)
        self.reset.setVisible(changed)
        for field in self.marked:
            accessibility.set_note(field, self.mark.toolTip(), shown=changed)

    def show_settings(self, shown: ShownSettings) -> None:
        """Show the settings of the chat; what is being typed stays."""

    def finish(self) -> None:
        """Commit what is typed."""

    def restore(self, shown: ShownSettings) -> None:
        """Show the settings of another chat."""
        self.show_settings(shown)

    def edit(self, **values: Any) -> None:
        """Emit other values of fields of the settings."""
        self.edited.emit(values)

    def _on_reset(self) -> None:
        if self.marked and self.reset.hasFocus():  # it is hidden
            self.marked[0].setFocus(Qt.FocusReason.OtherFocusReason)
        self.reset_requested.emit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        for choice in self.findChildren(Segments, options=_DIRECT):
            choice.fit(self.width() - _START - _END)


_DIRECT = Qt.FindChildOption.FindDirectChildrenOnly


def note(words: str) -> QLabel:
    """A sentence below a field."""
    return label(words, "secondary", SMALL, wraps=True)
