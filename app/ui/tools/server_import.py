"""Preview of an import of servers: what would be stored, and what is left out."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from app.domain.tool_servers import ImportPreview
from app.domain.visible_text import on_one_line
from app.system.translation import isolated, tr, trn
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.tools.code_text import CodeText
from app.ui.widgets.cards import button_line, framed, wrapped
from app.ui.widgets.controls import TextButton, label


class ImportCard(QFrame):
    """Says what a file has; Add and Cancel. Nothing of it starts."""

    ended = Signal(bool)  # whether it is to be stored

    def __init__(self) -> None:
        super().__init__()
        self.title = label("", "", BODY, wraps=True)
        self.title.setFont(font(BODY, QFont.Weight.Medium))
        self.add = TextButton(tr("Add"), "primary")
        self.cancel = TextButton(tr("Cancel"), "outlined")
        self._rows = QVBoxLayout()
        self._rows.setSpacing(4)
        layout = framed(self)
        layout.addWidget(self.title)
        layout.addLayout(self._rows)
        layout.addWidget(button_line(self.add, self.cancel))
        self.add.clicked.connect(lambda: self.ended.emit(True))
        self.cancel.clicked.connect(lambda: self.ended.emit(False))
        self.hide()

    def show_preview(self, preview: ImportPreview | None) -> None:
        """Show what would be stored; None hides the card."""
        self.setVisible(preview is not None)
        while (item := self._rows.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        if preview is None:
            return
        count = len(preview.servers)
        words = trn(
            "{count} server is added. It stays off until you start it.",
            "{count} servers are added. They stay off until you start them.",
            count,
        )
        self.title.setText(words if count else tr("There is nothing to add."))
        self.add.setVisible(bool(count))
        for row in preview.servers:
            self._add(_name(row.name))
            command = CodeText(row.name, 4)
            self._add(command)
            command.show_text(row.where)
        for problem in preview.problems:
            self._add(wrapped(on_one_line(problem), "warning"))
        self.setAccessibleName(self.title.text())

    def _add(self, part: QWidget) -> None:
        self._rows.addWidget(part)


def _name(name: str) -> QWidget:
    words = label(isolated(on_one_line(name)), "", SMALL, wraps=True)
    words.setFont(font(SMALL, QFont.Weight.Medium))
    return words
