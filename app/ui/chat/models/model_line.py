"""Line above the composer: the shown chat's model is not loaded, is gone, or is not reached."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QWidget

from app.state.chat import ChatModel, ModelPhase, State
from app.system.durations import rough_time
from app.system.translation import tr
from app.ui.theme.theme import SMALL, figures
from app.ui.widgets.controls import TextButton, label

_MARGIN, _SPACING = 16, 12  # pixels
_NAME_WIDTH = 200  # pixels of a model's name on the button


class ModelLine(QWidget):
    """What sending will load and how long that takes, with a link to use the loaded model."""

    use_loaded_requested = Signal()
    choose_requested = Signal()  # another model, in the picker

    def __init__(self, state: State, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = state
        self.words = label("", "secondary", SMALL)
        self.use_button = TextButton("", "link")
        self.choose_button = TextButton(tr("Choose another…"), "link")
        self.choose_button.setAccessibleName(tr("Choose another model for this chat"))
        self._layout = layout = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        layout.setContentsMargins(_MARGIN, 2, _MARGIN, 4)
        self.words.setFont(figures(SMALL))
        self.words.setAlignment(Qt.AlignmentFlag.AlignCenter)
        layout.addStretch(1)
        layout.addWidget(self.words)
        self._links = links = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        for button in (self.use_button, self.choose_button):
            button.setFont(figures(SMALL))
            links.addWidget(button, 0, Qt.AlignmentFlag.AlignCenter)
        layout.addLayout(links)
        layout.setAlignment(links, Qt.AlignmentFlag.AlignCenter)
        layout.addStretch(1)
        self.use_button.clicked.connect(self.use_loaded_requested)
        self.choose_button.clicked.connect(self.choose_requested)
        state.chat_model_changed.connect(self.refresh)
        state.generations_changed.connect(self.refresh)
        state.conversation_changed.connect(self.refresh)
        state.model_changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the shown chat's model while it is not in use and no answer is being written."""
        chat = self._state.chat_model
        if chat is None or (chat.server and not chat.missing) or self._state.busy:
            self.hide()
        else:
            self._show(chat)
            self.show()

    def _show(self, chat: ChatModel) -> None:
        words = sentence(chat)
        if self.words.text() != words:
            self.words.setText(words)
        last = self._state.messages[-1] if self._state.messages else None
        is_said = bool(chat.server and last and last.error)  # below the answer that failed
        self.words.setVisible(not is_said)
        name = QFontMetrics(self.use_button.font()).elidedText(
            chat.loaded, Qt.TextElideMode.ElideMiddle, _NAME_WIDTH
        )
        self.use_button.setText(tr("Use {name} (loaded)", name=name))
        self.use_button.setAccessibleName(tr("Use {name} (loaded)", name=chat.loaded))
        self.use_button.setVisible(bool(chat.loaded))
        loading = self._state.model.phase is ModelPhase.LOADING
        self.choose_button.setVisible(bool(chat.missing) and not loading)
        self._fit()

    def _fit(self) -> None:
        """Place the links beside the words or, where that is too narrow, below each other."""
        links = [link for link in (self.use_button, self.choose_button) if not link.isHidden()]
        metrics = QFontMetrics(self.words.font())
        wanted = sum(link.sizeHint().width() + _SPACING for link in links) + 2 * _MARGIN
        directions, is_tight = QBoxLayout.Direction, wanted > self.width()
        self._links.setDirection(directions.TopToBottom if is_tight else directions.LeftToRight)
        self._links.setSpacing(2 if is_tight else _SPACING)
        narrow = wanted + metrics.horizontalAdvance(self.words.text()) > self.width()
        self._layout.setDirection(directions.TopToBottom if narrow else directions.LeftToRight)
        self._layout.setSpacing(2 if narrow else _SPACING)
        self.words.setWordWrap(narrow)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()


def sentence(chat: ChatModel) -> str:
    """What is said of a chat's model that is not in use."""
    if chat.missing:
        return chat.missing
    if chat.load_seconds <= 0:
        return tr("This chat uses {name} · sending loads it", name=chat.name)
    time = rough_time(chat.load_seconds)
    return tr("This chat uses {name} · sending loads it, about {time}", name=chat.name, time=time)
