"""Presets: those of the app and of the user, applied to chats, and chosen for new ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.chat.requests.prompts import GREETED
from app.chat.settings.builtin_presets import built_in
from app.chat.settings.presets import ADDED, APPLIED, OFFERED, REFUSED, Presets
from app.domain.chat import Folder, Preset
from app.domain.chat_settings import NO_SETTINGS, ChatSettings
from app.domain.presets import begin
from app.settings.table import Settings
from app.state.presets import PresetState
from app.system import translation
from cards import card, picture, text_chunk
from engine import Chat, Role
from fakes import MODEL
from stage import Stage

OWN = Preset(1 << 40, "Own", ChatSettings(instructions="Own."), frozenset(["instructions"]))
ADA = Preset(
    2 << 40, "Ada", ChatSettings(instructions="I am Ada."), frozenset(["instructions"]),
    greeting="Hello!", greetings=("Good evening.", "Oh."),
)  # fmt: skip


@pytest.fixture
def stage(qtbot: QtBot, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    made.ready(MODEL)
    yield made
    made.close()


def parts(stage: Stage) -> tuple[Presets, PresetState]:
    return stage.controller.presets, stage.states.presets


def names(stage: Stage) -> list[str]:
    return [preset.name for preset in stage.states.presets.presets]


def instructions(stage: Stage) -> str | None:
    return stage.state.settings(stage.state.current).instructions


def answered(stage: Stage, text: str) -> Chat:
    stage.controller.send(text)
    command = stage.engine.last(Chat)
    stage.engine.finish()
    stage.wait_until_idle()
    return command


# --- the presets --------------------------------------------------------------------------------


def test_six_come_with_the_app_in_its_language(stage: Stage) -> None:
    assert len(names(stage)) == 6
    assert len({preset.id for preset in built_in()}) == 6
    for preset in built_in():
        assert preset.built_in
        text = preset.settings.instructions
        assert text
        assert len(text) < 500  # small models follow short ones
        assert preset.description
    try:
        catalog = translation.Catalog({"Translator": ["Übersetzer"]})
        translation.use(catalog, language="de")
        assert built_in()[1].name == "Übersetzer"
    finally:
        translation.use(translation.Catalog())


def test_presets_are_made_changed_deleted_and_kept(qtbot: QtBot, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    presets, shown = parts(stage)
    first = built_in()[0]
    presets.save(OWN)
    presets.save(replace(first, name="Writing"))
    presets.save(replace(OWN, name=" "))
    assert names(stage)[0] == "Writing"
    assert names(stage)[-1] == "Own"
    presets.delete(2)
    assert shown.deleted is not None
    presets.delete(OWN.id)
    assert len(names(stage)) == 5
    stage.wait_until_idle()
    stage.close()
    stage = Stage(tmp_path)
    try:
        stage.ready(MODEL)
        presets, shown = parts(stage)
        assert names(stage)[:2] == ["Writing", "Explain simply"]
        presets.delete(1)
        presets.undo()
        assert names(stage)[0] == "Writing"
        assert shown.deleted is None
        presets.save(first)
        assert names(stage)[0] == first.name
        changed = replace(built_in()[3], name="My code")
        presets.save(changed)
        presets.restore_built_in()
        assert names(stage) == [*(preset.name for preset in built_in()), "My code"]
        assert not shown.restorable
        stage.wait_until_idle()
        found: list[list[Preset]] = []
        stage.store_queue.read(lambda store: store.presets(), found.append)
        stage.wait_until_idle()
        assert [preset.name for preset in found[0]] == ["My code"]
    finally:
        stage.close()


def test_a_preset_is_made_of_a_chat(stage: Stage) -> None:
    presets, shown = parts(stage)
    settings = ChatSettings(instructions="Be brief.").with_value("temperature", 0.1)
    stage.controller.chat_settings.change_shown(settings)
    answered(stage, "What is a preset?")
    made = shown.preset(presets.save_chat())
    assert made is not None
    assert (made.name, begin(made)) == ("What is a preset?", settings)
    stage.controller.chat_settings.change_shown(replace(settings, stop=("x",)))
    presets.take_from_chat(made.id)
    changed = shown.preset(made.id)
    assert changed is not None
    assert changed.parts == {"instructions", "sampling", "stop"}
    assert changed.settings.stop == ("x",)


# --- applying -----------------------------------------------------------------------------------


def test_a_preset_is_applied_to_a_chat_and_taken_back(stage: Stage) -> None:
    presets, shown = parts(stage)
    presets.save(OWN)
    answered(stage, "one")
    stage.controller.chat_settings.change_shown(ChatSettings(instructions="Old.", stop=("x",)))
    presets.use(OWN.id)
    assert shown.use.shown == OWN.id
    assert stage.state.settings(stage.state.current) == ChatSettings(
        instructions="Own.", stop=("x",)
    )
    assert answered(stage, "two").turns[0].text == "Own."
    assert APPLIED in stage.state.notices
    stage.controller.act_on_notice(APPLIED)
    assert instructions(stage) == "Old."
    assert APPLIED not in stage.state.notices
    assert shown.use.shown is None


def test_taking_a_preset_back_keeps_what_was_changed_meanwhile(stage: Stage) -> None:
    presets, _ = parts(stage)
    presets.save(OWN)
    answered(stage, "one")
    stage.controller.chat_settings.change_shown(ChatSettings(instructions="Old."))
    presets.use(OWN.id)
    now = stage.state.settings(stage.state.current)
    stage.controller.chat_settings.change_shown(replace(now, stop=("x",)))
    presets.take_back()
    assert stage.state.settings(stage.state.current) == ChatSettings(
        instructions="Old.", stop=("x",)
    )


def test_settings_of_the_new_chat_that_a_preset_replaces_can_be_taken_back(stage: Stage) -> None:
    presets, _ = parts(stage)
    presets.toggle(2)
    assert APPLIED not in stage.state.notices  # nothing of the user's is replaced
    typed = ChatSettings(instructions="Typed by hand.")
    stage.controller.chat_settings.change_shown(typed)
    presets.toggle(4)
    assert stage.state.new_chat == begin(built_in()[3])
    assert APPLIED in stage.state.notices
    stage.controller.act_on_notice(APPLIED)
    assert stage.state.new_chat == typed


def test_a_preset_is_chosen_for_the_new_chat_and_given_back(stage: Stage) -> None:
    presets, shown = parts(stage)
    presets.toggle(4)
    code = built_in()[3]
    assert stage.state.new_chat == begin(code)
    assert shown.use.shown == 4
    presets.toggle(4)
    assert stage.state.new_chat == NO_SETTINGS
    presets.toggle(2)
    presets.start(4)
    command = answered(stage, "one")
    assert command.turns[0].text == code.settings.instructions
    assert command.sampling.temperature == 0.2
    assert stage.state.new_chat == NO_SETTINGS


def test_a_greeting_is_the_first_message(qtbot: QtBot, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    presets, _ = parts(stage)
    presets.save(ADA)
    presets.start(ADA.id)
    presets.start(ADA.id)  # it is there already
    stage.wait_until_idle()
    chat = stage.state.current
    assert [each.title for each in stage.state.conversations] == ["Ada"]
    (first,) = stage.state.messages
    assert (first.text, first.role, first.model, first.siblings) == (
        "Hello!", Role.ASSISTANT, "", 3,
    )  # fmt: skip
    stage.controller.regenerate(first.id)
    assert len(stage.state.messages) == 1
    stage.controller.navigation.show_sibling(first.id, 1)
    stage.wait_until_idle()
    assert [each.text for each in stage.state.messages] == ["Good evening."]
    command = answered(stage, "Who are you?")
    assert [(turn.role, turn.text) for turn in command.turns] == [
        (Role.SYSTEM, f"I am Ada.\n\n{GREETED}\nGood evening."),
        (Role.USER, "Who are you?"),
    ]
    stage.close()
    stage = Stage(tmp_path)
    try:
        stage.ready(MODEL)
        assert chat is not None
        stage.controller.open_conversation(chat)
        stage.wait_until_idle()
        assert [each.text for each in stage.state.messages][:2] == ["Good evening.", "Who are you?"]
        assert answered(stage, "Go on").turns[0].text == f"I am Ada.\n\n{GREETED}\nGood evening."
        parts(stage)[0].start(ADA.id)
        assert stage.state.current != chat
    finally:
        stage.close()


# --- new chats ----------------------------------------------------------------------------------


def test_the_nearest_preset_counts_for_a_new_chat(stage: Stage) -> None:
    presets, shown = parts(stage)
    presets.save(OWN)
    assert presets.for_new_chat() is None
    stage.controller.change_settings(new_chat_preset=1)
    assert stage.state.new_chat == begin(built_in()[0])
    stage.controller.presets.set_for_model(MODEL, 2)
    assert stage.state.new_chat == begin(built_in()[1])
    assert (shown.use.new_chat, shown.use.model) == (1, 2)
    stage.state.set_folders([Folder(7, "A", preset=OWN.id), Folder(8, "B", parent=7)])
    stage.state.set_new_folder(8)
    assert presets.settings_for_new_chat() == stage.state.new_chat == begin(OWN)
    stage.state.set_new_folder(9)
    assert presets.for_new_chat() == built_in()[1]
    stage.state.set_new_folder(8)
    presets.delete(OWN.id)
    assert presets.for_new_chat() == built_in()[1]
    presets.delete(2)
    assert stage.state.new_chat == begin(built_in()[0])
    presets.undo()
    stage.controller.presets.set_for_model(MODEL, None)
    assert stage.state.new_chat == begin(built_in()[0])
    answered(stage, "one")
    assert stage.state.new_chat == begin(built_in()[0])
    stage.controller.new_conversation()
    stage.controller.chat_settings.change_shown(ChatSettings(instructions="Mine."))
    stage.controller.change_settings(new_chat_preset=0)
    assert stage.state.new_chat.instructions == "Mine."  # what the user typed stays


def test_the_default_is_there_after_a_restart(qtbot: QtBot, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    stage.controller.change_settings(new_chat_preset=1)
    stage.controller.presets.set_for_model(MODEL, 5)
    settings = stage.controller.settings
    stage.wait_until_idle()
    stage.close()
    stage = Stage(tmp_path, settings=settings)
    try:
        stage.ready(MODEL)
        assert stage.state.new_chat == begin(built_in()[4])
        stage.controller.presets.set_for_model(MODEL, None)
        assert stage.state.new_chat == begin(built_in()[0])
    finally:
        stage.close()


def test_a_new_chat_with_a_greeting_begins_at_once(stage: Stage) -> None:
    presets, _ = parts(stage)
    presets.save(ADA)
    stage.controller.change_settings(new_chat_preset=ADA.id)
    stage.controller.new_conversation()
    stage.controller.new_conversation()
    assert [each.text for each in stage.state.messages] == ["Hello!"]
    assert len(stage.state.conversations) == 1


def greeted(stage: Stage) -> list[str]:
    return [each.text for each in stage.state.messages]


def test_the_empty_chat_is_greeted_when_the_default_changes(stage: Stage) -> None:
    presets, _ = parts(stage)
    presets.save(ADA)
    stage.controller.change_settings(new_chat_preset=ADA.id)
    assert greeted(stage) == ["Hello!"]
    chat = stage.state.current
    stage.controller.change_settings(zoom=110)
    stage.controller.change_settings(new_chat_preset=0)
    assert stage.state.current == chat
    stage.controller.deletions.delete([chat or 0])
    stage.controller.change_settings(zoom=100)
    assert (stage.state.current, greeted(stage)) == (None, [])
    assert stage.state.conversations == ()


def test_no_greeting_comes_while_the_user_writes(stage: Stage) -> None:
    presets, _ = parts(stage)
    presets.save(ADA)
    stage.window.composer.setFocus()
    QTest.keyClicks(stage.window.composer.editor, "Hi")
    stage.controller.change_settings(new_chat_preset=ADA.id)
    assert stage.state.current is None
    assert stage.window.composer.editor.text() == "Hi"
    assert instructions(stage) == "I am Ada."  # the chat has the preset all the same


def test_a_chat_with_settings_of_its_own_is_not_greeted(stage: Stage) -> None:
    presets, _ = parts(stage)
    presets.save(ADA)
    stage.controller.chat_settings.change_shown(ChatSettings(stop=("END",)))
    stage.controller.change_settings(new_chat_preset=ADA.id)
    assert stage.state.current is None
    assert stage.state.new_chat.stop == ("END",)


def test_a_message_in_a_folder_is_not_interrupted_by_a_greeting(stage: Stage) -> None:
    presets, _ = parts(stage)
    stage.controller.folders.create("Plain")
    (folder,) = stage.state.folders
    stage.controller.folders.change(replace(folder, preset=1))
    presets.save(ADA)
    stage.controller.new_conversation(folder.id)
    stage.controller.change_settings(new_chat_preset=ADA.id)
    assert stage.state.current is None
    command = answered(stage, "Why?")
    assert command.turns[-1].text == "Why?"
    assert len(stage.state.conversations) == 1


@pytest.mark.parametrize("opened", [False, True])
def test_the_first_start_is_greeted(qtbot: QtBot, tmp_path: Path, *, opened: bool) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    stage.controller.presets.save(ADA)
    if opened:
        answered(stage, "Why?")
    stage.wait_until_idle()
    shown = stage.state.current or 0
    stage.close()
    settings = Settings(new_chat_preset=ADA.id, last_conversation=shown)
    for _ in range(2):  # the second run finds the greeting
        stage = Stage(tmp_path, settings=settings)
        stage.ready(MODEL)
        assert greeted(stage)[0] == ("Why?" if opened else "Hello!")
        assert len(stage.state.conversations) == 1
        settings = stage.controller.settings
        stage.close()


# --- files --------------------------------------------------------------------------------------


def test_a_dropped_card_is_offered(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "ada.png").write_bytes(picture(text_chunk(card())))
    (tmp_path / "bad.png").write_bytes(picture(text_chunk({"spec": "chara_card_v2"})))
    (tmp_path / "photo.png").write_bytes(picture())
    stage.controller.opening.open([tmp_path / "ada.png"])
    stage.wait_until_idle()
    notice = stage.state.notices[OFFERED]
    assert (notice.sentence, notice.action) == ("“Ada” is a preset.", "Add it to the presets")
    assert len(names(stage)) == 6
    stage.controller.act_on_notice(OFFERED)
    assert names(stage)[-1] == "Ada"
    assert OFFERED not in stage.state.notices
    stage.controller.act_on_notice(ADDED)
    assert [each.text for each in stage.state.messages] == ["*looks up* Hello, User!"]
    stage.controller.opening.open([tmp_path / "bad.png", tmp_path / "photo.png"])
    stage.wait_until_idle()
    sentences = [each.sentence for each in stage.state.notices.values()]
    assert sentences == ["bad.png: The character card in this picture is damaged."]
    attached = stage.states.attachments.of(stage.state.current)
    assert [each.name for each in attached] == ["photo.png"]


def test_presets_are_imported_and_exported(stage: Stage, tmp_path: Path) -> None:
    presets, shown = parts(stage)
    file = tmp_path / "translator.json"
    presets.export(2, file)
    stage.wait_until_idle()
    assert json.loads(file.read_text("utf-8"))["format"] == "tokonoma preset"
    presets.open([file, file, tmp_path / "missing.json"])
    stage.wait_until_idle()
    assert names(stage)[-2:] == ["Translator", "Translator"]
    first, second = shown.presets[-2:]
    assert replace(first, id=2) == replace(second, id=2) == shown.preset(2)
    assert first.id != second.id
    assert "missing.json cannot be read" in stage.state.notices[REFUSED].sentence
    presets.export(2, tmp_path / "no" / "folder.json")
    stage.wait_until_idle()
    assert "could not be written" in stage.state.notices[REFUSED].sentence
    presets.open([MODEL])
    stage.wait_until_idle()
    assert REFUSED in stage.state.notices
