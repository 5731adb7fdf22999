"""Runner: the order of commands does not depend on the order of signal handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from adapter_stage import PIRATE, REMEDY, WRONG, accept, refuse, uses
from app.chat.answering.answers import Answers
from app.chat.models.adapters import Adapters
from app.chat.models.snapshots import SnapshotController
from app.chat.requests.prompts import PromptBuilder
from app.chat.requests.runner import Runner
from app.chat.settings.chat_settings import ChatSettingsController
from app.domain.message import Message, MessageState
from app.domain.model_ref import Local
from app.engines.local import LocalClient
from app.settings.table import Settings
from app.state.adapters import AdapterState
from app.state.chat import ModelPhase, ModelStatus, State
from app.state.chat_settings import ChatSettingsState
from app.state.snapshots import SessionState
from app.store.store import Store
from app.store.writer import StoreQueue
from app.system.worker import BackgroundWorker
from engine import (
    Chat,
    DraftKind,
    Event,
    Failed,
    Fault,
    FaultKind,
    Finished,
    FinishReason,
    Request,
    Restore,
    Role,
    Sampling,
    Save,
    SetAdapters,
    Turn,
)
from fakes import MODEL, FakeEngine, kind_of
from snapshot_fixture import LOADED
from stage import flush, reraise, until


class Parts:
    """Sessions, adapters and answers with a fake engine and a store of two conversations."""

    def __init__(self, folder: Path, *, adapters_first: bool) -> None:
        self.state, self.session_state, self.adapter_state = State(), SessionState(), AdapterState()
        self.store_queue = StoreQueue(folder / "conversations.sqlite")
        self.engines: list[FakeEngine] = []
        self.link = LocalClient(self._engine, lambda event: None)
        self.files = BackgroundWorker("files", self.link)
        self.runner = Runner(self.state, self.link, Settings, lambda: DraftKind.LOOKUP)
        makers = [self._make_sessions, self._make_adapters]
        for make in reversed(makers) if adapters_first else makers:
            make()
        self.answers = Answers(
            self.state,
            self.store_queue,
            self.link,
            self.adapters,
            self.runner,
            lambda *_: None,
            reraise,
        )
        self.adapter_state.request_finished.connect(self.answers.start_next)
        self.branches: list[list[Message]] = []
        self.store_queue.read(self._fill, self.branches.extend)
        until(lambda: len(self.branches) == 2)

    def _make_sessions(self) -> None:
        self.sessions = SnapshotController(
            self.state,
            self.session_state,
            self.runner,
            self.files,
            PromptBuilder(self.state, lambda _: Settings()),
            size=lambda: 0,
            delete=lambda _: 0,
            report=reraise,
        )

    def _make_adapters(self) -> None:
        prompts = PromptBuilder(self.state, lambda _: Settings())
        self.settings = ChatSettingsController(
            self.state,
            ChatSettingsState(),
            self.store_queue,
            self.link,
            prompts,
            reraise,
        )
        self.adapters = Adapters(
            self.state,
            self.adapter_state,
            self.store_queue,
            self.link,
            self.runner,
            self.files,
            self.settings,
            reraise,
        )

    def _engine(self, deliver: Callable[[Event], None]) -> FakeEngine:
        self.engines.append(FakeEngine(deliver))
        return self.engines[-1]

    def _fill(self, store: Store) -> list[list[Message]]:
        for title in ("one", "two"):
            made = store.create_conversation(title)
            asked = store.add_message(made.id, None, Role.USER, f"{title}?")
            store.add_message(made.id, asked.id, Role.ASSISTANT, title, MessageState.COMPLETE)
        self.state.set_conversations(store.conversations())
        return [store.branch(made.id) for made in reversed(store.conversations())]

    def ask(self, place: int) -> None:
        """Queue the last answer of a conversation again."""
        *before, last = self.branches[place]
        turns = tuple(Turn(message.role, message.text) for message in (*before, last))
        self.answers.enqueue(last, lambda: Chat(turns, Sampling(), 10))

    def kinds(self) -> list[type[Request]]:
        """Commands sent to the engine since the last call."""
        sent = [kind_of(command) for command in self.engines[0].commands]
        self.engines[0].commands.clear()
        return sent

    def close(self) -> None:
        self.files.close()
        self.store_queue.close()
        for each in (self.runner, self.link, self.store_queue):
            each.deleteLater()
        for each in (self.state, self.session_state, self.adapter_state):
            each.deleteLater()
        flush()


@pytest.fixture(params=[False, True], ids=["sessions first", "adapters first"])
def parts(qtbot: QtBot, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Parts]:
    """In either order: the second conversation has an adapter, the first was just answered."""
    made = Parts(tmp_path, adapters_first=request.param)
    engine = made.engines[0]
    made.state.set_model(ModelStatus(ModelPhase.READY, Local(MODEL), "Small", loaded=LOADED))
    two, one = made.branches[1], made.branches[0]
    made.state.show(two[0].conversation, two)
    made.adapters.add(PIRATE)
    accept(engine)
    made.link.drain()
    made.state.show(one[0].conversation, one)
    accept(engine)
    made.link.drain()
    made.kinds()
    made.ask(0)
    assert made.kinds() == [Restore, Chat]
    yield made
    made.close()


def end_answer(parts: Parts) -> None:
    (generation,) = parts.state.generations.values()
    parts.engines[0].deliver(Finished(generation.request, FinishReason.END, 1, 0, 1, 0.1, 0.1, 1))
    parts.link.drain()


def test_another_conversation_is_shown(parts: Parts) -> None:
    end_answer(parts)
    two = parts.branches[1]
    parts.state.show(two[0].conversation, two)
    assert parts.kinds() == [Save, SetAdapters]
    until(lambda: bool(parts.engines[0].commands))
    assert parts.kinds() == [Restore]


def test_another_conversation_is_shown_while_an_answer_is_written(parts: Parts) -> None:
    two = parts.branches[1]
    parts.state.show(two[0].conversation, two)
    assert parts.kinds() == [Save, SetAdapters], "both carried out after the answer"


def test_another_conversation_is_answered(parts: Parts) -> None:
    end_answer(parts)
    parts.ask(1)
    (save, load, asked) = parts.engines[0].commands
    assert isinstance(save, Save)
    assert isinstance(load, Restore)
    assert isinstance(asked, Chat)
    assert save.conversation == str(parts.branches[0][0].conversation)
    assert load.adapters == asked.adapters == uses((PIRATE, 1.0))


def test_two_conversations_with_different_adapters_answer_at_the_same_time(parts: Parts) -> None:
    parts.ask(1)
    assert parts.kinds() == [Save, Restore, Chat], "the first one goes on"
    assert len(parts.state.generations) == 2


def fail_answer(parts: Parts, kind: FaultKind) -> None:
    """Fail the newest answer before it has begun."""
    request = max(parts.state.generations)
    parts.engines[0].deliver(Failed(request, WRONG, REMEDY, fault=Fault(kind)))
    parts.link.drain()


def test_answer_starts_without_adapters_refused_since_their_check(parts: Parts) -> None:
    end_answer(parts)
    parts.ask(1)
    two = parts.branches[1][0].conversation
    parts.kinds()
    fail_answer(parts, FaultKind.NO_FILE)
    asked = parts.engines[0].last(SetAdapters)
    assert parts.kinds() == [SetAdapters], "which finds the file"
    refuse(parts.engines[0], asked)
    parts.link.drain()
    (asked,) = (each for each in parts.engines[0].commands if isinstance(each, Chat))
    assert asked.adapters == ()
    assert parts.adapter_state.applied == ()
    parts.state.show(two, parts.branches[1])
    assert [(entry.on, entry.error) for entry in parts.adapter_state.stack] == [(False, WRONG)]


def test_answer_fails_when_its_adapters_are_refused_twice(parts: Parts) -> None:
    end_answer(parts)
    parts.ask(1)
    parts.kinds()
    fail_answer(parts, FaultKind.NO_FILE)
    accept(parts.engines[0])
    parts.kinds()
    parts.link.drain()
    assert Chat in parts.kinds()
    fail_answer(parts, FaultKind.NO_FILE)
    assert not parts.state.generations
    assert not parts.state.queued


def test_answer_that_fails_for_another_reason_is_not_asked_again(parts: Parts) -> None:
    end_answer(parts)
    parts.ask(1)
    parts.kinds()
    fail_answer(parts, FaultKind.MEMORY)
    assert parts.kinds() == []
    assert not parts.state.generations


def test_context_of_another_model_is_not_saved(parts: Parts) -> None:
    end_answer(parts)
    two = parts.branches[1]
    parts.state.show(two[0].conversation, two)
    accept(parts.engines[0])
    parts.link.drain()
    parts.ask(0)
    accept(parts.engines[0])
    parts.link.drain()
    end_answer(parts)  # of the first conversation, while the second is shown
    assert parts.runner.engine_state.unsaved == parts.branches[0][0].conversation
    parts.kinds()
    other = replace(LOADED, seconds=9.0)
    parts.state.set_model(ModelStatus(ModelPhase.READY, Local(MODEL), "Other", loaded=other))
    assert parts.kinds() == [SetAdapters]
    assert parts.runner.engine_state.unsaved is None
