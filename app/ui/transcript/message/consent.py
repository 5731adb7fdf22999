"""Consent to a tool's call, in the card of the call: what it does, its arguments, four answers.

Nothing here is cut: long arguments and details scroll. What comes from models and servers is shown
with escapes for characters that could change the words around it. A click soon after the card has
appeared or moved was meant for what was there before, and is ignored.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import pairwise
from math import ceil

from PySide6.QtCore import QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QAccessible,
    QColor,
    QKeyEvent,
    QMouseEvent,
    QMoveEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QShowEvent,
    QSyntaxHighlighter,
    QTextDocument,
    QTextLayout,
    QTextOption,
)
from PySide6.QtWidgets import QFrame, QSizePolicy, QVBoxLayout, QWidget

from app.domain.tool_words import indented
from app.domain.tools import Effect
from app.domain.visible_text import escaped, escaped_sentence, on_one_line, written_out
from app.markdown.blocks import Run
from app.state.tools import Consent, LiveCall
from app.system.translation import tr
from app.ui.blocks.highlight import lexer_of, line_spans
from app.ui.blocks.style import Face, ReadingStyle
from app.ui.blocks.text import Flow, units
from app.ui.theme.theme import RADIUS_CONTROL
from app.ui.widgets import accessibility
from app.ui.widgets.controls import TextButton, align_text_at_start
from app.ui.widgets.plain_text import PlainTextField
from app.ui.widgets.wrap import WrapLayout

SETTLE_SECONDS = 0.5  # for which a card must have stood still before it takes a click
_MOST_LINES = 12  # of a field; a longer text scrolls
_LONG_SCOPE = 32  # characters: a longer one is in the sentence above the buttons only
_PADDING = 12
_FIELD_MARGIN = 8


class ConsentCard(QWidget):
    """Asks for consent to one call; its frame is painted by the transcript."""

    decided = Signal(object, str)  # Consent, the arguments
    resized = Signal()  # it needs another height
    left = Signal()  # Esc: the focus goes back to where it was

    def __init__(
        self,
        live: LiveCall,
        chat: str,
        style: ReadingStyle,
        parent: QWidget,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`chat` is the title of the call's chat, for screen readers."""
        super().__init__(parent)
        self._live, self._chat, self._style, self._clock = live, chat, style, clock
        self._still_since = clock()
        self._answered = False
        self._texts: list[_Words] = []
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(_PADDING, 0, _PADDING, _PADDING)
        self._column.setSpacing(8)
        self.field = _CodeField(style, self, is_json=True)
        self.field.setAccessibleName(tr("Arguments, which can be changed"))
        self.fault = _Words(style, style.note_face, "danger", self)
        self.details = TextButton(tr("Details"), "link", parent=self)
        self.details.setCheckable(True)
        align_text_at_start(self.details)
        self.origin = _CodeField(style, self, is_json=False)
        self.origin.setAccessibleName(tr("Details"))
        self.origin.setReadOnly(True)
        self.texts: dict[str, _CodeField] = {}  # arguments of several lines, as they are read
        self.buttons: dict[Consent, _Answer] = {}
        self._make_buttons()
        self._fill()
        self.field.textChanged.connect(self._check)
        self.field.left.connect(self.left)
        self.origin.left.connect(self.left)
        self.details.toggled.connect(self._show_details)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    # --- content --------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """The title of the tool."""
        return on_one_line(self._live.tool.title or self._live.tool.name)

    def show_call(self, live: LiveCall) -> None:
        """Show another state of the call; arguments that the user has changed stay."""
        if live == self._live:
            return
        edited = self.edited
        self._live, self._answered = live, False
        self._fill(keep=edited)
        self.resized.emit()

    @property
    def edited(self) -> str | None:
        """The arguments, if the user has changed them."""
        text = self._arguments()
        return None if text == self._unedited else text

    def edit(self, text: str) -> None:
        """Put other arguments into the fields."""
        self._fill(keep=text)

    def _arguments(self) -> str:
        """The arguments in the fields."""
        rest = self.field.text()
        if not self.texts or argument_fault(rest):
            return rest
        values: dict[str, object] = json.loads(rest)
        texts = {name: field.text() for name, field in self.texts.items()}
        return indented({**values, **texts})

    def _show_arguments(self, arguments: str) -> None:
        """Show texts of several lines in fields of their own, and the rest as JSON."""
        rest, texts = parted_arguments(arguments)
        for name in [name for name in self.texts if name not in texts]:
            self.texts.pop(name).deleteLater()
        for name, text in texts.items():
            self._add(on_one_line(name), self._style.note_face, "secondary")
            field = self.texts.get(name)
            if field is None:
                field = self.texts[name] = _CodeField(self._style, self, is_json=False)
                field.setAccessibleName(tr("{name}, which can be changed", name=on_one_line(name)))
                field.textChanged.connect(self._check)
                field.left.connect(self.left)
            field.set_text(written_out(text))
            self._column.addWidget(field)
            field.show()
        self._column.addWidget(self.field)
        self.field.set_text(escaped(rest))
        self.field.setVisible(rest != "{}" or not texts)

    def _make_buttons(self) -> None:
        looks = {Consent.ONCE: "primary"}
        self._answers = QWidget(self)
        wrap = WrapLayout(self._answers, 8, centred=False)
        for answer in (Consent.ONCE, Consent.CHAT, Consent.ALWAYS, Consent.DENY):
            button = _Answer(looks.get(answer, "outlined"), self.is_settled, self)
            button.clicked.connect(lambda _=False, answer=answer: self._decide(answer))
            wrap.addWidget(button)
            self.buttons[answer] = button

    def _fill(self, keep: str | None = None) -> None:
        """Make all that is shown of the call."""
        for words in self._texts:
            words.deleteLater()
        self._texts.clear()
        while self._column.takeAt(0):
            pass
        live, style, column = self._live, self._style, self._column
        self._add(tr("Allow “{tool}”?", tool=self.title), style.body_face, bold=True)
        if live.tool.server:
            server = tr("A tool of the server {name}", name=on_one_line(live.tool.server))
            self._add(server, style.note_face, "secondary")
        if live.repeated:
            words = tr(
                "This call had begun before Tokonoma ended; it may have been carried out already."
            )
            self._add(words, style.note_face, "warning")
        for change in live.changes or effect_words(live.tool.effects):
            self._add(f"•  {escaped_sentence(change)}", style.note_face)
        if live.differences:
            words = tr("This tool has been changed since you allowed it:")
            self._add(words, style.note_face, "warning")
            self._add_differences(live.differences)
        self._show_arguments(live.arguments)
        self._unedited = self._arguments()
        if keep is not None:
            self._show_kept(keep)
        column.addWidget(self.fault)
        details = QVBoxLayout()
        details.setSpacing(4)
        details.addWidget(self.details, 0, Qt.AlignmentFlag.AlignLeading)
        details.addWidget(self.origin)
        column.addLayout(details)
        self.origin.set_text(_details(live))
        self.origin.setVisible(self.details.isChecked())
        if live.scope:
            scope = on_one_line(live.scope)
            words = tr("What you allow in this chat or always holds for {scope} only.", scope=scope)
            self._add(words, style.note_face, "secondary")
        self._name_buttons()
        self.buttons[Consent.ALWAYS].setVisible(live.may_always)
        column.addWidget(self._answers)
        self._order_tabs()
        self._check()

    def _show_kept(self, arguments: str) -> None:
        """Put arguments that the user has changed into the fields that there are."""
        if self.texts and not argument_fault(arguments):
            values: dict[str, object] = json.loads(arguments)
            for name, field in self.texts.items():
                field.set_text(str(values.pop(name, "")))
            arguments = indented(values)
        self.field.set_text(arguments)
        self.field.setVisible(arguments != "{}" or not self.texts)

    def _name_buttons(self) -> None:
        scope, tool = on_one_line(self._live.scope), self.title
        always = tr("Always allow")
        if scope and len(scope) <= _LONG_SCOPE:
            always = tr("Always allow for {scope}", scope=scope)
        texts = {
            Consent.ONCE: (tr("Allow once"), tr("Allow “{tool}” once", tool=tool)),
            Consent.CHAT: (
                tr("Allow in this chat"),
                tr("Allow “{tool}” in this chat", tool=tool),
            ),
            Consent.ALWAYS: (always, tr("Always allow “{tool}”", tool=tool)),
            Consent.DENY: (tr("Deny"), tr("Deny “{tool}”", tool=tool)),
        }
        for answer, (text, name) in texts.items():
            self.buttons[answer].setText(text.replace("&", "&&"))
            self.buttons[answer].setAccessibleName(name)
            about = tr("In the chat “{title}”", title=on_one_line(self._chat)) if self._chat else ""
            self.buttons[answer].setAccessibleDescription(about)

    def _add(
        self,
        text: str,
        face: Face,
        tone: str = "",
        *,
        bold: bool = False,
        into: QVBoxLayout | None = None,
    ) -> None:
        words = _Words(self._style, face, tone, self)
        words.show_runs((Run(text, bold=bold),))
        self._texts.append(words)
        (into or self._column).addWidget(words)
        words.show()

    def _add_differences(self, lines: tuple[str, ...]) -> None:
        """The lines that were added and removed, marked by their sign and by colour."""
        block = QVBoxLayout()
        block.setSpacing(0)
        self._column.addLayout(block)
        for line in lines:
            tone = {"+": "accent", "-": "danger"}.get(line[:1], "secondary")
            face = Face(self._style.code, self._style.code_line)
            self._add(escaped(line).replace("\n", " "), face, tone, into=block)

    def _show_details(self, shown: bool) -> None:
        self.origin.setVisible(shown)
        self.resized.emit()

    def _order_tabs(self) -> None:
        fields = [*self.texts.values(), self.field]
        order: list[QWidget] = [*fields, self.details, self.origin, *self.buttons.values()]
        for before, after in pairwise(order):
            QWidget.setTabOrder(before, after)

    # --- answering ------------------------------------------------------------------------------

    def is_settled(self) -> bool:
        """Whether the card has stood still for long enough to take a click."""
        return self._clock() - self._still_since >= SETTLE_SECONDS

    def _check(self) -> None:
        """Say what is wrong with the arguments; then the call can only be denied."""
        fault = argument_fault(self.field.text())
        if fault != self.fault.text:
            self.fault.show_runs((Run(fault),))
        self.fault.setVisible(bool(fault))
        for answer, button in self.buttons.items():
            button.setEnabled(not self._answered and (answer is Consent.DENY or not fault))
        self.resized.emit()

    def _decide(self, answer: Consent) -> None:
        edited = self.edited
        self.left.emit()  # first: Qt would give the focus of a disabled button to another one
        self._answered = True
        self._check()
        self.decided.emit(answer, self._live.arguments if edited is None else edited)

    def take_focus(self) -> None:
        """Focus the first answer that can be given."""
        button = next(each for each in self.buttons.values() if each.isEnabled())
        button.setFocus(Qt.FocusReason.ShortcutFocusReason)

    # --- layout ---------------------------------------------------------------------------------

    def apply_style(self, style: ReadingStyle) -> None:
        """Show it in another theme or text size."""
        self._style = style
        keep = self.edited
        for field in (self.field, self.origin, *self.texts.values()):
            field.apply_style(style)
        self.fault.apply_style(style, style.note_face)
        self._fill(keep)

    def wanted_height(self, width: int) -> int:
        """The height that shows all, in pixels."""
        for field in (self.field, self.origin, *self.texts.values()):
            field.fit(width - 2 * _PADDING)
        self._column.activate()  # else it remembers older sizes
        return self._column.totalHeightForWidth(width)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.left.emit()  # the window would stop the answer
        else:
            super().keyPressEvent(event)

    def moveEvent(self, event: QMoveEvent) -> None:
        self._still_since = self._clock()
        super().moveEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._still_since = self._clock()
        super().resizeEvent(event)

    def showEvent(self, event: QShowEvent) -> None:
        self._still_since = self._clock()
        super().showEvent(event)


