"""Test fixture of app.chat.models.snapshots: Sessions with a fake engine, a real store and user actions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QTimer

from app.chat.models.snapshots import OPEN_MILLISECONDS, SnapshotController
from app.chat.requests.planner import Branch
from app.chat.requests.prompts import PromptBuilder, turns_of
from app.chat.requests.runner import Runner
from app.domain.ids import new_id
from app.domain.message import Message, MessageState
from app.domain.model_ref import Local
from app.domain.parts import TextPart, parts_of
from app.engines.local import LocalClient
from app.engines.run import Run, start
from app.settings.table import Settings
from app.state.chat import Generation, ModelPhase, ModelStatus, State
from app.state.snapshots import Resume, SessionState
from app.store.store import Store
from app.store.writer import StoreQueue
from app.system.worker import BackgroundWorker
from engine import (
    AdaptersSet,
    Chat,
    DraftKind,
    Event,
    Finished,
    FinishReason,
    ModelLoaded,
    Restore,
    Role,
    Save,
    SetAdapters,
)
from fakes import MODEL, FakeEngine
from stage import flush, reraise, until, wait_for_workers

LOADED = ModelLoaded(1, MODEL, "Small", "llama", "4-bit", 1, 8192, 1, 1, "reference", (), 0.1)
SESSION_COMMANDS = (Restore, Save, Chat)


class SnapshotFixture:
    """Sessions over a fake engine and a real store with three conversations of two turns each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = Settings(system_prompt="Be brief.")
        self.size = 700
        self.disk_answers = threading.Event()  # cleared: measuring blocks
        self.disk_answers.set()
        self.deletes: list[tuple[str, ...] | None] = []
        self.delete_error: OSError | None = None
        self.state, self.shown = State(), SessionState()
        self.store_queue = StoreQueue(folder / "conversations.sqlite")
        self.engines: list[FakeEngine] = []
        self.link = LocalClient(self._engine, lambda event: None)
        self.runner = Runner(
            self.state,
            self.link,
            lambda: self.settings,
            lambda: DraftKind.LOOKUP,
        )
        self.files = BackgroundWorker("files", self.link)
        self.sessions = SnapshotController(
            self.state,
            self.shown,
            self.runner,
            self.files,
            PromptBuilder(self.state, lambda _: self.settings),
            size=self._measure,
            delete=self._delete,
            report=reraise,
        )
        self.runner.sent.connect(self._on_sent)
        self.resumes: list[Resume | None] = []
        self.shown.resume_changed.connect(lambda: self.resumes.append(self.shown.resume))
        self.ids = self.stored(self._make)

    def _engine(self, deliver: Callable[[Event], None]) -> FakeEngine:
        self.engines.append(FakeEngine(deliver))
        return self.engines[-1]

    def _on_sent(self, run: Run, _: object) -> None:
        if isinstance(run.request, SetAdapters):  # as `app.chat.models.adapters` does
            start(self._set_adapters(run), reraise)

    async def _set_adapters(self, run: Run) -> None:
        self.runner.on_adapters_set(await run.result(AdaptersSet))

    def _measure(self) -> int:
        assert self.disk_answers.wait(60)
        return self.size

    def _delete(self, names: Sequence[str] | None) -> int:
        if self.delete_error:
            raise self.delete_error
        self.deletes.append(None if names is None else tuple(names))
        freed, self.size = self.size, 0
        return freed

    def _make(self, store: Store) -> list[int]:
        ids = []
        for name in ("first", "second", "third"):
            made = store.create_conversation(name)
            own = store.add_message(made.id, None, Role.USER, f"{name} question")
            store.add_message(
                made.id, own.id, Role.ASSISTANT, f"{name} answer", MessageState.COMPLETE
            )
            ids.append(made.id)
        return ids

    # --- user actions -------------------------------------------------------------------------

    @property
    def engine(self) -> FakeEngine:
        return self.engines[0]

    @property
    def commands(self) -> list[object]:
        return [c for c in self.engine.commands if isinstance(c, SESSION_COMMANDS)]

    def stored(self, look: Callable[[Store], list[int]]) -> list[int]:
        found: list[list[int]] = []
        self.store_queue.read(look, found.append)
        until(lambda: bool(found))
        return found[0]

    def settle(self) -> None:
        """Wait for the store, the engine's events, and a restore that is about to start."""
        for _ in range(2):  # results of the store may start more work on files
            done: list[int] = []
            self.store_queue.flush(done.append)
            until(lambda done=done: bool(done))
            wait_for_workers(self.link)
        self.link.drain()
        until(lambda: not any(t.isActive() for t in self.timers(OPEN_MILLISECONDS)))
        flush()

    def timers(self, interval: int) -> list[QTimer]:
        return [t for t in self.runner.findChildren(QTimer) if t.interval() == interval]

    def load_model(self) -> None:
        loaded = replace(LOADED)  # a new object, as for every load
        self.state.set_model(ModelStatus(ModelPhase.READY, Local(MODEL), "Small", loaded=loaded))

    def branch(self, conversation: int) -> Sequence[Message]:
        if conversation not in self.state.branches:
            found: list[list[Message]] = []
            self.store_queue.read(lambda store: store.branch(conversation), found.append)
            until(lambda: bool(found))
            for message in found[0]:
                self.state.add(message)
        return self.state.branches[conversation]

    def open(self, conversation: int | None) -> None:
        if conversation is None:
            self.state.show(None)
        else:
            self.state.show(conversation, self.branch(conversation))

    def ask(self, conversation: int, text: str = "And then?") -> None:
        """Start an answer as `app.chat.answering.answers` does."""
        self.add(conversation, Role.USER, text)
        turns = turns_of(self.state.branches[conversation], self.settings.system_prompt)
        answer = self.add(conversation, Role.ASSISTANT, "")
        messages = tuple(each.id for each in self.state.branches[conversation])
        branch = Branch(conversation, messages)
        request = self.runner.answer(branch, (), Chat(turns)).id
        self.state.set_generation(Generation(request, conversation, answer))

    def add(self, conversation: int, role: Role, text: str) -> int:
        parent = self.branch(conversation)[-1].id if self.branch(conversation) else None
        message = Message(
            new_id(), conversation, parent, role, parts_of(role, text), MessageState.COMPLETE, 0.0, "",
            "", 0, 0, 0.0, 1, 1,
        )  # fmt: skip
        self.state.add(message)
        return message.id

    def end_answer(self) -> None:
        (generation,) = self.state.generations.values()
        text = "So it was."
        parts = (TextPart(text),)
        self.state.add_text(generation.conversation, generation.message, text, parts)
        self.engine.deliver(Finished(generation.request, FinishReason.END, 1, 0, 1, 0.1, 0.1, 1))
        self.state.end_generation(generation.request)

    def answer(self, conversation: int) -> None:
        self.ask(conversation)
        self.end_answer()

    def close(self) -> None:
        self.link.drain()
        self.store_queue.close()
        self.files.close()
        for each in (self.runner, self.link, self.store_queue, self.state, self.shown):
            each.deleteLater()
        flush()
