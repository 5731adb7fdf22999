"""Answers: requested from the engine, any number at once, stopped, and saved in pieces.

Each is a coroutine, bound to its branch and never to the shown conversation. It is written by the
model of its conversation, or by one that was chosen for it alone: answers of the loaded model are
requested first, then the model of the one that has waited longest is loaded. The message of an
answer is stored when the answer is queued, so that it can be continued after a crash. Its text is
appended in the store every 300 ms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QTimer

from app.chat.answering.answer_record import AnswerRecord, Ending
from app.chat.documents.document_answers import answer_elsewhere, answer_here
from app.chat.documents.long_documents import step_words
from app.chat.documents.retrieval import Retrieval
from app.chat.models.adapters import OF_ADAPTERS, Adapters
from app.chat.requests.planner import Branch, Uses
from app.chat.requests.runner import Runner
from app.chat.requests.running_answer import (
    Elsewhere,
    QueuedAnswer,
    RunningAnswer,
    asked_elsewhere,
    joined_usage,
    waiting_words,
)
from app.domain.answer_request import AnswerRequest
from app.domain.deltas import (
    AnswerEnd,
    AnswerFailed,
    AnswerUsage,
    EndReason,
    PromptProgressDelta,
    SectionDelta,
    StepDelta,
    TextDelta,
    ThoughtDelta,
    ToolCallDelta,
    WaitingDelta,
)
from app.domain.documents import SearchFault
from app.domain.message import Message, MessageState, StopReason
from app.domain.model_ref import ModelRef, Remote
from app.domain.parts import ErrorPart, Parts, without_error
from app.domain.remote_fault import RemoteFault, RemoteFaultKind
from app.domain.tool_rounds import open_calls
from app.engines.client import EngineClient
from app.engines.local import LocalAnswer
from app.engines.remote.engines import RemoteEngines
from app.engines.remote_client import RemoteAnswer, RemoteClient
from app.engines.run import AnswerRun, Waiting, start
from app.state.chat import Generation, ModelPhase, ModelStatus, Notice, State
from app.state.performance import tokens_per_second
from app.store.writer import StoreQueue
from app.system.translation import number, tr
from engine import Chat, Fault

if TYPE_CHECKING:
    from app.chat.tools.calls import ToolCalls

_SAVE_MILLISECONDS = 300
_MOST_OVERTAKEN = 4  # later answers of the loaded model that are requested before another model's
_TURN_MILLISECONDS = 300  # an answer that starts sooner does not say that it waits for its turn
# What becomes of an answer, and why it stopped; "": it is complete.
_ENDS: dict[EndReason, tuple[MessageState, str]] = {
    EndReason.LENGTH: (MessageState.STOPPED, StopReason.LENGTH),
    EndReason.CONTEXT: (MessageState.STOPPED, StopReason.CONTEXT),
    EndReason.REPETITION: (MessageState.STOPPED, StopReason.REPETITION),
    EndReason.CANCELLED: (MessageState.STOPPED, StopReason.USER),
}
_COMPLETE = MessageState.COMPLETE, ""

FULL_NOTICE = "full"  # kind of the notice that a chat is full and its policy is to stop


class Answers:
    """Queues answers, requests them from engines, and writes their text to state and store."""

    def __init__(
        self,
        state: State,
        store_queue: StoreQueue,
        engine: EngineClient,
        adapters: Adapters,
        runner: Runner,
        ended: Callable[[int, int], None],
        report: Callable[[Exception], None],
        *,
        remote: RemoteEngines | None = None,
        retrieval: Retrieval | None = None,
        used: Callable[[AnswerUsage, str, bool], None] = lambda _used, _model, _here: None,
        want_model: Callable[[ModelRef | None], None] = lambda _: None,
        began: Callable[[int], None] = lambda _: None,
        reached: Callable[[Remote, RemoteFaultKind | None], None] = lambda _model, _fault: None,
        tools: Callable[[], ToolCalls] | None = None,
        most_rounds: Callable[[], int] = lambda: 10,
    ) -> None:
        """`ended` is called with the conversation and the message of each answer that has ended,
        `report` with an unexpected exception, `used` with what an answer took, the name of its
        model and whether that is on this computer, `want_model` with the model that has to be loaded for the next answer, None: any, and
        `began` with the conversation of an answer that its own model has begun. `reached` is called
        with a model elsewhere that answers, or whose answer failed with a fault. `tools` makes what
        carries out the calls of answers, which go on with their results as often as `most_rounds` says.
        """
        self._tools, self._most_rounds = tools, most_rounds
        self._reached = reached
        self._want_model, self._on_began = want_model, began
        self._state = state
        self._record = AnswerRecord(state, store_queue)
        self._engine = engine
        self._report, self._on_used = report, used
        self._adapters = adapters
        self._runner = runner
        self._retrieval = retrieval
        self._remote = RemoteClient(remote, runner) if remote is not None else None
        self._on_ended = ended
        self._jobs: deque[QueuedAnswer] = deque()
        self._running: list[RunningAnswer] = []  # the oldest first
        self._held = False  # request no answer: another model is loaded first
        self._closed = False  # request no answer: the app quits
        self._saving = QTimer(runner, singleShot=True, interval=_SAVE_MILLISECONDS)
        self._saving.timeout.connect(self.save)
        self._turns = QTimer(runner, singleShot=True, interval=_TURN_MILLISECONDS)
        self._turns.timeout.connect(self._on_overdue)
        self._full = 0, 0

    def enqueue(
        self,
        message: Message,
        command: Callable[[], Chat],
        *,
        request: Callable[[], AnswerRequest] | None = None,
        adapters: Uses | None = None,
        model: ModelRef | None = None,
    ) -> None:
        """Queue `message` as the answer that a command asks for, made when its model is loaded.

        `request` is the same of an engine elsewhere. `adapters` and `model` replace the
        conversation's.
        """
        ids = [each.id for each in self._state.branches[message.conversation]]
        is_alternative = message.id not in ids
        if is_alternative:
            ids[-1] = message.id
        branch = Branch(message.conversation, tuple(ids))
        self._state.set_notice(FULL_NOTICE, None)
        job = QueuedAnswer(
            branch,
            message.conversation,
            message.id,
            message.parts,
            command,
            request,
            adapters,
            model,
            is_alternative=is_alternative,
            before=message.details,
        )
        self._queue(job)
        self._state.set_queued(message.id, message.conversation)
        self._find_passages(job)
        self._carry_out(job)
        job.rounds = int(job.calling)  # it goes on with calls that had no result
        self._state.touch(message.conversation)
        if self._state.model.phase is ModelPhase.NONE and self._model(job) is None:
            self._want_model(None)
        self.start_next()

    def start_next(self) -> None:
        """Request the queued answers that can be, and update the note of each waiting one.

        When none is in progress or can be requested, the model of the first one is asked for.
        Engines elsewhere answer at once: nothing has to be loaded for them.
        """
        free = [j for j in self._jobs if not (j.searching or j.calling or self._closed)]
        for job in filter(self._is_remote, free):
            self._jobs.remove(job)
            job.turn.put(())
        checking = False  # adapters of an answer
        ready = self._state.model.phase is ModelPhase.READY
        passed: list[QueuedAnswer] = []  # of other models, which wait longer
        local = [job for job in free if not self._is_remote(job)]
        for job in local if ready and not self._held else ():
            if not self._fits(job):
                passed.append(job)
                continue
            if any(each.overtaken >= _MOST_OVERTAKEN for each in passed):
                break
            adapters = self._adapters.uses_for(job.conversation, job.adapters)
            checking |= adapters is None
            if adapters is not None and job in self._jobs:
                self._jobs.remove(job)
                for each in passed:
                    each.overtaken += 1
                job.turn.put(adapters)
        if not checking:
            self._want_next()
        self._show_notes()

    def _find_passages(self, job: QueuedAnswer) -> None:
        """Keep an answer in the queue until the passages of its question are found."""

        def ended(fault: SearchFault | None) -> None:
            job.searching = False
            if fault is not None and job in self._jobs and not self._closed:  # nor was it stopped
                self._drop(job, MessageState.FAILED, error=ErrorPart(fault))
            self.start_next()

        branch = self._state.branches[job.conversation]
        job.searching = not without_error(job.parts)  # else it is continued as it was begun
        if self._retrieval is None or not (job.searching and self._retrieval.find(branch, ended)):
            job.searching = False

    def hold(self, held: bool) -> None:
        """Keep new answers in the queue: they are for the model that is loaded next."""
        self._held = held
        self.start_next()

    def close(self) -> None:
        """Request no more answers, and interrupt those in progress: the app quits.

        All can be continued in the next run.
        """
        self._closed = True
        self.drain()
        for running in list(self._running):
            self._stop(running)

    def drain(self) -> None:
        """Take what engines have sent: an answer whose first text has come has started."""
        self._engine.drain()
        if self._remote is not None:
            self._remote.drain()

    def stop_remote(self) -> None:
        """Close the connections of answers by engines elsewhere, after `close`."""
        if self._remote is not None:
            self._remote.stop()
            self._remote.drain()

    def stop(self, conversation_id: int | None) -> None:
        """Stop the answers of a conversation, requested or queued; their text stays."""
        self.drain()
        for running in list(self._running):
            if running.conversation == conversation_id:
                self._stop(running)
        for job in [job for job in self._jobs if job.conversation == conversation_id]:
            self._drop(job, MessageState.STOPPED, StopReason.USER)

    def stop_answer(self, message_id: int) -> None:
        """Stop one answer, requested or queued; its text stays."""
        self.drain()
        for running in [one for one in self._running if one.message == message_id]:
            self._stop(running)
        for job in [job for job in self._jobs if job.message == message_id]:
            self._drop(job, MessageState.STOPPED, StopReason.USER)

    def stop_writing(self) -> None:
        """Stop every requested answer of the loaded model; queued ones stay queued."""
        self.drain()
        for running in self._local():
            self._stop(running)

    def stop_waiting(self, model: ModelRef) -> None:
        """Stop the queued answers of a model: the user does not want to wait until it is loaded."""
        waiting = (job for job in self._jobs if not job.calling)
        for job in [job for job in waiting if self._model(job) == model]:
            self._drop(job, MessageState.STOPPED, StopReason.USER)

    def fail_waiting(self, error: ErrorPart, model: ModelRef | None) -> None:
        """Fail the queued answers of a model that could not be loaded with this error.

        If no model is left, those that any could write fail too.
        """
        none_left = self._state.model.phase is ModelPhase.FAILED
        for job in [job for job in self._jobs if not job.calling]:
            wanted = self._model(job)
            if none_left if wanted is None else wanted == model:
                self._drop(job, MessageState.FAILED, error=error)

    def save(self) -> None:
        """Append the unsaved text of every answer in the store."""
        for running in self._running:
            self._record.save(running)
        self._saving.stop()

    def with_newest_text(self, messages: list[Message]) -> list[Message]:
        """Messages read from the store, with the newest text of the answers in progress."""
        found = {running.message: running.parts for running in self._running}
        newest = self._retrieval.newest(messages) if self._retrieval else messages
        return [
            replace(message, parts=found[message.id]) if message.id in found else message
            for message in newest
        ]

    def is_outdated(self, messages: list[Message]) -> bool:
        """Whether messages read from the store have an answer that has ended since."""
        requested = {running.message for running in self._running}
        unfinished = requested | self._state.queued.keys()
        return any(
            message.state is MessageState.STREAMING and message.id not in unfinished
            for message in messages
        )

    def full_answer(self) -> tuple[int, int]:
        """Conversation and message of the last answer that failed because its chat is full."""
        return self._full

    # --- an answer ------------------------------------------------------------------------------

    def _queue(self, job: QueuedAnswer) -> None:
        self._jobs.append(job)
        start(self._write(job), lambda error: self._on_fault(job, error))

    async def _write(self, job: QueuedAnswer) -> None:
        """One answer, from its place in the queue to its end."""
        uses = await job.turn  # its model is loaded, and its adapters are checked
        running = self._begin_elsewhere(job) if self._is_remote(job) else self._begin(job, uses)
        used = AnswerUsage()
        try:
            async for delta in running.run.deltas():
                if running.ended:  # it was stopped before the engine had begun
                    return
                match delta:
                    case PromptProgressDelta():
                        self._record.prompt(running, self._start(running), delta)
                    case TextDelta() | ThoughtDelta():
                        self._on_text(running, delta)
                    case ToolCallDelta() if running.command.tools:
                        self._record.call(running, self._start(running), delta)
                    case WaitingDelta():
                        note = waiting_words(delta)
                        self._state.set_waiting(running.message, running.conversation, note)
                    case StepDelta():
                        running.begin_step(note := step_words(delta))
                        self._state.set_waiting(running.message, running.conversation, note)
                    case SectionDelta():
                        self._start(running)
                        self._record.section(running, delta)
                    case AnswerUsage():
                        used = delta
                    case AnswerEnd(EndReason.TOOL_CALLS) if open_calls(running.parts):
                        self._on_calls(running, delta, used)
                    case AnswerEnd():
                        self._on_end(running, delta, used)
                    case _:
                        pass
        except AnswerFailed as failed:
            if not running.ended:
                self._on_failed(running, failed, used)

    def _begin(self, job: QueuedAnswer, uses: Uses) -> RunningAnswer:
        """Request an answer, which these adapters are used for."""
        command = job.command()
        self._record.name_model(job, self._state.model.name)
        parts, loaded = without_error(job.parts), self._state.model.loaded
        name = self._state.model.name
        run: AnswerRun | None = answer_here(self._state, self._engine, job, command)
        if run is None:
            found = self._runner.answer(
                job.branch, uses, command, is_alternative=job.is_alternative
            )
            run = LocalAnswer(found)
        else:
            self._runner.apply_adapters(job.conversation, uses)
        running = RunningAnswer(run, job, command, uses, name, loaded, parts)
        return self._add(running, self._state.model.model)

    def _begin_elsewhere(self, job: QueuedAnswer) -> RunningAnswer:
        """Request an answer of an engine elsewhere."""
        model = self._model(job)
        assert self._remote is not None
        assert job.request is not None
        assert isinstance(model, Remote)
        request = job.request()
        name = self._state.model_name(model)
        self._record.name_model(job, name)
        long = answer_elsewhere(self._state, self._remote, job, model, request)
        run = long or RemoteAnswer(self._remote, model, request)
        parts = without_error(job.parts)
        elsewhere = Elsewhere(model.id, *self._remote.place(model), request.sampling)
        asked = asked_elsewhere(request)
        running = RunningAnswer(run, job, asked, (), name, None, parts, elsewhere)
        return self._add(running, model)

    def _add(self, running: RunningAnswer, model: ModelRef | None) -> RunningAnswer:
        """An answer is in progress from now on."""
        running.job.running = running
        self._running.append(running)
        self._record.requested(running, model)
        if len(self._local()) > 1 and not self._turns.isActive():
            self._turns.start()
        return running

    def _on_text(self, running: RunningAnswer, delta: TextDelta | ThoughtDelta) -> None:
        has_text = self._record.text(running, self._start(running), delta)
        if has_text and not self._saving.isActive():
            self._saving.start()

    def _on_calls(self, running: RunningAnswer, end: AnswerEnd, used: AnswerUsage) -> None:
        """The model waits for results of tools: the answer is queued again, and goes on with them."""
        self._start(running)
        self._record.called(running)
        job, took = running.job, joined_usage(running.job.used, used)
        self._on_used(used, running.name, running.elsewhere is None)
        again = replace(
            job,
            parts=running.parts,
            turn=Waiting(),
            running=None,
            rounds=job.rounds + 1,
            used=took,
            details=running.details(took, end),
        )
        self._queue(again)
        self._state.set_queued(job.message, job.conversation)
        if job.rounds >= self._most_rounds():
            self._forget(running)
            self._drop(again, MessageState.STOPPED, StopReason.TOOL_CALLS)
        else:
            self._carry_out(again)
            self._forget(running)
        self.start_next()

    def _carry_out(self, job: QueuedAnswer) -> None:
        """Keep an answer in the queue until its calls have results."""

        def ended(parts: Parts) -> None:
            job.parts, job.calling = parts, False
            self.start_next()

        job.calling = (
            self._tools is not None
            and bool(open_calls(job.parts))
            and self._tools().run(job.conversation, job.message, job.parts, ended)
        )

    def _on_end(self, running: RunningAnswer, end: AnswerEnd, used: AnswerUsage) -> None:
        """End the answer: complete, stopped or at a limit."""
        last, used = used, joined_usage(running.job.used, used)
        if used.prompt_tokens:  # it was not cancelled before it began
            self._start(running)
        speed = tokens_per_second(last.generated_tokens, last.decode_seconds)
        if speed and running.loaded is not None:  # it is shown beside the model of this computer
            self._state.set_last_speed(speed)
        state, stop = _ENDS.get(end.reason, _COMPLETE)
        if end.reason is EndReason.CANCELLED and running.interrupted:
            state, stop = MessageState.INTERRUPTED, ""
        details = running.details(used, end)
        ending = Ending(
            state,
            stop,
            prompt_tokens=used.prompt_tokens,
            generated_tokens=used.generated_tokens,
            seconds=used.prompt_seconds + used.decode_seconds,
            details=details,
        )
        self._end(running, ending)
        self._on_used(last, running.name, running.elsewhere is None)

    def _on_failed(self, running: RunningAnswer, failed: AnswerFailed, used: AnswerUsage) -> None:
        """Mark the answer as failed; what an engine elsewhere took until then is kept."""
        if self._check_adapters_again(running, failed.error):
            return
        error = replace(failed.error, file=failed.error.file or running.name)
        used = joined_usage(running.job.used, used)
        has_begun = replace(used, chat_tokens=0) != AnswerUsage()
        if not isinstance(error.fault, SearchFault):
            self._tell_reached(running, error.fault)
        ending = Ending(
            MessageState.FAILED,
            error=error,
            prompt_tokens=used.prompt_tokens,
            generated_tokens=used.generated_tokens,
            details=running.details(used, AnswerEnd()) if has_begun else None,
        )
        self._end(running, ending)
        if failed.full:
            self._full = running.conversation, running.message
            self._state.set_notice(FULL_NOTICE, full_notice(self._state.model))

    def _on_fault(self, job: QueuedAnswer, error: Exception) -> None:
        """Mark an answer as interrupted, after an exception in the app.

        It is not in progress any more even if that raises: a model could never be loaded otherwise.
        """
        self._report(error)
        running = job.running
        if running is None:  # it could not be asked for
            self._jobs.append(job)
            self._drop(job, MessageState.INTERRUPTED)
        elif not running.ended:
            running.run.cancel()
            try:
                self._end(running, Ending(MessageState.INTERRUPTED))
            finally:
                if not running.ended:
                    self._forget(running)
        self.start_next()

    # --- steps ----------------------------------------------------------------------------------

    def _start(self, running: RunningAnswer) -> Generation:
        """The progress of an answer that the engine works on from now on."""
        current = self._state.generations[running.run.id]
        if current.started:
            return current
        self._state.set_generation(replace(current, started=True))
        self._tell_reached(running, None)
        self._adapters.record_on(running.message, running.uses)
        if running.job.model is None:
            self._on_began(running.conversation)
        self._show_notes()
        return self._state.generations[running.run.id]

    def _tell_reached(self, running: RunningAnswer, fault: Fault | RemoteFault | None) -> None:
        model = self._model(running.job)
        if running.elsewhere is not None and isinstance(model, Remote):
            self._reached(model, fault.kind if isinstance(fault, RemoteFault) else None)

    def _model(self, job: QueuedAnswer) -> ModelRef | None:
        """The model that an answer waits for; None: any."""
        return job.model or self._state.settings(job.conversation).model

    def _is_remote(self, job: QueuedAnswer) -> bool:
        """Whether an engine elsewhere writes an answer."""
        return self._remote is not None and isinstance(self._model(job), Remote)

    def _local(self) -> list[RunningAnswer]:
        """The answers in progress of the engine in this process, the oldest first."""
        return [running for running in self._running if running.loaded is not None]

    def _fits(self, job: QueuedAnswer) -> bool:
        """Whether an answer is to be written by the loaded model, or the one being loaded."""
        return self._model(job) in (None, self._state.model.model)

    def _want_next(self) -> None:
        """Ask for the model of the first answer that needs one, once none is in progress."""
        loading = self._state.model.phase is ModelPhase.LOADING
        if self._local() or loading or self._held or self._closed:
            return
        ready = self._state.model.phase is ModelPhase.READY
        here = (job for job in self._jobs if not (job.calling or self._is_remote(job)))
        waiting = (job for job in here if not (ready and self._fits(job)))
        wanted = next((model for job in waiting if (model := self._model(job))), None)
        if wanted is not None:
            self._want_model(wanted)

    def _note(self, job: QueuedAnswer) -> str:
        if job.calling:
            return tr("Waiting for tools…")
        if job.searching:
            return tr("Looking for passages…")
        if not self._fits(job) and (model := self._model(job)) is not None:
            name = self._state.model_name(model)
            if job.is_alternative and self._local():
                return tr("Waits: loads {name} after the first answer", name=name)
            return tr("Waits: loads {name} after other answers", name=name)
        match self._state.model.phase:
            case ModelPhase.LOADING:
                return tr("Waiting for the model to load…")
            case ModelPhase.READY if self._held:
                return tr("Queued: another answer is being written")
            case ModelPhase.READY:
                return tr("Waiting for the adapters…")
            case ModelPhase.NONE | ModelPhase.FAILED:
                return tr("Choose a model to get an answer")

    def _show_notes(self) -> None:
        """Show what each answer that has not started waits for."""
        for job in self._jobs:
            self._state.set_waiting(job.message, job.conversation, self._note(job))
        queued = tr("Queued: another answer is being written")
        local = self._local()
        for running in local:
            current = self._state.generations.get(running.run.id)
            is_first = running is local[0]
            waits = running.overdue and not is_first and not (current and current.started)
            note = queued if waits else running.step
            self._state.set_waiting(running.message, running.conversation, note)

    def _on_overdue(self) -> None:
        for running in self._running:
            running.overdue = True
        self._show_notes()

    def _check_adapters_again(self, running: RunningAnswer, error: ErrorPart) -> bool:
        """Queue an answer again whose adapters were refused: the check finds which, and why."""
        job = running.job
        current = self._state.generations.get(running.run.id)
        started = current is not None and (current.started or current.stopping)
        if started or job.checked_again or not running.uses:
            return False
        if error.fault.kind not in OF_ADAPTERS:
            return False
        self._queue(replace(job, checked_again=True, turn=Waiting(), running=None))
        self._state.set_queued(job.message, job.conversation)
        self._forget(running)
        self._adapters.recheck(running.uses)
        self.start_next()
        return True

    def _stop(self, running: RunningAnswer) -> None:
        """Stop a requested answer; one that the engine has not started ends at once."""
        current = self._state.generations.get(running.run.id)
        if current is None or current.stopping:
            return
        running.interrupted = self._closed
        if not current.started:
            self._runner.cancel_saves_of(running.run.id)
        running.run.cancel()
        self._state.set_generation(replace(current, stopping=True))
        if not current.started:
            if running.interrupted:
                self._end(running, Ending(MessageState.INTERRUPTED))
            else:
                self._end(running, Ending(MessageState.STOPPED, StopReason.USER))

    def _end(self, running: RunningAnswer, ending: Ending) -> None:
        """End an answer in the store and the state, and request the next."""
        self._record.ended(running, ending)
        self._forget(running)
        self._on_ended(running.conversation, running.message)  # first: it may ask the next question
        self.start_next()

    def _forget(self, running: RunningAnswer) -> None:
        """Remove an answer from those in progress."""
        running.ended = True
        id = running.run.id
        current = self._state.generations.get(id)
        local = self._local()
        self._running.remove(running)
        self._runner.on_answer_ended(id, started=current is not None and current.started)
        if len(local) > 1 and running is local[0]:
            local[1].has_its_turn()
        self._state.set_waiting(running.message, running.conversation, "")
        self._state.end_generation(id)

    def _drop(
        self, job: QueuedAnswer, state: MessageState, stop: str = "", error: ErrorPart | None = None
    ) -> None:
        """Remove an answer from the queue before it is requested, or requested again."""
        self._jobs.remove(job)
        if job.calling and self._tools is not None:
            self._tools().stop(job.message)
        self._record.dropped(job, state, stop, error)
        self._on_ended(job.conversation, job.message)


def full_notice(model: ModelStatus) -> Notice:
    """The notice that a chat is full, with the button that changes its policy."""
    context = model.loaded.context if model.loaded else 0
    return Notice(
        tr("This chat is full ({count} tokens).", count=number(context)),
        tr("Start a new chat, or go on without the oldest messages."),
        tr("Forget the oldest messages"),
    )
