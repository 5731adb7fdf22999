"""When what the model has read of a conversation is saved, and when it is brought back.

The engine holds the reading of one conversation. Before anything else takes its place it is saved,
and the shown conversation's is brought back in the background, so the next answer begins at once.
Commands are carried out in the order they are sent: that order is what most of this file is about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QTimer

from app.archive import Archive
from app.engine_link import EngineLink
from app.session_state import Resume, ResumePhase, SessionState
from app.settings import Settings
from app.state import Generation, ModelPhase, State
from app.turns import turns_of
from engine import (
    AdaptersSet,
    Failed,
    LoadSnapshot,
    ModelLoaded,
    Role,
    SaveSnapshot,
    SnapshotLoaded,
    SnapshotSaved,
    Turn,
)

OPEN_MILLISECONDS = 60  # other commands of opening go first, and who only passes by costs nothing
QUIET_MILLISECONDS = 10_000  # after an answer, before it is saved unasked
_GIGABYTE = 1e9


@dataclass(frozen=True, slots=True)
class _Branch:
    """One way through a conversation, as far as it goes now."""

    conversation: int
    messages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Load:
    """A conversation on its way back."""

    request: int
    branch: _Branch


class Sessions:
    """Listens to the state; made before `app.adapters`, whose commands must come after a save."""

    def __init__(
        self,
        state: State,
        session_state: SessionState,
        archive: Archive,
        link: EngineLink,
        settings: Callable[[], Settings],
        *,
        size: Callable[[], int],
        delete: Callable[[Sequence[str] | None], int],
    ) -> None:
        """`size` measures the bytes of all that is saved, `delete` frees those of the conversations
        it is given the names of, or all; both on a thread.
        """
        self._state = state
        self._shown = session_state
        self._archive = archive
        self._link = link
        self._settings = settings
        self._size, self._delete = size, delete
        self._names: dict[int, str] = {}  # conversations begun in this run: the engine's name
        self._model: ModelLoaded | None = None
        self._ready = False
        self._current = state.current
        self._writing: Generation | None = None
        self._held: _Branch | None = None  # what the engine was last brought to
        self._held_since = 0  # the request that did
        self._unsaved: int | None = None  # conversation the engine holds more of than the disk
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

    # --- what others ask for --------------------------------------------------------------------

    def make_way(self, conversation_id: int) -> None:
        """An answer of this conversation is next: save another one's reading.

        To be called before its adapters are asked for, since those may make the engine forget.
        """
        if self._unsaved not in (None, conversation_id):
            self.save()

    def begin(self, conversation_id: int, turns: tuple[Turn, ...]) -> None:
        """To be called right before an answer to `turns` is asked of the engine, after `make_way`."""
        self._soon.stop()
        self._learn_name(conversation_id)
        held = self._held is not None and self._held.conversation == conversation_id
        if held:
            self._unsaved = None  # and more of it after this answer
            self._quiet.stop()
            if self._loading:
                self._overtaken.add(self._loading.request)
        else:
            self._give_up()
            self._unsaved = None  # what has no name yet is lost with it
            self._bring_back_unseen(conversation_id, turns)
        self._held, self._loading = None, None
        self._shown.set_resume(None)

    def leave(self) -> None:
        """The model is about to go, or the app: save what the engine holds, the answer too.

        To be called after an answer being written was told to stop, and before the command that
        ends the model.
        """
        self._soon.stop()
        self._give_up()
        if self._writing is not None:
            self._unsaved = self._writing.conversation
        self.save()
        self._unsaved = None  # the model does not wait for a name

    def save(self) -> None:
        """Have the engine write what is not saved yet; nothing is written twice.

        A conversation that a slow disk has given no number yet waits for its name, for as long as
        the engine holds it.
        """
        conversation_id, self._unsaved = self._unsaved, None
        self._quiet.stop()
        budget = self._budget_bytes()
        if conversation_id is None or conversation_id in self._state.deleted or not budget:
            return
        name = self._name(conversation_id)
        if name:
            self._saves.add(self._link.send(lambda number: SaveSnapshot(number, name, budget)))
        else:
            self._unsaved = conversation_id

    def restore(self) -> None:
        """Bring the shown conversation back, unless the engine is busy or has it already."""
        shown = self._state.current
        if shown is None or not self._may() or self._state.generation or self._state.queued:
            return  # an answer that ends asks again
        branch = self._branch(shown)
        if branch == self._held:
            return
        turns = turns_of(self._state.branches.get(shown, []), self._settings().system_prompt)
        if not any(turn.role is not Role.SYSTEM for turn in turns):
            return
        name = self._name(shown)
        if not name:
            self._learn_name(shown)
            return
        self._give_up()
        self.save()
        self._unsaved = None  # what has no name yet is lost, as in `begin`
        request = self._link.send(lambda number: LoadSnapshot(number, turns, name))
        self._loading = _Load(request, branch)
        self._held, self._held_since = branch, request
        self._shown.set_resume(Resume(shown))

    def measure(self) -> None:
        """Look how much room saved reading takes; `SessionState.saved` gets it."""

        def measured(size_bytes: int) -> None:
            self._shown.set_saved(replace(self._shown.saved, size_bytes=size_bytes))

        self._archive.background(self._size, measured)

    def delete_saved(self) -> None:
        """Delete all saved reading; conversations stay as they are."""
        self._shown.set_saved(replace(self._shown.saved, deleting=True))

        def deleted(error: str) -> None:
            self._shown.set_saved(replace(self._shown.saved, deleting=False))
            self._on_forgotten(error)
            self.measure()

        self._archive.background(lambda: self._try_to_delete(None), deleted)

    def forget(self, conversation_ids: Sequence[int]) -> None:
        """Conversations were deleted: what was read of them goes too; Undo costs reading again."""
        if self._unsaved in conversation_ids:
            self._unsaved = None
        numbers = self._archive.conversations

        def delete(stored: list[int]) -> None:
            names = [str(number) for number in stored if number]
            self._archive.background(lambda: self._try_to_delete(names), self._on_forgotten)

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
        if self._state.current == loading.branch.conversation:
            self._shown.set_resume(_resume(loading.branch.conversation, event))
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
            self._loading, self._held = None, None
            self._shown.set_resume(None)
        else:
            return False
        return True

    def on_adapters_set(self, event: AdaptersSet) -> None:
        """With other adapters the engine forgets what it held; say what that costs."""
        if event.changed and event.request > self._held_since:
            self._held = self._unsaved = None
            self._quiet.stop()
            if not self._loading or self._loading.request < event.request:
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
        if resume and (shown is None or self._held != self._branch(shown)):
            self._shown.set_resume(None)
        self._soon.start()

    def _on_model(self) -> None:
        model = self._state.model
        ready = model.phase is ModelPhase.READY
        if model.loaded is not self._model:
            self._model = model.loaded
            self._give_up()
            self._unsaved, self._ready = None, False
            self._shown.set_resume(None)
            self._held = None
        if ready and not self._ready:
            self._soon.start()
        self._ready = ready

    def _on_generation(self) -> None:
        before, now = self._writing, self._state.generation
        self._writing = now
        if before is None or (now is not None and now.request == before.request):
            return
        self._unsaved = before.conversation
        self._held, self._held_since = self._branch(before.conversation), before.request
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
        return self._state.model.phase is ModelPhase.READY and self._budget_bytes() > 0

    def _budget_bytes(self) -> int:
        return round(self._settings().snapshot_budget_gb * _GIGABYTE)

    def _branch(self, conversation_id: int) -> _Branch:
        messages = self._state.branches.get(conversation_id, [])
        return _Branch(conversation_id, tuple(message.id for message in messages))

    def _bring_back_unseen(self, conversation_id: int, turns: tuple[Turn, ...]) -> None:
        """Begin an answer where a saved reading ends, for a conversation that was not shown."""
        name = self._name(conversation_id)
        said = sum(turn.role is not Role.SYSTEM for turn in turns)
        if name and said > 1 and self._may():
            self._overtaken.add(self._link.send(lambda number: LoadSnapshot(number, turns, name)))

    def _give_up(self) -> None:
        """Another conversation is wanted before this one was back."""
        if self._loading:
            self._link.cancel(self._loading.request)
            self._overtaken.add(self._loading.request)
            self._loading, self._held = None, None

    def _name(self, conversation_id: int) -> str:
        """What the engine is to call a conversation, the same in every run; "" while not known."""
        if conversation_id >= 0:
            return str(conversation_id)
        return self._names.get(conversation_id, "")

    def _learn_name(self, conversation_id: int) -> None:
        """Look up the number the store has given a conversation of this run."""
        if self._name(conversation_id):
            return
        numbers = self._archive.conversations

        def found(stored: int) -> None:
            if stored:
                self._names[conversation_id] = str(stored)
                if self._unsaved == conversation_id and not self._quiet.isActive():
                    self.save()
                if self._state.current == conversation_id:
                    self._soon.start()

        self._archive.read(lambda store: numbers.known(conversation_id), found)


def _resume(conversation_id: int, event: SnapshotLoaded) -> Resume:
    return Resume(
        conversation_id,
        ResumePhase.DONE,
        event.restored_tokens,
        event.ready_tokens,
        event.total_tokens,
        event.seconds,
        event.reading_seconds,
        event.refused,
    )
