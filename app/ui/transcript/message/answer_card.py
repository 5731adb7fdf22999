"""Card about one answer: model, length, speed, sampling, seed, time, and why it ended."""

from __future__ import annotations

import json
from typing import cast

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QGridLayout, QVBoxLayout, QWidget

from app.domain.answer_details import AnswerDetails
from app.domain.connection import short_name
from app.domain.message import Message, MessageState, StopReason
from app.domain.parts import clipboard_text
from app.domain.word_count import word_count
from app.settings.samplers import SAMPLERS
from app.state.performance import tokens_per_second
from app.system.translation import isolated, listed, number, tr, trn
from app.ui.theme.theme import BODY, READING, figures, font
from app.ui.transcript.message.endings import ending, short_ending
from app.ui.transcript.message.message_tools import adapters_in_words
from app.ui.widgets.controls import TextButton, label, make_selectable
from app.ui.widgets.units import moment, usual_time

CARD_WIDTH = 460
_SHOWN_GAIN = 1.05  # of speculative decoding; a smaller one is noise


class AnswerCard(QWidget):
    """Rows of names and values, whose text can be selected; the exact figures on request."""

    resized = Signal()  # the size hint has changed

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(24, 20, 24, 24)
        layout.setSpacing(12)
        title = label(tr("About this answer"), "", READING)
        title.setFont(font(READING, QFont.Weight.Medium))
        layout.addWidget(title)
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(20)
        self._grid.setVerticalSpacing(8)
        self._grid.setColumnStretch(1, 1)
        layout.addLayout(self._grid)
        self._exact: list[QWidget] = []  # of the rows that are shown on request
        self.more = TextButton("", "link")
        self.more.clicked.connect(lambda: self._show_exact(not self._is_exact))
        self._is_exact = False
        layout.addWidget(self.more, 0, Qt.AlignmentFlag.AlignLeading)
        self.rows: list[tuple[str, str]] = []

    def show_message(self, message: Message, selected: str = "") -> None:
        """Show the details of an answer, and the length of the selected text."""
        while (item := self._grid.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        first, exact = answer_rows(message), exact_rows(message)
        if length := length_words(selected):
            first.append((tr("Selected"), length))
        self.rows = [*first, *exact]
        self._exact.clear()
        for place, (name, value) in enumerate(self.rows):
            words = label(value, "", BODY, wraps=True)
            words.setFont(figures(BODY))
            make_selectable(words)
            words.setAccessibleName(tr("{setting}: {value}", setting=name, value=value))
            top = Qt.AlignmentFlag.AlignTop
            title = label(name, "secondary", BODY)
            self._grid.addWidget(title, place, 0, top)
            self._grid.addWidget(words, place, 1, top)
            if place >= len(first):
                self._exact += [title, words]
        self.more.setVisible(bool(exact))
        self._show_exact(False)

    def _show_exact(self, shown: bool) -> None:
        self._is_exact = shown
        self.more.setText(tr("Hide details") if shown else tr("Details"))
        for widget in self._exact:
            widget.setVisible(shown)
        self.resized.emit()


def answer_rows(message: Message) -> list[tuple[str, str]]:
    """Names and values of what is known about an answer; unknown rows are left out."""
    made = message.details
    rows = [
        (tr("Model"), _model(message)),
        (tr("Connection"), isolated(made.connection) if made and made.connection else ""),
        (tr("Server"), isolated(made.server) if made and made.server else ""),
        (tr("Adapters"), adapters_in_words(message.adapters)),
        (tr("Asked for"), made.extra if made else ""),
        (tr("Read"), _read(message)),
        (tr("Written"), _written(message)),
        (tr("Usage"), _missing_usage(message)),
        (tr("Length"), length_words(clipboard_text(message.parts))),
        (tr("Thoughts"), _thoughts(made) if made else ""),
        (tr("Speed"), _speed(message)),
        (tr("Time"), moment(made.ended if made and made.ended else message.created)),
        (tr("Ended"), _ended(message)),
    ]
    return [(name, value) for name, value in rows if value]


def exact_rows(message: Message) -> list[tuple[str, str]]:
    """The names and values that are shown on request: measured figures and exact terms."""
    made = message.details
    if made is None:
        return []
    seed = str(made.seed) if made.temperature > 0 and made.seed >= 0 else ""
    rows = [
        (tr("Time per token"), _token_times(made)),
        (tr("Guessing ahead"), _guessed(made)),
        (tr("Sampling"), _sampling(made)),
        (tr("Format"), made.constraint),
        (tr("Seed"), seed),
    ]
    return [(name, value) for name, value in rows if value]


def _model(message: Message) -> str:
    made = message.details
    if made is None or not made.model:
        return message.model
    more = made.format or short_name(made.server_model)
    return f"{made.model} ({more})" if more else made.model


def _missing_usage(message: Message) -> str:
    """That a server did not say how many tokens an answer took."""
    made = message.details
    if made is None or not made.server or message.generated_tokens:
        return ""
    return tr("{server} did not report it", server=isolated(made.server))


def length_words(text: str) -> str:
    """The length of a text in words and characters; "" if it has none."""
    if not (words := word_count(text)):
        return ""
    counted = trn("{count} word", "{count} words", words)
    return listed((counted, trn("{count} character", "{count} characters", len(text))))


def _read(message: Message) -> str:
    if not message.prompt_tokens:
        return ""
    whole = trn("{count} token", "{count} tokens", message.prompt_tokens)
    reused = message.details.reused_tokens if message.details else 0
    if not reused:
        return whole
    kept = number(reused)
    return tr("{tokens}; {reused} of them were still in memory", tokens=whole, reused=kept)


def _written(message: Message) -> str:
    if not message.generated_tokens:
        return ""
    return trn("{count} token", "{count} tokens", message.generated_tokens)


def _thoughts(made: AnswerDetails) -> str:
    """Their part of the written tokens."""
    if not made.thought_tokens:
        return ""
    tokens = trn("{count} token", "{count} tokens", made.thought_tokens)
    if not made.thought_budget:
        return tokens
    return tr("{tokens}, then the thinking budget was used up", tokens=tokens)


def _speed(message: Message) -> str:
    made = message.details
    parts: list[str] = []
    if made and (measured := tokens_per_second(message.generated_tokens, made.decode_seconds)):
        speed = number(measured, 1)
        parts.append(tr("{speed} tokens/s", speed=speed))
    if made and made.accepted_tokens and made.draft_gain >= _SHOWN_GAIN:
        gain = number(made.draft_gain, 1)
        parts.append(tr("{gain} times as fast by guessing ahead", gain=gain))
    if made and made.first_token_seconds > 0:
        parts.append(
            tr("first word after {seconds} s", seconds=number(made.first_token_seconds, 2))
        )
    return listed(parts)


def _token_times(made: AnswerDetails) -> str:
    if made.token_seconds_p95 <= 0:
        return ""
    return usual_time(made.token_seconds_p50, made.token_seconds_p95)


def _guessed(made: AnswerDetails) -> str:
    if not made.drafted_tokens:
        return ""
    right, drafted = number(made.accepted_tokens), number(made.drafted_tokens)
    return tr("{right} of {all} guessed tokens were right", right=right, all=drafted)


def _sampling(made: AnswerDetails) -> str:
    if made.server:
        sent = _named(made.sent_sampling)
        rest = tr("the rest as the server has it") if sent else tr("As the server has it")
        return listed((*sent, rest))
    if made.temperature <= 0:
        return listed((tr("Always the likeliest word (temperature 0)"), *_more(made)))
    parts = [tr("temperature {value}", value=made.temperature)]
    if made.top_k > 0:
        parts.append(tr("top-k {value}", value=made.top_k))
    if made.top_p < 1:
        parts.append(tr("top-p {value}", value=made.top_p))
    if made.min_p > 0:
        parts.append(tr("min-p {value}", value=made.min_p))
    if made.repeat_penalty != 1:
        parts.append(tr("repeat penalty {value}", value=made.repeat_penalty))
    return listed((*parts, *_more(made)))


def _more(made: AnswerDetails) -> list[str]:
    """The other sampling values that were not as usual, each with its name."""
    return _named(made.more_sampling)


def _named(sampling: str) -> list[str]:
    """The values of a JSON object of sampling values, each with its name."""
    try:
        stored: object = json.loads(sampling or "{}")
    except (ValueError, RecursionError):
        return []
    if not isinstance(stored, dict):
        return []
    values = cast("dict[str, object]", stored)
    return [
        tr("{setting} {value}", setting=tr(setting.label), value=value)
        for name, setting in SAMPLERS.items()
        if isinstance(value := values.get(name), int | float)
    ]


def _ended(message: Message) -> str:
    if message.state is MessageState.COMPLETE:
        return tr("The answer is complete")
    if message.state is MessageState.STOPPED and message.stop == StopReason.USER:
        return tr("Stopped by you")
    return ending(message) or short_ending(message)
