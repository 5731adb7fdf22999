"""Answer options of chats: what answers are made with, when they move, and refused formats."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.domain.chat_settings import (
    NO_SETTINGS,
    AdapterChoice,
    AnswerFormat,
    ChatSettings,
    ResolvedText,
    settings_of,
    settings_text,
    without_tools,
)
from app.domain.generation_settings import GenerationSettings
from app.domain.message import MessageState
from app.domain.model_ref import Local
from app.domain.transfer import ExportFormat
from app.settings.samplers import Thinking
from app.store.store import Store
from engine import (
    Chat,
    CheckConstraint,
    ConstraintChecked,
    ConstraintKind,
    ContextPolicy,
    Failed,
    Finished,
    FinishReason,
    Sampling,
)
from fakes import MODEL
from stage import Stage, until

COLD = NO_SETTINGS.with_value("temperature", 0.1).with_value("seed", 5)
CHOICES = COLD.with_format(AnswerFormat.CHOICES, "yes\nno")


def answer(stage: Stage) -> Chat:
    """The last request for an answer, which ends."""
    command = stage.engine.last(Chat)
    stage.engine.finish()
    stage.drain()
    return command


def checked(stage: Stage, message: str = "", line: int = 0) -> None:
    """Answer the last check of a format."""
    request = stage.engine.last(CheckConstraint).request
    stage.engine.deliver(ConstraintChecked(request, message, "", line, line))
    stage.drain()


def stored(stage: Stage) -> dict[int, str]:
    """The settings of all chats that have some, as JSON; 0: of the new chat."""
    stage.wait_until_idle()
    found: list[dict[int, str]] = []

    def read(store: Store) -> dict[int, str]:
        texts = {row.id: settings_text(row.settings) for row in store.conversations()}
        texts[0] = store.new_chat_settings()
        return {number: text for number, text in texts.items() if text}

    stage.store_queue.read(read, found.append)
    until(lambda: bool(found))
    return found[0]


def test_an_answer_is_made_with_the_options_of_its_chat(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("one")
    assert answer(stage).constraint is None
    first = stage.state.current
    stage.controller.chat_settings.change_shown(CHOICES)
    stage.controller.send("two")
    command = answer(stage)
    assert (command.sampling.temperature, command.sampling.seed) == (0.1, 5)
    assert command.constraint is not None
    assert command.constraint.kind is ConstraintKind.CHOICES
    stage.controller.new_conversation()
    stage.controller.send("three")
    command = answer(stage)
    assert command.constraint is None
    assert command.sampling.seed == Sampling().seed
    assert first is not None
    stage.controller.open_conversation(first)
    stage.wait_until_idle()
    assert stage.states.chat_settings.settings == replace(CHOICES, model=Local(MODEL))


def test_other_answers_of_a_chat_have_its_options_too(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("one")
    answer(stage)
    stage.controller.chat_settings.change_shown(CHOICES)
    stage.controller.regenerate(stage.state.messages[-1].id)
    assert answer(stage).constraint == CHOICES.constraint
    stage.controller.edit(stage.state.messages[-2].id, "other")
    assert answer(stage).constraint == CHOICES.constraint
    stage.controller.compare(
        stage.state.messages[-1].id, GenerationSettings(), GenerationSettings(adapters=())
    )
    both = [c for c in stage.engine.commands if isinstance(c, Chat)][-2:]
    assert [c.constraint for c in both] == [CHOICES.constraint] * 2
    assert {c.sampling.temperature for c in both} == {0.1}
    assert both[0].sampling.seed == 5


def test_options_of_the_new_chat_move_to_it(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.chat_settings.change_shown(CHOICES)
    assert list(stored(stage)) == [0]
    stage.controller.send("one")
    assert answer(stage).constraint == CHOICES.constraint
    assert stage.states.chat_settings.settings == replace(CHOICES, model=Local(MODEL))
    assert 0 not in stored(stage)
    assert len(stored(stage)) == 1
    stage.controller.new_conversation()
    assert stage.states.chat_settings.settings == NO_SETTINGS


def test_options_are_there_after_a_restart(qtbot: QtBot, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    stage.controller.send("one")
    answer(stage)
    stage.controller.chat_settings.change_shown(CHOICES)
    stage.close()
    again = Stage(tmp_path)
    try:
        again.start()
        (chat,) = again.state.conversations
        again.controller.open_conversation(chat.id)
        again.wait_until_idle()
        assert again.states.chat_settings.settings == CHOICES
    finally:
        again.close()


def test_a_format_with_a_fault_is_not_asked_for(stage: Stage) -> None:
    stage.ready(MODEL)
    wrong = NO_SETTINGS.with_format(AnswerFormat.REGEX, "[0-9")
    stage.controller.chat_settings.change_shown(wrong)
    assert stage.states.chat_settings.shown.checking
    checked(stage, "The regular expression cannot be used: unclosed (line 1, column 1).", 1)
    shown = stage.states.chat_settings.shown
    assert shown.fault is not None
    assert (shown.fault.line, shown.checking) == (1, False)
    assert not stage.controller.send("one")
    assert stage.state.notices["format"].sentence == shown.fault.sentence
    assert stage.engine.count(Chat) == 0
    stage.controller.chat_settings.change_shown(wrong.with_format(AnswerFormat.REGEX, "[0-9]"))
    assert "format" not in stage.state.notices
    checked(stage)
    assert stage.states.chat_settings.shown.fault is None
    assert stage.controller.send("one")
    assert answer(stage).constraint is not None


def test_only_the_newest_format_is_shown_as_checked(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.chat_settings.change_shown(NO_SETTINGS.with_format(AnswerFormat.REGEX, "[0"))
    stage.controller.chat_settings.change_shown(NO_SETTINGS.with_format(AnswerFormat.REGEX, "[0]"))
    checked(stage, "unclosed", 1)  # of the text before
    assert stage.states.chat_settings.shown.fault is None
    assert stage.states.chat_settings.shown.checking
    checked(stage)
    assert not stage.states.chat_settings.shown.checking


def test_a_check_that_fails_leaves_it_to_the_answer(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.chat_settings.change_shown(CHOICES)
    request = stage.engine.last(CheckConstraint).request
    stage.engine.deliver(Failed(request, "The engine hit an internal error.", ""))
    stage.drain()
    assert stage.states.chat_settings.shown.fault is None
    assert "model" not in stage.state.notices
    assert stage.controller.send("one")


def test_another_model_checks_again(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.chat_settings.change_shown(CHOICES)
    checked(stage)
    before = stage.engine.count(CheckConstraint)
    stage.controller.load_model(Path("/models/other.gguf"))
    stage.engine.finish_load("Other")
    stage.drain()
    assert stage.engine.count(CheckConstraint) > before
    checked(stage)
    assert not stage.states.chat_settings.shown.checking


def test_a_cut_document_is_called_incomplete(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.chat_settings.change_shown(CHOICES.with_value("typical_p", 0.8))
    stage.controller.send("one")
    request = stage.engine.last(Chat).request
    stage.engine.deliver(
        Finished(request, FinishReason.LENGTH, 3, 0, 5, 0.1, 0.1, 8, incomplete=True)
    )
    stage.drain()
    message = stage.state.messages[-1]
    assert message.state is MessageState.STOPPED
    assert message.details is not None
    assert message.details.incomplete
    from app.ui.transcript.message.answer_card import exact_rows
    from app.ui.transcript.message.endings import ending

    assert ending(message).endswith("the document is incomplete")
    rows = dict(exact_rows(message))
    assert rows["Format"] == "list of choices"
    assert "Typical-p 0.8" in rows["Sampling"]
    assert "temperature 0.1" in rows["Sampling"]


def test_settings_survive_a_deletion_right_after_a_strength_was_dragged(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("one")
    answer(stage)
    chat = stage.state.current
    assert chat is not None
    settings = replace(COLD, adapters=(AdapterChoice(Path("/a")),))
    stage.controller.chat_settings.change_shown(settings)
    stage.controller.chat_settings.change(chat, replace(settings, stop=("x",)), later=True)
    stage.controller.deletions.delete([chat])
    stage.controller.adapters.flush()
    stage.controller.chat_settings.change(chat, ChatSettings(stop=("y",)))  # it is not listed
    stage.wait_until_idle()
    stage.controller.deletions.undo()
    stage.wait_until_idle()
    assert stage.state.settings(chat) == replace(settings, stop=("x",))


def test_changes_that_are_written_later_survive_reading_the_list(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("one")
    answer(stage)
    chat = stage.state.current
    assert chat is not None
    cold = replace(COLD, model=Local(MODEL))
    stage.controller.chat_settings.change(chat, cold, later=True)
    stage.controller.conversations.read()
    stage.wait_until_idle()
    stage.controller.chat_settings.save_all()
    stage.wait_until_idle()
    assert stage.state.settings(chat) == cold
    assert stored(stage)[chat] == settings_text(cold)


def test_a_new_chat_is_stored_before_its_settings_are_given_up(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.chat_settings.change_shown(COLD)
    stage.wait_until_idle()
    seen: list[tuple[str, int]] = []
    write = Store.set_settings

    def watched(store: Store, conversation: int | None, text: str) -> None:
        seen.append((text, len(store.conversations())))
        write(store, conversation, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "set_settings", watched)
        stage.controller.send("one")
        stage.wait_until_idle()
    assert ("", 1) in seen
    assert ("", 0) not in seen


def everything(folder: Path) -> ChatSettings:
    """Settings in which every field differs from its default."""
    adapter = folder / "adapter.gguf"
    adapter.write_bytes(b"GGUF")
    record = ChatSettings(
        model=Local(MODEL),
        instructions="Answer on {{date}} in French.\n\tBe \u201cbrief\u201d.",
        sampling={"temperature": 0.1, "seed": 5, "top_k": 7},
        stop=("###", " \n"),
        format=AnswerFormat.CHOICES,
        texts={"choices": "yes\nno", "regex": "[0-9]+"},
        thinking=Thinking.OFF,
        thinking_budget=77,
        policy=ContextPolicy.STOP,
        adapters=(AdapterChoice(adapter, on=False, strength=-0.5),),
        collections=(8, 3),
        tools=("builtin/calculate",),
        readable=(folder,),
        writable=(folder / "notes",),
        resolved=ResolvedText("Answer on {{date}}", "Answer on Monday"),
        unknown={"of a later version": [1, {"a": None}]},
    )
    unset = ChatSettings()
    assert not [f.name for f in fields(record) if getattr(record, f.name) == getattr(unset, f.name)]
    return record


def test_settings_survive_restart_copy_fork_export_and_another_model(
    qtbot: QtBot, tmp_path: Path
) -> None:
    record = everything(tmp_path)
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    stage.controller.send("one")
    answer(stage)
    source = stage.state.current
    assert source is not None
    stage.controller.chat_settings.change(source, record)
    stage.controller.copies.duplicate([source])
    stage.wait_until_idle()
    stage.controller.open_conversation(source)
    stage.wait_until_idle()
    stage.controller.copies.fork(stage.state.messages[-1].id)
    stage.wait_until_idle()
    path = tmp_path / "all.json"
    ids = [chat.id for chat in stage.state.conversations]
    assert len(ids) == 3
    stage.controller.transfer.export_chats(ids, ExportFormat.JSON, path)
    until(lambda: not stage.controller.transfer.busy)
    stage.close()

    again = Stage(tmp_path)
    try:
        again.start()
        assert [chat.settings for chat in again.state.conversations] == [record] * 3
        again.controller.deletions.delete(ids)
        again.controller.transfer.preview([path])
        until(lambda: not again.controller.transfer.busy)
        again.controller.transfer.accept()
        until(lambda: not again.controller.transfer.busy)
        again.wait_until_idle()
        chats = again.state.conversations
        assert not {chat.id for chat in chats} & {*ids}
        record = without_tools(record)  # an import opens nothing of this computer to a model
        assert [chat.settings for chat in chats] == [record] * 3
        again.controller.open_conversation(chats[0].id)
        again.wait_until_idle()
        other = tmp_path / "other.gguf"
        again.controller.load_model(other)
        again.engine.finish_load("Other")
        again.wait_until_idle()
        assert again.state.settings(chats[0].id) == replace(record, model=Local(other))
        assert [again.state.settings(chat.id) for chat in chats[1:]] == [record] * 2
        assert settings_of(stored(again)[chats[0].id]) == replace(record, model=Local(other))
    finally:
        again.close()