class _Answer(TextButton):
    """A button that takes no click while its card has not stood still for a while."""

    def __init__(self, look: str, is_settled: Callable[[], bool], parent: QWidget) -> None:
        super().__init__("", look, parent=parent)
        self._is_settled = is_settled

    def mousePressEvent(self, e: QMouseEvent) -> None:
        if self._is_settled():
            super().mousePressEvent(e)

    def mouseReleaseEvent(self, e: QMouseEvent) -> None:
        if not self._is_settled():
            self.setDown(False)
        super().mouseReleaseEvent(e)


class _Words(QWidget):
    """A text that wraps anywhere, so that nothing of it is cut."""

    def __init__(self, style: ReadingStyle, face: Face, tone: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.text = ""
        self._style, self._face, self._tone = style, face, tone
        self._flow: Flow | None = None
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)

    def show_runs(self, runs: tuple[Run, ...]) -> None:
        """Show a text."""
        self.text = "".join(run.text for run in runs)
        self._flow = Flow(runs, self._style, self._face)
        self.setAccessibleName(self.text)
        self.updateGeometry()
        self.update()

    def apply_style(self, style: ReadingStyle, face: Face) -> None:
        """Show it in another theme or text size."""
        self._style, self._face = style, face
        self.show_runs((Run(self.text),))

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, arg__1: int) -> int:
        return int(self._flow.layout(max(arg__1, 40)) + 0.5) if self._flow else 0

    def sizeHint(self) -> QSize:
        return QSize(120, self.heightForWidth(max(self.width(), 120)))

    def minimumSizeHint(self) -> QSize:
        return QSize(40, 0)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._flow is None:
            return
        style = self._style
        colors = {
            "secondary": style.secondary,
            "danger": style.danger,
            "accent": style.accent,
            "warning": QColor(style.palette.warning),
        }
        self._flow.layout(max(self.width(), 40))
        painter = QPainter(self)
        clip, color = QRectF(self.rect()), colors.get(self._tone, style.ink)
        self._flow.paint(painter, clip.topLeft(), style, color, None, clip)
        painter.end()


