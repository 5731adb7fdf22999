"""Content of the panel: the sections, one below the other, and the settings that they change."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QEvent, QPoint, Qt, Signal
from PySide6.QtGui import QFont, QResizeEvent
from PySide6.QtWidgets import (
    QApplication,
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.domain.chat_settings import NO_SETTINGS, PARTS, ChatSettings, changed_parts, with_parts
from app.state.states import States
from app.system.translation import listed, tr
from app.ui.chat.composer.settings_words import part_name
from app.ui.panel.adapters import AdapterSection
from app.ui.panel.choices import FormatSection, PolicySection, ThinkingSection
from app.ui.panel.documents import DocumentsSection
from app.ui.panel.instructions import InstructionsSection
from app.ui.panel.model import ModelSection
from app.ui.panel.sampling import SamplingSection
from app.ui.panel.section import Section
from app.ui.panel.stop_texts import StopSection
from app.ui.panel.tools import ToolsSection
from app.ui.settings.fields import segments_style
from app.ui.theme.palette import Palette, follow_palette
from app.ui.theme.theme import READING, SMALL, font
from app.ui.widgets.controls import IconButton, TextButton, label, set_margins, set_property

_LARGEST_FILE = 1 << 20  # bytes: what the engine accepts


class _Area(QScrollArea):
    """Scrolls up and down only: its rows are never wider than it is."""

    def __init__(self, rows: QWidget) -> None:
        super().__init__()
        self.rows = rows
        self.setWidget(rows)
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.rows.setMaximumWidth(self.viewport().width())
        super().resizeEvent(event)


class PanelContent(QWidget):
    """Shows the settings of the shown chat; emits those that the user changes."""

    changed = Signal(object)  # ChatSettings of the shown chat
    left = Signal(object, object)  # the chat shown before, and its ChatSettings: typed until then
    refused = Signal(str)  # a sentence: a file that cannot be read
    closed = Signal()

    def __init__(self, states: States) -> None:
        super().__init__()
        self._states, self._state = states, states.chat
        self._shown: int | None = self._state.current  # the chat
        self._begun: dict[int, ChatSettings] = {}  # what answers in progress began with
        self._undo: tuple[int | None, ChatSettings, ChatSettings] | None = None  # of a reset:
        # the chat, its settings before, and after
        self.title = label(tr("Chat settings"), "", READING, wraps=True)
        self.title.setFont(font(READING, QFont.Weight.Medium))
        self.reset_button = TextButton(tr("Reset all"), "link")
        self.undo_button = TextButton(tr("Undo reset"), "link")
        self.close_button = IconButton("close", tr("Close the chat settings"))
        self.model = ModelSection(self._state)
        self.instructions = InstructionsSection(self._state, states.chat_settings)
        self.sampling = SamplingSection()
        self.stop = StopSection()
        self.format = FormatSection()
        self.thinking = ThinkingSection()
        self.policy = PolicySection()
        self.adapters = AdapterSection(self._state, states.adapters)
        self.documents = DocumentsSection(states.collections)
        self.tools = ToolsSection(states.tools, states.tool_servers)
        self.sections: dict[str, Section] = {
            section.part: section
            for section in (
                self.model,
                self.instructions,
                self.tools,
                self.documents,
                self.sampling,
                self.stop,
                self.format,
                self.thinking,
                self.policy,
                self.adapters,
            )
        }
        self.note = label("", "secondary", SMALL, wraps=True)
        self.note.setObjectName("panel_note")
        self.note.setIndent(0)
        self._filler = QWidget()  # room below the last section
        self._lay_out()
        self._connect()
        for section in self.sections.values():
            section.restore(states.chat_settings.shown)
        self._on_generations()
        self.refresh()
        follow_palette(self._recolor)

    def _lay_out(self) -> None:
        head = QHBoxLayout()
        set_margins(head, 16, 12, 8, 8)
        head.setSpacing(4)
        head.addWidget(self.title, 1)
        for button in (self.undo_button, self.reset_button, self.close_button):
            head.addWidget(button)
        rows = QWidget()
        rows.setObjectName("panel_rows")
        inner = QVBoxLayout(rows)
        inner.setContentsMargins(0, 0, 0, 12)
        inner.setSpacing(0)
        for place, section in enumerate(self.sections.values()):
            section.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
            section.setObjectName("section" if place else "first_section")
            inner.addWidget(section)
        inner.addStretch(1)
        inner.addWidget(self._filler)
        self.area = _Area(rows)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(head)
        layout.addWidget(self.area, 1)
        layout.addWidget(self.note)
        self.note.setContentsMargins(16, 8, 16, 12)

    def _connect(self) -> None:
        state = self._state
        self.close_button.clicked.connect(self.closed)
        self.reset_button.clicked.connect(self._reset_marked)
        self.undo_button.clicked.connect(self._undo_reset)
        for section in self.sections.values():
            section.edited.connect(self._edit)
            section.reset_requested.connect(partial(self._reset, frozenset({section.part})))
        self.adapters.reached.connect(self._show_row)
        self.adapters.noted.connect(self._show_note)
        self.format.field.file_requested.connect(self._open_file)
        self._states.chat_settings.changed.connect(self.refresh)
        state.conversation_changed.connect(self.refresh)
        state.generations_changed.connect(self._on_generations)
        state.capabilities_changed.connect(self._show_capabilities)
        self._show_capabilities()

    # --- called by the panel --------------------------------------------------------------------

    def refresh(self) -> None:
        """Show the settings of the state, and what of them differs."""
        shown = self._states.chat_settings.shown
        if self._shown != self._state.current:
            self.finish()
            self._shown = self._state.current
            for section in self.sections.values():
                section.restore(shown)
        changed = shown.changed
        for part, section in self.sections.items():
            section.show_settings(shown)
            section.show_changed(part in changed)
        self.reset_button.setVisible(bool(changed))
        names = listed(part_name(part) for part in PARTS if part in changed)
        self.reset_button.setToolTip(tr("Resets: {parts}", parts=names) if changed else "")
        self.undo_button.setVisible(self._can_undo())
        self._show_note()

    def finish(self) -> None:
        """Emit what is typed but not committed."""
        for section in self.sections.values():
            section.finish()

    def reveal(self, part: str) -> None:
        """Scroll to a section and give it the keyboard focus; "": to the top."""
        rows, top, room = self.area.rows, 0, 0
        self._settle()
        if part:
            section = self.sections[part]
            section.setFocus(Qt.FocusReason.OtherFocusReason)
            top = section.mapTo(rows, QPoint()).y()
            room = self.area.viewport().height() - (rows.height() - self._filler.height() - top)
        self._filler.setFixedHeight(max(room, 0))
        self._settle()
        self.area.verticalScrollBar().setValue(top)

    def _settle(self) -> None:
        """Lay the rows out now."""
        for widget in (self, self.area.rows):
            layout = widget.layout()
            assert layout is not None
            layout.activate()
        QApplication.sendEvent(self.area, QEvent(QEvent.Type.LayoutRequest))  # it scrolls as far

    def _recolor(self, palette: Palette) -> None:
        self.setStyleSheet(_style(palette))

    def load_format(self, path: Path) -> None:
        """Take the description of the format from a file."""
        try:
            if path.stat().st_size > _LARGEST_FILE:
                self.refused.emit(tr("{file} is too large for an answer format.", file=path.name))
                return
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else tr("it is not a text file")
            sentence = tr("{file} cannot be read: {reason}.", file=path.name, reason=reason)
            self.refused.emit(sentence)
            return
        self.format.field.set_file(text)

    # --- changes --------------------------------------------------------------------------------

    def _edit(self, values: dict[str, Any]) -> None:
        """Change fields of the settings of the chat that the sections show."""
        chat, state = self._shown, self._state
        settings = replace(state.settings(chat), **values)
        if chat == state.current:
            self.changed.emit(settings)
        elif chat is None or state.conversation(chat) is not None:  # else it is deleted
            self.left.emit(chat, settings)

    def _reset_marked(self) -> None:
        """Reset what is marked; a model that is not, since it is loaded, stays the chat's."""
        self.finish()
        self._reset(self._states.chat_settings.shown.changed)

    def _reset(self, parts: frozenset[str]) -> None:
        self.finish()
        chat = self._state.current
        before = self._state.settings(chat)
        after = with_parts(before, NO_SETTINGS, parts)
        focused = self.reset_button.hasFocus()
        self._undo = chat, before, after
        self.changed.emit(after)
        if focused:
            self.undo_button.setFocus(Qt.FocusReason.OtherFocusReason)

    def _undo_reset(self) -> None:
        if self._undo is not None and self._can_undo():
            _, before, _ = self._undo
            self._undo = None
            self.changed.emit(before)

    def _can_undo(self) -> bool:
        """Whether the last change of the shown chat was a reset."""
        if self._undo is None:
            return False
        chat, _, after = self._undo
        return chat == self._state.current and after == self._state.settings(chat)

    def _show_row(self, row: QWidget) -> None:
        self.area.ensureWidgetVisible(row, 0, 24)

    def _open_file(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self.window(), tr("Open a file"))
        if path:
            self.load_format(Path(path))

    # --- the state ------------------------------------------------------------------------------

    def _show_capabilities(self) -> None:
        capabilities = self._state.capabilities
        self.adapters.setVisible(capabilities.shows("adapters"))
        for section in (self.sampling, self.format, self.policy, self.thinking):
            section.show_capabilities(capabilities)

    def _on_generations(self) -> None:
        """Remember what the answers in progress began with."""
        state, before = self._state, self._begun
        busy = state.busy_conversations
        self._begun = {chat: before.get(chat, state.settings(chat)) for chat in busy}
        self._show_note()

    def _show_note(self) -> None:
        """Say at the foot of the panel, where it shifts no other widget, when changes apply."""
        words, chat = self.adapters.note, self._state.current
        begun = None if chat is None else self._begun.get(chat)
        now = self._state.settings(chat)
        if begun is not None and begun.model is None:  # the chat takes it from its first answer
            begun = replace(begun, model=now.model)
        if not words and begun is not None and changed_parts(now, begun):
            words = tr("Takes effect with the next answer.")
        set_property(self.note, "tone", "danger" if self.adapters.is_fault else "secondary")
        self.note.setText(words)
        self.note.setVisible(bool(words))


def _style(p: Palette) -> str:
    """The style sheet of the sections, for one palette."""
    line = 2 if p.hairline == p.text else 1
    return f"""
QScrollArea, QWidget#panel_rows {{ background: transparent; border: none; }}
QWidget#section {{ background: transparent; border: none; border-top: {line}px solid {p.hairline}; }}
QLabel#panel_note {{ border-top: {line}px solid {p.hairline}; }}
{segments_style(p)}
QFrame#segments {{ background: {p.background}; }}
QFrame#area {{
    background: {p.surface}; border: {line}px solid {p.hairline}; border-radius: 6px;
}}
QFrame#area[focused="true"] {{ border-color: {p.accent}; }}
QFrame#area[wrong="true"] {{ border-color: {p.danger}; }}
QLineEdit[wrong="true"], QLineEdit[wrong="true"]:focus {{ border-color: {p.danger}; }}
"""
