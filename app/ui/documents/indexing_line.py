"""Line below the chips: how far the documents are indexed in which passages are looked for."""

from __future__ import annotations

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QLabel, QWidget

from app.domain.documents import Reads
from app.domain.parts import files
from app.state.indexing import IndexingView
from app.state.states import States
from app.system.translation import number, tr
from app.ui.theme.theme import SMALL, figures
from app.ui.widgets import accessibility

_LATER_MILLISECONDS = 800  # most documents are indexed sooner: nothing is to flicker


class IndexingLine(QLabel):
    """Is there while documents are indexed, in a chat that reads passages."""

    def __init__(self, states: States, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._states = states
        self._is_late = False  # it has taken so long that it is shown
        self._timer = QTimer(self, singleShot=True, interval=_LATER_MILLISECONDS)
        self._timer.timeout.connect(self._show_late)
        self.setProperty("tone", "secondary")
        self.setFont(figures(SMALL))
        self.setWordWrap(True)
        self.setContentsMargins(8, 0, 8, 2)
        chat = states.chat
        for signal in (
            states.indexing.changed, states.attachments.changed, states.collections.changed,
            chat.conversation_changed, chat.settings_changed, chat.message_added,
        ):  # fmt: skip
            signal.connect(self.refresh)
        self.hide()
        self.refresh()

    def refresh(self) -> None:
        """Show how far it is."""
        view = self._states.indexing.view
        if not view.is_working:
            self._is_late = False
            self._timer.stop()
        elif not self._is_late and not self._timer.isActive():
            self._timer.start()
        is_shown = self._is_late and self._reads_passages()
        if is_shown:
            self.setText(indexing_words(view))
            if self.isHidden():
                accessibility.announce(self, self.text())
        self.setVisible(is_shown)

    def _show_late(self) -> None:
        self._is_late = True
        self.refresh()

    def _reads_passages(self) -> bool:
        chat, states = self._states.chat, self._states
        parts = [each.file for each in states.attachments.of(chat.current) if each.file]
        parts += [part for message in chat.messages for part in files(message.parts)]
        collections = states.collections.shown(chat.settings(chat.current).collections)
        return bool(collections) or any(part.reads is Reads.PASSAGES for part in parts)


def indexing_words(view: IndexingView) -> str:
    """How far the documents of all chats and collections are indexed."""
    if view.paused:
        return tr("Indexing goes on when the answer is complete.")
    if view.documents_done < view.documents:
        share = (view.documents_done + view.fraction) / view.documents
        return tr("Documents are being indexed: {percent} %.", percent=_percent(share))
    share = view.passages_done / max(view.passages, 1)
    return tr("The search by meaning is being prepared: {percent} %.", percent=_percent(share))


def _percent(share: float) -> str:
    return number(int(100 * min(share, 1.0)))
