"""Format field: chooses what answers have to be, and describes it in a checked text."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QColor, QFocusEvent, QTextCharFormat, QTextCursor, QTextFormat
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QPlainTextEdit,
    QSizePolicy,
    QTextEdit,
    QVBoxLayout,
    QWidget,
)

from app.domain.chat_settings import KINDS, WITH_TEXT, AnswerFormat, ChatSettings
from app.engines.capabilities import Capabilities
from app.settings.table import Setting
from app.state.chat_settings import FormatFault
from app.system.translation import tr
from app.ui.chat.composer.format_words import example, full_name, help_text
from app.ui.settings.fields import ChoiceButton
from app.ui.theme.palette import Palette, follow_palette, shown_palette
from app.ui.theme.theme import SMALL, code_font
from app.ui.widgets.controls import TextButton, align_text_at_end, label, set_margins, set_property
from app.ui.widgets.plain_text import PlainTextField

_DEBOUNCE_MILLISECONDS = 350
_LINES = 8
_ALPHA, _STRONG_ALPHA = 40, 120  # of the mark of a faulty line; the second in high contrast


class _Editor(PlainTextField):
    """Plain-text editor in the code font; Tab leaves it."""

    focused = Signal(bool)

    def __init__(self) -> None:
        super().__init__()
        self.setFont(code_font(SMALL))
        self.setTabChangesFocus(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setLineWrapMode(QPlainTextEdit.LineWrapMode.WidgetWidth)
        self.document().setDocumentMargin(0)
        self.setFixedHeight(self.fontMetrics().lineSpacing() * _LINES + 4)

    def _align(self) -> None:
        """Keep lines from left to right, as code is in every language of the window."""
        option = self.document().defaultTextOption()
        if option.textDirection() is not Qt.LayoutDirection.LeftToRight:
            option.setTextDirection(Qt.LayoutDirection.LeftToRight)
            option.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignAbsolute)
            self.document().setDefaultTextOption(option)

    def focusInEvent(self, e: QFocusEvent) -> None:
        super().focusInEvent(e)
        self.focused.emit(True)

    def focusOutEvent(self, e: QFocusEvent) -> None:
        super().focusOutEvent(e)
        self.focused.emit(False)


class FormatField(QWidget):
    """Shows the format of `ChatSettings`; emits another one when the user changes it."""

    changed = Signal(object)  # ChatSettings
    file_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._options = ChatSettings()
        self._fault: FormatFault | None = None
        self._capabilities = Capabilities()
        names = tuple(each.value for each in AnswerFormat)
        words = tuple(full_name(each) for each in AnswerFormat)
        self.kinds = ChoiceButton(Setting(tr("Answer format"), choices=names, words=words))
        self.kinds.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.help = label("", "secondary", SMALL, wraps=True)
        self.editor = _Editor()
        self._area = QFrame()
        self._area.setObjectName("area")
        inside = QVBoxLayout(self._area)
        set_margins(inside, 10, 7, 4, 7)
        inside.addWidget(self.editor)
        self.status = label("", "secondary", SMALL, wraps=True)
        self.open_button = TextButton(tr("Open a file…"), "link")
        align_text_at_end(self.open_button)
        self._below = QWidget()
        below = QHBoxLayout(self._below)
        below.setContentsMargins(0, 0, 0, 0)
        below.setSpacing(12)
        below.addWidget(self.status, 1)
        below.addWidget(self.open_button, 0, Qt.AlignmentFlag.AlignTop)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        for part in (self.kinds, self.help, self._area, self._below):
            layout.addWidget(part)
        self._debounce = QTimer(self, singleShot=True, interval=_DEBOUNCE_MILLISECONDS)
        self._debounce.timeout.connect(self.finish)
        self.kinds.picked.connect(self._pick)
        self.editor.textChanged.connect(self._on_text)
        self.editor.focused.connect(self._on_focus)
        self.open_button.clicked.connect(self.file_requested)
        follow_palette(self._recolor)

    def show_capabilities(self, capabilities: Capabilities) -> None:
        """Offer the formats that the engine can hold an answer to; say if it is not the chosen one."""
        self._capabilities = capabilities
        offered = [each.value for each in AnswerFormat if not self._reason(each)]
        self.kinds.offer(offered, capabilities.reason("formats"))
        self._show_help()

    def show_options(
        self, options: ChatSettings, fault: FormatFault | None, *, checking: bool
    ) -> None:
        """Show a format and whether it can be used; typing that is not finished is kept."""
        format, before = options.format, self._options.format
        described = format in WITH_TEXT
        self.kinds.show_value(format.value)
        self.editor.setPlaceholderText(example(format))
        self.editor.setAccessibleName(full_name(format))
        self.editor.setAccessibleDescription(help_text(format))
        if format is not before or not self._debounce.isActive():
            self._debounce.stop()
            self._options = options
            self._set_text(options.text)
        self._show_help()
        self._area.setVisible(described)
        self._below.setVisible(described)
        self._show_fault(fault, checking=checking)

    def set_file(self, text: str) -> None:
        """Replace the description by the text of a file."""
        self._set_text(text)
        self.finish()

    def finish(self) -> None:
        """Emit the typed description now."""
        self._debounce.stop()
        text = self.editor.text()
        if text != self._options.text:
            self._options = self._options.with_format(self._options.format, text)
            self.changed.emit(self._options)

    def _recolor(self, palette: Palette) -> None:
        self._mark()

    # --- steps ----------------------------------------------------------------------------------

    def _reason(self, format: AnswerFormat) -> str:
        """Why answers cannot have a format; "" where they can."""
        chosen = self._options.constraint if format is self._options.format else None
        kind = chosen.kind if chosen is not None else KINDS.get(format)
        return self._capabilities.format_reason(kind)

    def _show_help(self) -> None:
        format = self._options.format
        reason = self._reason(format)
        self.help.setText(reason or help_text(format))
        set_property(self.help, "tone", "warning" if reason else "secondary")

    def _pick(self, value: object) -> None:
        self.finish()
        self._options = self._options.with_format(AnswerFormat(value))
        self.changed.emit(self._options)
        if self._options.format in WITH_TEXT:
            self.editor.setFocus()

    def _set_text(self, text: str) -> None:
        if self.editor.text() != text:
            self.editor.set_text(text)

    def _on_text(self) -> None:
        self._debounce.start()

    def _on_focus(self, focused: bool) -> None:
        set_property(self._area, "focused", focused)
        if not focused:
            self.finish()

    def _show_fault(self, fault: FormatFault | None, *, checking: bool) -> None:
        empty = not self._options.text.strip()
        self._fault = fault
        self._mark()
        set_property(self._area, "wrong", fault is not None)
        if fault is not None:
            words = fault.sentence
        elif empty:
            words = tr("Nothing is described yet, so any text is allowed.")
        else:
            words = tr("Checking…") if checking else tr("This format can be used.")
        self.status.setText(words)
        set_property(self.status, "tone", "danger" if fault is not None else "secondary")

    def _mark(self) -> None:
        fault = self._fault
        self.editor.setExtraSelections([] if fault is None else self._marks(fault))

    def _marks(self, fault: FormatFault) -> list[QTextEdit.ExtraSelection]:
        """The line of a fault, marked as a whole."""
        block = self.editor.block_of_line(fault.line)
        if not block.isValid():
            return []
        mark, look = QTextEdit.ExtraSelection(), QTextCharFormat()
        palette = shown_palette()
        color = QColor(palette.danger)
        color.setAlpha(_STRONG_ALPHA if palette.hairline == palette.text else _ALPHA)
        look.setBackground(color)
        look.setProperty(QTextFormat.Property.FullWidthSelection, True)
        mark.format = look  # type: ignore[misc]
        mark.cursor = QTextCursor(block)  # type: ignore[misc]
        return [mark]
