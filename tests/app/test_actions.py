"""Actions: unique names and keys, and the shortcut list shows all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QAction, QGuiApplication, QKeyEvent, QKeySequence, QShortcut
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog, QLabel

from app.actions import ACTIONS, OTHER_KEYS, Action
from app.domain.parts import ToolCallPart
from app.state.tools import CallPhase, LiveCall
from app.ui.settings.shortcuts import Shortcuts, keys_of
from engine import Chat
from fakes import MODEL
from stage import Stage
from tool_rows import WRITE


def test_no_two_actions_share_a_name_or_a_key(qapp: QApplication) -> None:
    assert len({action.id for action in ACTIONS}) == len(ACTIONS)
    keys = [key.toString() for action in ACTIONS for key in keys_of(action)]
    assert len(set(keys)) == len(keys)


def test_every_key_is_one_qt_knows(qapp: QApplication) -> None:
    for action in ACTIONS:
        assert keys_of(action), action.id
        assert all(key.toString() for key in keys_of(action)), action.id
    for _, _, key in OTHER_KEYS:
        assert QKeySequence(key).toString()


def test_platform_keys_come_first(qapp: QApplication) -> None:
    new = next(action for action in ACTIONS if action.id == "new")
    assert keys_of(new)[0] == QKeySequence(QKeySequence.StandardKey.New)


def seen(stage: Stage, quits: int) -> dict[str, object]:
    """The value that each action changes, by action id."""
    window = stage.window
    return {
        "new": stage.state.current,
        "undo": len(stage.state.deletions),
        "rename": window.sidebar.renaming,
        "search": window.sidebar.search.hasFocus(),
        "find": window.chat.find_bar.isVisible(),
        "find_next": window.chat.transcript.finder.place,
        "find_previous": window.chat.transcript.finder.place,
        "regenerate": stage.engine.count(Chat),
        "consent": any(
            window.transcript.calls.consents[key].isAncestorOf(QApplication.focusWidget() or window)
            for key in window.transcript.calls.consents
        ),
        "copy_answer": QGuiApplication.clipboard().text(),
        "panel": window.panel.is_open,
        "model": window.picker_card.isVisible(),
        "open": len(window.findChildren(QFileDialog)),
        "attach": len(window.findChildren(QFileDialog)),
        "attach_folder": len(window.findChildren(QFileDialog)),
        "screenshot": window.attaching.regions.is_open,
        "library": window.library.page is not None,
        "adapters": window.panel.is_open,
        "sidebar": window.sidebar.isVisible(),
        "zoom_in": stage.controller.settings.zoom,
        "zoom_out": stage.controller.settings.zoom,
        "zoom_reset": stage.controller.settings.zoom,
        "settings": window.preferences.page is not None,
        "theme": stage.theme.choice,
        "performance": window.performance.page is not None,
        "collections": window.collections.page is not None,
        "activity": window.activity.page is not None,
        "connections": window.connections.page is not None,
        "shortcuts": window.shortcuts_card.isVisible(),
        "prompts": window.prompts_card.isVisible(),
        "presets": window.presets.page is not None,
        "quit": quits,
    }


@pytest.mark.parametrize("row", ACTIONS, ids=lambda row: row.id)
def test_every_action_is_wired_in_the_window(stage: Stage, row: Action) -> None:
    stage.ready(MODEL)
    stage.window.activateWindow()
    stage.controller.send("Count to two or more")
    stage.engine.write("1 2 3")
    stage.engine.finish()
    stage.wait_until_idle()
    if row.id == "zoom_reset":
        stage.controller.change_settings(zoom=150)
    if row.id == "undo":
        stage.controller.deletions.delete([stage.state.conversations[0].id])
        stage.wait_until_idle()
    if row.id in ("find_next", "find_previous"):
        stage.window.open_find()
        stage.window.chat.find_bar.field.setText("o")
    if row.id == "consent":
        message = stage.state.messages[-1]
        parts = (*message.parts, ToolCallPart(WRITE.name, "{}", "1"))
        stage.state.change(replace(message, parts=parts))
        asking = LiveCall(message.conversation, message.id, "1", WRITE, "{}", CallPhase.ASKING)
        stage.states.tools.set_live(asking)
        stage.wait_until_idle()
    action = stage.window.actions_by_id[row.id]
    assert action in stage.window.actions()
    assert action.shortcuts() == keys_of(row)
    QGuiApplication.clipboard().setText("")
    quits: list[bool] = []
    stage.window.closing.connect(lambda: quits.append(True))
    before = seen(stage, len(quits))[row.id]
    action.trigger()
    stage.wait_until_idle()
    assert seen(stage, len(quits))[row.id] != before


def test_the_list_shows_every_action(stage: Stage) -> None:
    card = Shortcuts(stage.window)
    card.sizeHint()
    words = {label.text() for label in card.findChildren(QLabel)}
    assert words >= {action.text for action in ACTIONS}
    assert words >= {text for _, text, _ in OTHER_KEYS}


def test_no_key_is_one_that_enters_characters_on_windows(stage: Stage) -> None:
    """AltGr is Ctrl and Alt there: one of both would take @ from a German keyboard."""
    window, altgr = (
        stage.window,
        Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier,
    )
    stage.window.preferences.open()
    stage.window.library.open()
    keys = [key for action in window.findChildren(QAction) for key in action.shortcuts()]
    keys += [key for each in window.findChildren(QShortcut) for key in QShortcut.keys(each)]
    assert len(keys) >= len(ACTIONS)
    for key in keys:
        assert all(key[at].keyboardModifiers() & altgr != altgr for at in range(key.count()))


@pytest.mark.parametrize("character", "@{}[]\\~|€ß²")
def test_characters_of_altgr_are_typed(stage: Stage, character: str) -> None:
    stage.ready(MODEL)
    editor = stage.window.composer.editor
    editor.setFocus()
    altgr = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier
    for kind in (QEvent.Type.KeyPress, QEvent.Type.KeyRelease):
        event = QKeyEvent(kind, Qt.Key(ord(character.upper()[0])), altgr, character)
        QApplication.sendEvent(editor, event)
    assert editor.text() == character


def test_the_older_keys_of_the_clipboard_work(stage: Stage) -> None:
    stage.ready(MODEL)
    editor = stage.window.composer.editor
    editor.setPlainText("one")
    editor.selectAll()
    QTest.keyClick(editor, Qt.Key.Key_Insert, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "one"
    QGuiApplication.clipboard().setText("two")
    QTest.keyClick(editor, Qt.Key.Key_Insert, Qt.KeyboardModifier.ShiftModifier)
    assert editor.text() == "two"
