"""Saved prompts: the list behind "/", the card that manages them, and what the store keeps."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QGuiApplication, QInputMethodEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.chat.settings.builtin_presets import built_in
from app.chat.settings.presets import APPLIED
from app.domain.chat import Preset
from app.domain.chat_settings import NO_SETTINGS, ChatSettings
from app.domain.documents import Reads
from app.domain.snippet import Snippet
from app.store.store import Store
from app.ui.chat.composer.composer import Composer
from fakes import MODEL
from stage import Stage, flush, until

SUMMARY = "Summarise this in three sentences:\n"
REVIEW = "Review this code. Name faults only."


@pytest.fixture
def composer(stage: Stage) -> Composer:
    stage.ready(MODEL)
    for text in (SUMMARY, REVIEW):
        stage.controller.snippets.add(text)
    stage.window.composer.setFocus()
    return stage.window.composer


def type_in(qtbot: QtBot, composer: Composer, text: str) -> None:
    qtbot.keyClicks(composer.editor, text)


LONG = "Summarise a long document, part by part"
TRANSLATE = "Translate a document, part by part"
REWRITE = "Rewrite a document, part by part"
TABLE = "Ask a table: sums, counts and rows are looked up exactly"
BUILT_IN = [LONG, TRANSLATE, REWRITE, TABLE]


def press(qtbot: QtBot, composer: Composer, key: Qt.Key) -> None:
    qtbot.keyClick(composer.editor, key)


def shown(stage: Stage) -> list[str]:
    """The saved prompts in the list, without the presets and built-in prompts behind them."""
    return [words for words in rows(stage) if "preset" not in words and words not in BUILT_IN]


def rows(stage: Stage) -> list[str]:
    found = stage.window.prompt_list
    if not found.isVisible():
        return []
    return [found.list.item(row).text() for row in range(found.list.count())]


def test_a_slash_opens_the_list_and_enter_inserts(
    qtbot: QtBot, stage: Stage, composer: Composer
) -> None:
    type_in(qtbot, composer, "/")
    assert shown(stage) == [REVIEW, SUMMARY.strip()]
    press(qtbot, composer, Qt.Key.Key_Down)
    press(qtbot, composer, Qt.Key.Key_Return)
    assert composer.editor.text() == SUMMARY
    assert shown(stage) == []
    assert stage.window.focusWidget() is composer.editor
    assert stage.state.messages == ()  # nothing was sent
    composer.editor.undo()
    assert composer.editor.text() == "/"


def test_typing_filters_and_escape_closes(qtbot: QtBot, stage: Stage, composer: Composer) -> None:
    type_in(qtbot, composer, "/faults")
    assert shown(stage) == [REVIEW]
    press(qtbot, composer, Qt.Key.Key_Escape)
    assert shown(stage) == []
    composer.editor.selectAll()
    type_in(qtbot, composer, "a")
    press(qtbot, composer, Qt.Key.Key_Backspace)
    type_in(qtbot, composer, "/")
    assert len(shown(stage)) == 2
    stage.window.activateWindow()
    flush()
    stage.window.sidebar.search.setFocus()
    assert shown(stage) == []
    composer.setFocus()
    type_in(qtbot, composer, "faultsx")
    press(qtbot, composer, Qt.Key.Key_Backspace)
    assert shown(stage) == []
    assert composer.editor.text() == "/faults"


def test_a_path_is_text_like_any_other(qtbot: QtBot, stage: Stage, composer: Composer) -> None:
    type_in(qtbot, composer, "/usr/bin")
    assert shown(stage) == []
    press(qtbot, composer, Qt.Key.Key_Return)
    assert stage.state.messages[0].text == "/usr/bin"
    stage.engine.finish()
    stage.wait_until_idle()
    for text in ("/", "/usr"):
        data = QMimeData()
        data.setText(text)
        QGuiApplication.clipboard().setMimeData(data)
        composer.editor.paste()
        assert composer.editor.text() == text
        assert shown(stage) == []
        composer.set_text("")
    type_in(qtbot, composer, "a /")
    assert shown(stage) == []


def test_an_input_method_keeps_its_keys(qtbot: QtBot, stage: Stage, composer: Composer) -> None:
    commit = QInputMethodEvent("", [])
    commit.setCommitString("\uff0f")
    QApplication.sendEvent(composer.editor, commit)
    assert len(shown(stage)) == 2
    QApplication.sendEvent(composer.editor, QInputMethodEvent("rev", []))
    press(qtbot, composer, Qt.Key.Key_Return)  # ends the composition, and inserts nothing
    assert REVIEW not in composer.editor.text()


def test_the_card_saves_renames_deletes_and_restores(
    qtbot: QtBot, stage: Stage, composer: Composer
) -> None:
    window = stage.window
    window.open_prompts()
    assert not window.prompts.save_button.isEnabled()
    window.prompts_card.close_card()
    composer.insert("Translate into German: ")
    window.open_prompts()
    window.prompts.save_button.click()
    names = [row.name.text() for row in window.prompts.rows]
    assert window.prompts.area.height() >= window.prompts.rows[0].sizeHint().height()
    assert names == [
        "Review this code",
        "Summarise this in three sentences",
        "Translate into German",
    ]
    first = window.prompts.rows[0]
    first.name.setText("  Faults ")
    qtbot.keyClick(first.name, Qt.Key.Key_Return)
    window.prompts.rows[1].delete.click()
    assert [s.name for s in stage.states.snippets.snippets] == ["Faults", "Translate into German"]
    window.prompts.undo.click()
    assert len(stage.states.snippets.snippets) == 3
    assert window.prompts.undo.isHidden()
    window.prompts.rows[0].insert.click()
    assert composer.editor.text() == f"Translate into German: {REVIEW}"
    assert not window.prompts_card.isVisible()
    found: list[list[Snippet]] = []
    stage.store_queue.read(Store.snippets, found.append)
    until(lambda: bool(found))
    assert {s.name for s in found[0]} == {s.name for s in stage.states.snippets.snippets}


def test_prompts_survive_a_restart(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ready(MODEL)
    stage.controller.snippets.add("/odd \u202e text\nwith lines\n")
    stage.close()
    again = Stage(tmp_path)
    again.ready(MODEL)
    until(lambda: bool(again.states.snippets.snippets))
    assert again.states.snippets.snippets[0].text == "/odd \u202e text\nwith lines\n"
    again.close()


def test_without_prompts_the_card_is_offered(qtbot: QtBot, stage: Stage) -> None:
    stage.ready(MODEL)
    for preset in built_in():
        stage.controller.presets.delete(preset.id)
    composer = stage.window.composer
    composer.setFocus()
    type_in(qtbot, composer, "/")
    assert stage.window.prompt_list.isVisible()
    assert rows(stage) == BUILT_IN  # which are always there
    stage.window.prompt_list.manage.click()
    assert stage.window.prompts_card.isVisible()
    assert composer.editor.text() == ""


def test_a_preset_is_used_in_the_new_chat_with_undo(
    qtbot: QtBot, stage: Stage, composer: Composer
) -> None:
    type_in(qtbot, composer, "/translator")
    assert rows(stage) == ["Use the preset “Translator” — Translates what you send"]
    press(qtbot, composer, Qt.Key.Key_Return)
    assert composer.editor.text() == ""
    assert rows(stage) == []
    assert stage.state.current is None
    assert (stage.state.new_chat.instructions or "").startswith("You are a translator.")
    assert stage.state.notices[APPLIED].action == "Undo"
    type_in(qtbot, composer, "/translator")
    assert rows(stage) == []  # it is in use
    composer.set_text("")
    stage.controller.act_on_notice(APPLIED)
    assert stage.state.new_chat == NO_SETTINGS
    assert APPLIED not in stage.state.notices


def test_a_preset_keeps_what_else_is_set_in_the_new_chat(
    qtbot: QtBot, stage: Stage, composer: Composer
) -> None:
    stage.controller.chat_settings.change_shown(ChatSettings(stop=("END",)))
    type_in(qtbot, composer, "/translator")
    press(qtbot, composer, Qt.Key.Key_Return)
    assert stage.state.new_chat.stop == ("END",)


def test_in_another_chat_the_instructions_of_a_preset_are_inserted(
    qtbot: QtBot, stage: Stage, composer: Composer
) -> None:
    stage.controller.presets.save(Preset(1 << 40, "Translator without text"))
    stage.controller.send("Why?")
    stage.engine.finish()
    stage.wait_until_idle()
    type_in(qtbot, composer, "/translator")
    assert rows(stage) == ["Insert the instructions of “Translator” — Translates what you send"]
    press(qtbot, composer, Qt.Key.Key_Tab)
    assert composer.editor.text().startswith("You are a translator.")
    assert "{{" not in composer.editor.text()
    assert stage.state.settings(stage.state.current).instructions is None
    composer.editor.undo()
    assert composer.editor.text() == "/translator"


def test_a_preset_with_a_greeting_begins_a_chat(
    qtbot: QtBot, stage: Stage, composer: Composer
) -> None:
    stage.controller.presets.save(Preset(1 << 40, "Ada", greeting="Hello!"))
    type_in(qtbot, composer, "/ada")
    press(qtbot, composer, Qt.Key.Key_Return)
    assert [message.text for message in stage.state.messages] == ["Hello!"]
    assert composer.editor.text() == ""


def test_prompts_come_before_presets(qtbot: QtBot, stage: Stage, composer: Composer) -> None:
    stage.controller.snippets.add("Code review")
    type_in(qtbot, composer, "/")
    assert [row.startswith("Use the preset") for row in rows(stage)] == [False] * 7 + [True] * 6
    type_in(qtbot, composer, "code")
    assert rows(stage)[:2] == ["Code review", REVIEW]
    assert rows(stage)[2].startswith("Use the preset “Code”")


def test_a_slash_in_place_of_selected_text_opens_the_list(
    qtbot: QtBot, stage: Stage, composer: Composer
) -> None:
    type_in(qtbot, composer, "1234")
    composer.editor.selectAll()
    type_in(qtbot, composer, "/")
    assert composer.editor.text() == "/"
    assert len(shown(stage)) == 2
    press(qtbot, composer, Qt.Key.Key_Backspace)
    type_in(qtbot, composer, "1")
    press(qtbot, composer, Qt.Key.Key_Home)
    type_in(qtbot, composer, "/")
    assert rows(stage) == []  # the start of a longer text


def test_the_text_of_a_prompt_is_edited_in_its_row(
    qtbot: QtBot, stage: Stage, composer: Composer
) -> None:
    window = stage.window
    window.open_prompts()
    flush()
    first, second = window.prompts.rows
    assert first.text.isHidden()
    height = window.prompts.area.height()
    first.edit.click()
    assert first.text.editor.hasFocus()
    assert first.text.editor.text() == REVIEW
    assert window.prompts.area.height() > height
    first.text.editor.setPlainText("Zero faults:\n\n  keep  spaces \n")
    second.name.setFocus()
    found = {each.name: each.text for each in stage.states.snippets.snippets}
    assert found["Review this code"] == "Zero faults:\n\n  keep  spaces \n"
    first.text.editor.setFocus()
    first.text.editor.setPlainText("  ")
    first.edit.click()  # an empty text is none: the old one stays
    second.name.setFocus()
    assert first.text.isHidden()
    assert first.text.editor.text() == "Zero faults:\n\n  keep  spaces \n"
    first.edit.click()
    first.text.editor.setPlainText("Typed, and then closed")
    window.prompts_card.close_card()
    flush()
    assert "Typed, and then closed" in [each.text for each in stage.states.snippets.snippets]
    stage.wait_until_idle()
    stored: list[list[Snippet]] = []
    stage.store_queue.read(Store.snippets, stored.append)
    until(lambda: bool(stored))
    assert "Typed, and then closed" in [each.text for each in stored[0]]


def test_rows_stay_in_place_while_the_card_is_open(
    qtbot: QtBot, stage: Stage, composer: Composer
) -> None:
    window = stage.window
    window.open_prompts()
    flush()
    first, second = window.prompts.rows
    first.name.setFocus()
    first.name.setText("Zebra")
    qtbot.mouseClick(second.delete, Qt.MouseButton.LeftButton)  # takes the focus first
    assert [row.name.text() for row in window.prompts.rows] == ["Zebra"]
    assert window.prompts.rows[0] is first
    window.prompts.undo.click()
    assert [row.name.text() for row in window.prompts.rows] == [
        "Summarise this in three sentences",
        "Zebra",
    ]


def test_a_prompt_for_long_documents_lets_the_files_be_read_by_parts(
    qtbot: QtBot, stage: Stage, composer: Composer, tmp_path: Path
) -> None:
    type_in(qtbot, composer, "/summarise a long")
    assert rows(stage) == [LONG]
    press(qtbot, composer, Qt.Key.Key_Return)
    assert "Attach a document first." in {each.remedy for each in stage.state.notices.values()}
    path = tmp_path / "report.txt"
    path.write_text("A report.", encoding="utf-8")
    stage.controller.attachments.attach([path])
    for _ in range(3):
        stage.wait_until_idle()
    composer.set_text("")
    type_in(qtbot, composer, "/")
    assert rows(stage)[0] == LONG  # before the others, since a document is attached
    press(qtbot, composer, Qt.Key.Key_Return)
    assert composer.editor.text().startswith("Summarise this document.")
    [file] = stage.states.attachments.of(None)
    assert file.part is not None
    assert file.part.reads is Reads.SUMMARY
    assert not stage.state.notices
    chip = composer.chips.chips[0]
    assert "all of it, part by part" in chip.accessibleName()


def test_the_language_of_a_translation_is_chosen_or_typed(
    qtbot: QtBot, stage: Stage, composer: Composer, tmp_path: Path
) -> None:
    path = tmp_path / "report.txt"
    path.write_text("A report.", encoding="utf-8")
    stage.controller.attachments.attach([path])
    for _ in range(3):
        stage.wait_until_idle()
    for typed, text in (
        ("", "Translate this document into English."),  # the language of the window is first
        ("ger", "Translate this document into German."),
        ("Plattdeutsch", "Translate this document into Plattdeutsch."),
    ):
        composer.set_text("")
        type_in(qtbot, composer, "/translate a")
        assert rows(stage) == [TRANSLATE]
        press(qtbot, composer, Qt.Key.Key_Return)
        assert len(rows(stage)) > 20
        type_in(qtbot, composer, typed)
        press(qtbot, composer, Qt.Key.Key_Return)
        assert composer.editor.text() == text
        assert not stage.window.prompt_list.isVisible()
    [file] = stage.states.attachments.of(None)
    assert file.part is not None
    assert file.part.reads is Reads.REWRITE


def test_the_prompt_for_tables_needs_a_table(
    qtbot: QtBot, stage: Stage, composer: Composer, tmp_path: Path
) -> None:
    def choose(*paths: Path) -> set[tuple[str, str]]:
        if paths:
            stage.controller.attachments.attach(list(paths))
            for _ in range(3):
                stage.wait_until_idle()
        composer.set_text("")
        type_in(qtbot, composer, "/ask a table")
        press(qtbot, composer, Qt.Key.Key_Return)
        return {(each.sentence, each.remedy) for each in stage.state.notices.values()}

    remedy = "Attach a file with a table."
    assert choose() == {("This prompt is for a table.", remedy)}
    (tmp_path / "report.txt").write_text("A report.", encoding="utf-8")
    assert choose(tmp_path / "report.txt") == {("There is no table in report.txt.", remedy)}
    (tmp_path / "orders.md").write_text("| A | B |\n| --- | --- |\n| x | 1 |\n", encoding="utf-8")
    choose(tmp_path / "orders.md")
    reads = [each.part.reads for each in stage.states.attachments.of(None) if each.part]
    assert reads == [Reads.WHOLE, Reads.TABLES]
    assert "its tables, by query" in composer.chips.chips[1].accessibleName()
    type_in(qtbot, composer, "What is the sum?")  # in place of the example
    assert composer.editor.text() == "What is the sum?"
