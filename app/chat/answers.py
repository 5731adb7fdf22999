"""Answers on their way: queued, written one at a time, stopped, and saved in small pieces.

An answer exists as a message from the moment it is asked for, so that a crash at any time leaves a
place to continue from. Its text reaches the store every 300 ms.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, replace

from PySide6.QtCore import QTimer

from app.chat.adapters import Adapters
from app.chat.planner import Branch
from app.chat.runner import Runner
from app.engines.client import EngineRequests
from app.state.chat import Generation, ModelPhase, State
from app.store.store import Message, MessageState, Store
from app.store.writer import Archive
from engine import (
    Failed,
    Finished,
    FinishReason,
    Generate,
    PromptProgress,
    Sampling,
    Text,
    Turn,
)

_SAVE_MILLISECONDS = 300
_SPEED_SECONDS = 0.25  # how often the speed shown may change
_ENDS = {
    FinishReason.END: MessageState.COMPLETE,
    FinishReason.STOP: MessageState.COMPLETE,
    FinishReason.LENGTH: MessageState.STOPPED,
    FinishReason.CONTEXT: MessageState.STOPPED,
    FinishReason.CANCELLED: MessageState.STOPPED,
}
_CONTEXT_FULL = (
    "The conversation fills all the text this model can see at once. Start a new chat to go on."
)


@dataclass(frozen=True, slots=True)
class _Job:
    """An answer that waits for the model, or for the answer before it."""

    branch: Branch  # that ends with it
    conversation: int
    message: int
    text: str  # that is there already
    command: Generate
    without_adapters: bool  # without the conversation's adapters


class Answers:
    """The queue of answers and the one that is being written."""

    def __init__(
        self,
        state: State,
        archive: Archive,
        link: EngineRequests,
        adapters: Adapters,
        runner: Runner,
    ) -> None:
        self._state = state
        self._archive = archive
        self._link = link
        self._adapters = adapters
        self._runner = runner
        self._jobs: deque[_Job] = deque()
        self._unsaved: list[str] = []
        self._written: list[str] = []  # all of the answer that is being written
        self._saving = QTimer(link, singleShot=True, interval=_SAVE_MILLISECONDS)
        self._saving.timeout.connect(self.save)
        self._first_token: tuple[float, int] | None = None  # when it came, and tokens by then
        self._speed_at = 0.0

    def ask(
        self,
        message: Message,
        turns: tuple[Turn, ...],
        sampling: Sampling,
        most: int,
        *,
        without_adapters: bool = False,
        thinking: bool | None = None,
    ) -> None:
        """Write `message` as the answer to `turns` as soon as its turn comes.

        A `without_adapters` one is written without adapters, whatever the conversation has. `thinking` says
        whether the model is to think first; None leaves that to it.
        """
        ids = tuple(each.id for each in self._state.branches[message.conversation])
        branch = Branch(message.conversation, ids)
        command = Generate(0, turns, sampling, most, thinking=thinking)
        self._jobs.append(
            _Job(branch, message.conversation, message.id, message.text, command, without_adapters)
        )
        self._state.set_waiting(message.id, message.conversation, self._note())
        self.start_next()

    def start_next(self) -> None:
        """Begin the next answer if one can be written; otherwise say what each waits for."""
        ready = self._state.model.phase is ModelPhase.READY
        if self._jobs and ready and self._state.generation is None:
            self._begin(self._jobs[0])
        for job in self._jobs:
            if self._state.waiting.get(job.message) != self._note():
                self._state.set_waiting(job.message, job.conversation, self._note())

    def stop(self, conversation_id: int | None) -> None:
        """Stop what is being written in a conversation, or waits there."""
        current = self._state.generation
        if current and current.conversation == conversation_id and not current.stopping:
            self._link.cancel(current.request)
            self._state.set_generation(replace(current, stopping=True))
        for job in [job for job in self._jobs if job.conversation == conversation_id]:
            self._drop(job, MessageState.STOPPED)

    def stop_writing(self) -> None:
        """Stop the answer being written, whichever conversation it belongs to."""
        if self._state.generation:
            current = self._state.generation
            self._link.cancel(current.request)
            self._state.set_generation(replace(current, stopping=True))

    def fail_waiting(self, error: str) -> None:
        """No model came: every answer that waits failed with this sentence."""
        for job in list(self._jobs):
            self._drop(job, MessageState.FAILED, error)

    def save(self) -> None:
        """Hand the text that is not saved yet to the store."""
        current = self._state.generation
        if current and self._unsaved:
            text, message, numbers = "".join(self._unsaved), current.message, self._archive.messages
            self._archive.write(
                lambda store: store.append_text(numbers.stored(message), text), text
            )
            self._unsaved.clear()
        self._saving.stop()

    def with_newest_text(self, messages: list[Message]) -> list[Message]:
        """A branch as the store knew it, with what came since of the answer being written."""
        current = self._state.generation
        return [
            replace(message, text="".join(self._written))
            if current and message.id == current.message
            else message
            for message in messages
        ]

    def ended_in(self, messages: list[Message]) -> bool:
        """Whether a branch as the store knew it holds an answer that has ended since."""
        current = self._state.generation
        writing = {current.message} if current else set[int]()
        on_their_way = writing | self._state.queued.keys()
        return any(
            message.state is MessageState.STREAMING and message.id not in on_their_way
            for message in messages
        )

    # --- events ---------------------------------------------------------------------------------

    def on_prompt(self, event: PromptProgress) -> None:
        """The prompt is being read."""
        current = self._of(event.request)
        if current:
            self._state.set_generation(
                replace(current, prompt_done=event.done_tokens, prompt_total=event.total_tokens)
            )

    def on_text(self, events: list[Text]) -> None:
        """Tokens that came since the last time, all of one request; some may show nothing."""
        last, now = events[-1], time.monotonic()
        current = self._of(last.request)
        if current is None:
            return
        if text := "".join(event.text for event in events):
            self._unsaved.append(text)
            self._written.append(text)
            self._state.add_text(current.conversation, current.message, text)
            if not self._saving.isActive():
                self._saving.start()
        speed = current.tokens_per_second
        if self._first_token is None:
            self._first_token = (now, last.generated_tokens)
        elif now - self._speed_at > _SPEED_SECONDS:
            began, tokens = self._first_token
            speed = (last.generated_tokens - tokens) / (now - began)
            self._speed_at = now
        self._state.set_generation(
            replace(
                current,
                generated=last.generated_tokens,
                context_used=last.context_used,
                tokens_per_second=speed,
            )
        )

    def on_finished(self, event: Finished) -> None:
        """The answer is complete, or was stopped."""
        if self._of(event.request) is None:
            return
        if event.decode_seconds > 0 and event.generated_tokens > 1:
            self._state.set_speed(event.generated_tokens / event.decode_seconds)
        full = event.reason is FinishReason.CONTEXT
        self._end(
            _ENDS[event.reason],
            error=_CONTEXT_FULL if full else "",
            prompt_tokens=event.prompt_tokens,
            generated_tokens=event.generated_tokens,
            seconds=event.prefill_seconds + event.decode_seconds,
        )

    def on_failed(self, event: Failed) -> bool:
        """The answer could not be written; False when the request is not an answer."""
        if self._of(event.request) is None:
            return False
        self._end(MessageState.FAILED, error=f"{event.message} {event.remedy}".strip())
        return True

    def interrupt(self, request: int) -> bool:
        """End the answer of this request where it stands; False when it is not being written.

        For a fault of our own: the answer ends even where ending it fails, else none would follow.
        """
        if self._of(request) is None:
            return False
        try:
            self._end(MessageState.INTERRUPTED)
        finally:
            if self._of(request) is not None:
                self._state.set_generation(None)
        return True

    # --- steps ----------------------------------------------------------------------------------

    def _of(self, request: int) -> Generation | None:
        current = self._state.generation
        return current if current and current.request == request else None

    def _note(self) -> str:
        match self._state.model.phase:
            case ModelPhase.LOADING:
                return "Waits for the model to load"
            case ModelPhase.READY if self._state.generation is None:
                return "Waits for its adapters"
            case ModelPhase.READY:
                return "Waits for another answer to finish"
            case ModelPhase.NONE | ModelPhase.FAILED:
                return "Choose a model to get an answer"

    def _begin(self, job: _Job) -> None:
        """Have an answer written, unless its adapters are to be settled first."""
        adapters = self._adapters.aim(job.conversation, without_adapters=job.without_adapters)
        request = self._runner.answer(job.branch, adapters, job.command)
        if not request:
            return
        self._jobs.popleft()
        self._unsaved.clear()
        self._written = [job.text]
        self._first_token, self._speed_at = None, 0.0
        self._state.set_generation(
            Generation(request, job.conversation, job.message, context_used=0)
        )
        self._state.set_waiting(job.message, job.conversation, "")
        self._adapters.mark(job.message)

    def _end(
        self,
        state: MessageState,
        *,
        error: str = "",
        prompt_tokens: int = 0,
        generated_tokens: int = 0,
        seconds: float = 0.0,
    ) -> None:
        """Close the answer being written, on the screen and in the store; begin the next."""
        current = self._state.generation
        assert current is not None, "an answer ended that never began"
        self.save()
        numbers = self._archive.messages

        def finish(store: Store) -> None:
            store.finish(
                numbers.stored(current.message),
                state,
                error=error,
                prompt_tokens=prompt_tokens,
                generated_tokens=generated_tokens,
                seconds=seconds,
            )

        self._archive.write(finish)  # first: whatever the screen does, the store has the end
        message = self._state.message(current.message)
        if message is not None:
            ended = replace(
                message,
                text="".join(self._written),
                state=state,
                error=error,
                prompt_tokens=prompt_tokens,
                generated_tokens=generated_tokens,
                seconds=seconds,
            )
            self._state.change(ended)
        self._state.set_generation(None)
        self.start_next()

    def _drop(self, job: _Job, state: MessageState, error: str = "") -> None:
        """Take an answer out of the queue before it began."""
        self._jobs.remove(job)
        self._state.set_waiting(job.message, job.conversation, "")
        message = self._state.message(job.message)
        if message is not None:
            self._state.change(replace(message, state=state, error=error))
        numbers = self._archive.messages
        self._archive.write(
            lambda store: store.finish(numbers.stored(job.message), state, error=error)
        )
