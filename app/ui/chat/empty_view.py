"""Empty-conversation view: illustration, model name, one sentence and suggested prompts."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont, QPainter, QPaintEvent, QPixmap, QResizeEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.domain.folders import path_text
from app.domain.model_ref import Remote
from app.state.chat import ChatModel, ModelPhase, ModelStatus, State
from app.state.library import LibraryState
from app.state.presets import PresetState
from app.system.byte_size import size
from app.system.translation import isolated, tr, trn
from app.ui.chat.composer.preset_chips import PresetChips
from app.ui.chat.models.better_model import BetterModelLine
from app.ui.theme import icons
from app.ui.theme.palette import Palette, follow_palette, recolored, shown_palette
from app.ui.theme.theme import BODY, HEADING, READING, figures, font
from app.ui.widgets.controls import TextButton, label

# Asked ten times each by tests/benchmarks/starter_sampling.py: the starter answers these to the point
# without false facts; it repeats itself in stories and lists, and errs in how things work.
SUGGESTIONS = (
    "Why do we need to sleep?",
    "Why is exercise good for us?",
    "Why are friends important?",
)

# Minimum height of the view to show each, in pixels; for the chips, without them and the sentence.
_DRAWING_FROM, _SUGGESTIONS_FROM, _CHIPS_FROM, _OFFER_FROM = 560, 240, 292, 220
_SIDES = 48  # pixels, both margins


class Drawing(QWidget):
    """The bonsai illustration, recoloured for the theme."""

    WIDTH, HEIGHT = 280, 216

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._picture = QPixmap()
        self.setFixedSize(self.WIDTH, self.HEIGHT)
        self.setAccessibleName(tr("A bonsai in an alcove"))
        follow_palette(self._recolor)

    def _recolor(self, palette: Palette) -> None:
        self._picture = QPixmap()

    def paintEvent(self, event: QPaintEvent) -> None:
        ratio = self.devicePixelRatioF()
        if self._picture.isNull() or self._picture.devicePixelRatio() != ratio:
            drawing = recolored(icons.source("bonsai.svg"), shown_palette())
            self._picture = icons.render(drawing, self.WIDTH, self.HEIGHT, ratio)
        painter = QPainter(self)
        painter.drawPixmap(0, 0, self._picture)
        painter.end()


class EmptyView(QWidget):
    """Shows the model with suggested prompts or, without a model, how to open one."""

    suggested = Signal(str)
    open_requested = Signal()
    browse_requested = Signal()
    elsewhere_requested = Signal()  # the connections
    folder_left = Signal()  # the new chat is to begin in no folder

    def __init__(
        self,
        state: State,
        library: LibraryState,
        presets: PresetState,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._state = state
        self.chips = PresetChips(presets)
        self._no_model, self._elsewhere = True, False
        self.drawing = Drawing()
        self.name = label("", "", HEADING)
        self.name.setFont(font(HEADING, QFont.Weight.Medium))
        self.facts = label("", "secondary")
        self.facts.setFont(figures(BODY))
        self.sentence = label("", "secondary", READING)
        self.place = label("", "secondary")
        self.leave_button = TextButton(tr("Begin it without a folder"), "link")
        self.leave_button.clicked.connect(self.folder_left)
        for line in (self.name, self.facts, self.sentence, self.place):
            line.setAlignment(Qt.AlignmentFlag.AlignHCenter)
            line.setWordWrap(True)
        self.suggestions = [TextButton(tr(text), "suggestion") for text in SUGGESTIONS]
        self.better = BetterModelLine(state, library)
        self.better_row = QWidget()  # hidden beside a model that this computer does not run
        row = QVBoxLayout(self.better_row)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.better)
        self.browse_button = TextButton(tr("Browse models…"), "suggestion", "library")
        self.browse_button.clicked.connect(self.browse_requested)
        self.open_button = TextButton(tr("Open a model file…"), "suggestion", "folder")
        self.open_button.clicked.connect(self.open_requested)
        self.elsewhere_button = TextButton(
            tr("Use a model that runs elsewhere…"), "suggestion", "server"
        )
        self.elsewhere_button.clicked.connect(self.elsewhere_requested)
        self._for_no_model = (self.browse_button, self.open_button, self.elsewhere_button)
        self._lay_out()
        state.model_changed.connect(self.refresh)
        state.chat_model_changed.connect(self.refresh)
        state.folders_changed.connect(self._show_place)
        state.new_folder_changed.connect(self._show_place)
        self.refresh()
        self._show_place()

    def _lay_out(self) -> None:
        layout = QVBoxLayout(self)
        layout.setContentsMargins(24, 16, 24, 16)
        layout.setSpacing(0)
        layout.addStretch(3)
        layout.addWidget(self.drawing, 0, Qt.AlignmentFlag.AlignHCenter)
        layout.addSpacing(24)
        layout.addWidget(self.name)
        layout.addWidget(self.facts)
        layout.addSpacing(8)
        layout.addWidget(self.sentence)
        layout.addWidget(self.place)
        layout.addWidget(self.leave_button, 0, Qt.AlignmentFlag.AlignHCenter)
        self._buttons = QWidget()  # hidden with all that is in it, and the room between
        column = QVBoxLayout(self._buttons)
        column.setContentsMargins(0, 24, 0, 8)
        column.setSpacing(8)
        for button in (*self.suggestions, *self._for_no_model):
            button.setFont(font(BODY))
            column.addWidget(button, 0, Qt.AlignmentFlag.AlignHCenter)
        layout.addWidget(self._buttons)
        for button in self.suggestions:
            button.clicked.connect(partial(self._suggest, button.text()))
        layout.addSpacing(8)
        layout.addWidget(self.chips)
        layout.addSpacing(8)
        layout.addWidget(self.better_row)
        layout.addStretch(4)

    def _suggest(self, text: str) -> None:
        self.suggested.emit(text)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_height()

    def refresh(self) -> None:
        """Show the model of the chat, if it is elsewhere, or the one in use."""
        state = self._state
        chat_model, model = state.chat_model, state.model
        elsewhere = chat_model is not None and isinstance(chat_model.model, Remote)
        no_model = not elsewhere and model.phase in (ModelPhase.NONE, ModelPhase.FAILED)
        some = any(not file.bad for file in state.installed)
        if chat_model is not None and elsewhere:  # the line below the composer says where words go
            self.name.setText(chat_model.name)
            self._show_facts(self._place(chat_model), "")
        else:
            none = tr("No model loaded") if some else tr("No model yet")
            self.name.setText(none if no_model else model.name)
            self._show_facts(_facts(model), _sentence(model, some))
        self._no_model, self._elsewhere = no_model, elsewhere
        for button in self._for_no_model:
            button.setVisible(no_model)
        self._fit_height()

    def _show_facts(self, facts: str, sentence: str) -> None:
        for line, words in ((self.facts, facts), (self.sentence, sentence)):
            line.setText(words)
            line.setVisible(bool(words))

    def _place(self, model: ChatModel) -> str:
        """The connection of a model elsewhere, and its context."""
        served = (each.server for each in self._state.served if each.model == model.model)
        context = trn("{count} token", "{count} tokens", model.context) if model.context else ""
        return " · ".join(filter(None, (isolated(next(served, "")), context)))

    def _show_place(self) -> None:
        """Show the folder in which the new chat begins."""
        state = self._state
        name = path_text(state.folders, state.new_folder)
        self.place.setText(tr("This chat begins in the folder “{name}”.", name=name))
        self.place.setVisible(bool(name))
        self.leave_button.setVisible(bool(name))

    def _fit_height(self) -> None:
        """Hide the illustration, the suggestions, then the offer, where there is no room for them."""
        height = self.height()
        self.drawing.setVisible(height >= _DRAWING_FROM)
        for button in self.suggestions:
            button.setVisible(not self._no_model and height >= _SUGGESTIONS_FROM)
        self._buttons.setVisible(self._no_model or height >= _SUGGESTIONS_FROM)
        self.better_row.setVisible(not self._elsewhere and height >= _OFFER_FROM)
        width = self.width() - _SIDES
        wrapped = self.sentence.heightForWidth(width) + self.chips.heightForWidth(width)
        self.chips.setVisible(not self._no_model and height >= _CHIPS_FROM + wrapped)


def _facts(model: ModelStatus) -> str:
    """Quantization and size of the loaded model."""
    loaded = model.loaded if model.phase is ModelPhase.READY else None
    if loaded is None:
        return ""
    amount = size(loaded.file_bytes) if loaded.file_bytes else ""
    return " · ".join(part for part in (loaded.format, amount) if part)


def _sentence(model: ModelStatus, some: bool) -> str:
    """What to do or to know; `some`: there are models that can be chosen."""
    match model.phase:
        case ModelPhase.NONE | ModelPhase.FAILED if some:
            return tr("Choose one above, or get one that suits this computer.")
        case ModelPhase.NONE | ModelPhase.FAILED:
            return tr("Get one that suits this computer, or drop a file on this window.")
        case ModelPhase.LOADING:
            return tr("Loading… You can start typing.")
        case ModelPhase.READY if model.loaded and model.loaded.base:
            return tr("This model continues text; it was not made to chat.")
        case ModelPhase.READY:
            return tr("Runs on this computer. Nothing you write leaves it.")
