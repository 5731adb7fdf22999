"""Opens the card of answer options over the window, and shows in the composer what it changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from app.domain.chat_settings import AnswerFormat
from app.settings.samplers import Thinking
from app.state.chat_settings import ChatSettingsState
from app.system.translation import tr
from app.ui.chat.composer import Composer
from app.ui.theme.palette import LIGHT, Palette
from app.ui.widgets.popover import Popover

if TYPE_CHECKING:
    from app.ui.panel.card import OptionsCard

_LARGEST_FILE = 1 << 20  # bytes: what the engine accepts


class AnswerOptionsView(QObject):
    """The button and the chip of the composer, and the card, which is made when first opened."""

    changed = Signal(object)  # ChatSettings
    refused = Signal(str)  # a sentence: a file that cannot be read

    def __init__(self, state: ChatSettingsState, composer: Composer, parent: QWidget) -> None:
        super().__init__(parent)
        self.state, self._composer, self._page = state, composer, parent
        self._palette = LIGHT
        self.card: OptionsCard | None = None
        self.popover: Popover | None = None
        composer.options_button.clicked.connect(self.open)
        composer.chip.opened.connect(self.open)
        composer.chip.cleared.connect(self._clear_format)
        state.changed.connect(self._show)
        self._show()

    def open(self) -> None:
        """Open the card."""
        if self.card is None or self.popover is None:
            from app.ui.panel.card import CARD_WIDTH, OptionsCard

            self.card = card = OptionsCard(self.state)
            window, name = self._page.window(), tr("Answers in this chat")
            self.popover = Popover(window, card, CARD_WIDTH, name)
            card.changed.connect(self.changed)
            card.closed.connect(self.popover.close_card)
            card.resized.connect(self._centre)
            card.format.file_requested.connect(self._open_file)
            self.popover.closed.connect(card.finish)
            self.apply_palette(self._palette)
        self.popover.open_centred()

    def fit(self) -> None:
        """The window has another size."""
        if self.popover is not None and not self.popover.isHidden():
            self.popover.fit()

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self._palette = palette
        if self.card is not None and self.popover is not None:
            self.card.apply_palette(palette)
            self.popover.apply_palette(palette)

    # --- steps ----------------------------------------------------------------------------------

    def _show(self) -> None:
        state = self.state
        self._composer.chip.show_options(state.settings, state.shown.fault)
        options = state.settings
        changed = len(options.sampling) + (options.thinking is not Thinking.USUAL)
        self._composer.show_options_changed(changed)

    def _clear_format(self) -> None:
        self.changed.emit(self.state.settings.with_format(AnswerFormat.FREE))

    def _centre(self) -> None:
        if self.popover is not None and not self.popover.isHidden():
            self.popover.centre()

    def _open_file(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self._page.window(), tr("Open a file"))
        if path:
            self.load(Path(path))

    def load(self, path: Path) -> None:
        """Take the description of the format from a file."""
        if self.card is None:
            return
        try:
            if path.stat().st_size > _LARGEST_FILE:
                self.refused.emit(tr("{file} is too large for an answer format.", file=path.name))
                return
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else tr("it is no text")
            sentence = tr("{file} cannot be read: {reason}.", file=path.name, reason=reason)
            self.refused.emit(sentence)
            return
        self.card.format.set_file(text)
