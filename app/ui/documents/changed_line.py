"""Line that offers to attach files again that have changed on disk since they were sent."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.state.attachments import AttachmentsState, KnownFile
from app.system.translation import listed, tr, trn
from app.ui.theme.theme import SMALL
from app.ui.widgets import accessibility
from app.ui.widgets.controls import IconButton, TextButton, label, set_margins


class ChangedLine(QWidget):
    """Hidden while no sent file has changed, and when it was put away."""

    attach_requested = Signal(object)  # KnownFile

    def __init__(self, state: AttachmentsState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = state
        self._put_away: tuple[KnownFile, ...] = ()
        self.words = label("", "secondary", SMALL, wraps=True)
        self.attach_button = TextButton(tr("Attach again"), "link")
        self.close_button = IconButton("close", tr("Leave it as it was sent"), 14)
        row = QHBoxLayout(self)
        set_margins(row, 8, 0, 0, 0)
        row.setSpacing(4)
        row.addWidget(self.words, 1)
        row.addWidget(self.attach_button)
        row.addWidget(self.close_button)
        self.attach_button.clicked.connect(self._attach)
        self.close_button.clicked.connect(self._close)
        state.outdated_changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show which sent files have changed."""
        files = self._state.outdated
        names = listed(each.name for each in files)
        words = trn(
            "{names} has changed since it was sent.",
            "{names} have changed since they were sent.",
            len(files),
            names=names,
        )
        is_shown = bool(files) and files != self._put_away
        if is_shown and (words != self.words.text() or self.isHidden()):
            accessibility.announce(self, words)
        self.words.setText(words)
        self.setVisible(is_shown)

    def _attach(self) -> None:
        for each in self._state.outdated:
            self.attach_requested.emit(each)
        self._close()

    def _close(self) -> None:
        self._put_away = self._state.outdated
        self.hide()
