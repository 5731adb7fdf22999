"""Record of answers in state and store, from the first token of each to its end."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.chat.requests.prompts import memory_start
from app.chat.requests.running_answer import QueuedAnswer, RunningAnswer
from app.domain.answer_details import AnswerDetails
from app.domain.deltas import (
    PromptProgressDelta,
    SectionDelta,
    TextDelta,
    ThoughtDelta,
    ToolCallDelta,
)
from app.domain.message import MessageState
from app.domain.model_ref import ModelRef
from app.domain.parts import ErrorPart, with_section
from app.domain.tool_rounds import without_open_calls
from app.state.chat import Generation, State
from app.store.writer import StoreQueue


@dataclass(frozen=True, slots=True)
class Ending:
    """What becomes of an answer, why, and what it took."""

    state: MessageState
    stop: str = ""  # a `StopReason`
    error: ErrorPart | None = None
    prompt_tokens: int = 0
    generated_tokens: int = 0
    seconds: float = 0.0
    details: AnswerDetails | None = None


class AnswerRecord:
    """Writes what engines send to the state, which is shown, and to the store."""

    def __init__(self, state: State, store_queue: StoreQueue) -> None:
        self._state, self._store_queue = state, store_queue

    def name_model(self, job: QueuedAnswer, name: str) -> None:
        """Name the model in an answer that it begins: another was in use when it was asked."""
        message = self._state.message(job.message)
        if message is None or message.model == name or job.parts:
            return
        self._state.change(replace(message, model=name))
        self._store_queue.write(lambda store: store.set_model_name(job.message, name))

    def requested(self, running: RunningAnswer, model: ModelRef | None) -> None:
        """An answer is in progress from now on."""
        job = running.job
        self._state.set_generation(Generation(running.run.id, job.conversation, job.message, model))
        self._state.set_queued(job.message, None)
        self._state.set_waiting(job.message, job.conversation, "")

    def prompt(
        self, running: RunningAnswer, current: Generation, delta: PromptProgressDelta
    ) -> None:
        """Update the progress of the prefill."""
        branch = self._state.branches.get(running.conversation, ())
        start_of_memory = memory_start(branch, delta.dropped_turns)
        self._state.set_memory_start(running.conversation, start_of_memory)
        self._state.set_generation(
            replace(current, prompt_done=delta.tokens, prompt_total=delta.total)
        )

    def text(
        self, running: RunningAnswer, current: Generation, delta: TextDelta | ThoughtDelta
    ) -> bool:
        """Append new tokens, some of which decode to no text; returns whether there is text."""
        text = running.add(delta)
        if text:
            self._state.add_text(running.conversation, running.message, text, running.parts)
        self._written(running, current, delta)
        return bool(text)

    def call(self, running: RunningAnswer, current: Generation, delta: ToolCallDelta) -> None:
        """Show a call that the model writes."""
        running.add_call(delta)
        self._show(running)
        self._written(running, current, delta)

    def _written(
        self,
        running: RunningAnswer,
        current: Generation,
        delta: TextDelta | ThoughtDelta | ToolCallDelta,
    ) -> None:
        self._state.set_generation(
            replace(
                current,
                # Text of a server that counts no tokens yet: the prompt is read all the same.
                prompt_total=current.prompt_total if delta.generated_tokens else 0,
                generated=delta.generated_tokens,
                context_used=delta.context_used,
                tokens_per_second=running.tokens_per_second,
            )
        )

    def called(self, running: RunningAnswer) -> None:
        """Store the calls that the model has written, in their places between its texts."""
        running.take_unsaved()  # it is in the parts
        parts = running.parts
        self._store_queue.write(lambda store: store.set_answer_parts(running.message, parts))

    def _show(self, running: RunningAnswer) -> None:
        if (message := self._state.message(running.message)) is not None:
            self._state.change(replace(message, parts=running.parts))

    def section(self, running: RunningAnswer, delta: SectionDelta) -> None:
        """A part of a long document is done: it is shown, and stored at once."""
        before = len(running.parts)
        running.parts = parts = with_section(running.parts, delta.section)
        if len(parts) > before:
            self._store_queue.write(lambda store: store.add_part(running.message, parts[-1]))
        else:
            self._store_queue.write(lambda store: store.set_parts(running.message, parts))
        self._show(running)

    def save(self, running: RunningAnswer) -> None:
        """Append the unsaved text of an answer in the store."""
        if text := running.take_unsaved():
            message = running.message
            self._store_queue.write(lambda store: store.append_text(message, text), text)

    def ended(self, running: RunningAnswer, ending: Ending) -> None:
        """End an answer that was in progress; a call that is not complete is left out."""
        self.save(running)
        running.parts = without_open_calls(running.parts)
        # First: a slot of the window that raises must not prevent it.
        self._store_queue.write(
            lambda store: store.finish(
                running.message,
                ending.state,
                stop=ending.stop,
                error=ending.error,
                prompt_tokens=ending.prompt_tokens,
                generated_tokens=ending.generated_tokens,
                seconds=ending.seconds,
                details=ending.details,
            )
        )
        self._state.set_waiting(running.message, running.conversation, "")
        message = self._state.message(running.message)
        if message is not None:
            ended = replace(
                message,
                parts=(*running.parts, *filter(None, (ending.error,))),
                state=ending.state,
                stop=ending.stop,
                prompt_tokens=ending.prompt_tokens,
                generated_tokens=ending.generated_tokens,
                seconds=ending.seconds,
                details=ending.details or (message.details if message.compared else None),
            )
            self._state.change(ended)
        self._state.touch(running.conversation)

    def dropped(
        self, job: QueuedAnswer, state: MessageState, stop: str = "", error: ErrorPart | None = None
    ) -> None:
        """End an answer that was not requested, or not again after calls of tools."""
        tokens = job.used.prompt_tokens, job.used.generated_tokens
        seconds, details = job.used.prompt_seconds + job.used.decode_seconds, job.details
        self._store_queue.write(
            lambda store: store.finish(
                job.message, state, stop=stop, error=error, prompt_tokens=tokens[0],
                generated_tokens=tokens[1], seconds=seconds, details=details,
            )
        )  # fmt: skip
        self._state.set_waiting(job.message, job.conversation, "")
        message = self._state.message(job.message)
        if message is not None:
            parts = (*message.parts, *filter(None, (error,)))
            ended = replace(
                message, parts=parts, state=state, stop=stop, prompt_tokens=tokens[0],
                generated_tokens=tokens[1], seconds=seconds, details=details or message.details,
            )  # fmt: skip
            self._state.change(ended)
        self._state.touch(job.conversation)
        self._state.set_queued(job.message, None)
