"""Performance page: a plot of the last answers, their typical figures, and the engine's metrics."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.state.performance import AnswerFigures, PerformanceState
from app.system.byte_size import size
from app.system.translation import listed, number, tr, trn
from app.ui.performance.plot import AnswerPlot
from app.ui.theme.palette import Palette, follow_palette
from app.ui.theme.theme import BODY, SMALL, figures
from app.ui.widgets import accessibility
from app.ui.widgets.controls import (
    Column,
    TextButton,
    label,
    make_selectable,
    page_title,
    set_margins,
)
from app.ui.widgets.page import Page
from app.ui.widgets.units import usual_time
from engine import MetricsRead, prometheus_text

_SHOWN_GAIN = 1.05  # of speculative decoding; a smaller one is noise
_NAMES_WIDTH = 128  # pixels, of the names of rows
Row = tuple[str, str]  # a name and a value; a heading has none


class PerformancePage(Page):
    """Shows the performance state; the metrics are asked for when it is shown."""

    opened = Signal()  # shown, or an answer has ended meanwhile

    def __init__(self, state: PerformanceState) -> None:
        super().__init__(tr("Performance"))
        self._state = state
        self.title = page_title(tr("Performance"))
        self.plot = AnswerPlot()
        self.selected = label("", "", BODY, wraps=True)
        self.selected.setAlignment(Qt.AlignmentFlag.AlignTop)
        words = tr("How fast answers are written will be shown here, from the first one on.")
        self.nothing = label(words, "secondary", wraps=True)
        self.copy_button = TextButton(tr("Copy all measurements (Prometheus text)"), "outlined")
        self.rows: list[Row] = []
        self._values: list[QLabel] = []
        self.view = QScrollArea(self)
        self.first = self.plot  # has the focus first; Tab would skip what is before a focus proxy
        self._lay_out()
        self.copy_button.clicked.connect(self._copy)
        self.plot.selected.connect(self._show_selected)
        self.view.verticalScrollBar().rangeChanged.connect(self._align_head)
        state.answers_changed.connect(self._on_answers)
        state.metrics_changed.connect(self._show_rows)
        self._show_answers()
        follow_palette(self._recolor)

    def _lay_out(self) -> None:
        top = QWidget()
        head = QHBoxLayout(top)
        head.setContentsMargins(0, 12, 0, 16)
        head.addWidget(self.title, 1)
        head.addWidget(self.close_button)
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(20)
        self._grid.setVerticalSpacing(8)
        self._grid.setColumnStretch(1, 1)
        self._grid.setColumnMinimumWidth(0, _NAMES_WIDTH)
        buttons = QHBoxLayout()
        buttons.addWidget(self.copy_button)
        buttons.addStretch(1)
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 0, 0, 12)
        column.setSpacing(16)
        column.addWidget(self.nothing)
        column.addWidget(self.plot)
        column.addWidget(self.selected)
        column.addLayout(self._grid)
        column.addLayout(buttons)
        column.addStretch(1)
        self._column = Column(content)
        self._column.setObjectName("rows")
        self._column.setMinimumWidth(1)  # the viewport sets the width, also before the first show
        self.view.setFrameShape(QFrame.Shape.NoFrame)
        self.view.setWidgetResizable(True)
        self.view.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.view.setWidget(self._column)
        page = QVBoxLayout(self)
        page.setContentsMargins(0, 0, 0, 0)
        page.setSpacing(0)
        self._head = QHBoxLayout()
        self._head.addWidget(Column(top))
        page.addLayout(self._head)
        page.addWidget(self.view, 1)

    def _recolor(self, palette: Palette) -> None:
        self.view.setStyleSheet(
            f"QScrollArea, QWidget#rows {{ background: {palette.background}; border: none; }}"
        )

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
            if words == self.selected.text():
                return
            self.selected.setText(words)
            self._keep_height()
            self.plot.setAccessibleDescription(words)
            if self.plot.hasFocus():  # not for every answer that ends meanwhile
                accessibility.announce(self.plot, words)

    def _align_head(self) -> None:
        """The head is above the rows, also beside a scroll bar."""
        bar = self.view.verticalScrollBar()
        width = bar.sizeHint().width() if bar.maximum() > 0 else 0
        set_margins(self._head, 0, 0, width, 0)

    def _keep_height(self) -> None:
        """What is below does not jump while the pointer moves from answer to answer."""
        line = self.selected
        least = 2 * line.fontMetrics().height()
        line.setMinimumHeight(max(line.heightForWidth(line.width()), line.minimumHeight(), least))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.oldSize().width() != self.width():
            self.selected.setMinimumHeight(0)

    def _show_rows(self) -> None:
        """Show the typical figures, and those of the engine once they were read."""
        metrics = self._state.metrics
        rows = [*typical_rows(self._state.answers), *memory_rows(metrics), *metrics_rows(metrics)]
        self.copy_button.setVisible(metrics is not None)
        if rows == self.rows:
            return
        if [name for name, _ in rows] != [name for name, _ in self.rows]:
            self._make_rows(rows)
        self.rows = rows
        for (name, value), words in zip(rows, self._values, strict=True):
            words.setText(value or name)
            words.setAccessibleName(
                tr("{setting}: {value}", setting=name, value=value) if value else name
            )

    def _make_rows(self, rows: Sequence[Row]) -> None:
        """Labels for these rows, in place of those of others."""
        while (item := self._grid.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        self._values.clear()
        top = Qt.AlignmentFlag.AlignTop
        for place, (name, value) in enumerate(rows):
            if not value:  # a heading
                heading = label(name, "secondary", SMALL)
                heading.setContentsMargins(0, 8, 0, 0)
                self._values.append(heading)
                self._grid.addWidget(heading, place, 0, 1, 2)
                continue
            words = label("", "", BODY, wraps=True)
            words.setFont(figures(BODY))
            make_selectable(words)
            self._values.append(words)
            self._grid.addWidget(label(name, "secondary", BODY), place, 0, top)
            self._grid.addWidget(words, place, 1, top)

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
        parts.append(tr("{speed} tokens/s", speed=number(one.tokens_per_second, 1)))
    if one.first_token_seconds > 0:
        parts.append(tr("first word after {seconds} s", seconds=number(one.first_token_seconds, 2)))
    if one.token_seconds_p95 > 0:
        parts.append(
            tr("{time} per token", time=usual_time(one.token_seconds_p50, one.token_seconds_p95))
        )
    if one.reused_tokens:
        share = number(100 * one.reused_tokens / max(one.prompt_tokens, 1), 0)
        parts.append(tr("{percent} % of the chat was still in memory", percent=share))
    if one.accepted_tokens and one.draft_gain >= _SHOWN_GAIN:
        gain = number(one.draft_gain, 1)
        parts.append(tr("{gain} times as fast by guessing ahead", gain=gain))
    return tr("{which}: {facts}.", which=which, facts=listed(parts))


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
            (
                tr("Typical speed"),
                tr("{speed} tokens/s", speed=number(statistics.median(speeds), 1)),
            )
        )
    if waits := [one.first_token_seconds for one in same if one.first_token_seconds > 0]:
        wait = number(statistics.median(waits), 2)
        rows.append((tr("Typical wait"), tr("first word after {seconds} s", seconds=wait)))
    return rows


def metrics_rows(metrics: MetricsRead | None) -> list[Row]:
    """What the engine measured since the model was loaded, below a heading."""
    if metrics is None:
        return []
    rows: list[Row] = []
    first, token = metrics.first_token_seconds, metrics.token_seconds
    if first.p95 > 0:
        rows.append((tr("Wait for the first word"), usual_time(first.p50, first.p95)))
    if token.p95 > 0:
        rows.append((tr("Time per token"), usual_time(token.p50, token.p95)))
    if metrics.prompt_tokens:
        share = number(100 * metrics.reused_tokens / metrics.prompt_tokens, 0)
        read = tr(
            "{percent} % of {tokens} tokens were still in memory",
            percent=share,
            tokens=number(metrics.prompt_tokens),
        )
        rows.append((tr("Already in memory"), read))
    if metrics.drafted_tokens:
        right = tr(
            "{right} of {all} guessed tokens were right",
            right=number(metrics.accepted_tokens),
            all=number(metrics.drafted_tokens),
        )
        rows.append((tr("Guessing ahead"), right))
    heading = tr("Since {model} was loaded", model=metrics.model)
    return [(heading, ""), *rows] if rows else []


def memory_rows(metrics: MetricsRead | None) -> list[Row]:
    """The memory in use now."""
    if metrics is None:
        return []
    kept = metrics.active_page_bytes + metrics.cached_page_bytes
    disk = size(metrics.saved_page_bytes)
    cached = tr("{memory} in memory, {disk} on disk", memory=size(kept), disk=disk)
    if metrics.active_page_bytes:
        cached = tr(
            "{memory} in memory, {active} of it in use, {disk} on disk",
            memory=size(kept),
            active=size(metrics.active_page_bytes),
            disk=disk,
        )
    rows = [(tr("Chats kept ready"), cached), (tr("Memory in use"), size(metrics.resident_bytes))]
    if metrics.device_bytes:
        rows.append((tr("GPU memory in use"), size(metrics.device_bytes)))
    return rows
