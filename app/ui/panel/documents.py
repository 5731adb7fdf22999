"""Documents section of the panel: the collections that the chat is answered from."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout

from app.state.chat_settings import ShownSettings
from app.state.collection_words import state_words
from app.state.collections import CollectionsState
from app.system.translation import tr
from app.ui.panel.section import Section, note
from app.ui.widgets.controls import TextButton, align_text_at_start
from app.ui.widgets.switch_row import SwitchRow


class DocumentsSection(Section):
    """A switch for each collection."""

    manage_requested = Signal()

    def __init__(self, state: CollectionsState) -> None:
        super().__init__("collections")
        self._state = state
        self._chosen: tuple[int, ...] = ()
        self.rows: dict[int, SwitchRow] = {}  # by collection
        self._rows = QVBoxLayout()
        self._rows.setSpacing(0)
        self.words = note(
            tr("Passages of these folders and files that fit are read with each question.")
        )
        self.manage_button = TextButton(tr("Collections…"), "link")
        align_text_at_start(self.manage_button)
        foot = QHBoxLayout()
        foot.addWidget(self.manage_button)
        foot.addStretch(1)
        self.body.addWidget(self.words)
        self.body.addLayout(self._rows)
        self.body.addLayout(foot)
        self.manage_button.clicked.connect(self.manage_requested)
        state.changed.connect(self.refresh)
        state.views_changed.connect(self.refresh)
        self.refresh()

    def show_settings(self, shown: ShownSettings) -> None:
        """Show which collections the chat uses."""
        self._chosen = shown.settings.collections
        self.refresh()

    def refresh(self) -> None:
        """Show the collections of the state."""
        shown = self._state.collections
        if list(self.rows) != [each.id for each in shown]:
            for row in self.rows.values():
                self._rows.removeWidget(row)
                row.hide()
                row.deleteLater()
            self.rows = {each.id: SwitchRow(each.name) for each in shown}
            for id, row in self.rows.items():
                row.switched.connect(partial(self._switch, id))
                self._rows.addWidget(row)
            self.marked = tuple(row.switch for row in self.rows.values())
        for each in shown:
            words = state_words(each, self._state.view(each.id))
            self.rows[each.id].show_state(each.name, words, on=each.id in self._chosen)

    def _switch(self, id: int, on: bool) -> None:
        kept = tuple(each for each in self._chosen if each != id)
        self.edit(collections=(*kept, id) if on else kept)
