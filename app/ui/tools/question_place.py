"""Where questions of servers of tools appear in the window; made with the first question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QApplication, QVBoxLayout, QWidget

from app.state.tool_servers import ToolServersState

if TYPE_CHECKING:
    from app.ui.tools.questions import QuestionsView


class QuestionPlace(QWidget):
    """Hidden while nothing is asked."""

    made = Signal(object)  # QuestionsView, to be connected

    def __init__(self, state: ToolServersState, window: QWidget) -> None:
        super().__init__()
        self._state, self._window = state, window
        self.view: QuestionsView | None = None
        self._count = 0
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self.hide()
        state.questions_changed.connect(self.refresh)

    def refresh(self) -> None:
        """Show the questions of the state."""
        questions = self._state.questions
        if questions and self.view is None:
            from app.ui.tools.questions import QuestionsView

            self.view = QuestionsView(self._state, self._window.height)
            self._layout.addWidget(self.view)
            self.made.emit(self.view)
        self.setVisible(bool(questions))
        if self.view is not None:
            self.view.refresh()
        if len(questions) > self._count:
            QApplication.alert(self._window)
        self._count = len(questions)

    def fit(self) -> None:
        """Fit the question to the window, after the window changed size."""
        if self.view is not None:
            self.view.fit()
