"""Typing while the conversation, the sidebar or a button has the focus: nothing bypasses the field."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QInputMethodEvent, QInputMethodQueryEvent, QKeyEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from app.ui.widgets.typing import types_text
from fakes import MODEL
from stage import Stage, flush

KEYS = Qt.KeyboardModifier


def ready(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("One?")
    stage.engine.write("Yes.")
    stage.engine.finish()
    stage.wait_until_idle()
    stage.window.activateWindow()
    flush()


def focused(stage: Stage, name: str) -> QWidget:
    """A widget that has the focus and is no text field."""
    window = stage.window
    widget = {
        "conversation": window.transcript,
        "sidebar": window.sidebar.list,
        "button": window.sidebar.new_button,
    }[name]
    widget.setFocus()
    flush()
    assert QApplication.focusWidget() is widget
    return widget


ELSEWHERE = pytest.mark.parametrize("name", ["conversation", "sidebar", "button"])


def compose(preedit: str, commit: str = "") -> None:
    """What an input method sends to the widget with the focus."""
    event = QInputMethodEvent(preedit, [])
    event.setCommitString(commit)
    QApplication.sendEvent(QApplication.focusWidget(), event)


def asked(query: Qt.InputMethodQuery) -> object:
    """What the widget with the focus answers an input method."""
    event = QInputMethodQueryEvent(query)
    QApplication.sendEvent(QApplication.focusWidget(), event)
    return event.value(query)


@ELSEWHERE
@pytest.mark.parametrize(
    ("key", "modifiers", "text"),
    [
        (Qt.Key.Key_A, KEYS.NoModifier, "a"),
        (Qt.Key.Key_A, KEYS.ShiftModifier, "A"),
        (Qt.Key.Key_5, KEYS.KeypadModifier, "5"),
        (Qt.Key.Key_At, KEYS.ControlModifier | KEYS.AltModifier, "@"),  # AltGr on Windows
        (Qt.Key.Key_At, KEYS.GroupSwitchModifier, "@"),  # AltGr on X11
        (Qt.Key.Key_nobreakspace, KEYS.NoModifier, "\u00a0"),
        (Qt.Key.Key_unknown, KEYS.NoModifier, "\u200d"),
        (Qt.Key.Key_unknown, KEYS.NoModifier, "\U0001f600"),
        (Qt.Key.Key_X, KEYS.ControlModifier, "\x18"),
        (Qt.Key.Key_X, KEYS.AltModifier, "x"),
        (Qt.Key.Key_Backspace, KEYS.NoModifier, "\x08"),
        (Qt.Key.Key_Shift, KEYS.ShiftModifier, ""),
    ],
)
def test_a_key_typed_elsewhere_is_typed_in_the_field_if_it_is_a_text(
    stage: Stage, name: str, key: Qt.Key, modifiers: Qt.KeyboardModifier, text: str
) -> None:
    ready(stage)
    widget = focused(stage, name)
    QApplication.sendEvent(widget, QKeyEvent(QKeyEvent.Type.KeyPress, key, modifiers, text))
    commands = (Qt.Key.Key_X, Qt.Key.Key_Backspace, Qt.Key.Key_Shift)
    assert stage.window.composer.text() == ("" if key in commands else text)
    assert stage.window.composer.editor.hasFocus() or key in commands


@ELSEWHERE
def test_an_input_method_composes_from_the_first_key_on(stage: Stage, name: str) -> None:
    ready(stage)
    composer = stage.window.composer
    composer.insert("a")
    widget = focused(stage, name)
    assert asked(Qt.InputMethodQuery.ImEnabled) is True
    assert asked(Qt.InputMethodQuery.ImSurroundingText) == "a"
    caret = asked(Qt.InputMethodQuery.ImCursorRectangle)
    assert isinstance(caret, QRectF)
    inside = composer.editor.inputMethodQuery(Qt.InputMethodQuery.ImCursorRectangle)
    there = widget.mapToGlobal(caret.center())
    assert (there - composer.editor.mapToGlobal(inside.center())).manhattanLength() < 2
    for preedit in ("s", "さ", "さく", "さくら"):
        compose(preedit)
        assert QApplication.focusWidget() is widget  # a change of focus would end it
        assert composer.editor.document().firstBlock().layout().preeditAreaText() == preedit
        assert composer.text() == "a"
    compose("", "桜")
    assert composer.text() == "a桜"
    assert composer.editor.hasFocus()


def test_a_dead_key_is_combined_with_the_next_one(stage: Stage) -> None:
    """The compose table of X11 sends the combined character as a commit without a preedit."""
    ready(stage)
    focused(stage, "conversation")
    assert asked(Qt.InputMethodQuery.ImEnabled) is True
    compose("", "é")
    assert stage.window.composer.text() == "é"


def test_a_composition_elsewhere_ends_in_the_field_when_the_focus_moves(stage: Stage) -> None:
    ready(stage)
    focused(stage, "conversation")
    compose("か")
    stage.controller.new_conversation()
    stage.controller.open_conversation(stage.state.conversations[0].id)
    assert stage.window.composer.text() == "か"


def test_a_text_field_composes_by_itself(stage: Stage) -> None:
    ready(stage)
    stage.window.sidebar.search.setFocus()
    flush()
    compose("か")
    compose("", "か")
    assert (stage.window.sidebar.search.text(), stage.window.composer.text()) == ("か", "")


def test_typing_in_the_list_of_models_searches_with_an_input_method_too(stage: Stage) -> None:
    ready(stage)
    stage.window.open_picker()
    picker = stage.window.picker
    picker.list.setFocus()
    flush()
    compose("も")
    compose("", "も")
    assert (picker.search.text(), stage.window.composer.text()) == ("も", "")


# --- renaming -----------------------------------------------------------------------------------


def type_keys(text: str) -> None:
    for letter in text:
        QTest.keyClick(QApplication.focusWidget(), letter)
        flush()


def test_f2_renames_the_shown_chat_instead_of_sending_its_name(stage: Stage) -> None:
    ready(stage)
    assert stage.window.composer.editor.hasFocus()
    QTest.keyClick(stage.window, Qt.Key.Key_F2)
    flush()
    type_keys("Better")
    QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Return)
    stage.wait_until_idle()
    assert stage.state.conversations[0].title == "Better"
    assert (len(stage.state.messages), stage.window.composer.text()) == (2, "")


def test_f2_without_a_sidebar_shows_it(stage: Stage) -> None:
    ready(stage)
    stage.window.set_sidebar(False)
    QTest.keyClick(stage.window, Qt.Key.Key_F2)
    flush()
    assert isinstance(QApplication.focusWidget(), QLineEdit)
    type_keys("x")
    assert stage.window.composer.text() == ""


def test_a_title_being_typed_is_kept_while_the_list_changes(stage: Stage, qtbot: QtBot) -> None:
    ready(stage)
    first = stage.state.current
    stage.controller.new_conversation()
    stage.controller.send("Two?")
    stage.drain()
    assert first is not None
    stage.controller.open_conversation(first)
    stage.wait_until_idle()
    QTest.keyClick(stage.window, Qt.Key.Key_F2)
    flush()
    type_keys("Bet")
    stage.controller.send("And?")  # the chat moves to the top, and an answer of it waits
    stage.drain()
    stage.engine.write("Yes.", request=stage.engine.unfinished[0].request)
    stage.engine.finish(request=stage.engine.unfinished[0].request)
    stage.drain()
    type_keys("ter")
    QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Return)
    stage.wait_until_idle()
    assert stage.state.title(first) == "Better"
    assert stage.window.composer.text() == ""
    rows = stage.window.sidebar.model
    listed = [str(rows.index(row).data()) for row in range(1, rows.rowCount())]  # below "Today"
    assert listed == [chat.title for chat in stage.state.conversations]


@pytest.mark.parametrize(
    ("modifiers", "text", "linux", "mac"),
    [
        (KEYS.NoModifier, "e", True, True),
        (KEYS.ShiftModifier, "E", True, True),
        (KEYS.AltModifier, "€", False, True),  # Option
        (KEYS.ControlModifier | KEYS.AltModifier, "€", True, False),  # AltGr
        (KEYS.ControlModifier, "e", False, False),  # Command on a Mac
        (KEYS.MetaModifier, "e", False, False),  # Control on a Mac
    ],
)
def test_option_types_a_character_on_a_mac_and_altgr_elsewhere(
    modifiers: Qt.KeyboardModifier, text: str, linux: bool, mac: bool
) -> None:
    event = QKeyEvent(QKeyEvent.Type.KeyPress, Qt.Key.Key_E, modifiers, text)
    assert types_text(event, "linux") is linux
    assert types_text(event, "darwin") is mac
