"""Line below the chips: with a click, passages are found by their meaning and not only by words."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.domain.documents import Reads
from app.downloads.queue import Phase
from app.state.encoder import EncoderView
from app.state.states import States
from app.system.byte_size import size
from app.system.translation import number, sentences, tr
from app.ui.theme.theme import SMALL, figures, font
from app.ui.widgets import accessibility
from app.ui.widgets.controls import TextButton, align_text_at_start, label, set_margins


class SearchModelLine(QFrame):
    """Is there while passages are read and no embedding model is installed."""

    get_requested = Signal()

    def __init__(self, states: States, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._chat, self._attachments = states.chat, states.attachments
        self._encoder, self._collections = states.encoder, states.collections
        self._is_dismissed = False  # in this run
        self.words = label("", "secondary", SMALL, wraps=True)
        self.words.setFont(figures(SMALL))
        self.get_button = TextButton("", "link")
        self.dismiss_button = TextButton(tr("Not now"), "link")
        layout = QVBoxLayout(self)
        set_margins(layout, 8, 0, 8, 2)
        layout.setSpacing(0)
        layout.addWidget(self.words)
        row = QHBoxLayout()
        row.setSpacing(16)
        for button in (self.get_button, self.dismiss_button):
            button.setFont(font(SMALL))
            align_text_at_start(button)
            row.addWidget(button)
        row.addStretch(1)
        layout.addLayout(row)
        self.get_button.clicked.connect(self.get_requested)
        self.dismiss_button.clicked.connect(self._dismiss)
        chat = states.chat
        for signal in (
            self._attachments.changed, chat.conversation_changed, chat.settings_changed,
            self._collections.changed, self._encoder.changed,
        ):  # fmt: skip
            signal.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the offer for the files of the shown chat."""
        view = self._encoder.view
        parts = (each.file for each in self._attachments.of(self._chat.current))
        is_read = any(part is not None and part.reads is Reads.PASSAGES for part in parts)
        ids = self._chat.settings(self._chat.current).collections
        is_read = is_read or bool(self._collections.shown(ids))
        is_shown = is_read and view.offer is not None and not self._is_dismissed
        if is_shown:
            self._show(view)
        self.setVisible(is_shown)

    def _show(self, view: EncoderView) -> None:
        offer, download = view.offer, view.download
        assert offer is not None, "shown without an offer"
        button = ""
        if download is None:
            words = tr(
                "Passages are found by their words. A small model finds them by meaning too."
            )
            amount = offer.source.size_bytes
            button = tr("Get {name}, {size}", name=offer.name, size=size(amount))
        elif download.phase is Phase.FAILED:
            words, button = sentences(download.error, download.remedy), tr("Try again")
        elif download.phase is Phase.PAUSED:
            words = tr("{name} is downloaded in part.", name=offer.name)
            button = tr("Go on")
        else:
            share = number(round(100 * view.progress))
            words = tr("{name} is downloading: {percent} %.", name=offer.name, percent=share)
        is_failed = download is not None and download.phase is Phase.FAILED
        if self.isHidden() or (is_failed and words != self.words.text()):
            accessibility.announce(self, words)
        self.words.setText(words)
        self.get_button.setText(button)
        self.get_button.setVisible(bool(button))
        self.dismiss_button.setVisible(download is None)

    def _dismiss(self) -> None:
        self._is_dismissed = True
        self.refresh()
