"""The preview card, the line of progress, and the ways to them."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.domain.transfer import Dropped, ExportFormat, ImportPreview, Program, Progress, Work
from app.ui.transfer.card import PreviewCard, dropped_words
from stage import Stage, flush

PREVIEW = ImportPreview(
    (Path("x"),), (Program.CHATGPT,), 2, 10, 1, 1, {Dropped.IMAGES: 3, Dropped.CHATS: 1}
)


def shown(stage: Stage) -> PreviewCard:
    card = stage.window.transfer.card
    assert card is not None
    assert card.isVisible()
    return card


def test_the_card_says_what_is_in_a_file(stage: Stage) -> None:
    stage.start()
    stage.states.transfer.show(PREVIEW, None)
    card = shown(stage)
    assert card.title.text() == "Import chats from ChatGPT"
    assert card.count.text() == "2 chats with 10 messages"
    known, dropped, untested, undo = (words.text() for words in card.notes)
    assert known.startswith("1 more chat is here already. 1 chat was continued")
    assert dropped == "Not imported: 3 pictures, 1 unreadable chat."
    assert untested.startswith("Importing from ChatGPT was never tested")
    assert undo
    assert card.import_button.text() == "Import 2 chats"
    assert card.problem.isHidden()


def test_a_tested_program_needs_no_warning(stage: Stage) -> None:
    stage.start()
    stage.states.transfer.show(ImportPreview((), (Program.OPEN_WEBUI,), 1, 2), None)
    assert shown(stage).notes[2].isHidden()


def test_nothing_to_import_can_only_be_closed(stage: Stage) -> None:
    stage.start()
    stage.states.transfer.show(ImportPreview((), (Program.JAN,), known=4), None)
    card = shown(stage)
    assert not card.import_button.isEnabled()
    assert card.count.text() == "All chats in this file are here already."
    assert card.cancel_button.hasFocus()
    QTest.keyClick(card.cancel_button, Qt.Key.Key_Return)
    assert stage.states.transfer.preview is None
    assert card.isHidden() or not card.isVisible()


def test_escape_closes_the_preview(stage: Stage) -> None:
    stage.start()
    stage.states.transfer.show(PREVIEW, None)
    popover = stage.window.transfer.popover
    assert popover is not None
    QTest.keyClick(popover, Qt.Key.Key_Escape)
    assert stage.states.transfer.preview is None


def test_the_line_shows_the_progress_and_the_window_stays_usable(stage: Stage) -> None:
    stage.start()
    line = stage.window.transfer.line
    assert not line.isVisible()
    stage.states.transfer.show(None, Progress(Work.IMPORTING, 0.5, 1204))
    flush()
    assert line.isVisible()
    assert line.words.text() == "Importing… 1,204 chats so far"
    assert line.bar.share == 0.5
    assert stage.window.composer.isEnabled()
    stage.states.transfer.show(None, None)
    assert not line.isVisible()


def test_nothing_dropped_is_not_mentioned() -> None:
    assert dropped_words({}) == ""
    assert dropped_words({Dropped.HIDDEN: 0}) == ""


def test_the_menu_of_a_chat_exports_and_copies(stage: Stage) -> None:
    from fakes import MODEL

    stage.ready(MODEL)
    stage.controller.send("Question")
    stage.drain()
    stage.engine.write("Answer")
    stage.engine.finish()
    stage.wait_until_idle()
    sidebar = stage.window.sidebar
    asked: list[tuple[list[int], ExportFormat]] = []
    sidebar.export_requested.disconnect()
    sidebar.export_requested.connect(lambda ids, format: asked.append((ids, format)))
    index = sidebar.model.first()
    sidebar.list.setCurrentIndex(index)
    menu = sidebar.list.row_menu(index)
    export = next(action for action in menu.actions() if action.text().startswith("Export"))
    submenu = export.menu()
    for action in submenu.actions():  # type: ignore[union-attr]
        action.trigger()
    number = stage.state.conversations[0].id
    assert asked == [([number], format) for format in ExportFormat]
    menu.deleteLater()


def test_the_settings_page_leads_to_import_and_export(stage: Stage) -> None:
    stage.start()
    stage.window.preferences.toggle()
    flush()
    page = stage.window.preferences.page
    assert page is not None
    found: list[object] = []
    for signal in (page.storage.import_requested, page.storage.import_folder_requested):
        signal.disconnect()
        signal.connect(lambda: found.append(None))
    page.storage.chats.import_button.click()
    page.storage.chats.folder_button.click()
    page.storage.export_requested.disconnect()
    page.storage.export_requested.connect(found.append)
    assert not page.storage.chats.export_button.icon().isNull()  # the arrow of its menu
    for action in page.storage.chats.formats.actions():
        action.trigger()
    assert found == [None, None, *ExportFormat]
