"""List of saved prompts and presets above the message field, opened by "/" in an empty field.

A new chat gets the chosen preset; in another chat its instructions are inserted, as a prompt is.
The focus stays in the field, where typing filters the list. It is open only after a typed "/", and
only while something matches: a pasted or typed path is text like any other.
"""

from __future__ import annotations

from datetime import datetime

from PySide6.QtCore import QEvent, QObject, QPoint, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QListWidget, QListWidgetItem, QVBoxLayout, QWidget

from app.domain.chat import Preset
from app.domain.snippet import Snippet, has_words, matching
from app.domain.variables import resolved
from app.state.states import States
from app.system.translation import isolated, tr
from app.ui.chat.composer import Composer
from app.ui.theme.palette import LIGHT, Palette
from app.ui.theme.theme import BODY, RADIUS_CARD, font
from app.ui.widgets import accessibility
from app.ui.widgets.controls import TextButton

_MOST_ROWS = 7  # shown at once; more scroll
_ROW_HEIGHT = 32
_PREVIEW = 120  # characters of a text beside its name
SLASHES = ("/", "\uff0f")  # the second one is of Chinese and Japanese input methods


class PromptList(QFrame):
    """Shows what matches; Up and Down choose, Enter and Tab use the choice, Escape closes."""

    preset_chosen = Signal(object)  # its id, for the new chat
    manage_requested = Signal()

    def __init__(self, states: States, composer: Composer, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("prompts")
        self._chat, self._snippets, self._presets = states.chat, states.snippets, states.presets
        self._composer = composer
        self._found: list[Snippet | Preset] = []  # the rows
        self._palette = LIGHT
        self._is_wanted = False  # a "/" was typed, and neither Escape nor another text ended it
        self.list = QListWidget()
        self.list.setAccessibleName(tr("Saved prompts and presets"))
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.list.setFont(font(BODY))
        self.list.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setUniformItemSizes(True)
        self.list.itemClicked.connect(self._use)
        self.manage = TextButton(tr("Manage saved prompts…"), "link")
        self.manage.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.manage.clicked.connect(self._manage)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(8, 8, 8, 8)
        layout.setSpacing(4)
        layout.addWidget(self.list)
        layout.addWidget(self.manage, 0, Qt.AlignmentFlag.AlignLeading)
        self.hide()
        editor = composer.editor
        editor.slash_typed.connect(self._open)
        # Not `textChanged`, which is blocked where the composer is emptied.
        editor.document().contentsChanged.connect(self._follow)
        editor.focused.connect(self._on_focus)
        editor.installEventFilter(self)
        composer.installEventFilter(self)
        self._snippets.changed.connect(self._follow)
        self._presets.changed.connect(self._follow)
        self._chat.conversation_changed.connect(self._follow)

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self._palette = palette
        line = 2 if palette.hairline == palette.text else 1
        self.setStyleSheet(
            f"QFrame#prompts {{ background: {palette.surface}; border: {line}px solid"
            f" {palette.hairline}; border-radius: {RADIUS_CARD}px; }}"
            f"QListWidget {{ background: transparent; border: none; color: {palette.text}; }}"
            f"QListWidget::item {{ height: {_ROW_HEIGHT}px; padding: 0 8px; border-radius: 6px; }}"
            f"QListWidget::item:selected {{ background: {palette.accent_soft};"
            f" color: {palette.text}; }}"
        )

    def close_list(self) -> None:
        """Hide the list until the next "/" in an empty field."""
        self._is_wanted = False
        self.hide()

    def _open(self) -> None:
        self._is_wanted = True
        self._follow()

    def _follow(self) -> None:
        """Show what matches the text behind the "/"."""
        text = self._composer.editor.text()
        if not self._is_wanted or not text.startswith(SLASHES) or "\n" in text:
            self.close_list()
            return
        self._found = found = [
            *matching(self._snippets.snippets, text[1:]),
            *self._usable(text[1:]),
        ]
        self.list.clear()
        for each in found:
            item = QListWidgetItem(isolated(self._words(each)))
            item.setToolTip(_text(each)[:1000])
            self.list.addItem(item)
        self.list.setVisible(bool(found))
        if found or len(text) == 1:
            self._place()
            self.show()
            self.raise_()
        else:
            self.hide()  # "/usr/bin": shown again when something matches
        if found:
            self._choose(0)  # announced only in a shown list

    def _place(self) -> None:
        """Above the message field, and as wide."""
        composer, parent = self._composer, self.parentWidget()
        if parent is None:
            return
        rows = min(self.list.count(), _MOST_ROWS)
        self.list.setFixedHeight(rows * _ROW_HEIGHT + 2)
        top = composer.mapTo(parent, QPoint(0, 0))
        height = self.sizeHint().height()
        self.setGeometry(top.x(), max(top.y() - height - 6, 0), composer.width(), height)

    def _choose(self, row: int) -> None:
        self.list.setCurrentRow(row)
        if self.isVisible():
            accessibility.announce(self._composer.editor, self.list.item(row).text())

    def _usable(self, query: str) -> list[Preset]:
        """The presets named so that would change something here."""
        is_new, used = self._chat.current is None, self._presets.use.shown
        return [
            each
            for each in self._presets.presets
            if has_words(each.name, query) and (each.id != used if is_new else _text(each).strip())
        ]

    def _words(self, found: Snippet | Preset) -> str:
        """A row: a prompt, or what becomes of a preset in the shown chat."""
        if isinstance(found, Snippet):
            return _words(found)
        if self._chat.current is not None:
            words = tr("Insert the instructions of “{name}”", name=found.name)
        else:
            words = tr("Use the preset “{name}”", name=found.name)
        return f"{words} — {found.description}" if found.description else words

    def _use(self, item: QListWidgetItem) -> None:
        found = self._found[self.list.row(item)]
        self.close_list()
        if isinstance(found, Snippet):
            self._composer.replace_text(found.text)
        elif self._chat.current is not None:  # a message has no variables
            self._composer.replace_text(resolved(_text(found), datetime.now()))
        else:
            self._composer.replace_text("")
            self.preset_chosen.emit(found.id)

    def _manage(self) -> None:
        self.close_list()
        self._composer.replace_text("")
        self.manage_requested.emit()

    def _on_focus(self, focused: bool) -> None:
        # The field keeps the focus of a window that is not in front.
        if not focused and self.window().focusWidget() is not self._composer.editor:
            self.close_list()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._composer and event.type() in (QEvent.Type.Resize, QEvent.Type.Move):
            if self.isVisible():
                self._place()
        elif self.isVisible() and event.type() == QEvent.Type.KeyPress:
            return isinstance(event, QKeyEvent) and self._takes(event)
        return super().eventFilter(watched, event)

    def _takes(self, event: QKeyEvent) -> bool:
        """Whether a key in the field is for the list; all others type."""
        if self._composer.editor.composing:
            return False
        count, row = self.list.count(), self.list.currentRow()
        match event.key():
            case Qt.Key.Key_Escape:
                self.close_list()
                return True
            case Qt.Key.Key_Down | Qt.Key.Key_Up if count:
                step = 1 if event.key() == Qt.Key.Key_Down else -1
                self._choose((row + step) % count)
                return True
            case Qt.Key.Key_Return | Qt.Key.Key_Enter | Qt.Key.Key_Tab if count:
                if event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier:
                    return False
                self._use(self.list.item(row))
                return True
            case _:
                return False


def _text(found: Snippet | Preset) -> str:
    return found.text if isinstance(found, Snippet) else found.settings.instructions or ""


def _words(snippet: Snippet) -> str:
    """The name and the beginning of the text, unless the name is that beginning."""
    begin = " ".join(snippet.text[: 2 * _PREVIEW].split())[:_PREVIEW]
    is_begin = begin.casefold().startswith(snippet.name.rstrip("…").casefold())
    return begin if is_begin else f"{snippet.name} — {begin}"
