"""Snapshots of cached contexts: when each conversation's is saved, loaded and deleted.

The snapshot of the shown conversation is loaded in the background, so that its next answer needs
no prefill, and saved some seconds after an answer. `app.chat.requests.runner` sends the commands, and saves
a context before another one replaces it; this module decides when, and updates `SessionState`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QTimer

from app.chat.requests.planner import Branch, EngineTarget, snapshot_name
from app.chat.requests.prompts import PromptBuilder, memory_start
from app.chat.requests.runner import Runner
from app.engines.run import RequestFailed, Run, start
from app.state.chat import ModelPhase, State
from app.state.snapshots import Resume, ResumePhase, SessionState
from app.system.translation import tr
from app.system.worker import BackgroundWorker
from engine import (
    Chat,
    ContextPolicy,
    ModelLoaded,
    Restore,
    Role,
    Save,
    SnapshotLoaded,
    SnapshotSaved,
)

OPEN_MILLISECONDS = 60  # debounce: conversations skipped through quickly are not loaded
QUIET_MILLISECONDS = 10_000  # idle time after an answer before its context is saved


@dataclass(frozen=True, slots=True, eq=False)
class _Load:
    """A snapshot load in progress."""

    run: Run
    branch: Branch


class SnapshotController:
    """Saves and loads snapshots; does not depend on the order in which it receives signals."""

    def __init__(
        self,
        state: State,
        session_state: SessionState,
        runner: Runner,
        files: BackgroundWorker,
        prompts: PromptBuilder,
        *,
        size: Callable[[], int],
        delete: Callable[[Sequence[str] | None], int],
        report: Callable[[Exception], None],
    ) -> None:
        """`size` returns the bytes of all snapshots; `delete` deletes those with the given names,
        or all, and returns the bytes freed. Both run on the `files` worker. `report` is called with
        an unexpected exception.
        """
        self._report = report
        self._state = state
        self._shown = session_state
        self._runner = runner
        self._files = files
        self._prompts = prompts
        self._size, self._delete = size, delete
        self._model: ModelLoaded | None = None
        self._ready = False
        self._current = state.current
        self._answering = frozenset[int]()  # requests of the answers in progress
        self._loading: _Load | None = None  # whose result is shown
        self._restore_timer = QTimer(runner, singleShot=True, interval=OPEN_MILLISECONDS)
        self._restore_timer.timeout.connect(self.restore)
        self._save_timer = QTimer(runner, singleShot=True, interval=QUIET_MILLISECONDS)
        self._save_timer.timeout.connect(self.save)
        state.conversation_changed.connect(self._on_shown)
        state.model_changed.connect(self._on_model)
        state.generations_changed.connect(self._on_generations)
        runner.sent.connect(self._on_sent)
        runner.context_lost.connect(self._on_context_lost)

    # --- intents --------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """Save the cached context, before the model is unloaded or the app quits.

        Call it after the command that stops generation, so that the partial answer is saved too,
        and before the one that unloads the model.
        """
        self._restore_timer.stop()
        self._cancel_load()
        self.save()

    def save(self) -> None:
        """Save the cached context now."""
        self._save_timer.stop()
        self._runner.save()

    def restore(self) -> None:
        """Load the shown conversation's snapshot, unless the engine is busy or has it cached."""
        shown = self._state.current
        if shown is None or not self._can_restore() or self._state.busy_conversations:
            return  # called again when the answers have ended
        if not self._state.has_in_use(self._state.settings(shown).model):
            return  # its context is of another model
        branch = self._branch(shown)
        if self._runner.has_cached(branch):
            return
        turns = self._prompts.turns(shown, self._state.branches.get(shown, ()))
        if not any(turn.role is not Role.SYSTEM for turn in turns):
            return
        self._cancel_load()
        policy = self._state.settings(shown).policy
        self._runner.restore(branch, turns, policy, self._prompts.tools(shown))

    def measure(self) -> None:
        """Measure the disk space of all snapshots into `SessionState.saved`."""

        def measured(size_bytes: int) -> None:
            self._shown.set_saved(replace(self._shown.saved, size_bytes=size_bytes))

        self._files.run(self._size, measured)

    def delete_saved(self) -> None:
        """Delete all snapshots; conversations stay as they are."""
        self._shown.set_saved(replace(self._shown.saved, deleting=True))

        def deleted(error: str) -> None:
            self._shown.set_saved(replace(self._shown.saved, deleting=False))
            self._on_deleted(error)
            self.measure()

        self._files.run(lambda: self._try_to_delete(None), deleted)

    def forget(self, conversation_ids: Sequence[int]) -> None:
        """Delete the snapshots of deleted conversations; after Undo they need a full prefill."""
        self._runner.forget(conversation_ids)
        names = [snapshot_name(each) for each in conversation_ids]
        self._files.run(lambda: self._try_to_delete(names), self._on_deleted)

    # --- commands sent --------------------------------------------------------------------------

    def _on_sent(self, run: Run, target: EngineTarget) -> None:
        """Follow a command that the runner has sent."""
        match run.request:
            case Save():
                self._save_timer.stop()
                start(self._save(run), self._report)
            case Restore() if target.answer is not None:
                pass  # the answer's progress is shown instead
            case Restore() if target.branch.conversation is not None:
                self._loading = _Load(run, target.branch)
                self._shown.set_resume(Resume(target.branch.conversation))
                start(self._load(self._loading), self._on_fault)
            case Chat():
                self._restore_timer.stop()
                self._save_timer.stop()
                self._release_load(target.branch.conversation)
                self._shown.set_resume(None)
            case _:
                pass

    async def _load(self, loading: _Load) -> None:
        """Show how much of a snapshot was loaded: all, a prefix, or nothing."""
        try:
            event = await loading.run.result(SnapshotLoaded)
        except RequestFailed:  # the next answer only needs a longer prefill
            if loading is self._loading:
                self._loading = None
                self._runner.on_load_lost(loading.run.id)
                self._shown.set_resume(None)
            return
        if loading is not self._loading:
            return
        self._loading = None
        shown = self._state.current
        if shown is not None and shown == loading.branch.conversation:
            branch = self._state.branches.get(shown, ())
            self._state.set_memory_start(shown, memory_start(branch, event.dropped_turns))
            model = self._state.model.loaded
            stops = self._state.settings(shown).policy is ContextPolicy.STOP
            full = stops and model is not None and event.total_tokens >= model.context
            self._shown.set_resume(_resume(shown, event, full=full))

    async def _save(self, run: Run) -> None:
        """Show whether a context could be saved."""
        try:
            event = await run.result(SnapshotSaved)
        except RequestFailed as failed:
            error, remedy = failed.event.message, failed.event.remedy
            self._shown.set_saved(replace(self._shown.saved, error=error, remedy=remedy))
            return
        self._shown.set_saved(replace(self._shown.saved, error="", remedy=""))
        if event.tokens and self._shown.saved.size_bytes >= 0:
            self.measure()

    def _on_fault(self, error: Exception) -> None:
        self._report(error)
        self._shown.set_resume(None)

    def _on_context_lost(self, request: int) -> None:
        """Other adapters, of this request, have invalidated the cached context: load it again."""
        self._save_timer.stop()
        if not self._loading or self._loading.run.id < request:
            self._restore_timer.start()

    # --- the state ------------------------------------------------------------------------------

    def _on_shown(self) -> None:
        if self._state.current != self._current:
            self._current = self._state.current
            if self._runner.engine_state.unsaved != self._current:
                self.save()  # else it is saved when it is left, or after the idle time
        shown = self._state.current
        if self._loading and (shown is None or self._branch(shown) != self._loading.branch):
            self._cancel_load()
        resume = self._shown.resume
        if resume and (shown is None or self._runner.engine_state.branch != self._branch(shown)):
            self._shown.set_resume(None)
        self._restore_timer.start()

    def _on_model(self) -> None:
        model = self._state.model
        ready = model.phase is ModelPhase.READY
        if model.loaded is not self._model:
            self._model = model.loaded
            self._cancel_load()
            self._ready = False
            self._shown.set_resume(None)
        if ready and not self._ready:
            self._restore_timer.start()
        self._ready = ready

    def _on_generations(self) -> None:
        before, now = self._answering, self._state.generations
        self._answering = frozenset(now)
        if before - now.keys() and not now:
            self._save_timer.start()
            self._restore_timer.start()

    def _on_deleted(self, error: str) -> None:
        remedy = tr("Check that its folder can be written to.") if error else ""
        self._shown.set_saved(replace(self._shown.saved, error=error, remedy=remedy))

    # --- steps ----------------------------------------------------------------------------------

    def _try_to_delete(self, names: Sequence[str] | None) -> str:
        """Delete snapshots, on the worker thread; returns an error sentence, or nothing."""
        try:
            self._delete(names)
        except OSError as error:
            reason = error.strerror or error
            return tr("The data for resuming chats could not be deleted: {reason}.", reason=reason)
        return ""

    def _can_restore(self) -> bool:
        """Whether a model is loaded and snapshots are enabled."""
        return self._state.model.phase is ModelPhase.READY and self._runner.budget_bytes > 0

    def _branch(self, conversation_id: int) -> Branch:
        messages = self._state.branches.get(conversation_id, ())
        return Branch(conversation_id, tuple(message.id for message in messages))

    def _cancel_load(self) -> None:
        """Cancel the load in progress: another conversation is needed first."""
        if self._loading:
            loading, self._loading = self._loading, None
            loading.run.cancel()
            self._runner.on_load_lost(loading.run.id)

    def _release_load(self, conversation_id: int | None) -> None:
        """An answer begins: keep the load of its conversation running, cancel any other."""
        if self._loading and self._loading.branch.conversation == conversation_id:
            self._loading = None
        self._cancel_load()


def _resume(conversation_id: int, event: SnapshotLoaded, *, full: bool) -> Resume:
    return Resume(
        conversation_id,
        ResumePhase.DONE,
        event.restored_tokens,
        event.ready_tokens,
        event.total_tokens,
        event.seconds,
        event.remaining_prefill_seconds,
        event.refused,
        event.fault,
        full,
    )
