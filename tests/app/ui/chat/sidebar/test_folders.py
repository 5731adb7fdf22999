"""Folders, pins and the archive in the sidebar: rows, keys, menus, drag and drop."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from PySide6.QtCore import QItemSelectionModel, QMimeData, QModelIndex, QPoint, QPointF, Qt
from PySide6.QtGui import (
    QAccessible,
    QAccessibleActionInterface,
    QAccessibleInterface,
    QContextMenuEvent,
    QDragMoveEvent,
    QDropEvent,
    QImage,
    QKeyEvent,
)
from PySide6.QtWidgets import QApplication, QLineEdit, QListView, QMenu
from pytestqt.qtbot import QtBot

from app.domain.chat import Conversation
from app.domain.chat_settings import NO_SETTINGS
from app.domain.presets import begin
from app.domain.transfer import ExportFormat
from app.settings.table import load
from app.ui.chat.sidebar.sidebar import Sidebar
from app.ui.chat.sidebar.sidebar_list import (
    BUSY_ROLE,
    DEPTH_ROLE,
    FOLDER_ROLE,
    ID_ROLE,
    PLACE_ROLE,
    WRITING_ROLE,
    bin_rect,
    dragged_rows,
)
from fakes import MODEL
from stage import Stage, flush

SELECT = QItemSelectionModel.SelectionFlag.Select
SPOKEN = Qt.ItemDataRole.AccessibleTextRole


class Filled:
    """A sidebar with folders Work / Sub and Home, and chats one to six."""

    def __init__(self, stage: Stage) -> None:
        stage.start()
        now = time.time()
        chats = [Conversation(n, f"Chat {n}", now, now - n, None) for n in range(1, 7)]
        for chat in chats:
            stage.store_queue.write(lambda store, chat=chat: store.rewrite_conversation(chat))
        stage.state.set_conversations(chats)
        folders = stage.controller.folders
        self.stage, self.sidebar = stage, stage.window.sidebar
        self.work = folders.create("Work", None, [1])
        self.sub = folders.create("Sub", self.work, [2])
        self.home = folders.create("Home", None, [3])
        stage.state.set_deletions([], offered=0)  # the chats were moved
        stage.window.activateWindow()
        stage.wait_until_idle()

    def rows(self) -> list[str]:
        """The rows, indented by a point for each folder around."""
        model = self.sidebar.model
        indexes = [model.index(row) for row in range(model.rowCount())]
        return ["." * int(each.data(DEPTH_ROLE) or 0) + str(each.data()) for each in indexes]

    def choose(self, *numbers: int) -> None:
        """Select rows of chats and folders."""
        view, model = self.sidebar.list, self.sidebar.model
        view.setFocus()
        view.clearSelection()
        for number in numbers:
            index = model.find(number)
            view.selectionModel().select(
                index if index.isValid() else model.find_folder(number), SELECT
            )

    def menu(self, number: int) -> QMenu:
        model = self.sidebar.model
        index = model.find(number)
        return self.sidebar.list.row_menu(index if index.isValid() else model.find_folder(number))

    def place(self, number: int, share: float = 0.5) -> QPoint:
        """A point of a row, at a share of its height."""
        model, view = self.sidebar.model, self.sidebar.list
        index = model.find(number)
        rect = view.visualRect(index if index.isValid() else model.find_folder(number))
        return QPoint(rect.center().x(), round(rect.top() + share * (rect.height() - 1)))

    def drag(self, point: QPoint) -> QMimeData:
        """Drag what is selected to a point, and drop it."""
        view = self.sidebar.list
        data = view.model().mimeData(view.selectedIndexes())
        buttons, keys = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
        actions = Qt.DropAction.MoveAction | Qt.DropAction.CopyAction
        view.dragMoveEvent(QDragMoveEvent(point, actions, data, buttons, keys))
        flush()
        view.grab()  # with the mark
        view.dropEvent(QDropEvent(QPointF(point), actions, data, buttons, keys))
        self.stage.wait_until_idle()
        return data

    def folders(self) -> dict[int, int | None]:
        return {chat.id: chat.folder for chat in self.stage.state.conversations}


@pytest.fixture
def filled(stage: Stage) -> Filled:
    return Filled(stage)


def act(menu: QMenu, text: str, *path: str) -> None:
    """Trigger an action of a menu or of its submenus."""
    action = next(each for each in menu.actions() if each.text().strip() == text)
    submenu = action.menu()
    if path:
        assert isinstance(submenu, QMenu)
        act(submenu, *path)
    else:
        assert action.isEnabled()
        action.trigger()
    flush()


def test_pinned_chats_come_first_then_folders_then_days(filled: Filled) -> None:
    filled.stage.controller.folders.pin([5, 2], pinned=True)
    assert filled.rows() == [
        *("Pinned", "Chat 2", "Chat 5"),
        *("Folders", "Work", ".Sub", ".Chat 1", "Home", ".Chat 3"),
        *("Today", "Chat 4", "Chat 6"),
    ]


def test_a_click_and_the_arrow_keys_open_and_close_a_folder(qtbot: QtBot, filled: Filled) -> None:
    sidebar, view = filled.sidebar, filled.sidebar.list
    qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=filled.place(filled.work))
    closed = ["Folders", "Work", "Home", ".Chat 3", "Today", "Chat 4", "Chat 5", "Chat 6"]
    assert filled.rows() == closed
    assert view.currentIndex().data(FOLDER_ROLE) == filled.work
    assert view.currentIndex().data(SPOKEN) == "Work, closed folder, 2 chats"
    filled.stage.wait_until_idle()
    kept = load(filled.stage.folder / "settings.json").closed_folders
    assert kept == str(filled.work)
    qtbot.keyClick(view, Qt.Key.Key_Right)
    assert filled.rows()[1:5] == ["Work", ".Sub", "..Chat 2", ".Chat 1"]
    view.setCurrentIndex(sidebar.model.find(2))
    for expected in (filled.sub, filled.sub, filled.work):
        qtbot.keyClick(view, Qt.Key.Key_Left)
        assert view.currentIndex().data(FOLDER_ROLE) == expected
    assert filled.rows()[1:4] == ["Work", ".Sub", ".Chat 1"]
    spoken = sidebar.model.find_folder(filled.sub).data(SPOKEN)
    assert spoken == "Sub, closed folder, 1 chat"
    qtbot.keyClick(view, Qt.Key.Key_Return)
    assert filled.rows() == closed


def test_the_row_of_a_folder_shows_its_name_and_whether_it_is_open(filled: Filled) -> None:
    model, view = filled.sidebar.model, filled.sidebar.list

    def picture(folder: int) -> QImage:
        return view.grab(view.visualRect(model.find_folder(folder))).toImage()

    empty = filled.stage.controller.folders.create("Empty", None)  # without a number of chats
    opened = picture(empty)
    assert opened != picture(filled.home)
    filled.sidebar.toggle_folder(empty)
    flush()
    assert picture(empty) != opened


def test_closed_folders_are_remembered(filled: Filled) -> None:
    filled.sidebar.toggle_folder(filled.home)
    filled.stage.wait_until_idle()
    again = Sidebar(filled.stage.state, filled.stage.states.library)
    closed = load(filled.stage.folder / "settings.json").closed_folders
    again.set_closed([int(number) for number in closed.split()])
    shown = [str(again.model.index(row).data()) for row in range(again.model.rowCount())]
    assert "Home" in shown
    assert "Chat 3" not in shown
    again.deleteLater()


def test_a_chat_that_is_opened_is_not_hidden_in_a_closed_folder(filled: Filled) -> None:
    for folder in (filled.work, filled.sub):
        filled.sidebar.toggle_folder(folder)
    filled.stage.controller.open_conversation(2)
    filled.stage.wait_until_idle()
    assert filled.sidebar.list.currentIndex().data(ID_ROLE) == 2
    filled.sidebar.toggle_folder(filled.work)  # the user may hide it
    assert not filled.sidebar.model.find(2).isValid()


def test_new_chat_begins_in_the_selected_folder(qtbot: QtBot, filled: Filled) -> None:
    filled.choose(filled.work)
    qtbot.mouseClick(filled.sidebar.new_button, Qt.MouseButton.LeftButton)
    assert filled.stage.state.new_folder == filled.work
    place = filled.sidebar.list.visualRect(filled.sidebar.model.find_folder(filled.sub))
    qtbot.mouseClick(
        filled.sidebar.list.viewport(), Qt.MouseButton.LeftButton, pos=bin_rect(place).center()
    )
    assert filled.stage.state.new_folder == filled.sub
    filled.stage.controller.send("In it")
    filled.stage.controller.stop()
    filled.stage.wait_until_idle()
    assert filled.stage.state.conversations[0].folder == filled.sub
    assert filled.stage.state.new_folder is None


def test_a_new_folder_is_named_at_once(qtbot: QtBot, filled: Filled) -> None:
    qtbot.mouseClick(filled.sidebar.folder_button, Qt.MouseButton.LeftButton)
    flush()
    editor = filled.sidebar.list.viewport().findChild(QLineEdit)
    assert editor is not None
    editor.setText("Travel")
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    filled.stage.wait_until_idle()
    assert [folder.name for folder in filled.stage.state.folders][-1] == "Travel"
    assert "Travel" in filled.rows()


def test_a_folder_is_renamed_by_f2_and_by_a_double_click(qtbot: QtBot, filled: Filled) -> None:
    view = filled.sidebar.list
    view.setFocus()
    view.setCurrentIndex(filled.sidebar.model.find_folder(filled.home))
    qtbot.keyClick(view, Qt.Key.Key_F2)
    editor = view.viewport().findChild(QLineEdit)
    assert editor is not None
    editor.setText("House")
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    filled.stage.wait_until_idle()
    assert "House" in filled.rows()
    place, left = filled.place(filled.home), Qt.MouseButton.LeftButton
    qtbot.mouseDClick(view.viewport(), left, pos=place)  # with the first click
    qtbot.mouseRelease(view.viewport(), left, pos=place)
    assert filled.sidebar.renaming
    assert ".Chat 3" in filled.rows()


@pytest.mark.parametrize(
    ("chosen", "onto", "expected"),
    [
        ((4,), lambda f: f.place(f.work), lambda f: {4: f.work}),  # onto a folder
        ((4, 5), lambda f: f.place(f.sub), lambda f: {4: f.sub, 5: f.sub}),
        ((4,), lambda f: f.place(3), lambda f: {4: f.home}),  # onto a chat of a folder
        ((1, 3), lambda f: f.place(6), lambda f: {1: None, 3: None}),  # out of the folders
        ((1,), lambda f: QPoint(100, f.sidebar.list.height() - 5), lambda f: {1: None}),
        ((1,), lambda f: f.place(f.work), lambda f: {1: f.work}),  # is there already
    ],
)
def test_chats_are_dragged_into_folders_and_out_of_them(
    filled: Filled,
    chosen: tuple[int, ...],
    onto: Callable[[Filled], QPoint],
    expected: Callable[[Filled], dict[int, int | None]],
) -> None:
    before = filled.folders()
    filled.choose(*chosen)
    filled.drag(onto(filled))
    assert filled.folders() == before | expected(filled)
    filled.stage.controller.deletions.undo()
    assert filled.folders() == before


def test_a_drag_that_begins_on_a_heading_moves_nothing(
    qtbot: QtBot, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, dragged = filled.sidebar.list, list[bool]()
    monkeypatch.setattr(QListView, "startDrag", lambda *_: dragged.append(True))
    filled.choose(filled.work)
    heading = view.visualRect(view.model().index(0, 0)).center()
    for place, count in ((heading, 0), (filled.place(filled.work), 1)):
        qtbot.mousePress(view.viewport(), Qt.MouseButton.LeftButton, pos=place)
        view.startDrag(Qt.DropAction.MoveAction)
        qtbot.mouseRelease(view.viewport(), Qt.MouseButton.LeftButton, pos=place)
        assert len(dragged) == count


def test_folders_are_dragged_into_and_between_folders(filled: Filled) -> None:
    def order() -> list[str]:
        return [row for row in filled.rows() if "Chat" not in row][1:4]

    assert order() == ["Work", ".Sub", "Home"]
    filled.choose(filled.home)
    filled.drag(filled.place(filled.work, 0.0))
    assert order() == ["Home", "Work", ".Sub"]
    filled.choose(filled.home)
    filled.drag(filled.place(filled.sub, 0.0))
    assert order() == ["Work", ".Home", ".Sub"]
    filled.choose(filled.work)
    filled.drag(filled.place(filled.sub))  # not into itself
    assert order() == ["Work", ".Home", ".Sub"]
    filled.choose(filled.sub)
    filled.drag(filled.place(6))
    assert order() == ["Work", ".Home", "Sub"]
    filled.sidebar.toggle_folder(filled.sub)
    filled.choose(filled.home)
    filled.drag(filled.place(filled.sub, 1.0))
    assert order()[:2] == ["Work", "Sub"]
    assert filled.stage.state.folder(filled.home).parent is None  # type: ignore[union-attr]


def test_the_place_of_a_drop_is_marked_and_a_closed_folder_opens(
    qtbot: QtBot, filled: Filled
) -> None:
    view = filled.sidebar.list
    filled.sidebar.toggle_folder(filled.work)
    filled.choose(4)
    data = view.model().mimeData(view.selectedIndexes())
    assert dragged_rows(data) == ([4], [])
    before = view.viewport().grab().toImage()
    event = QDragMoveEvent(
        filled.place(filled.work),
        Qt.DropAction.MoveAction,
        data,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )
    view.dragMoveEvent(event)
    assert event.isAccepted()
    assert view.viewport().grab().toImage() != before
    view._spring.timeout.emit()
    assert ".Sub" in filled.rows()


def test_the_menu_moves_pins_archives_and_duplicates(filled: Filled) -> None:
    filled.choose(4, 5)
    act(filled.menu(4), "Move to", "Sub")
    assert {filled.folders()[number] for number in (4, 5)} == {filled.sub}
    filled.choose(4, 5)
    act(filled.menu(4), "Move to", "No folder")
    assert {filled.folders()[number] for number in (4, 5)} == {None}
    filled.choose(4, 5)
    act(filled.menu(4), "Pin")
    assert filled.rows()[:3] == ["Pinned", "Chat 4", "Chat 5"]
    filled.choose(4, 5)
    act(filled.menu(4), "Unpin")
    filled.choose(4, 5)
    act(filled.menu(4), "Archive")
    assert "Chat 4" not in filled.rows()
    filled.choose(filled.home)
    act(filled.menu(filled.home), "Move to", "Work")
    assert ".Home" in filled.rows()
    filled.choose(6)
    act(filled.menu(6), "Duplicate")
    filled.stage.wait_until_idle()
    assert "Chat 6 (copy)" in filled.rows()


def test_a_chat_is_moved_to_a_new_folder(qtbot: QtBot, filled: Filled) -> None:
    filled.choose(4)
    act(filled.menu(4), "Move to", "New folder…")
    assert filled.sidebar.renaming
    assert filled.stage.state.folder(filled.folders()[4]).name == "New folder"  # type: ignore[union-attr]


def test_export_and_delete_act_on_all_that_is_selected(qtbot: QtBot, filled: Filled) -> None:
    filled.choose(4, filled.work)
    with qtbot.waitSignal(filled.sidebar.copy_requested, timeout=1000) as copied:
        act(filled.menu(4), "Copy 3 whole chats")
    assert sorted(copied.args[0]) == [1, 2, 4]
    filled.sidebar.export_requested.disconnect()  # it would ask for a place
    filled.choose(4, filled.work)
    with qtbot.waitSignal(filled.sidebar.export_requested, timeout=1000) as exported:
        act(filled.menu(4), "Export 3 chats", "Markdown")
    assert (sorted(exported.args[0]), exported.args[1]) == ([1, 2, 4], ExportFormat.MARKDOWN)
    filled.choose(4, filled.work)
    qtbot.keyClick(filled.sidebar.list, Qt.Key.Key_Delete)
    filled.stage.wait_until_idle()
    assert filled.rows() == ["Folders", "Home", ".Chat 3", "Today", "Chat 5", "Chat 6"]
    assert filled.sidebar.undo.words.text() == "2 folders and 3 chats deleted"
    qtbot.mouseClick(filled.sidebar.undo.button, Qt.MouseButton.LeftButton)
    filled.stage.wait_until_idle()
    assert len([row for row in filled.rows() if "Chat" in row]) == 6
    filled.stage.wait_for_animations()


def test_several_are_selected_by_keys_and_all_by_one(qtbot: QtBot, filled: Filled) -> None:
    view = filled.sidebar.list
    filled.choose()
    view.setCurrentIndex(filled.sidebar.model.find(4))
    shift = Qt.KeyboardModifier.ShiftModifier
    qtbot.keyClick(view, Qt.Key.Key_Down, shift)
    qtbot.keyClick(view, Qt.Key.Key_Down, shift)
    assert view.selected() == [4, 5, 6]
    qtbot.keyClick(view, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    assert sorted(view.selected()) == [1, 2, 3, 4, 5, 6]
    assert sorted(view.selected_folders()) == sorted((filled.work, filled.sub, filled.home))


def test_the_menu_key_opens_the_menu_of_the_current_row(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = filled.sidebar.list
    filled.choose()
    view.setCurrentIndex(filled.sidebar.model.find_folder(filled.home))
    opened: list[tuple[QMenu, QPoint]] = []
    monkeypatch.setattr(QMenu, "popup", lambda menu, place: opened.append((menu, place)))
    event = QContextMenuEvent(QContextMenuEvent.Reason.Keyboard, QPoint(0, 0), QPoint(0, 0))
    view.contextMenuEvent(event)
    [(menu, place)] = opened
    assert "Folder settings…" in [action.text() for action in menu.actions()]
    assert view.viewport().mapFromGlobal(place) == filled.place(filled.home)


def test_search_results_show_the_folder_and_the_archive(filled: Filled) -> None:
    filled.stage.controller.folders.archive([5], archived=True)
    filled.stage.controller.conversations.search("chat")
    filled.stage.wait_until_idle()
    model = filled.sidebar.model
    found = {number: model.find(number).data(PLACE_ROLE) for number in (2, 4, 5)}
    assert found == {2: "Work / Sub", 4: "", 5: "Archived"}
    assert "Work / Sub" in model.find(2).data(SPOKEN)
    filled.sidebar.list.grab()
    filled.choose(5)
    act(filled.menu(5), "Put back in the list")
    assert not any(chat.archived for chat in filled.stage.state.conversations)


def test_archived_chats_are_opened_put_back_and_deleted_on_their_page(
    qtbot: QtBot, filled: Filled
) -> None:
    sidebar, stage = filled.sidebar, filled.stage
    assert sidebar.archive_button.isHidden()
    stage.controller.folders.archive([1, 4, 5], archived=True)
    assert not sidebar.archive_button.isHidden()
    qtbot.mouseClick(sidebar.archive_button, Qt.MouseButton.LeftButton)
    page = stage.window.archive.page
    assert page is not None
    assert page.isVisible()
    rows = [page.list.item(row).text().splitlines() for row in range(page.list.count())]
    assert [row[0] for row in rows] == ["Chat 1", "Chat 4", "Chat 5"]
    assert rows[0][1].startswith("Work · Last used on ")
    page.list.setCurrentRow(1)
    qtbot.mouseClick(page.restore_button, Qt.MouseButton.LeftButton)
    assert "Chat 4" in filled.rows()
    page.list.setCurrentRow(1)
    qtbot.keyClick(page.list, Qt.Key.Key_Delete)
    stage.wait_until_idle()
    assert [one.title for one in stage.state.trash] == ["Chat 5"]
    qtbot.keyClick(page.list, Qt.Key.Key_Return)
    stage.wait_until_idle()
    assert stage.state.current == 1
    assert stage.window.chat.isVisible()
    stage.controller.folders.archive([1], archived=False)
    assert page.nothing.text() == "No chat is archived."
    stage.wait_for_animations()


def test_the_card_of_a_folder_changes_its_name_and_instructions(
    qtbot: QtBot, filled: Filled
) -> None:
    filled.choose(filled.work)
    act(filled.menu(filled.work), "Folder settings…")
    window = filled.stage.window
    card = window.folder.content
    assert card.name.hasFocus()
    card.name.selectAll()
    qtbot.keyClicks(card.name, "Office & more")
    qtbot.keyClicks(card.instructions, "Be brief.")
    qtbot.keyClick(card.name, Qt.Key.Key_Escape)
    filled.stage.wait_until_idle()
    folder = filled.stage.state.folder(filled.work)
    assert folder is not None
    assert (folder.name, folder.instructions) == ("Office & more", "Be brief.")
    window.folder.open(filled.work)
    card.instructions.set_text(" ")
    window.folder.card.close_card()
    folder = filled.stage.state.folder(filled.work)
    assert folder is not None
    assert folder.instructions is None
    filled.stage.wait_for_animations()


def test_a_preset_of_a_folder_is_what_its_new_chats_begin_with(filled: Filled) -> None:
    stage = filled.stage
    window, preset = stage.window, stage.states.presets.presets[0]
    window.folder.open(filled.work)
    act(window.folder.content.menu_of_presets(), preset.name)
    assert window.folder.content.preset_button.text() == preset.name
    window.folder.card.close_card()
    filled.sidebar.new_requested.emit(filled.sub)
    assert stage.state.new_chat == begin(preset)
    window.chat.empty_view.leave_button.click()
    assert stage.state.new_folder is None
    assert stage.state.new_chat == NO_SETTINGS
    stage.wait_for_animations()


def test_a_fork_is_asked_for_below_the_message(qtbot: QtBot, stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("One")
    stage.drain()
    stage.engine.write("Said")
    stage.engine.finish()
    stage.wait_until_idle()
    transcript = stage.window.transcript
    tools, _ = transcript.tools.all(0)
    transcript.tools.use(0, next(tool for tool in tools if tool.name == "fork"))
    stage.wait_until_idle()
    assert [message.text for message in stage.state.messages] == ["One"]
    assert stage.state.title(stage.state.current) == "One (fork)"


def test_a_closed_folder_shows_that_an_answer_in_it_is_written(stage: Stage) -> None:
    stage.ready(MODEL)
    work = stage.controller.folders.create("Work")
    inner = stage.controller.folders.create("Inner", work)
    stage.controller.new_conversation(inner)
    stage.controller.send("One")
    stage.engine.write("So")
    stage.wait_until_idle()
    sidebar = stage.window.sidebar
    index = sidebar.model.find_folder(work)
    assert not index.data(BUSY_ROLE), "its chat is listed"
    sidebar.toggle_folder(work)
    index = sidebar.model.find_folder(work)
    assert (index.data(BUSY_ROLE), index.data(WRITING_ROLE)) == (True, True)
    assert index.data(SPOKEN).endswith("an answer is in progress")
    sidebar.list.grab()
    stage.engine.finish()
    stage.wait_until_idle()
    assert not index.data(BUSY_ROLE)


def test_left_and_right_are_swapped_from_right_to_left(filled: Filled) -> None:
    view = filled.sidebar.list
    view.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    filled.choose()
    view.setCurrentIndex(filled.sidebar.model.find_folder(filled.home))
    none = Qt.KeyboardModifier.NoModifier
    view.keyPressEvent(QKeyEvent(QKeyEvent.Type.KeyPress, Qt.Key.Key_Right, none))
    assert ".Chat 3" not in filled.rows()
    view.keyPressEvent(QKeyEvent(QKeyEvent.Type.KeyPress, Qt.Key.Key_Left, none))
    assert ".Chat 3" in filled.rows()


def test_screen_reader_finds_levels_states_and_selection_of_rows(filled: Filled) -> None:
    view, model = filled.sidebar.list, filled.sidebar.model
    tree = QAccessible.queryAccessibleInterface(view)
    assert tree.role() is QAccessible.Role.Tree
    assert tree.childCount() == model.rowCount()

    def row(index: QModelIndex) -> QAccessibleInterface:
        return tree.child(index.row())

    def level(index: QModelIndex) -> object:
        attributes = row(index).attributesInterface()
        return attributes.attributeValue(QAccessible.Attribute.Level)

    work, sub = model.find_folder(filled.work), model.find_folder(filled.sub)
    assert (level(work), level(sub), level(model.find(2))) == (1, 2, 3)
    assert row(work).state().expanded
    assert row(work).state().expandable
    assert row(sub).text(QAccessible.Text.Description) == "in Work"
    assert not row(model.find(2)).state().expandable  # type: ignore[attr-defined]
    filled.choose(1, 2)
    chosen = [
        item.text(QAccessible.Text.Name) for item in tree.selectionInterface().selectedItems()
    ]
    assert [name.partition(",")[0] for name in chosen] == ["Chat 2", "Chat 1"]
    row(work).actionInterface().doAction(QAccessibleActionInterface.pressAction())
    QApplication.processEvents()
    closed = row(model.find_folder(filled.work))
    assert closed.state().collapsed
    assert closed.isValid()
    assert not closed.state().invisible
    view.hide()
    assert closed.state().invisible


def test_tab_reaches_the_buttons_of_the_presets_before_their_list(
    filled: Filled, qtbot: QtBot
) -> None:
    window = filled.stage.window
    window.presets.open()
    page = window.presets.page
    assert page is not None
    window.top_bar.panel_button.setFocus()
    reached = []
    for _ in range(4):
        qtbot.keyClick(window.focusWidget(), Qt.Key.Key_Tab)
        reached.append(window.focusWidget())
    assert page.close_button in reached
    assert page.add_button in reached
