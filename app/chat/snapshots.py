"""When the cached context of a conversation is saved, and when it is brought back.

The shown conversation's context is brought back in the background, so that the next answer begins
at once, and saved some seconds after an answer. `app.chat.runner` sends the commands, and saves
what another conversation replaces; here is when to ask it, and what the window shows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QTimer

from app.chat.planner import Branch, Wanted
from app.chat.prompts import turns_of
from app.chat.runner import Runner
from app.engines.client import EngineRequests
from app.settings.table import Settings
from app.state.chat import Generation, ModelPhase, State
from app.state.snapshots import Resume, ResumePhase, SessionState
from app.store.writer import Archive
from app.system.worker import BackgroundWorker
from engine import (
    AdaptersSet,
    Failed,
    Generate,
    LoadSnapshot,
    ModelLoaded,
    Role,
    SaveSnapshot,
    SnapshotLoaded,
    SnapshotSaved,
)

OPEN_MILLISECONDS = 60  # other commands of opening go first, and who only passes by costs nothing
QUIET_MILLISECONDS = 10_000  # after an answer, before it is saved unasked


@dataclass(frozen=True, slots=True)
class _Load:
    """A conversation on its way back."""

    request: int
    branch: Branch


class Sessions:
    """Listens to the state and to what is sent; in which order it is told makes no difference."""

    def __init__(
        self,
        state: State,
        session_state: SessionState,
        archive: Archive,
        link: EngineRequests,
        runner: Runner,
        files: BackgroundWorker,
        settings: Callable[[], Settings],
        *,
        size: Callable[[], int],
        delete: Callable[[Sequence[str] | None], int],
    ) -> None:
        """`size` measures the bytes of all that is saved, `delete` frees those of the conversations
        it is given the names of, or all; both run on `files`.
        """
        self._state = state
        self._shown = session_state
        self._archive = archive
        self._link = link
        self._runner = runner
        self._files = files
        self._settings = settings
        self._size, self._delete = size, delete
        self._model: ModelLoaded | None = None
        self._ready = False
        self._current = state.current
        self._writing: Generation | None = None
        self._loading: _Load | None = None
        self._saves: set[int] = set()  # requests whose events are still to come
        self._overtaken: set[int] = set()  # loads nobody waits for any more
        self._soon = QTimer(link, singleShot=True, interval=OPEN_MILLISECONDS)
        self._soon.timeout.connect(self.restore)
        self._quiet = QTimer(link, singleShot=True, interval=QUIET_MILLISECONDS)
        self._quiet.timeout.connect(self.save)
        state.conversation_changed.connect(self._on_shown)
        state.model_changed.connect(self._on_model)
        state.generation_changed.connect(self._on_generation)
        runner.sent.connect(self._on_sent)
        runner.named.connect(self._on_named)

    # --- what others ask for --------------------------------------------------------------------

    def shut_down(self) -> None:
        """The model is about to go, or the app: save what the engine holds, the answer too.

        To be called after an answer being written was told to stop, and before the command that
        ends the model.
        """
        self._soon.stop()
        self._give_up()
        self.save()
        self._runner.drop_unsaved()  # the model does not wait for a name

    def save(self) -> None:
        """Have the engine save its context now, or else as soon as the store has named it."""
        self._quiet.stop()
        self._runner.save()

    def restore(self) -> None:
        """Bring the shown conversation back, unless the engine is busy or has it already."""
        shown = self._state.current
        if shown is None or not self._may() or self._state.generation or self._state.queued:
            return  # an answer that ends asks again
        branch = self._branch(shown)
        if branch == self._runner.held.branch:
            return
        turns = turns_of(self._state.branches.get(shown, ()), self._settings().system_prompt)
        if not any(turn.role is not Role.SYSTEM for turn in turns):
            return
        name = self._runner.name(shown)
        if not name:
            self._runner.learn_name(shown)
            return
        self._give_up()
        self._runner.restore(branch, turns, name)

    def measure(self) -> None:
        """Look how much room saved reading takes; `SessionState.saved` gets it."""

        def measured(size_bytes: int) -> None:
            self._shown.set_saved(replace(self._shown.saved, size_bytes=size_bytes))

        self._files.run(self._size, measured)

    def delete_saved(self) -> None:
        """Delete all saved reading; conversations stay as they are."""
        self._shown.set_saved(replace(self._shown.saved, deleting=True))

        def deleted(error: str) -> None:
            self._shown.set_saved(replace(self._shown.saved, deleting=False))
            self._on_forgotten(error)
            self.measure()

        self._files.run(lambda: self._try_to_delete(None), deleted)

    def forget(self, conversation_ids: Sequence[int]) -> None:
        """Conversations were deleted: what was read of them goes too; Undo costs reading again."""
        self._runner.drop_unsaved(conversation_ids)
        numbers = self._archive.conversations

        def delete(stored: list[int]) -> None:
            names = [str(number) for number in stored if number]
            self._files.run(lambda: self._try_to_delete(names), self._on_forgotten)

        self._archive.read(lambda store: [numbers.known(each) for each in conversation_ids], delete)

    # --- events: whether they were asked for here -----------------------------------------------

    def on_snapshot_loaded(self, event: SnapshotLoaded) -> bool:
        """A conversation is back as far as it goes."""
        if event.request in self._overtaken:
            self._overtaken.discard(event.request)
            return True
        loading = self._loading
        if loading is None or event.request != loading.request:
            return False
        self._loading = None
        shown = self._state.current
        if shown is not None and shown == loading.branch.conversation:
            self._shown.set_resume(_resume(shown, event))
        return True

    def on_snapshot_saved(self, event: SnapshotSaved) -> bool:
        """What was held is on the disk."""
        if event.request not in self._saves:
            return False
        self._saves.discard(event.request)
        self._shown.set_saved(replace(self._shown.saved, error="", remedy=""))
        if event.tokens and self._shown.saved.size_bytes >= 0:
            self.measure()
        return True

    def on_failed(self, event: Failed) -> bool:
        """Nothing was saved, or nothing brought back: answers only take longer to begin."""
        if event.request in self._saves:
            self._saves.discard(event.request)
            saved = replace(self._shown.saved, error=event.message, remedy=event.remedy)
            self._shown.set_saved(saved)
        elif event.request in self._overtaken:
            self._overtaken.discard(event.request)
        elif self._loading and event.request == self._loading.request:
            self._loading = None
            self._runner.lost(event.request)
            self._shown.set_resume(None)
        else:
            return False
        return True

    def on_adapters_set(self, event: AdaptersSet) -> None:
        """With other adapters the engine forgets what it held; say what that costs."""
        if self._runner.on_adapters_set(event):
            self._quiet.stop()
            if not self._loading or self._loading.request < event.request:
                self._soon.start()

    # --- what was sent --------------------------------------------------------------------------

    def _on_sent(self, step: object, wanted: Wanted) -> None:
        """A step of whatever plan is on its way to the engine."""
        match step:
            case SaveSnapshot():
                self._quiet.stop()
                self._saves.add(step.request)
            case LoadSnapshot() if wanted.answer is not None:
                self._overtaken.add(step.request)  # its answer says more than how it went
            case LoadSnapshot() if wanted.branch.conversation is not None:
                self._loading = _Load(step.request, wanted.branch)
                self._shown.set_resume(Resume(wanted.branch.conversation))
            case Generate():
                self._soon.stop()
                self._quiet.stop()
                self._overtake(wanted.branch.conversation)
                self._shown.set_resume(None)
            case _:
                pass

    def _on_named(self, conversation_id: int) -> None:
        idle = self._state.generation is None and not self._quiet.isActive()
        if idle and self._runner.held.unsaved == conversation_id:
            self.save()
        if self._state.current == conversation_id:
            self._soon.start()

    # --- the state ------------------------------------------------------------------------------

    def _on_shown(self) -> None:
        if self._state.current != self._current:
            self._current = self._state.current
            self.save()
        shown = self._state.current
        if self._loading and (shown is None or self._branch(shown) != self._loading.branch):
            self._give_up()
        resume = self._shown.resume
        if resume and (shown is None or self._runner.held.branch != self._branch(shown)):
            self._shown.set_resume(None)
        self._soon.start()

    def _on_model(self) -> None:
        model = self._state.model
        ready = model.phase is ModelPhase.READY
        if model.loaded is not self._model:
            self._model = model.loaded
            self._give_up()
            self._ready = False
            self._shown.set_resume(None)
        if ready and not self._ready:
            self._soon.start()
        self._ready = ready

    def _on_generation(self) -> None:
        before, now = self._writing, self._state.generation
        self._writing = now
        if before is None or (now is not None and now.request == before.request):
            return
        self._quiet.start()
        if before.conversation != self._state.current:
            self._soon.start()

    def _on_forgotten(self, error: str) -> None:
        remedy = "Check that its folder can be written to." if error else ""
        self._shown.set_saved(replace(self._shown.saved, error=error, remedy=remedy))

    # --- steps ----------------------------------------------------------------------------------

    def _try_to_delete(self, names: Sequence[str] | None) -> str:
        """Delete what is saved; returns what is wrong, on a thread of its own."""
        try:
            self._delete(names)
        except OSError as error:
            return f"Saved reading could not be deleted: {error.strerror or error}."
        return ""

    def _may(self) -> bool:
        """Whether there is a model to bring anything back into, and leave to keep anything."""
        return self._state.model.phase is ModelPhase.READY and self._runner.budget_bytes > 0

    def _branch(self, conversation_id: int) -> Branch:
        messages = self._state.branches.get(conversation_id, ())
        return Branch(conversation_id, tuple(message.id for message in messages))

    def _give_up(self) -> None:
        """Another conversation is wanted before this one was back."""
        if self._loading:
            self._link.cancel(self._loading.request)
            self._overtaken.add(self._loading.request)
            self._runner.lost(self._loading.request)
            self._loading = None

    def _overtake(self, conversation_id: int | None) -> None:
        """An answer begins: it waits for its own conversation's load, and needs no other."""
        if self._loading and self._loading.branch.conversation == conversation_id:
            self._overtaken.add(self._loading.request)
            self._loading = None
        self._give_up()


def _resume(conversation_id: int, event: SnapshotLoaded) -> Resume:
    return Resume(
        conversation_id,
        ResumePhase.DONE,
        event.restored_tokens,
        event.ready_tokens,
        event.total_tokens,
        event.seconds,
        event.remaining_prefill_seconds,
        event.refused,
    )
