"""Shows an import or export over the window: the preview as a card, the progress as a line."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.domain.transfer import Progress, Work
from app.state.transfer import TransferState
from app.system.translation import sentences, tr, trn
from app.ui.transfer.card import CARD_WIDTH, PreviewCard
from app.ui.widgets.controls import Bar, TextButton, label, set_margins
from app.ui.widgets.popover import Popover


class ProgressLine(QFrame):
    """How far an import or export is, with a Cancel button; hidden while nothing is done."""

    cancelled = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("banner")
        self.words = label("")
        self.bar = Bar()
        self.cancel_button = TextButton(tr("Cancel"), "link")
        self.cancel_button.clicked.connect(self.cancelled)
        texts = QVBoxLayout()
        texts.setSpacing(6)
        texts.addWidget(self.words)
        texts.addWidget(self.bar)
        layout = QHBoxLayout(self)
        set_margins(layout, 12, 8, 6, 8)
        layout.setSpacing(12)
        layout.addLayout(texts, 1)
        layout.addWidget(self.cancel_button)
        self.hide()

    def show_progress(self, progress: Progress | None) -> None:
        """Show how far the work is; None hides the line."""
        if progress is not None:
            self.words.setText(progress_words(progress))
            self.bar.set_share(progress.done)
        self.setVisible(progress is not None)


def progress_words(progress: Progress) -> str:
    """What is being done, and how many chats so far."""
    what = {
        Work.READING: tr("Looking through the file…"),
        Work.IMPORTING: tr("Importing…"),
        Work.EXPORTING: tr("Exporting…"),
    }[progress.work]
    count = trn("{count} chat so far", "{count} chats so far", progress.chats)
    return sentences(what, count) if progress.chats else what


class TransferView(QWidget):
    """The line of progress; it opens the card of the preview over the window."""

    accepted = Signal()
    cancelled = Signal()

    def __init__(self, state: TransferState, window: QWidget) -> None:
        super().__init__()
        self._state, self._window = state, window
        self.line = ProgressLine()
        self.card: PreviewCard | None = None  # created when it is first shown
        self.popover: Popover | None = None
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 8, 0, 0)
        layout.addWidget(self.line)
        self.hide()
        self.line.cancelled.connect(self.cancelled)
        state.changed.connect(self.refresh)

    def refresh(self) -> None:
        """Show the preview or the progress of the state."""
        preview, progress = self._state.preview, self._state.progress
        self.line.show_progress(progress)
        self.setVisible(progress is not None)
        if preview is None:
            if self.popover is not None:
                self.popover.close_card()
            return
        if self.card is None or self.popover is None:
            self.card = card = PreviewCard()
            self.popover = Popover(self._window, card, CARD_WIDTH, tr("Import chats"))
            card.accepted.connect(self.accepted)
            card.cancelled.connect(self.cancelled)
            self.popover.closed.connect(self._on_closed)
        self.card.show_preview(preview)
        self.popover.setAccessibleName(self.card.title.text())
        self.popover.setAccessibleDescription(self.card.accessibleDescription())
        self.popover.open_centred()

    def fit(self) -> None:
        """Fit the card to the window, after the window changed size."""
        if self.popover is not None and not self.popover.isHidden():
            self.popover.fit()

    def _on_closed(self) -> None:
        if self._state.preview is not None:  # by Esc or a click beside it
            self.cancelled.emit()