class _CodeField(PlainTextField):
    """Field for code, which is as high as its text up to some lines; Tab leaves it."""

    left = Signal()  # Esc

    def __init__(self, style: ReadingStyle, parent: QWidget, *, is_json: bool) -> None:
        super().__init__(parent)
        self._colors = _JsonColors(self.document(), style) if is_json else None
        self.document().setDocumentMargin(_FIELD_MARGIN)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.apply_style(style)

    def apply_style(self, style: ReadingStyle) -> None:
        """Set font and colours."""
        palette, line = style.palette, 2 if style.high_contrast else 1
        if self._colors is not None:
            self._colors.use(style)
        self.setFont(style.code)
        self.setStyleSheet(
            f"QPlainTextEdit {{ background: {palette.sunken}; color: {palette.text};"
            f" border: {line}px solid {palette.hairline}; border-radius: {RADIUS_CONTROL}px; }}"
            f"QPlainTextEdit:focus {{ border-color: {palette.accent}; }}"
        )

    def fit(self, width: int) -> None:
        """Be as high as the text needs at a width, up to `_MOST_LINES` lines."""
        lines = self._line_heights(width - 2 * _FIELD_MARGIN - 4)
        bars, fits = Qt.ScrollBarPolicy, len(lines) <= _MOST_LINES
        self.setVerticalScrollBarPolicy(bars.ScrollBarAlwaysOff if fits else bars.ScrollBarAsNeeded)
        self.setFixedHeight(ceil(sum(lines[:_MOST_LINES])) + 2 * _FIELD_MARGIN + 4)

    def _line_heights(self, width: int) -> list[float]:
        """The heights of the wrapped lines at a width, of at most one more than `_MOST_LINES`.

        Qt knows them only where the field is shown at that width.
        """
        heights: list[float] = []
        option = QTextOption()
        option.setWrapMode(self.wordWrapMode())
        for text in self.text().split("\n"):
            layout = QTextLayout(text, self.font())
            layout.setTextOption(option)
            layout.beginLayout()
            while len(heights) <= _MOST_LINES and (line := layout.createLine()).isValid():
                line.setLineWidth(width)
                heights.append(line.height())
            layout.endLayout()
            if len(heights) > _MOST_LINES:
                break
        return heights

    def keyPressEvent(self, e: QKeyEvent) -> None:
        if e.key() == Qt.Key.Key_Escape and not self.composing:
            self.left.emit()
            e.accept()
        else:
            super().keyPressEvent(e)


