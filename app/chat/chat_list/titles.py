"""Titles that the model writes: asked for after a chat's first answer, if the settings say so.

The request continues the chat, so that its cached context is used and stays as it is. It runs in
the background, and only while nothing else is written: an answer that begins cancels it, and it is
asked for again afterwards. A title that is not the automatic one was typed by the user, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from app.chat.chat_list.conversations import one_line, shortened, title_of
from app.chat.requests.prompts import PromptBuilder
from app.domain.deltas import AnswerEnd, AnswerFailed, EndReason, TextDelta
from app.domain.message import Message, MessageState, StopReason
from app.domain.parts import parts_of, typed_text
from app.engines.client import EngineClient
from app.engines.local import LocalAnswer
from app.engines.run import start
from app.state.chat import ModelPhase, State
from engine import Chat, Priority, Role, Sampling, Turn

_PROMPT = (
    "Write a title for this conversation: two to six words that name its topic, in the language of"
    " my first message. Reply with the title only."
)
_MOST_TOKENS = 48
_LONGEST = 100  # characters of a line that is a title; a longer one is an answer,
_MOST_WORDS = 10  # as is one with more words
_ANSWER = re.compile(
    r"(?:I['\u2019](?:m|ll|d)|I (?:am|can|can['\u2019]t|cannot|need|apologi[sz]e)|You['\u2019]re|Sorry|Sure"
    r"|Yes|Certainly|Of course)\b",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"(?:\w+ )?(?:title|titel|titre|título|titolo|标题|標題|العنوان)\s*[:\uff1a]\s*", re.I
)
# Markdown and quotation marks, also of other languages.
_MARKS = " \t#*_`>\"'“”„‟«»\u2039\u203a\u2018\u2019「」『』《》"
_ENDS = ".。,;:\uff0c\uff1b\uff1a"


class Titles:
    """Asks the model for the title of one chat at a time."""

    def __init__(
        self,
        state: State,
        engine: EngineClient,
        prompts: PromptBuilder,
        rename: Callable[[int, str], None],
        is_wanted: Callable[[], bool],
        report: Callable[[Exception], None],
    ) -> None:
        """`is_wanted`: the user lets the model title chats. `report` is called with an unexpected
        exception.
        """
        self._state, self._engine, self._prompts = state, engine, prompts
        self._rename, self._is_wanted, self._report = rename, is_wanted, report
        self._waiting: list[int] = []  # conversations
        self._conversation = 0
        self._answer: LocalAnswer | None = None  # that is to be the title of `_conversation`
        self._closed = False
        state.generations_changed.connect(self._on_work)
        state.model_changed.connect(self._on_work)

    def on_answer_ended(self, conversation: int, message: int) -> None:
        """An answer has ended: if it is the first one of a chat, that is titled soon."""
        branch = self._state.branches.get(conversation, ())
        if not self._is_wanted() or not branch or branch[-1].id != message:
            return
        is_whole = branch[-1].state is MessageState.COMPLETE
        if (is_whole or branch[-1].stop == StopReason.LENGTH) and self._automatic_title(branch):
            self._waiting.append(conversation)
            self._start_next()

    def cancel(self) -> None:
        """Keep the automatic title: the user does not want to wait for another one."""
        if self._answer is not None:
            self._answer.cancel()
            self._end()

    def close(self) -> None:
        """Ask for no more titles: the app quits."""
        self._closed = True
        self.cancel()

    # --- steps ----------------------------------------------------------------------------------

    def _automatic_title(self, branch: Sequence[Message]) -> str:
        """The title of a chat with one question, if it is the automatic one; else ""."""
        questions = [message for message in branch if message.role is Role.USER]
        title = self._state.title(branch[0].conversation)
        return title if len(questions) == 1 and title == title_of(questions[0].parts) else ""

    def _on_work(self) -> None:
        """An answer or a load has begun or ended."""
        if self._answer is not None and self._is_busy():
            self._waiting.insert(0, self._conversation)
            self.cancel()
        self._start_next()

    def _is_busy(self) -> bool:
        state = self._state
        return bool(state.generations or state.queued) or state.model.phase is not ModelPhase.READY

    def _start_next(self) -> None:
        while self._waiting and not (self._answer or self._closed or self._is_busy()):
            conversation = self._waiting.pop(0)
            branch = self._state.branches.get(conversation, ())
            settings = self._state.settings(conversation)
            automatic = self._automatic_title(branch) if branch else ""
            if automatic and self._is_wanted() and self._state.has_in_use(settings.model):
                self._ask(conversation, branch, automatic)

    def _ask(self, conversation: int, branch: Sequence[Message], automatic: str) -> None:
        turns = (*self._prompts.turns(conversation, branch), Turn(Role.USER, _PROMPT))
        asked = Chat(
            turns,
            Sampling(temperature=0.0),
            _MOST_TOKENS,
            thinking=False,
            thinking_budget=0,
        )
        self._conversation = conversation
        self._answer = LocalAnswer(self._engine.submit(asked, Priority.BACKGROUND))
        self._state.set_titled(conversation)
        start(self._read(self._answer, conversation, automatic), self._on_fault)

    async def _read(self, answer: LocalAnswer, conversation: int, automatic: str) -> None:
        """Give the chat its title, unless the user has typed one meanwhile."""
        written, reason = "", EndReason.CANCELLED
        try:
            async for delta in answer.deltas():
                if isinstance(delta, TextDelta):
                    written += delta.text
                elif isinstance(delta, AnswerEnd):
                    reason = delta.reason
        except AnswerFailed:  # the automatic title stays, as when the chat is full
            if answer is self._answer:
                self._end()
            return
        if answer is not self._answer:  # it was cancelled
            return
        if reason is EndReason.LENGTH:
            written = written[: written.rfind("\n") + 1]  # its last line is not complete
        title = cleaned(written)
        is_automatic = self._state.title(conversation) == automatic
        self._end()
        if title and is_automatic and reason is not EndReason.CANCELLED:
            self._rename(conversation, title)
        self._start_next()

    def _on_fault(self, error: Exception) -> None:
        self._report(error)
        self.cancel()

    def _end(self) -> None:
        self._answer = None
        self._state.set_titled(None)


def cleaned(text: str) -> str:
    """The title in a model's answer, on one line; "" if it has none.

    Thoughts, quotation marks, Markdown, a label such as "Title:" and a line before the title that
    ends in a colon are left out. What answers the chat instead is no title.
    """
    said = typed_text(parts_of(Role.ASSISTANT, text))
    lines = [line for each in said.splitlines() if (line := one_line(each).strip(_MARKS))]
    while len(lines) > 1 and lines[0].endswith((":", "\uff1a")):
        del lines[0]
    line = _LABEL.sub("", lines[0], 1) if lines and _LABEL.match(lines[0]) else "".join(lines[:1])
    title = line.strip(_MARKS).rstrip(_ENDS).strip(_MARKS)
    if len(title) > _LONGEST or len(title.split()) > _MOST_WORDS or _ANSWER.match(title):
        return ""
    return shortened(title) if any(letter.isalnum() for letter in title) else ""
