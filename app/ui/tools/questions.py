"""Questions of servers of tools, above every page: whether one may start, forms, pages, requests."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QFont, QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget

from app.domain.tool_servers import (
    FormQuestion,
    PageQuestion,
    Question,
    SamplingQuestion,
    StartQuestion,
)
from app.domain.visible_text import on_one_line, written_out
from app.state.tool_servers import ToolServersState
from app.system.translation import isolated, tr, trn
from app.ui.theme.palette import Palette, follow_palette
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.tools.code_text import CodeText
from app.ui.tools.form_view import FormView
from app.ui.widgets import accessibility
from app.ui.widgets.cards import button_line, show_words, wrapped
from app.ui.widgets.controls import TextButton, label, set_margins

_SHARE = 0.6  # of the window's height: more of a question is scrolled to


class QuestionCard(QFrame):
    """One question, with the buttons that answer it."""

    answered = Signal(object)  # the value; None or False: no
    agreed = Signal()  # the model may write an answer

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.setObjectName("banner")
        self.question = question
        self.title = label("", "", BODY, wraps=True)
        self.title.setFont(font(BODY, QFont.Weight.Medium))
        self.yes = TextButton("", "primary")
        self.no = TextButton("", "outlined")
        self.form: FormView | None = None
        self.answer: CodeText | None = None  # of the model
        self._parts = QWidget()
        self._parts.setObjectName("question")
        self.view = QScrollArea()
        self.view.setObjectName("question")
        self.view.setWidget(self._parts)
        self.view.setWidgetResizable(True)
        self.view.setFrameShape(QFrame.Shape.NoFrame)
        self.view.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._rows = QVBoxLayout(self._parts)
        set_margins(self._rows, 0, 0, 4, 0)
        self._rows.setSpacing(4)
        layout = QVBoxLayout(self)
        set_margins(layout, 12, 8, 8, 10)
        layout.setSpacing(6)
        layout.addWidget(self.title)
        layout.addWidget(self.view)
        layout.addWidget(button_line(self.yes, self.no))
        self.yes.clicked.connect(self._accept)
        self.no.clicked.connect(lambda: self.answered.emit(None))
        self._most = 0  # pixels of the view
        self._fill()
        self._rows.addStretch(1)
        self._parts.installEventFilter(self)

    @property
    def first(self) -> QWidget:
        """What has the focus first: never what agrees."""
        return self.form.first if self.form is not None and self.form.fields else self.no

    def show_question(self, question: Question) -> None:
        """Show another state of the same question."""
        self.question = question
        if isinstance(question, SamplingQuestion) and self.answer is not None:
            self.answer.show_text(written_out(question.answer))
            for part in (self._answer_title, self.answer):
                part.setVisible(question.is_written)
            show_words(self.problem, question.problem)
            is_asked = not question.is_written
            self.yes.setText(tr("Let the model answer") if is_asked else tr("Send the answer"))
            self.yes.setEnabled(is_asked or question.is_done)

    def fit(self, height: int) -> None:
        """Be at most so high; the rest is scrolled to."""
        self._most = height
        width = self.view.viewport().width()
        self._rows.activate()
        needed = self._rows.heightForWidth(width) if self._rows.hasHeightForWidth() else 0
        needed = max(needed, self._rows.minimumSize().height())
        self.view.setFixedHeight(max(min(needed + 2, height), 24))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest:  # a text has other lines
            QTimer.singleShot(0, self, lambda: self.fit(self._most))
        return super().eventFilter(watched, event)

    # --- steps ----------------------------------------------------------------------------------

    def _fill(self) -> None:
        match self.question:
            case StartQuestion() as question:
                self._fill_start(question)
            case FormQuestion() as question:
                self._fill_form(question)
            case PageQuestion() as question:
                self._fill_page(question)
            case SamplingQuestion() as question:
                self._fill_sampling(question)

    def _fill_start(self, question: StartQuestion) -> None:
        name = isolated(on_one_line(question.name))
        if question.differences:
            self.title.setText(tr("“{name}” is not what you allowed before. Start it?", name=name))
        elif question.address:
            self.title.setText(tr("Connect to “{name}”?", name=name))
        else:
            self.title.setText(tr("Start “{name}”?", name=name))
        usual = tr(
            "This program runs as you: it can read and change your files, and use the network"
            " even while Tokonoma is offline."
        )
        remote = tr("What a model or you give to its tools is sent to this address.")
        self._rows.addWidget(wrapped(remote if question.address else usual))
        self._add_code(tr("Program and arguments"), question.command)
        self._add_code(tr("Address"), (question.address,) if question.address else ())
        self._add_code(tr("Folder"), (question.folder,) if question.folder else ())
        self._add_code(tr("Names of its variables"), question.environment)
        self._add_code(tr("Names of its headers"), question.headers)
        self._add_code(tr("What is different"), question.differences)
        self.yes.setText(tr("Connect") if question.address else tr("Start"))
        self.no.setText(tr("Don't connect") if question.address else tr("Don't start"))

    def _fill_form(self, question: FormQuestion) -> None:
        name = isolated(on_one_line(question.name))
        self.title.setText(tr("“{name}” asks you", name=name))
        self._rows.addWidget(wrapped(written_out(question.text), "", BODY))
        self.form = FormView(question.fields)
        self.form.submitted.connect(self._accept)
        self._rows.addWidget(self.form)
        self._rows.addWidget(
            wrapped(tr("What you enter is sent to this server. Enter no passwords here."))
        )
        if question.is_own:
            self.title.setText(name)
        self.yes.setText(tr("Send"))
        self.no.setText(tr("Cancel") if question.is_own else tr("Decline"))

    def _fill_page(self, question: PageQuestion) -> None:
        name = isolated(on_one_line(question.name))
        self.title.setText(tr("“{name}” asks to open a page in your browser", name=name))
        self._rows.addWidget(wrapped(written_out(question.text)))
        self._add_code(tr("Address"), (written_out(question.address),))
        self.yes.setText(tr("Open the page"))
        self.no.setText(tr("Don't open it"))

    def _fill_sampling(self, question: SamplingQuestion) -> None:
        name = isolated(on_one_line(question.name))
        self.title.setText(tr("“{name}” asks your model for an answer", name=name))
        self._rows.addWidget(
            wrapped(
                tr("This is all that the model is asked. You see its answer before it is sent.")
            )
        )
        roles = {"system": tr("Instructions"), "assistant": tr("Answer")}
        for role, text in question.messages:
            self._add_code(roles.get(role, tr("Question")), (written_out(text),))
        self.answer = CodeText(tr("Answer of your model"), 12)
        self.answer.hide()
        self.problem = wrapped("", "danger")
        self._answer_title = label(tr("Answer of your model"), "secondary", SMALL)
        self._answer_title.setFont(font(SMALL, QFont.Weight.DemiBold))
        for part in (self._answer_title, self.answer, self.problem):
            self._rows.addWidget(part)
        self.no.setText(tr("Refuse"))
        self.show_question(question)

    def _add_code(self, title: str, lines: tuple[str, ...]) -> CodeText | None:
        if not lines:
            return None
        heading = label(title, "secondary", SMALL)
        heading.setFont(font(SMALL, QFont.Weight.DemiBold))
        heading.setContentsMargins(0, 4, 0, 0)
        field = CodeText(title, 12)
        self._rows.addWidget(heading)
        self._rows.addWidget(field)
        field.show_text("\n".join(lines))
        return field

    def _accept(self) -> None:
        question = self.question
        if isinstance(question, SamplingQuestion):
            if question.is_done:
                self.answered.emit(question.answer)
            else:
                self.agreed.emit()
        elif self.form is not None:
            values = self.form.values()
            if values is not None:
                self.answered.emit(values)
        else:
            self.answered.emit(True)


class QuestionsView(QWidget):
    """Shows the first question of the state; hidden while there is none."""

    answered = Signal(int, object)  # number of a question, and its answer; None: declined
    page_requested = Signal(int, str)  # number of a question, and an address for the browser
    agreed = Signal(int)  # number of a question: the model may write its answer

    def __init__(self, state: ToolServersState, height: Callable[[], int]) -> None:
        """`height` is that of the window."""
        super().__init__()
        self._state, self._height = state, height
        self.card: QuestionCard | None = None
        self._before: QWidget | None = None  # what had the focus before the question
        self.count = wrapped("")
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 8, 0, 0)
        self._layout.setSpacing(4)
        self._layout.addWidget(self.count)
        self.hide()
        state.questions_changed.connect(self.refresh)
        follow_palette(self._recolor)

    def refresh(self) -> None:
        """Show the first question that waits."""
        questions = self._state.questions
        first = questions[0] if questions else None
        before = self.card.question.number if self.card is not None else 0
        if self.card is not None and (first is None or first.number != before):
            self._close(self.card)
            self.card = None
        if first is not None and self.card is None:
            self._open(first)
        elif first is not None and self.card is not None:
            self.card.show_question(first)
        more = len(questions) - 1
        show_words(
            self.count,
            trn("{count} more question waits.", "{count} more questions wait.", more)
            if more > 0
            else "",
        )
        self.setVisible(first is not None)
        self.fit()

    def fit(self) -> None:
        """Fit the question to the window."""
        if self.card is not None:
            self.card.fit(round(self._height() * _SHARE) - 120)

    # --- steps ----------------------------------------------------------------------------------

    def _open(self, question: Question) -> None:
        card = self.card = QuestionCard(question)
        card.answered.connect(self._answer)
        card.agreed.connect(lambda: self.agreed.emit(question.number))
        self._layout.insertWidget(0, card)
        accessibility.announce(self, card.title.text())
        is_own = isinstance(question, FormQuestion) and question.is_own
        if is_own or isinstance(question, StartQuestion):  # the user has just asked for it
            self.setVisible(True)
            self._before = before = self._focused()
            if before is not None:
                before.destroyed.connect(self._forget)
            card.first.setFocus(Qt.FocusReason.OtherFocusReason)

    def _close(self, card: QuestionCard) -> None:
        before, self._before = self._before, None
        if card.isAncestorOf(self.window().focusWidget() or self):
            near = before if before is not None and before.isVisible() else self.window()
            near.setFocus(Qt.FocusReason.OtherFocusReason)
        self._layout.removeWidget(card)
        card.hide()
        card.deleteLater()

    def _focused(self) -> QWidget | None:
        """What has the focus in the window."""
        return self.window().focusWidget()

    def _forget(self) -> None:
        self._before = None

    def _answer(self, value: object) -> None:
        if self.card is None:
            return
        question = self.card.question
        if isinstance(question, PageQuestion) and value:
            self.page_requested.emit(question.number, question.address)
        else:
            self.answered.emit(question.number, value)

    def _recolor(self, palette: Palette) -> None:
        self.setStyleSheet(
            "QScrollArea#question, QWidget#question { background: transparent; border: none; }"
            f'QLineEdit[wrong="true"] {{ border-color: {palette.danger}; }}'
        )

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.fit()
