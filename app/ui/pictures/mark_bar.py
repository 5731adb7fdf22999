"""Bar of the marks of a picture: hides them, all or by label, and chooses how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QColor, QGuiApplication, QIcon, QPainter, QPen, QPixmap
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.domain.marks import Grid, Mark, Reading, WrittenMark, family_reading, placed, readings
from app.system.translation import number, tr
from app.ui.pictures.mark_painting import INK, label_colors, label_counts, marks_words
from app.ui.theme.theme import SMALL, figures
from app.ui.widgets.controls import TextButton, label
from app.ui.widgets.menus import new_menu, popup_below
from app.ui.widgets.wrap import WrapLayout

_MOST_CHIPS = 16
_LONGEST_LABEL = 28  # characters of a chip
_SWATCH = 12  # pixels
_ICON = 17  # with the room to the words


def reading_words(reading: Reading) -> str:
    """How coordinates are read."""
    if reading.y_first:
        return tr("0 to 1000, height first")
    return {
        Grid.THOUSAND: tr("0 to 1000"),
        Grid.PIXELS: tr("Pixels"),
        Grid.QWEN_PIXELS: tr("Pixels"),
        Grid.PERCENT: tr("0 to 100"),
        Grid.SHARE: tr("0 to 1"),
    }[reading.grid]


class MarkBar(QWidget):
    """Keeps what an answer marks, and what of it is drawn over the shown picture."""

    changed = Signal()  # `drawn` or `colors`
    copy_requested = Signal()
    save_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._written: Sequence[WrittenMark] = ()
        self._family: Reading | None = None
        self._reading: Reading | None = None  # that was chosen
        self._choices: tuple[Reading, ...] = ()
        self._shown: Reading | None = None
        self._place = (0, 0, 0, 1)  # width, height, number and count of the pictures
        self._marks: tuple[Mark, ...] = ()
        self._hidden: set[str] = set()  # labels
        self.colors: dict[str, QColor] = {}  # by label
        self.all = TextButton(tr("Show marks (M)"), "chip")
        self.all.setFont(figures(SMALL))
        self.all.setCheckable(True)
        self.all.setChecked(True)
        self.all.clicked.connect(self._show_changed)
        self.chips: dict[str, TextButton] = {}
        self.rest: TextButton | None = None  # for the labels without a chip
        self.none = label("", "secondary", SMALL, wraps=True)
        self.reading = TextButton("", "link")
        self.reading.setFont(figures(SMALL))
        self.reading.clicked.connect(self._open_readings)
        self.copy_button = TextButton(tr("Copy with marks"), "link")
        self.copy_button.clicked.connect(self.copy_requested)
        self.save_button = TextButton(tr("Save with marks…"), "link")
        self.save_button.clicked.connect(self.save_requested)
        row = QWidget()
        self._line = WrapLayout(row, 6, centred=False)
        self._line.addWidget(self.all)
        below = QHBoxLayout()
        below.setSpacing(6)
        below.addWidget(self.none, 1)
        below.addWidget(self.reading)
        below.addStretch(0)
        for each in (self.copy_button, self.save_button):
            each.setFont(figures(SMALL))
            below.addWidget(each)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(6)
        layout.addWidget(row)
        layout.addLayout(below)

    @property
    def drawn(self) -> tuple[Mark, ...]:
        """The marks that are drawn."""
        if not self.all.isChecked():
            return ()
        return tuple(mark for mark in self._marks if mark.label not in self._hidden)

    def show_marks(self, written: Sequence[WrittenMark], models: Sequence[str]) -> None:
        """Show what an answer of a model with these names marks; none: nothing is drawn."""
        self._written, self._family = written, family_reading(models)
        self._reading = None
        self._marks = ()
        self._hidden.clear()
        self.all.setChecked(True)
        self.setVisible(bool(written))

    def show_picture(self, width: int, height: int, at: int, count: int) -> None:
        """Show them over a picture of this size in pixels, `at` (from 0) of so many."""
        if not self._written:
            return
        self._choices = readings(self._written, self._family, width, height)
        reading = self._reading if self._reading in self._choices else self._choices[0]
        self._place = (width, height, at, count)
        self._read_as(reading)

    def toggle(self) -> None:
        """Hide all marks, or show them again."""
        if self._written:
            self.all.click()

    def _read_as(self, reading: Reading) -> None:
        self._marks = placed(self._written, reading, *self._place)
        self.colors = label_colors(self._marks)
        self.reading.setText(tr("Coordinates: {kind}", kind=reading_words(reading)))
        self.reading.setVisible(len(self._choices) > 1)
        self._shown = reading
        self._make_chips()
        self._show_changed()

    def _make_chips(self) -> None:
        for chip in (*self.chips.values(), *filter(None, (self.rest,))):
            self._line.removeWidget(chip)
            chip.hide()
            chip.deleteLater()
        self.chips, self.rest = {}, None
        counts = label_counts(self._marks)
        names = list(counts)
        more = names[_MOST_CHIPS:] if len(names) > _MOST_CHIPS + 1 else []
        for name in names[: len(names) - len(more)]:
            words = name or tr("Without a name")
            short = words if len(words) <= _LONGEST_LABEL else f"{words[: _LONGEST_LABEL - 1]}…"
            chip = self._chip(short, counts[name], [name])
            chip.setIcon(swatch(self.colors[name], self.devicePixelRatioF()))
            chip.setToolTip(words if short != words else "")
            self.chips[name] = chip
        if more:
            self.rest = self._chip(tr("Others"), sum(counts[name] for name in more), more)
        words = "" if self._marks else tr("Nothing is marked on this picture.")
        self.none.setText(words)
        self.none.setVisible(bool(words))

    def _chip(self, words: str, count: int, labels: Sequence[str]) -> TextButton:
        text = tr("{words} · {more}", words=words, more=number(count))
        chip = TextButton(text.replace("&", "&&"), "chip")
        chip.setFont(figures(SMALL))
        chip.setCheckable(True)
        chip.setChecked(self._hidden.isdisjoint(labels))
        chip.clicked.connect(partial(self._toggle_labels, frozenset(labels)))
        self._line.addWidget(chip)
        return chip

    def _toggle_labels(self, labels: frozenset[str]) -> None:
        are_shown = self._hidden.isdisjoint(labels)
        self._hidden = self._hidden | labels if are_shown else self._hidden - labels
        self.all.setChecked(True)
        self._show_changed()

    def _show_changed(self) -> None:
        self.all.setVisible(bool(self._marks))
        for each in (self.copy_button, self.save_button):
            each.setEnabled(bool(self.drawn))
        self.changed.emit()

    def _open_readings(self) -> None:
        menu = new_menu(self.reading)
        for each in self._choices:
            action = menu.addAction(reading_words(each))
            action.setCheckable(True)
            action.setChecked(each == self._shown)
            action.triggered.connect(partial(self._choose, each))
        popup_below(menu, self.reading)

    def _choose(self, reading: Reading) -> None:
        self._reading = reading
        self._read_as(reading)

    def words(self) -> str:
        """What is drawn, for those who do not see it."""
        return marks_words(self.drawn)


def swatch(color: QColor, ratio: float) -> QIcon:
    """A dot in the colour of a label."""
    made = QPixmap(round(_ICON * ratio), round(_ICON * ratio))
    made.setDevicePixelRatio(ratio)
    made.fill(Qt.GlobalColor.transparent)
    painter = QPainter(made)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(QColor(INK), 1))
    painter.setBrush(color)
    left = _ICON - _SWATCH if QGuiApplication.isRightToLeft() else 0
    painter.drawEllipse(
        QRectF(left, (_ICON - _SWATCH) / 2, _SWATCH, _SWATCH).adjusted(1, 1, -1, -1)
    )
    painter.end()
    return QIcon(made)
