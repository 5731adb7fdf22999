"""State objects: fields are read-only, and every change emits its signal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, SignalInstance
from pytestqt.qtbot import QtBot

from app.domain.chat import Conversation, Folder, Hit, TrashedConversation
from app.domain.chat_settings import ChatSettings
from app.domain.message import Message, MessageState
from app.domain.model_ref import Local, Remote
from app.domain.parts import TextPart
from app.engines.client import Capabilities
from app.state.adapters import AdapterEntry, AdapterState, KnownAdapter
from app.state.chat import (
    ChatModel,
    Deletion,
    Generation,
    ModelFile,
    ModelPhase,
    ModelStatus,
    Notice,
    ServedModel,
    State,
    WaitingMessage,
)
from app.state.observable import ReadOnly
from app.state.snapshots import Resume, SavedSnapshots, SessionState
from engine import AdapterUse, DeviceInfo, ModelLoaded, Role

PATH = Path("/models/a.gguf")
LOADED = ModelLoaded(1, PATH, "Small", "llama", "4-bit", 1, 8192, 1, 1, "reference", (), 0.1)
ROW = Conversation(1, "Sky", 0.0, 0.0, None)
MESSAGE = Message(
    7, 1, None, Role.ASSISTANT, (TextPart("Because"),), MessageState.STREAMING, 0.0, "", "", 0, 0,
    0.0, 1, 1,
)  # fmt: skip
ENTRY = AdapterEntry(PATH)
OTHER = replace(MESSAGE, id=70)


def shown() -> State:
    """A state with a value in every field."""
    state = State()
    state.set_conversations([ROW])
    state.set_found("sky", [ROW])
    state.show(1, [MESSAGE])
    state.set_compared(MESSAGE, OTHER)
    state.set_model(ModelStatus(ModelPhase.READY, Local(PATH), "Small", loaded=LOADED))
    state.set_last_speed(2.0)
    state.set_generation(Generation(1, 1, 7, tokens_per_second=3.0))
    state.set_queued(8, 1)
    state.set_waiting(8, 1, "Waits")
    state.set_draft(None, (TextPart("half"),))
    state.set_outbox(1, [WaitingMessage(1, (TextPart("next"),))])
    state.set_installed([ModelFile(PATH, "a", 1)])
    state.set_served([ServedModel(Remote("c", "m"), "M", "Office", "gpu:8000")])
    state.set_notice("model", Notice("It failed."))
    state.set_deletions([Deletion((3,))], offered=1)
    state.set_trash([TrashedConversation(3, "Gone", 0.0)])
    return state


def adapters() -> AdapterState:
    """The same for the adapter state."""
    state = AdapterState()
    state.set_stack([ENTRY])
    state.set_known([KnownAdapter(PATH, "a")])
    state.set_mixes({"mix": (ENTRY,)})
    state.set_applied((AdapterUse(PATH, 1.0),), {}, frozenset([PATH]), ("Why", "How"))
    state.set_pending(True)
    return state


def sessions() -> SessionState:
    """The same for the snapshot state."""
    state = SessionState()
    state.set_resume(Resume(1))
    state.set_saved(SavedSnapshots(5))
    return state


def field_names(kind: type) -> list[str]:
    return [name for name, value in vars(kind).items() if isinstance(value, ReadOnly)]


@pytest.mark.parametrize("make", [shown, adapters, sessions])
def test_no_field_can_be_set_from_outside(make: Callable[[], QObject]) -> None:
    state = make()
    names = field_names(type(state))
    assert names
    for name in names:
        value = getattr(state, name)
        with pytest.raises(AttributeError, match=name):
            setattr(state, name, value)
    values = {name for name, value in vars(state).items() if not isinstance(value, SignalInstance)}
    assert {name for name in values if not name.startswith("_")} == set()


@pytest.mark.parametrize("make", [shown, adapters, sessions])
def test_values_are_immutable(make: Callable[[], QObject]) -> None:
    state = make()
    for name in field_names(type(state)):
        assert_frozen(getattr(state, name))


def assert_frozen(value: object) -> None:
    """Fail for a value that is mutable, or contains a mutable one."""
    if isinstance(value, Mapping):
        for key, inside in value.items():
            assert_frozen(inside)
            with pytest.raises(TypeError):
                value[key] = inside  # type: ignore[index]
        assert not isinstance(value, dict)
    elif is_dataclass(value) and not isinstance(value, type):
        with pytest.raises(FrozenInstanceError):
            setattr(value, fields(value)[0].name, 1)
    elif isinstance(value, tuple | frozenset):
        for inside in value:
            assert_frozen(inside)
    else:
        assert isinstance(value, str | int | float | bool | Path | None)


CHANGES: list[tuple[str, Callable[[State], None], set[str]]] = [
    ("show", lambda s: s.show(2, [MESSAGE]), {"current", "branches"}),
    ("conversations", lambda s: s.set_conversations([]), {"conversations"}),
    ("folders", lambda s: s.set_folders([Folder(1, "Work")]), {"folders"}),
    ("new folder", lambda s: s.set_new_folder(1), {"new_folder"}),
    (
        "places",
        lambda s: s.change_conversations({1: {"pinned": True}}),
        {"conversations", "found"},
    ),
    ("new chat", lambda s: s.set_settings(None, ChatSettings(stop=("#",))), {"new_chat"}),
    (
        "settings",
        lambda s: s.set_settings(1, ChatSettings(stop=("#",))),
        {"conversations", "found"},
    ),
    ("capabilities", lambda s: s.set_capabilities(Capabilities(images=True)), {"capabilities"}),
    ("devices", lambda s: s.set_devices((DeviceInfo("cuda", "GPU"),)), {"devices"}),
    ("typed_tokens", lambda s: s.set_typed_tokens(3), {"typed_tokens"}),
    ("reading", lambda s: s.set_reading(1), {"reading"}),
    ("titled", lambda s: s.set_titled(1), {"titled"}),
    ("can_read", lambda s: s.set_can_read(True), {"can_read"}),
    ("found", lambda s: s.set_found("blue", [], {1: Hit(2, "sky")}), {"query", "found", "hits"}),
    ("add", lambda s: s.add(replace(MESSAGE, id=9)), {"branches"}),
    ("change", lambda s: s.change(replace(MESSAGE, parts=(TextPart("No"),))), {"branches"}),
    ("close", lambda s: s.set_compared(MESSAGE, None), {"compared"}),
    ("cut compared", lambda s: s.cut(1, 0), {"branches", "compared"}),
    ("other text", lambda s: s.add_text(1, 70, " of", (TextPart("B of"),)), {"compared"}),
    ("change other", lambda s: s.change(replace(OTHER, parts=())), {"compared"}),
    ("text", lambda s: s.add_text(1, 7, " of", (TextPart("A of"),)), {"branches"}),
    ("memory", lambda s: s.set_memory_start(1, 7), {"memory_starts"}),
    ("passages", lambda s: s.set_left_out(1, frozenset((7,))), {"left_out"}),
    ("model", lambda s: s.set_model(ModelStatus()), {"model", "last_speed"}),
    (
        "chat model",
        lambda s: s.set_chat_model(ChatModel(Local(PATH), "Small")),
        {"chat_model"},
    ),
    (
        "generation",
        lambda s: s.set_generation(Generation(1, 1, 7, tokens_per_second=4.0)),
        {"generations"},
    ),
    ("another", lambda s: s.set_generation(Generation(2, 5, 9)), {"generations"}),
    ("end", lambda s: s.end_generation(1), {"generations"}),
    ("last speed", lambda s: s.set_last_speed(9.0), {"last_speed"}),
    ("queued", lambda s: s.set_queued(8, None), {"queued"}),
    ("waiting", lambda s: s.set_waiting(8, 1, ""), {"waiting"}),
    ("waiting elsewhere", lambda s: s.set_waiting(9, 2, "Waits"), {"waiting"}),
    ("installed", lambda s: s.set_installed([]), {"installed"}),
    ("served", lambda s: s.set_served([]), {"served"}),
    ("draft", lambda s: s.set_draft(None, (TextPart("whole"),)), {"drafts"}),
    ("outbox", lambda s: s.set_outbox(1, []), {"outbox"}),
    ("notice", lambda s: s.set_notice("model", None), {"notices"}),
    ("trash", lambda s: s.set_trash([]), {"trash"}),
    ("deletions", lambda s: s.set_deletions([], offered=0), {"deletions", "offered"}),
]


@pytest.mark.parametrize(
    ("change", "changed"),
    [(change, changed) for _, change, changed in CHANGES],
    ids=[name for name, _, _ in CHANGES],
)
def test_every_change_emits_its_signal(
    qtbot: QtBot, change: Callable[[State], None], changed: set[str]
) -> None:
    state = shown()
    names = field_names(State)
    before = {name: getattr(state, name) for name in names}
    seen: list[set[str]] = []

    def look(*_: object) -> None:
        seen.append({name for name in names if getattr(state, name) != before[name]})

    for signal in (
        state.conversations_changed,
        state.conversation_changed,
        state.message_added,
        state.message_changed,
        state.message_removed,
        state.text_added,
        state.waiting_changed,
        state.model_changed,
        state.chat_model_changed,
        state.generations_changed,
        state.notices_changed,
        state.draft_changed,
        state.outbox_changed,
        state.memory_changed,
        state.deletions_changed,
        state.trash_changed,
        state.typed_changed,
        state.reading_changed,
        state.titled_changed,
        state.devices_changed,
        state.capabilities_changed,
        state.settings_changed,
        state.folders_changed,
        state.new_folder_changed,
    ):
        signal.connect(look)
    change(state)
    assert seen
    assert seen[-1] == changed


def test_table_of_changes_covers_every_field() -> None:
    assert set().union(*(changed for _, _, changed in CHANGES)) == set(field_names(State))


def test_several_answers_are_in_progress_at_once() -> None:
    state = shown()
    state.set_generation(Generation(4, 5, 9))
    state.set_generation(Generation(4, 5, 9, started=True, tokens_per_second=8.0))
    assert [each.request for each in state.generations.values()] == [1, 4]
    assert state.busy_conversations == {1, 5}
    assert state.writing_conversations == {5}
    assert state.shown_generation == state.generations[1]
    assert state.speed == 3.0
    state.end_generation(1)
    assert state.busy, "its other answer is queued"
    assert state.shown_generation is None
    assert state.speed == 2.0
    state.set_queued(8, None)
    assert not state.busy
    assert state.busy_conversations == {5}
