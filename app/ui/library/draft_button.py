"""Button that chooses the draft model of a model, from the installed ones that suit it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QMenu

from app.system.translation import tr
from app.ui.widgets.controls import TextButton, icon_after_text, label
from app.ui.widgets.menus import new_menu, popup_below
from engine import model_label

_WIDTH = 200
_MENU_WIDTH = 320


class DraftButton(TextButton):
    """Opens a menu of models; hidden with its words where there is nothing to choose."""

    picked = Signal(object)  # Path, or None for none

    def __init__(self) -> None:
        super().__init__("", "outlined", "chevron_down")
        self._models: Sequence[tuple[Path, str]] = ()
        self._current: Path | None = None
        self.words = label(tr("Guess words with"))
        self.words.setBuddy(self)
        icon_after_text(self)
        self.setFixedWidth(_WIDTH)
        tip = tr(
            "A small model of the same family guesses the next words, and this one checks several at "
            "once: answers stay the same and come faster where the guesses are good."
        )
        self.setToolTip(tip)
        self.words.setToolTip(tip)
        self.clicked.connect(self._open)

    def show_choice(self, models: Sequence[tuple[Path, str]], current: Path | None) -> None:
        """Offer these models, with their names; `current` is the chosen one."""
        self._models, self._current = models, current
        words = tr("No model") if current is None else self._words_of(current)
        room = _WIDTH - 52
        self.setText(self.fontMetrics().elidedText(words, Qt.TextElideMode.ElideMiddle, room))
        self.setAccessibleName(tr("{setting}: {value}", setting=self.words.text(), value=words))
        for part in (self, self.words):
            part.setVisible(bool(models) or current is not None)

    def menu_of_models(self) -> QMenu:
        """The menu that a click opens."""
        menu = new_menu(self.window())
        known = [path for path, _ in self._models]
        gone = [self._current] if self._current not in (None, *known) else []
        for path in (None, *known, *gone):
            words = tr("No model") if path is None else self._words_of(path)
            shown = menu.fontMetrics().elidedText(words, Qt.TextElideMode.ElideMiddle, _MENU_WIDTH)
            action = menu.addAction(shown, partial(self.picked.emit, path))
            action.setCheckable(True)
            action.setChecked(path == self._current)
        return menu

    def _words_of(self, path: Path) -> str:
        return dict(self._models).get(path) or model_label(path)

    def _open(self) -> None:
        popup_below(self.menu_of_models(), self)
