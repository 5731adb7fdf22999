"""An engine for long documents whose answers a test gives, and whose tokens are words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from app.chat.documents.long_documents import LongAnswer
from app.domain.deltas import (
    AnswerEnd,
    AnswerFailed,
    AnswerUsage,
    Delta,
    EndReason,
    PromptProgressDelta,
    TextDelta,
)
from app.domain.parts import ErrorPart
from app.engines.run import start

Answer = str | ErrorPart | EndReason  # a text, why there is none, or how a text of it ends


class ScriptedRun:
    """One request: `AnswerRun`."""

    def __init__(self, question: str, answer: Answer) -> None:
        self.id = 0
        self._question, self._answer, self._cancelled = question, answer, False

    def cancel(self) -> None:
        self._cancelled = True

    async def deltas(self) -> AsyncIterator[Delta]:
        """What the test wants to come."""
        tokens = len(self._question.split())
        if self._cancelled:
            yield AnswerEnd(EndReason.CANCELLED)
            return
        if isinstance(self._answer, ErrorPart):
            raise AnswerFailed(self._answer)
        yield PromptProgressDelta(tokens, tokens)
        reason = self._answer if isinstance(self._answer, EndReason) else EndReason.END
        text = "again and again" if isinstance(self._answer, EndReason) else self._answer
        if text:
            yield TextDelta(text, len(text.split()), tokens)
        yield AnswerUsage(tokens, 0, len(text.split()), decode_seconds=0.1)
        yield AnswerEnd(reason)


class ScriptedDoor:
    """A `Door`."""

    def __init__(self, answer: Callable[[str], Answer], context: int = 2048) -> None:
        self.context, self.instructions = context, ""
        self.asked: list[str] = []  # questions, in order
        self.most: list[int] = []  # tokens of each answer
        self._answer = answer

    async def chat_tokens(self) -> int:
        return 10

    async def count(self, text: str) -> int:
        return len(text.split())

    def ask(self, text: str, begun: str = "", most_tokens: int = 0) -> ScriptedRun:
        self.asked.append(text)
        self.most.append(most_tokens)
        return ScriptedRun(text, self._answer(text))


def collect(answer: LongAnswer, into: list[Delta] | None = None) -> list[Delta]:
    """All deltas of an answer whose requests end at once; raises what it raises."""
    got: list[Delta] = [] if into is None else into
    failed: list[Exception] = []

    async def read() -> None:
        try:
            async for delta in answer.deltas():
                got.append(delta)
        except AnswerFailed as error:
            failed.append(error)

    start(read(), failed.append)
    if failed:
        raise failed[0]
    return got
