"""Options of a picture that is not sent: how finely a model sees it, and its words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtGui import QIntValidator
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QMenu, QVBoxLayout, QWidget

from app.domain.file_words import detail_words, tokens_words
from app.domain.parts import MOST_IMAGE_TOKENS, ImagePart
from app.state.attachments import Attachment, DetailTokens
from app.system.translation import tr
from app.ui.theme.theme import BODY, SMALL, figures, font
from app.ui.widgets.controls import TextButton, label
from app.ui.widgets.wrap import WrapLayout
from engine import Detail

NUMBER_WIDTH = 160  # pixels
_LONGEST_WORDS = 1000  # characters of a description


def choice_words(detail: Detail, tokens: DetailTokens | None) -> str:
    """The name of a detail, and what it costs where that is known."""
    words = detail_words(detail)
    if tokens is None:
        return words
    return tr("{words} · {more}", words=words, more=tokens_words(tokens.of(detail)))


def fixed_words(tokens: DetailTokens) -> str:
    """Why no detail can be chosen."""
    return tr(
        "The model reads this picture with {tokens}, whatever the detail.",
        tokens=tokens_words(tokens.of(Detail.STANDARD)),
    )


class PictureMenu:
    """Adds to the menu of a chip what can be chosen of its picture."""

    def __init__(self, menu: QMenu, item: Attachment, tokens: DetailTokens | None) -> None:
        self._menu, self._item = menu, item
        self.opened = menu.addAction(tr("Open the picture")).triggered
        menu.addSeparator()
        part = item.part
        current = part.detail if isinstance(part, ImagePart) else Detail.STANDARD
        self.choices = {each: menu.addAction(choice_words(each, tokens)) for each in Detail}
        for detail, action in self.choices.items():
            action.setCheckable(True)
            action.setChecked(detail is current)
        self.number = menu.addAction(tr("Number of tokens…"))
        self.number.setCheckable(True)
        self.number.setChecked(not isinstance(current, Detail))
        self.fixed = menu.addAction("")
        self.fixed.setEnabled(False)
        menu.addSeparator()
        self.described = menu.addAction(tr("Describe…")).triggered
        menu.addSeparator()
        self.removed = menu.addAction(tr("Remove")).triggered
        self.show_tokens(tokens)

    def show_tokens(self, tokens: DetailTokens | None) -> None:
        """Show what each detail costs; a picture that has one size leaves nothing to choose."""
        is_fixed = tokens is not None and tokens.is_fixed
        for detail, action in self.choices.items():
            action.setText(choice_words(detail, tokens))
            action.setVisible(not is_fixed)
        self.number.setVisible(not is_fixed)
        self.fixed.setVisible(is_fixed)
        if tokens is not None and is_fixed:
            self.fixed.setText(fixed_words(tokens))


class PictureOptions(QFrame):
    """The detail as chips and a number, and a line for the description."""

    detail_chosen = Signal(object)  # Detail, or the most tokens
    described = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.choices: dict[Detail, TextButton] = {}
        row = QWidget()
        line = WrapLayout(row, 6, centred=False)
        for detail in Detail:
            button = TextButton(detail_words(detail), "chip")
            button.setFont(figures(SMALL))
            button.setCheckable(True)
            button.clicked.connect(partial(self._choose, detail))
            self.choices[detail] = button
            line.addWidget(button)
        self.number = QLineEdit()
        self.number.setValidator(QIntValidator(1, MOST_IMAGE_TOKENS, self.number))
        self.number.setFont(figures(BODY))
        self.number.setFixedWidth(NUMBER_WIDTH)
        self.number.setPlaceholderText(tr("Number of tokens"))
        self.number.setAccessibleName(tr("Most tokens of the picture"))
        self.number.setToolTip(tr("Most tokens of the picture"))
        self.number.editingFinished.connect(self._choose_number)
        line.addWidget(self.number)
        self._row = row
        self.fixed = label("", "secondary", SMALL, wraps=True)
        self.words = QLineEdit()
        self.words.setMaxLength(_LONGEST_WORDS)
        self.words.setFont(font(BODY))
        self.words.setPlaceholderText(tr("Describe the picture for those who cannot see it"))
        self.words.setAccessibleName(tr("Description of the picture"))
        self.words.editingFinished.connect(self._describe)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(row)
        layout.addWidget(self.fixed)
        below = QHBoxLayout()
        below.addWidget(self.words)
        layout.addLayout(below)

    def show_part(self, part: ImagePart, tokens: DetailTokens | None) -> None:
        """Show what is chosen of a picture, and what each detail costs."""
        is_fixed = tokens is not None and tokens.is_fixed
        self._row.setVisible(not is_fixed)
        self.fixed.setVisible(is_fixed)
        if tokens is not None and is_fixed:
            self.fixed.setText(fixed_words(tokens))
        for detail, button in self.choices.items():
            words = choice_words(detail, tokens)
            button.setText(words)
            button.setChecked(part.detail is detail)
        if not self.number.hasFocus():
            self.number.setText("" if isinstance(part.detail, Detail) else str(part.detail))
        if not self.words.hasFocus():
            self.words.setText(part.description)

    def finish(self) -> None:
        """Take what is typed."""
        self._choose_number()
        self._describe()

    def stops(self) -> Sequence[QWidget]:
        """All that can take the focus, in order."""
        return (*self.choices.values(), self.number, self.words)

    def _choose(self, detail: Detail) -> None:
        for each, button in self.choices.items():
            button.setChecked(each is detail)
        self.number.clear()
        self.detail_chosen.emit(detail)

    def _choose_number(self) -> None:
        if (text := self.number.text()) and self.number.hasAcceptableInput():
            self.detail_chosen.emit(int(text))

    def _describe(self) -> None:
        self.described.emit(" ".join(self.words.text().split()))