class _JsonColors(QSyntaxHighlighter):
    """Colours JSON, line by line."""

    def __init__(self, document: QTextDocument, style: ReadingStyle) -> None:
        super().__init__(document)
        self._style = style

    def use(self, style: ReadingStyle) -> None:
        """Use the colours of another theme."""
        if style is not self._style:
            self._style = style
            QTimer.singleShot(0, self, self.rehighlight)

    def highlightBlock(self, text: str) -> None:
        lexer = lexer_of("json")
        for start, length, role in line_spans(lexer, text) if lexer else ():
            before, within = units(text[:start]), units(text[start : start + length])
            self.setFormat(before, within, self._style.syntax[role])


def parted_arguments(arguments: str) -> tuple[str, dict[str, str]]:
    """Arguments as JSON without those that are texts of several lines, and these by their names.

    A program on one line, with its line breaks as escapes, could not be read by who allows it.
    """
    if argument_fault(arguments):
        return arguments, {}
    values: dict[str, object] = json.loads(arguments)
    texts = {
        name: value for name, value in values.items() if isinstance(value, str) and "\n" in value
    }
    if not texts:
        return arguments, {}
    rest = {name: value for name, value in values.items() if name not in texts}
    return indented(rest), texts


def argument_fault(text: str) -> str:
    """Why a text is no arguments, in one line; "": it is."""
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        return tr("This is not JSON: look at line {line}.", line=error.lineno)
    except (ValueError, RecursionError):
        return tr("This is not JSON that can be read.")
    return "" if isinstance(value, dict) else tr("Arguments are a JSON object: {example}.",
                                                 example='{"name": "value"}')  # fmt: skip


def effect_words(effects: frozenset[Effect]) -> tuple[str, ...]:
    """What tools with these effects do, where the tool does not say what this call does."""
    words = {
        Effect.READS: tr("It reads files, documents or other chats."),
        Effect.WRITES: tr("It changes files."),
        Effect.NETWORK: tr("It sends something to another computer."),
        Effect.RUNS: tr("It runs a program."),
    }
    found = tuple(text for effect, text in words.items() if effect in effects)
    return found or (tr("It changes nothing and sends nothing."),)


def _details(live: LiveCall) -> str:
    """Where the tool comes from and what the model is told of it, whole."""
    tool = live.tool
    pieces = (
        escaped(tool.origin) or tr("A tool of Tokonoma"),
        tr("Name for models: {name}", name=on_one_line(tool.name)),
        escaped(tool.description),
        escaped(tool.schema),
    )
    return "\n\n".join(filter(None, pieces))


accessibility.register_role(_Words, QAccessible.Role.StaticText)
