"""The queue of answers: generated one at a time, stopped, and saved to the store in pieces.

The message of an answer is stored when the answer is queued, so that it can be continued after a
crash. Its text is appended in the store every 300 ms.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, replace

from PySide6.QtCore import QTimer

from app.chat.adapters import Adapters
from app.chat.planner import Branch
from app.chat.prompts import memory_start
from app.chat.runner import Runner
from app.engines.client import EngineRequests
from app.state.chat import Generation, ModelPhase, ModelStatus, Notice, State
from app.store.parts import ErrorPart, Parts, grown
from app.store.store import AnswerDetails, Message, MessageState, StopReason, Store
from app.store.writer import Archive
from app.system.translation import tr
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
_SPEED_SECONDS = 0.25  # update interval of the shown speed
_ENDS = {
    FinishReason.END: MessageState.COMPLETE,
    FinishReason.STOP: MessageState.COMPLETE,
    FinishReason.LENGTH: MessageState.STOPPED,
    FinishReason.CONTEXT: MessageState.STOPPED,
    FinishReason.CANCELLED: MessageState.STOPPED,
}
_STOPS = {
    FinishReason.LENGTH: StopReason.LENGTH,
    FinishReason.CONTEXT: StopReason.CONTEXT,
    FinishReason.CANCELLED: StopReason.USER,
}


FULL_NOTICE = "full"  # kind of the notice that a chat is full and its policy is to stop


@dataclass(frozen=True, slots=True)
class _Job:
    """A queued answer: waits for the model, its adapters or the answer before it."""

    branch: Branch  # ends with the answer
    conversation: int
    message: int
    parts: Parts  # of the answer so far; not empty when it is continued
    command: Generate
    without_adapters: bool  # ignore the conversation's adapters


class Answers:
    """Queues answers, starts them, and applies their events to state and store."""

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
        self._before: Parts = ()  # of the current answer when it was started
        self._written: list[str] = []  # its text since then, in pieces
        self._saving = QTimer(link, singleShot=True, interval=_SAVE_MILLISECONDS)
        self._saving.timeout.connect(self.save)
        self._first_token: tuple[float, int] | None = None  # time, tokens by then
        self._speed_at = 0.0
        self._began = self._waited = 0.0  # time of the request; seconds until the first token
        self._sampling = Sampling()  # of the current answer
        self._full = 0, 0

    def enqueue(
        self,
        message: Message,
        turns: tuple[Turn, ...],
        sampling: Sampling,
        most: int,
        *,
        without_adapters: bool = False,
        thinking: bool | None = None,
    ) -> None:
        """Queue `message` as the answer to `turns`.

        `without_adapters` ignores the conversation's adapters. `thinking` switches the model's
        thinking on or off; None leaves the default of its chat template.
        """
        ids = tuple(each.id for each in self._state.branches[message.conversation])
        branch = Branch(message.conversation, ids)
        self._state.set_notice(FULL_NOTICE, None)
        policy = self._state.policy(message.conversation)
        command = Generate(0, turns, sampling, most, thinking=thinking, policy=policy)
        self._jobs.append(
            _Job(branch, message.conversation, message.id, message.parts, command, without_adapters)
        )
        self._state.set_waiting(message.id, message.conversation, self._note())
        self.start_next()

    def start_next(self) -> None:
        """Start the next answer if possible, and update the note of each queued one."""
        ready = self._state.model.phase is ModelPhase.READY
        if self._jobs and ready and self._state.generation is None:
            self._begin(self._jobs[0])
        for job in self._jobs:
            if self._state.waiting.get(job.message) != self._note():
                self._state.set_waiting(job.message, job.conversation, self._note())

    def stop(self, conversation_id: int | None) -> None:
        """Stop the current answer of a conversation, and drop its queued ones."""
        current = self._state.generation
        if current and current.conversation == conversation_id and not current.stopping:
            self._link.cancel(current.request)
            self._state.set_generation(replace(current, stopping=True))
        for job in [job for job in self._jobs if job.conversation == conversation_id]:
            self._drop(job, MessageState.STOPPED, StopReason.USER)

    def stop_writing(self) -> None:
        """Stop the current answer of any conversation."""
        if self._state.generation:
            current = self._state.generation
            self._link.cancel(current.request)
            self._state.set_generation(replace(current, stopping=True))

    def fail_waiting(self, error: ErrorPart) -> None:
        """Fail every queued answer with this error: no model could be loaded."""
        for job in list(self._jobs):
            self._drop(job, MessageState.FAILED, error=error)

    def save(self) -> None:
        """Append the unsaved text of the current answer in the store."""
        current = self._state.generation
        if current and self._unsaved:
            text, message, numbers = "".join(self._unsaved), current.message, self._archive.messages
            self._archive.write(
                lambda store: store.append_text(numbers.stored(message), text), text
            )
            self._unsaved.clear()
        self._saving.stop()

    def with_newest_text(self, messages: list[Message]) -> list[Message]:
        """Messages read from the store, with the current answer's newest text."""
        current = self._state.generation
        return [
            replace(message, parts=self._newest_parts())
            if current and message.id == current.message
            else message
            for message in messages
        ]

    def is_outdated(self, messages: list[Message]) -> bool:
        """Whether messages read from the store have an answer that has ended since."""
        current = self._state.generation
        writing = {current.message} if current else set[int]()
        unfinished = writing | self._state.queued.keys()
        return any(
            message.state is MessageState.STREAMING and message.id not in unfinished
            for message in messages
        )

    # --- events ---------------------------------------------------------------------------------

    def on_prompt(self, event: PromptProgress) -> None:
        """Update the progress of the prefill."""
        current = self._of(event.request)
        if current:
            branch = self._state.branches.get(current.conversation, ())
            start = memory_start(branch, event.dropped_turns)
            self._state.set_memory_start(current.conversation, start)
            self._state.set_generation(
                replace(current, prompt_done=event.done_tokens, prompt_total=event.total_tokens)
            )

    def on_text(self, events: list[Text]) -> None:
        """Append new tokens of one request; some decode to no text."""
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
            self._waited = now - self._began
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
        """End the answer: complete, stopped or at a limit."""
        if self._of(event.request) is None:
            return
        if event.decode_seconds > 0 and event.generated_tokens > 1:
            self._state.set_speed(event.generated_tokens / event.decode_seconds)
        details = self._details(event)
        self._end(
            _ENDS[event.reason],
            stop=_STOPS.get(event.reason, ""),
            prompt_tokens=event.prompt_tokens,
            generated_tokens=event.generated_tokens,
            seconds=event.prefill_seconds + event.decode_seconds,
            details=details,
        )

    def on_failed(self, event: Failed) -> bool:
        """Mark the answer as failed; False when the request is not the current answer."""
        if self._of(event.request) is None:
            return False
        current = self._state.generation
        name = self._state.model.name
        error = ErrorPart(event.fault, name, event.message, event.remedy)
        self._end(MessageState.FAILED, error=error)
        if event.full and current is not None:
            self._full = current.conversation, current.message
            self._state.set_notice(FULL_NOTICE, full_notice(self._state.model))
        return True

    def interrupt(self, request: int) -> bool:
        """Mark the answer as interrupted, after an exception in the app; False when not current.

        `State.generation` is cleared even if that raises: no other answer could start otherwise.
        """
        if self._of(request) is None:
            return False
        try:
            self._end(MessageState.INTERRUPTED)
        finally:
            if self._of(request) is not None:
                self._state.set_generation(None)
        return True

    def _details(self, event: Finished) -> AnswerDetails:
        loaded, used = self._state.model.loaded, self._sampling
        return AnswerDetails(
            model=loaded.name if loaded else "",
            format=loaded.format if loaded else "",
            ended=time.time(),
            reused_tokens=event.reused_tokens,
            first_token_seconds=round(self._waited, 4),
            decode_seconds=round(event.decode_seconds, 4),
            temperature=float(used.temperature),
            top_k=used.top_k,
            top_p=float(used.top_p),
            min_p=float(used.min_p),
            repeat_penalty=float(used.repeat_penalty),
            seed=event.seed,
        )

    def full_answer(self) -> tuple[int, int]:
        """Conversation and message of the last answer that failed because its chat is full."""
        return self._full

    # --- steps ----------------------------------------------------------------------------------

    def _of(self, request: int) -> Generation | None:
        current = self._state.generation
        return current if current and current.request == request else None

    def _newest_parts(self) -> Parts:
        """The parts of the current answer."""
        return grown(self._before, "".join(self._written))

    def _note(self) -> str:
        match self._state.model.phase:
            case ModelPhase.LOADING:
                return tr("Waiting for the model to load…")
            case ModelPhase.READY if self._state.generation is None:
                return tr("Waiting for the adapters…")
            case ModelPhase.READY:
                return tr("Queued: another answer is being written")
            case ModelPhase.NONE | ModelPhase.FAILED:
                return tr("Choose a model to get an answer")

    def _begin(self, job: _Job) -> None:
        """Start an answer, unless the engine has to confirm its adapters first."""
        adapters = self._adapters.set_target(
            job.conversation, without_adapters=job.without_adapters
        )
        request = self._runner.answer(job.branch, adapters, job.command)
        if not request:
            return
        self._jobs.popleft()
        self._unsaved.clear()
        self._before, self._written = job.parts, []
        self._first_token, self._speed_at = None, 0.0
        self._began, self._waited, self._sampling = time.monotonic(), 0.0, job.command.sampling
        self._state.set_generation(
            Generation(request, job.conversation, job.message, context_used=0)
        )
        self._state.set_waiting(job.message, job.conversation, "")
        self._adapters.record_on(job.message)

    def _end(
        self,
        state: MessageState,
        *,
        stop: str = "",
        error: ErrorPart | None = None,
        prompt_tokens: int = 0,
        generated_tokens: int = 0,
        seconds: float = 0.0,
        details: AnswerDetails | None = None,
    ) -> None:
        """End the current answer in the store and the state, and start the next."""
        current = self._state.generation
        assert current is not None, "no answer is in progress"
        self.save()
        numbers = self._archive.messages

        def finish(store: Store) -> None:
            store.finish(
                numbers.stored(current.message),
                state,
                stop=stop,
                error=error,
                prompt_tokens=prompt_tokens,
                generated_tokens=generated_tokens,
                seconds=seconds,
                details=details,
            )

        self._archive.write(finish)  # first: a slot of the window that raises must not prevent it
        message = self._state.message(current.message)
        if message is not None:
            ended = replace(
                message,
                parts=_with_error(self._newest_parts(), error),
                state=state,
                stop=stop,
                prompt_tokens=prompt_tokens,
                generated_tokens=generated_tokens,
                seconds=seconds,
                details=details,
            )
            self._state.change(ended)
        self._state.set_generation(None)
        self.start_next()

    def _drop(
        self, job: _Job, state: MessageState, stop: str = "", error: ErrorPart | None = None
    ) -> None:
        """Remove an answer from the queue before it has started."""
        self._jobs.remove(job)
        self._state.set_waiting(job.message, job.conversation, "")
        message = self._state.message(job.message)
        if message is not None:
            parts = _with_error(message.parts, error)
            self._state.change(replace(message, parts=parts, state=state, stop=stop))
        numbers = self._archive.messages
        self._archive.write(
            lambda store: store.finish(numbers.stored(job.message), state, stop=stop, error=error)
        )


def _with_error(parts: Parts, error: ErrorPart | None) -> Parts:
    return parts if error is None else (*parts, error)


def full_notice(model: ModelStatus) -> Notice:
    """The notice that a chat is full, with the button that changes its policy."""
    context = model.loaded.context if model.loaded else 0
    return Notice(
        tr("This chat is full ({count} tokens).", count=f"{context:,}"),
        tr("Start a new chat, or go on without the oldest messages."),
        tr("Forget the oldest messages"),
    )
