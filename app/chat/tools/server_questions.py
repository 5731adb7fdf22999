"""Questions of servers of tools to the user: asked on the tools' thread, answered in the window."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, TypeVar

from app.chat.tools.thread import ToolThread
from app.domain.tool_servers import Question, StartQuestion
from app.state.tool_servers import ToolServersState

Q = TypeVar("Q", bound=Question)
_MOST = 20  # that wait at a time; of more, a server asks in vain


@dataclass(frozen=True, slots=True)
class Problem:
    """What was asked for cannot be done, in one or two sentences."""

    text: str


@dataclass(frozen=True, slots=True)
class NeedsConsent:
    """A server may not start before the user allows it: what is asked, and what that allows."""

    question: StartQuestion  # its number is to be given
    origin: str


class ServerQuestions:
    """Keeps `ToolServersState.questions`; all but `ask` is called on the GUI thread."""

    def __init__(self, shown: ToolServersState, thread: ToolThread) -> None:
        self._shown, self._thread = shown, thread
        self._numbers = count(1)
        self._answers: dict[int, Callable[[Any], None]] = {}

    async def ask(self, make: Callable[[int], Question]) -> Any:
        """Ask on the tools' thread; None: the user declined. Cancelled, the question goes away."""
        number = next(self._numbers)

        def begin(answer: Callable[[Any], None]) -> None:
            if len(self._shown.questions) < _MOST:
                self.add(make(number), answer)
            else:
                answer(None)

        try:
            return await self._thread.ask(begin)
        except asyncio.CancelledError:
            self._thread.tell(lambda: self.remove(number))
            raise

    def next_number(self) -> int:
        """The number of a question that `add` is given."""
        return next(self._numbers)

    def add(self, question: Question, answer: Callable[[Any], None]) -> None:
        """Show a question."""
        self._answers[question.number] = answer
        self._shown.set_questions((*self._shown.questions, question))

    def change(self, question: Question, **values: Any) -> None:
        """Show other values of a question, if it still waits."""
        rows = [
            replace(each, **values) if each.number == question.number else each
            for each in self._shown.questions
        ]
        self._shown.set_questions(rows)

    def find(self, number: int, kind: type[Q]) -> Q | None:
        """A question that waits."""
        found = next((each for each in self._shown.questions if each.number == number), None)
        return found if isinstance(found, kind) else None

    def answer(self, number: int, value: Any) -> None:
        """Answer a question; one that is gone stays so."""
        if (answer := self._answers.get(number)) is not None:
            self.remove(number)
            answer(value)

    def remove(self, number: int) -> None:
        """Show a question no more."""
        if self._answers.pop(number, None) is not None:
            left = [each for each in self._shown.questions if each.number != number]
            self._shown.set_questions(left)
