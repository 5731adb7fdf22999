"""Performance page: a plot of the last answers, their typical figures, and the engine's metrics."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAccessible, QFont, QGuiApplication, QShowEvent
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QVBoxLayout, QWidget

from app.state.performance import AnswerFigures, PerformanceState
from app.system.byte_size import size
from app.system.translation import tr, trn
from app.ui.performance.plot import AnswerPlot
from app.ui.theme.palette import Palette
from app.ui.theme.theme import BODY, READING, figures, font
from app.ui.widgets import accessibility
from app.ui.widgets.controls import Column, IconButton, TextButton, label
from app.ui.widgets.units import number
from engine import MetricsRead, prometheus_text

_SHOWN_GAIN = 1.05  # of speculative decoding; a smaller one is noise
Row = tuple[str, str]


class PerformancePage(QWidget):
    """Shows the performance state; the metrics are asked for when it is shown."""

    opened = Signal()  # shown, or an answer has ended meanwhile
    closed = Signal()

    def __init__(self, state: PerformanceState) -> None:
        super().__init__()
        self.setObjectName("page")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        accessibility.register_role(PerformancePage, QAccessible.Role.Pane)
        self.setAccessibleName(tr("Performance"))
        self._state = state
        self.close_button = IconButton("close", tr("Back to the chat"))
        self.plot = AnswerPlot()
        self.selected = label("", "", BODY)
        self.selected.setWordWrap(True)
        self.nothing = label(tr("No answer yet since Tokonoma was started."), "secondary")
        self.copy_button = TextButton(tr("Copy as Prometheus text"), "outlined")
        self.rows: list[Row] = []
        self.setFocusProxy(self.plot)
        self._lay_out()
        self.close_button.clicked.connect(self.closed)
        self.copy_button.clicked.connect(self._copy)
        self.plot.selected.connect(self._show_selected)
        state.answers_changed.connect(self._on_answers)
        state.metrics_changed.connect(self._show_rows)
        self._show_answers()

    def _lay_out(self) -> None:
        title = label(tr("Performance"), "", READING)
        title.setFont(font(READING, QFont.Weight.Medium))
        head = QHBoxLayout()
        head.addWidget(title, 1)
        head.addWidget(self.close_button)
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(20)
        self._grid.setVerticalSpacing(8)
        self._grid.setColumnStretch(1, 1)
        buttons = QHBoxLayout()
        buttons.addWidget(self.copy_button)
        buttons.addStretch(1)
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 12, 0, 12)
        column.setSpacing(16)
        column.addLayout(head)
        column.addWidget(self.nothing)
        column.addWidget(self.plot)
        column.addWidget(self.selected)
        column.addLayout(self._grid)
        column.addLayout(buttons)
        column.addStretch(1)
        page = QVBoxLayout(self)
        page.setContentsMargins(0, 0, 0, 0)
        page.addWidget(Column(content))

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self.close_button.apply_palette(palette)
        self.plot.apply_palette(palette)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.opened.emit()

    def _on_answers(self) -> None:
        self._show_answers()
        if self.isVisible():
            self.opened.emit()

    def _show_answers(self) -> None:
        answers = self._state.answers
        self.plot.show_answers(answers)
        self.plot.setVisible(bool(answers))
        self.selected.setVisible(bool(answers))
        self.nothing.setVisible(not answers)
        self._show_rows()

    def _show_selected(self, index: int) -> None:
        answers = self._state.answers
        if 0 <= index < len(answers):
            words = answer_words(answers[index], len(answers) - index)
            self.selected.setText(words)
            self.plot.setAccessibleDescription(words)
            accessibility.announce(self.plot, words)

    def _show_rows(self) -> None:
        """Show the typical figures, and those of the engine once they were read."""
        rows = [*typical_rows(self._state.answers), *metrics_rows(self._state.metrics)]
        self.copy_button.setVisible(self._state.metrics is not None)
        if rows == self.rows:
            return
        self.rows = rows
        while (item := self._grid.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        for place, (name, value) in enumerate(rows):
            words = label(value, "", BODY)
            words.setFont(figures(BODY))
            words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            words.setAccessibleName(f"{name}: {value}")
            self._grid.addWidget(label(name, "secondary", BODY), place, 0)
            self._grid.addWidget(words, place, 1)

    def _copy(self) -> None:
        if self._state.metrics is not None:
            QGuiApplication.clipboard().setText(prometheus_text(self._state.metrics))


def answer_words(one: AnswerFigures, from_end: int) -> str:
    """One answer in a line: which one, its speed, and what it waited for."""
    which = (
        tr("The last answer") if from_end == 1 else tr("{count} answers ago", count=from_end - 1)
    )
    parts = [one.model] if one.model else []
    parts.append(trn("{count} token", "{count} tokens", one.generated_tokens))
    if one.tokens_per_second > 0:
        parts.append(tr("{speed} tokens/s", speed=f"{one.tokens_per_second:.1f}"))
    parts.append(tr("first word after {seconds} s", seconds=f"{one.first_token_seconds:.2f}"))
    if one.token_seconds_p95 > 0:
        parts.append(token_time(one.token_seconds_p50, one.token_seconds_p95))
    if one.reused_tokens:
        share = f"{100 * one.reused_tokens / max(one.prompt_tokens, 1):.0f}"
        parts.append(tr("{percent} % of the chat from memory", percent=share))
    if one.draft_gain >= _SHOWN_GAIN:
        gain = f"{one.draft_gain:.1f}"
        parts.append(tr("{gain} times as fast with guessed words", gain=gain))
    return f"{which}: {', '.join(parts)}."


def token_time(median: float, most: float) -> str:
    """The time of a token, in the median and of nearly all."""
    return tr(
        "{median} ms for a token, 95 % within {most} ms",
        median=f"{1000 * median:.1f}",
        most=f"{1000 * most:.1f}",
    )


def typical_rows(answers: Sequence[AnswerFigures]) -> list[Row]:
    """Medians over the answers of the model that answered last: others are faster or slower."""
    if not answers:
        return []
    same = [one for one in answers if one.model == answers[-1].model]
    speeds = [one.tokens_per_second for one in same if one.tokens_per_second > 0]
    rows = [(tr("Answers"), number(len(same)))]
    if len(same) < len(answers):
        words = tr(
            "{count}, and {others} of other models",
            count=number(len(same)),
            others=number(len(answers) - len(same)),
        )
        rows = [(tr("Answers"), words)]
    if speeds:
        rows.append(
            (tr("Typical speed"), tr("{speed} tokens/s", speed=f"{statistics.median(speeds):.1f}"))
        )
    wait = statistics.median(one.first_token_seconds for one in same)
    rows.append((tr("Typical wait"), tr("first word after {seconds} s", seconds=f"{wait:.2f}")))
    return rows


def metrics_rows(metrics: MetricsRead | None) -> list[Row]:
    """What the engine counted since the model was loaded, and the memory in use."""
    if metrics is None:
        return []
    rows: list[Row] = []
    if metrics.prompt_tokens:
        share = f"{100 * metrics.reused_tokens / metrics.prompt_tokens:.0f}"
        read = tr(
            "{percent} % of {tokens} tokens", percent=share, tokens=number(metrics.prompt_tokens)
        )
        rows.append((tr("From memory"), read))
    if metrics.drafted_tokens:
        rows.append(
            (
                tr("Guessed words"),
                tr(
                    "{right} of {all} tokens were right",
                    right=number(metrics.accepted_tokens),
                    all=number(metrics.drafted_tokens),
                ),
            )
        )
    kept = metrics.active_page_bytes + metrics.cached_page_bytes
    cached = tr(
        "{memory} in memory, {disk} on disk",
        memory=size(kept),
        disk=size(metrics.saved_page_bytes),
    )
    rows.append((tr("Cached chats"), cached))
    rows.append((tr("Memory of Tokonoma"), size(metrics.resident_bytes)))
    if metrics.device_bytes:
        rows.append((tr("Memory of other devices"), size(metrics.device_bytes)))
    return rows
