"""Main window, end to end over the fake engine: typing, shortcuts, file drops, closing."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QObject, QPoint, QPointF, Qt, QUrl, Slot
from PySide6.QtGui import (
    QDesktopServices,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
    QGuiApplication,
)
from PySide6.QtWidgets import QApplication, QFileDialog
from pytestqt.qtbot import QtBot

from app.domain.message import MessageState
from app.domain.parts import FilePart, TextPart
from app.library.service import Library
from app.settings.table import load
from app.state.chat import Notice
from app.ui.widgets.links import open_link
from engine import Chat, FinishReason, Load
from fakes import MODEL, Cancel
from stage import Stage, flush, until


class Catcher(QObject):
    """URL handler that records the addresses for the browser."""

    def __init__(self, opened: list[QUrl]) -> None:
        super().__init__()
        self._opened = opened

    @Slot(QUrl)
    def take(self, url: QUrl) -> None:
        self._opened.append(url)


def type_and_send(qtbot: QtBot, stage: Stage, text: str) -> None:
    qtbot.keyClicks(stage.window.composer.editor, text)
    qtbot.keyClick(stage.window.composer.editor, Qt.Key.Key_Return)
    stage.drain()


def press(qtbot: QtBot, stage: Stage, name: str) -> None:
    """Press the first shortcut of an action."""
    stage.window.actions_by_id[name].trigger()
    flush()


def test_typed_text_is_sent_and_the_answer_is_shown(qtbot: QtBot, stage: Stage) -> None:
    stage.ready(MODEL)
    type_and_send(qtbot, stage, "Why is the sky blue?")
    assert stage.window.composer.text() == ""
    assert stage.engine.last_generate.turns[0].text == "Why is the sky blue?"
    assert stage.window.composer.busy
    stage.engine.write("Because of the air.")
    stage.engine.finish()
    stage.wait_until_idle()
    assert not stage.window.composer.busy
    assert stage.state.messages[-1].text == "Because of the air."
    assert stage.window.windowTitle() == "Why is the sky blue? — Tokonoma"


def test_the_window_is_usable_while_the_model_loads(qtbot: QtBot, stage: Stage) -> None:
    stage.start(MODEL)
    type_and_send(qtbot, stage, "Early")
    assert stage.engine.count(Chat) == 0
    assert stage.window.composer.text() == ""
    stage.engine.finish_load()
    stage.drain()
    assert stage.engine.last_generate.turns[0].text == "Early"


def test_enter_during_an_answer_lets_the_message_wait(qtbot: QtBot, stage: Stage) -> None:
    stage.ready(MODEL)
    type_and_send(qtbot, stage, "First")
    type_and_send(qtbot, stage, "Second")
    assert stage.window.composer.text() == ""
    assert [row.message.parts for row in stage.window.chat.waiting.rows] == [(TextPart("Second"),)]
    assert stage.engine.count(Chat) == 1


def test_escape_stops_the_answer(qtbot: QtBot, stage: Stage) -> None:
    stage.ready(MODEL)
    type_and_send(qtbot, stage, "Go on for ever")
    qtbot.keyClick(stage.window.composer.editor, Qt.Key.Key_Escape)
    assert stage.engine.last(Cancel) == Cancel(stage.engine.last_generate.request)
    stage.engine.finish(FinishReason.CANCELLED)
    stage.wait_until_idle()
    assert stage.state.messages[-1].state is MessageState.STOPPED


def test_escape_and_typing_anywhere_go_to_the_composer(qtbot: QtBot, stage: Stage) -> None:
    stage.ready(MODEL)
    stage.window.activateWindow()
    stage.window.sidebar.new_button.setFocus()
    qtbot.keyClick(stage.window.sidebar.new_button, Qt.Key.Key_H)
    assert stage.window.composer.text() == "h"
    assert stage.window.composer.editor.hasFocus()
    stage.window.sidebar.list.setFocus()
    qtbot.keyClick(stage.window.sidebar.list, Qt.Key.Key_Escape)
    assert stage.window.composer.editor.hasFocus()


def test_a_suggestion_is_sent_with_a_click(qtbot: QtBot, stage: Stage) -> None:
    stage.ready(MODEL)
    button = stage.window.chat.empty_view.suggestions[1]
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    stage.drain()
    assert stage.engine.last_generate.turns[0].text == button.text()


def test_a_suggestion_leaves_what_was_typed(qtbot: QtBot, stage: Stage) -> None:
    stage.ready(MODEL)
    composer = stage.window.composer
    typed = (FilePart("", "pasted"), TextPart(" mine"))
    composer.set_text(typed)
    button = stage.window.chat.empty_view.suggestions[0]
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    stage.wait_until_idle()
    assert stage.state.messages[0].text == button.text()
    assert composer.parts() == typed
    assert stage.state.drafts[stage.state.current] == typed
    assert stage.state.drafts.get(None, ()) == ()


def test_empty_view_without_a_model_offers_to_open_one(stage: Stage) -> None:
    stage.start()
    view = stage.window.chat.empty_view
    assert "drop a file" in view.sentence.text()
    assert view.browse_button.isVisible()
    assert not view.open_button.isHidden()
    assert all(button.isHidden() for button in view.suggestions)
    stage.controller.load_model(MODEL)
    assert view.open_button.isHidden()
    assert not any(button.isHidden() for button in view.suggestions)


def test_drafts_are_kept_per_conversation(qtbot: QtBot, stage: Stage) -> None:
    stage.ready(MODEL)
    type_and_send(qtbot, stage, "First")
    first = stage.state.current
    qtbot.keyClicks(stage.window.composer.editor, "half a thought")
    press(qtbot, stage, "new")
    assert stage.window.composer.text() == ""
    qtbot.keyClicks(stage.window.composer.editor, "another")
    assert first is not None
    stage.controller.open_conversation(first)
    assert stage.window.composer.text() == "half a thought"
    press(qtbot, stage, "new")
    assert stage.window.composer.text() == "another"


def test_a_sent_message_leaves_no_draft_behind(qtbot: QtBot, stage: Stage) -> None:
    stage.ready(MODEL)
    type_and_send(qtbot, stage, "First")
    press(qtbot, stage, "new")
    assert stage.window.composer.text() == ""
    assert stage.state.drafts.get(None, ()) == ()


def test_draft_is_restored_after_a_restart(qtbot: QtBot, stage: Stage) -> None:
    stage.start()
    stage.controller.drafts.keep(None, (TextPart("not sent yet"),))
    stage.wait_until_idle()
    again = Stage(stage.folder / "other")
    again.store_queue.path = stage.store_queue.path
    stage.store_queue.close()
    again.start()
    assert again.window.composer.text() == "not sent yet"
    again.close()


def test_dragging_a_model_file_is_shown_and_dropping_it_loads(stage: Stage) -> None:
    stage.ready(MODEL)
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile("/models/dropped.GGUF")])
    arguments = (Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton)
    modifier = Qt.KeyboardModifier.NoModifier
    enter = QDragEnterEvent(QPoint(300, 300), *arguments, modifier)
    QApplication.sendEvent(stage.window, enter)
    assert enter.isAccepted()
    assert not stage.window.drop_area.isHidden()
    QApplication.sendEvent(stage.window, QDragLeaveEvent())
    assert stage.window.drop_area.isHidden()
    QApplication.sendEvent(stage.window, enter)
    QApplication.sendEvent(stage.window, QDropEvent(QPointF(300, 300), *arguments, modifier))
    assert stage.window.drop_area.isHidden()
    assert stage.engine.load.path == Path("/models/dropped.GGUF")


def drop(stage: Stage, data: QMimeData) -> None:
    """Drag something over the conversation, and drop it there."""
    arguments = (Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton)
    enter = QDragEnterEvent(QPoint(300, 300), *arguments, Qt.KeyboardModifier.NoModifier)
    enter.ignore()
    QApplication.sendEvent(stage.window, enter)
    assert enter.isAccepted()
    dropped = QDropEvent(QPointF(300, 300), *arguments, Qt.KeyboardModifier.NoModifier)
    QApplication.sendEvent(stage.window, dropped)
    stage.wait_until_idle()


def files(*paths: str | Path) -> QMimeData:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    return data


def attached(stage: Stage) -> list[str]:
    """The names of the files that are attached in the new chat."""
    stage.wait_until_idle()
    return [each.name for each in stage.states.attachments.of(None)]


def test_a_dropped_document_is_attached(stage: Stage, tmp_path: Path) -> None:
    stage.ready(MODEL)
    loads = stage.engine.count(Load)
    (tmp_path / "notes.txt").write_text("Notes", encoding="utf-8")
    drop(stage, files(tmp_path / "notes.txt"))
    assert attached(stage) == ["notes.txt"]
    assert (stage.window.composer.text(), stage.engine.count(Load)) == ("", loads)
    assert stage.window.drop_area.isHidden()


def test_two_dropped_models_are_opened_and_listed(stage: Stage, tmp_path: Path) -> None:
    stage.ready(MODEL)
    for name in ("one.gguf", "two", "three.gguf", "notes.md"):
        (tmp_path / name).write_bytes(b"GGUF" if name != "notes.md" else b"# Notes")
    drop(stage, files(tmp_path / "one.gguf", tmp_path / "three.gguf"))
    assert stage.engine.load.path == tmp_path / "one.gguf"
    assert stage.controller.library.model_index.places.files == (tmp_path / "three.gguf",)
    assert "the other one is in your list" in stage.state.notices["paste"].sentence
    drop(stage, files(tmp_path / "notes.md", tmp_path / "two"))
    assert attached(stage) == ["notes.md"]
    stage.engine.finish_load()
    stage.wait_until_idle()
    assert stage.engine.load.path == tmp_path / "two"


def test_a_dropped_link_or_text_goes_to_the_field(stage: Stage) -> None:
    stage.ready(MODEL)
    link = QMimeData()
    link.setUrls([QUrl("https://example.org/a%20b?c=d")])
    drop(stage, link)
    assert stage.window.composer.text() == "https://example.org/a%20b?c=d"
    text = QMimeData()
    text.setText(" \u00a0 and\n")
    drop(stage, text)
    assert stage.window.composer.text() == "https://example.org/a%20b?c=d \u00a0 and\n"


def test_opened_documents_are_attached(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Notes", encoding="utf-8")
    stage.window.show()
    stage.controller.start(MODEL)
    stage.controller.opening.open([tmp_path / "notes.txt"], load=False)
    stage.wait_until_idle()
    assert stage.engine.load.path == MODEL
    assert attached(stage) == ["notes.txt"]


def test_opening_a_file_does_not_block(qtbot: QtBot, stage: Stage) -> None:
    stage.start()
    press(qtbot, stage, "open")
    dialog = stage.window.findChild(QFileDialog)
    assert dialog is not None
    dialog.filesSelected.emit(["/models/chosen.gguf"])
    assert stage.engine.load.path == Path("/models/chosen.gguf")
    dialog.close()
    flush()


def test_file_dialog_opens_in_the_folder_of_the_loaded_model(
    qtbot: QtBot, stage: Stage, tmp_path: Path
) -> None:
    stage.ready(tmp_path / "model.gguf")
    press(qtbot, stage, "open")
    dialog = stage.window.findChild(QFileDialog)
    assert dialog is not None
    assert Path(dialog.directory().absolutePath()) == tmp_path
    dialog.close()
    flush()


def test_the_sidebar_hides_and_the_choice_is_kept(qtbot: QtBot, stage: Stage) -> None:
    stage.start()
    assert not stage.window.sidebar.isHidden()
    press(qtbot, stage, "sidebar")
    assert stage.window.sidebar.isHidden()
    assert not stage.window.top_bar.show_button.isHidden()
    stage.wait_until_idle()
    assert load(stage.folder / "settings.json").sidebar_open is False
    press(qtbot, stage, "search")
    assert not stage.window.sidebar.isHidden()


def test_buttons_lead_where_their_keys_do(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Library, "opened", lambda _: None)  # no folder is searched
    stage.ready(MODEL)
    window, top = stage.window, stage.window.top_bar
    chat = window.shown_page
    top.library_button.click()
    assert window.shown_page is window.library.page
    top.settings_button.click()
    assert window.shown_page is window.preferences.page
    top.settings_button.click()
    assert window.shown_page is chat
    for button, card in (
        (top.model_button, window.picker_card),
        (top.keys_button, window.shortcuts_card),
    ):
        button.click()
        flush()
        assert card.isVisible()
        card.close_card()
    window.sidebar.hide_button.click()
    assert window.sidebar.isHidden()
    top.show_button.click()
    assert not window.sidebar.isHidden()
    window.chat.empty_view.browse_requested.emit()
    assert window.shown_page is window.library.page


def test_narrow_window_hides_the_sidebar_and_wide_one_shows_it(stage: Stage) -> None:
    stage.start()
    stage.window.resize(500, 700)
    flush()
    assert stage.window.sidebar.isHidden()
    stage.window.resize(1000, 700)
    flush()
    assert not stage.window.sidebar.isHidden()


def test_theme_action_cycles_and_is_saved(qtbot: QtBot, stage: Stage) -> None:
    stage.start()
    press(qtbot, stage, "theme")
    stage.wait_until_idle()
    assert load(stage.folder / "settings.json").theme == "dark"
    assert stage.theme.palette.dark


def test_the_last_answer_is_copied_as_markdown(qtbot: QtBot, stage: Stage) -> None:
    stage.ready(MODEL)
    type_and_send(qtbot, stage, "Hello")
    stage.engine.write("**bold** answer")
    stage.engine.finish()
    stage.wait_until_idle()
    press(qtbot, stage, "copy_answer")
    assert QGuiApplication.clipboard().text() == "**bold** answer"


def test_last_answer_is_regenerated(qtbot: QtBot, stage: Stage) -> None:
    stage.ready(MODEL)
    type_and_send(qtbot, stage, "Hello")
    stage.engine.write("Hi")
    stage.engine.finish()
    stage.wait_until_idle()
    press(qtbot, stage, "regenerate")
    stage.drain()
    assert stage.engine.count(Chat) == 2
    assert stage.state.messages[-1].siblings == 2


def test_notice_can_be_closed(qtbot: QtBot, stage: Stage) -> None:
    stage.start()
    stage.state.set_notice("store", Notice("The disk is full.", "Free some space.", "Try"))
    banner = stage.window.banners.shown["store"]
    assert banner.words.text() == "The disk is full. Free some space."
    qtbot.mouseClick(banner.close_button, Qt.MouseButton.LeftButton)
    assert stage.window.banners.shown == {}
    assert stage.window.banners.isHidden()


def test_markup_in_notices_is_shown_as_text(stage: Stage) -> None:
    stage.start()
    stage.state.set_notice("x", Notice("<b>bold</b> <img src='http://example.org/x.png'>"))
    assert stage.window.banners.shown["x"].words.textFormat() is Qt.TextFormat.PlainText


def test_close_emits_closing_before_it_closes(qtbot: QtBot, stage: Stage) -> None:
    stage.start()
    with qtbot.waitSignal(stage.window.closing, timeout=1000):
        stage.window.close()
    assert stage.window.isVisible()


def test_painted_is_emitted_once(qtbot: QtBot, stage: Stage) -> None:
    emitted: list[bool] = []
    stage.window.painted.connect(lambda: emitted.append(True))
    stage.window.show()
    until(lambda: bool(emitted))
    stage.window.repaint()
    stage.window.resize(900, 700)
    flush()
    assert emitted == [True]


def test_window_geometry_is_restored(stage: Stage) -> None:
    stage.start()
    stage.window.resize(777, 555)
    text = stage.window.placement.text()
    stage.window.resize(900, 700)
    stage.window.placement.restore(text)
    assert (stage.window.width(), stage.window.height()) == (777, 555)


def test_window_larger_than_its_screen_is_made_to_fit(stage: Stage) -> None:
    stage.start()
    screen = stage.window.screen().availableSize()
    stage.window.resize(screen.width() + 300, screen.height() + 200)
    text = stage.window.placement.text()
    for saved in (text, ""):
        stage.window.resize(screen.width() + 300, screen.height() + 200)
        stage.window.placement.restore(saved)
        size = stage.window.size()
        assert size == size.boundedTo(screen)
        assert size.width() > screen.width() - 50


def test_the_composer_grows_to_a_third_of_the_window(stage: Stage) -> None:
    stage.start()
    stage.window.resize(1000, 900)
    flush()
    stage.window.composer.editor.setPlainText("\n".join(["line"] * 200))
    assert stage.window.composer.editor.height() == 300


def test_links_to_programs_and_files_are_refused(stage: Stage) -> None:
    opened: list[QUrl] = []
    catcher = Catcher(opened)
    for scheme in ("http", "https", "mailto", "file", "javascript"):
        QDesktopServices.setUrlHandler(scheme, catcher, "take")
    try:
        for address in ("file:///etc/passwd", "javascript:alert(1)", "smb://host/share", "a.exe"):
            assert not open_link(address)
        assert open_link("https://example.org/page")
    finally:
        for scheme in ("http", "https", "mailto", "file", "javascript"):
            QDesktopServices.unsetUrlHandler(scheme)
    assert [url.toString() for url in opened] == ["https://example.org/page"]
