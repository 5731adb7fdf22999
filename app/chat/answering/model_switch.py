"""Model switch: loads or unloads a model now or, while answers are written, after all of them.

Choosing another model must not end an answer without being asked to. Messages sent meanwhile are
answered by the chosen model.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.chat.answering.answers import Answers
from app.chat.models import model_loader
from app.chat.models.model_loader import ModelLoader
from app.chat.models.snapshots import SnapshotController
from app.domain.model_ref import Local, Remote
from app.library.settings_editor import ModelSettingsEditor
from app.state.chat import Generation, ModelPhase, Notice, State
from app.system.translation import tr, trn
from engine import DEFAULT_CACHE, model_label

NOTICE = "switch"  # kind of the notice about the waiting change


class ModelSwitch:
    """Keeps at most one change of the model waiting; the latest request counts."""

    def __init__(
        self,
        state: State,
        models: ModelLoader,
        answers: Answers,
        sessions: SnapshotController,
        defaults: ModelSettingsEditor,
    ) -> None:
        self._state = state
        self._models, self._answers, self._sessions = models, answers, sessions
        self._defaults = defaults
        self._waiting: Callable[[], None] | None = None
        self._loaded: tuple[object, ...] | None = None  # what the last load depended on
        state.generations_changed.connect(self._on_generations)

    def load(self, model: Local) -> None:
        """Load a model of this machine in place of the loaded one, after the answers in progress.

        The model in use is not loaded again, unless the settings it is loaded with have changed, or
        it is not where it was asked to run.
        """
        status, path = self._state.model, model.path
        ready = status.phase is ModelPhase.READY and status.model == model
        is_moved = status.loaded is not None and status.loaded.moved is not None
        if ready and not is_moved and self._loaded == self._key(path):
            self.drop()
            return
        name = model_label(path)
        waits = trn(
            "{name} loads after the current answer.",
            "{name} loads after the current answers.",
            len(self._writing()),
            name=name,
        )
        self._change(lambda: self._load(path), waits, tr("Load now"))

    def unload(self) -> None:
        """Unload the model, after the answers in progress."""
        waits = trn(
            "The model is unloaded after the current answer.",
            "The model is unloaded after the current answers.",
            len(self._writing()),
        )
        self._change(self._unload, waits, tr("Unload now"))

    def do_now(self) -> None:
        """Stop the answers in progress, and then make the waiting change."""
        if self._waiting is not None:
            self._state.set_notice(NOTICE, None)
            self._answers.stop_writing()

    def drop(self) -> None:
        """Keep the model as it is."""
        self._waiting = None
        self._state.set_notice(NOTICE, None)
        self._answers.hold(False)

    def _change(self, change: Callable[[], None], waits: str, now: str) -> None:
        generations = self._writing()
        if not generations or self._state.model.phase is not ModelPhase.READY:
            self._make(change)
            return
        self._waiting = change
        self._answers.hold(True)
        if not all(generation.stopping for generation in generations):
            remedy = tr("Close this to keep {name}.", name=self._state.model.name)
            self._state.set_notice(NOTICE, Notice(waits, remedy, now))

    def _on_generations(self) -> None:
        if self._waiting is not None and not self._writing():
            self._make(self._waiting)

    def _writing(self) -> list[Generation]:
        """The answers in progress of the loaded model; those of engines elsewhere go on."""
        running = self._state.generations.values()
        return [each for each in running if not isinstance(each.model, Remote)]

    def _make(self, change: Callable[[], None]) -> None:
        """Make a change; queued answers are requested from the model that is there after it."""
        self._waiting = None
        self._state.set_notice(NOTICE, None)
        change()
        self._answers.hold(False)

    def _load(self, path: Path) -> None:
        self._sessions.shut_down()
        self._state.set_notice(model_loader.NOTICE, None)
        self._loaded = self._key(path)
        own = self._defaults.whole(path)
        threads = self._defaults.settings.threads
        cache = own.cache or DEFAULT_CACHE
        runs_on = own.runs_on or "auto"
        self._models.load(path, own.context or 0, threads, cache, own.memory_bytes, runs_on)
        self._answers.start_next()

    def _key(self, path: Path) -> tuple[object, ...]:
        """What a load depends on: the file, and the settings it is loaded with."""
        own = self._defaults.whole(path)
        threads = self._defaults.settings.threads
        return path, own.context, own.cache, own.memory_gb, own.runs_on, threads

    def _unload(self) -> None:
        self._loaded = None
        self._sessions.shut_down()
        self._models.unload()
