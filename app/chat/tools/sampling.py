"""Answers of the model that a server of tools asks for: each with consent, seen before it is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from app.chat.tools.server_questions import ServerQuestions
from app.domain.deltas import AnswerFailed, TextDelta
from app.domain.tool_servers import SamplingQuestion
from app.engines.client import EngineClient
from app.engines.local import LocalAnswer
from app.engines.run import start
from app.state.chat import ModelPhase, State
from app.state.tool_servers import ToolServersState
from app.system.translation import tr
from engine import Chat, Priority, Role, Sampling, Turn

if TYPE_CHECKING:
    from app.tools.mcp.hooks import SamplingRequest

_MOST_TOKENS = 4_096
_MOST_LETTERS = 100_000  # of all messages
_ROLES = {"system": Role.SYSTEM, "assistant": Role.ASSISTANT}


class ServerSampling:
    """Asks the user, lets the model write, and shows what it wrote; called on the GUI thread."""

    def __init__(
        self,
        state: State,
        shown: ToolServersState,
        questions: ServerQuestions,
        engine: EngineClient,
        report: Callable[[Exception], None],
    ) -> None:
        self._state, self._questions, self._engine = state, questions, engine
        self._report = report
        self._requests: dict[int, SamplingRequest] = {}  # by number of the question
        self._answers: dict[int, LocalAnswer] = {}
        shown.questions_changed.connect(self._forget)

    async def ask(self, name: str, request: SamplingRequest) -> str | None:
        """Ask on the tools' thread; the answer as the user has seen it, None: refused."""
        instructions = (("system", request.instructions),) if request.instructions else ()
        messages = (*instructions, *request.messages)
        if sum(len(text) for _, text in messages) > _MOST_LETTERS:
            return None

        def made(number: int) -> SamplingQuestion:
            self._requests[number] = request
            return SamplingQuestion(number, name, messages)

        answer = await self._questions.ask(made)
        return answer if isinstance(answer, str) else None

    def write(self, number: int) -> None:
        """The user agreed: let the model write the answer to a question."""
        question = self._questions.find(number, SamplingQuestion)
        request = self._requests.get(number)
        if question is None or request is None or question.is_written:
            return
        if self._state.model.phase is not ModelPhase.READY:
            problem = tr("No model is loaded on this computer. Load one, and try again.")
            self._questions.change(question, problem=problem)
            return
        turns = tuple(Turn(_ROLES.get(role, Role.USER), text) for role, text in question.messages)
        usual = Sampling()
        warm = usual.temperature if request.temperature is None else request.temperature
        asked = Chat(
            turns,
            Sampling(temperature=min(max(warm, 0.0), 2.0)),
            min(request.most_tokens or _MOST_TOKENS, _MOST_TOKENS),
            tuple(each for each in request.stop if each)[:16],
            thinking=False,
            thinking_budget=0,
        )
        answer = self._answers[number] = LocalAnswer(self._engine.submit(asked, Priority.WINDOW))
        self._questions.change(question, is_written=True, problem="")
        start(self._read(answer, question), self._report)

    async def _read(self, answer: LocalAnswer, question: SamplingQuestion) -> None:
        written, problem = "", ""
        try:
            async for delta in answer.deltas():
                if isinstance(delta, TextDelta):
                    written += delta.text
                    self._questions.change(question, answer=written)
        except AnswerFailed as error:
            problem = str(error)
        self._questions.change(
            question, is_written=not problem, is_done=not problem, problem=problem
        )
        self._answers.pop(question.number, None)

    def _forget(self) -> None:
        """Stop the answers to questions that are gone."""
        for number in list(self._requests):
            if self._questions.find(number, SamplingQuestion) is None:
                del self._requests[number]
                if (answer := self._answers.pop(number, None)) is not None:
                    answer.cancel()
