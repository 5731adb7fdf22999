"""Model section of the panel: which model answers in this chat, and where it is."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QMenu, QSizePolicy

from app.domain.chat_settings import ChatSettings
from app.domain.model_ref import Local, ModelRef
from app.state.chat import ModelFile, ModelPhase, State
from app.state.chat_settings import ShownSettings
from app.system.translation import isolated, tr
from app.ui.panel.section import Section
from app.ui.theme.theme import SMALL
from app.ui.widgets.controls import TextButton, icon_after_text, label
from app.ui.widgets.menus import new_menu, popup_below

_PADDING = 56  # pixels of the button beside its words


class ModelSection(Section):
    """A button with a menu of the installed models, and of those elsewhere."""

    elsewhere_requested = Signal()  # the connections

    def __init__(self, state: State) -> None:
        super().__init__("model")
        self._state, self._settings = state, ChatSettings()
        self._words = ""
        self.button = TextButton("", "outlined", "chevron_down")
        icon_after_text(self.button)
        self.button.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.button.clicked.connect(self._open)
        self.line = label("", "secondary", SMALL, wraps=True)
        self.marked = (self.button,)
        self.body.addWidget(self.button)
        self.body.addWidget(self.line)
        state.model_changed.connect(self._show)
        state.chat_model_changed.connect(self._show)

    def show_settings(self, shown: ShownSettings) -> None:
        """Show the model of the chat."""
        self._settings = shown.settings
        self._show()

    def menu_of_models(self) -> QMenu:
        """The menu that a click opens."""
        menu = new_menu(self)
        chosen, names = self._settings.model, self._names()
        choices: list[tuple[str, ModelRef | None]] = [(tr("The model in use"), None)]
        choices += [(name, Local(path)) for path, name in names.items()]
        choices += [(f"{each.name} · {each.server}", each.model) for each in self._state.served]
        if chosen is not None and chosen not in [model for _, model in choices]:
            choices.append((self._name_of(chosen, names), chosen))
        for words, model in choices:
            action = menu.addAction(words.replace("&", "&&"), partial(self.edit, model=model))
            action.setCheckable(True)
            action.setChecked(model == chosen)
            if model is None and len(choices) > 1:
                menu.addSeparator()
        menu.addSeparator()
        menu.addAction(tr("Use a model that runs elsewhere…"), self.elsewhere_requested.emit)
        return menu

    # --- steps ----------------------------------------------------------------------------------

    def _show(self) -> None:
        chosen = self._settings.model
        names = self._names()
        asked = self._state.chat_model  # unless it is in use
        missing = asked.missing if asked is not None and asked.model == chosen else ""
        self._words = tr("The model in use") if chosen is None else self._name_of(chosen, names)
        self.button.setAccessibleName(
            tr("{setting}: {value}", setting=self.heading.text(), value=self._words)
        )
        self.button.setToolTip(str(chosen.path) if isinstance(chosen, Local) else "")
        status = self._state.model
        if missing:
            words = missing
        elif asked is not None and asked.model == chosen and asked.server:
            words = tr("It runs on {server}.", server=isolated(asked.server))
        elif status.phase is ModelPhase.LOADING:
            words = tr("{name} is being loaded.", name=status.full_name)
        elif status.phase is not ModelPhase.READY:
            words = tr("No model is loaded.")
        elif chosen is not None and chosen == status.model:
            words = tr("It is loaded.")
        else:
            words = tr("{name} is loaded.", name=status.full_name)
        self.line.setText(words)
        self._fit()

    def _names(self) -> dict[Path, str]:
        """The usable models, with the format of those that share a name."""
        usable = [file for file in self._state.installed if not file.bad]
        count = Counter(file.name for file in usable)

        def words(file: ModelFile) -> str:
            is_shared = count[file.name] > 1 and file.format
            return f"{file.name} · {file.format}" if is_shared else file.name

        return {file.path: words(file) for file in usable}

    def _name_of(self, model: ModelRef, names: dict[Path, str]) -> str:
        found = names.get(model.path) if isinstance(model, Local) else None
        return found or self._state.model_name(model)

    def _open(self) -> None:
        popup_below(self.menu_of_models(), self.button)

    def _fit(self) -> None:
        room, middle = self.button.width() - _PADDING, Qt.TextElideMode.ElideMiddle
        self.button.setText(self.button.fontMetrics().elidedText(self._words, middle, room))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()
